"""Measure how jobs are shared out: many claimers at one backlog, and slots that stay free while jobs wait."""

from __future__ import annotations

import json
import random
import sys
import time
from functools import partial

from django_jobs import enqueue
from tests.benchmarks.bench import Bench, Drained, wait_for_bodies, wait_for_ends
from tests.benchmarks.figures import Body, Figure, Idling, idling, percentile, rate
from tests.benchmarks.jobs import lasting
from tests.benchmarks.processes import Program
from tests.benchmarks.waiting import idle_workers

LIMIT = 10
"""Jobs that one claim takes in the simulation of claimers."""

MIXED_SLOTS = 8
LATE_PAUSE = 0.05


def claimers(bench: Bench) -> list[Figure]:
    """Have several processes only claim and settle, through the same verbs as workers, until nothing is left."""
    found = []
    jobs = bench.sizes.claimed
    if bench.sizes.warm_up:
        _claimed_raw(bench, 2, bench.sizes.warm_up)
        _claimed(bench, 2, bench.sizes.warm_up)
    for count in bench.sizes.claimers:
        ours, plain = bench.alternated(partial(_claimed, bench, count, jobs), partial(_claimed_raw, bench, count, jobs))
        what = f"{count} claimer{'s' * (count > 1)}, {LIMIT} jobs a claim: claimed and ended"
        values, raw = tuple(rate(run.ends) for run, _ in ours), tuple(rate(run.ends) for run in plain)
        found.append(Figure(name=f"claimers_{count}", what=what, unit="jobs/s", values=values, raw=raw))
        for share in (0.5, 0.99):
            name = f"p{share * 100:g}"
            latencies = tuple(1e3 * percentile(latency, share) for _, latency in ours)
            what = f"{count} claimer{'s' * (count > 1)}: time of one claim, {name}"
            found.append(Figure(name=f"claimers_{count}_{name}", what=what, unit="ms", values=latencies))
    bench.wipe()
    return found


def _claimed(bench: Bench, count: int, jobs: int) -> tuple[Drained, list[float]]:
    notes = bench.queue(jobs)
    command = [sys.executable, "-m", "tests.benchmarks.claimers", f"{count}", f"{LIMIT}"]
    program = Program(command, log=bench.path("claimers"), variables=bench.variables(notes))
    try:
        program.wait()
    finally:
        program.end()
    bench.check(notes)
    latencies = [latency for line in program.output.splitlines() for latency in json.loads(line)]
    return bench.drained(notes), latencies


def _claimed_raw(bench: Bench, count: int, jobs: int) -> Drained:
    return bench.drained_raw(jobs, workers=count, batch=LIMIT)


def mixed(bench: Bench) -> list[Figure]:
    """Queue short, longer and long jobs in any order, and more short ones while they run; see if a slot idles."""
    runs = [_mixed(bench) for _ in range(bench.times)]
    kinds = ", ".join(f"{count:,} of {seconds * 1e3:g} ms" for count, seconds in bench.sizes.mixed)
    what = f"mixed jobs ({kinds}; {bench.sizes.workers} processes, {MIXED_SLOTS} slots): "
    return [
        Figure(
            name="mixed_idle_longest",
            what=what + "longest time that a slot was free while a due job waited",
            unit="ms",
            values=tuple(1e3 * run.longest for run in runs),
        ),
        Figure(
            name="mixed_idle_share",
            what=what + "share of all slots' time that they were free while a due job waited",
            unit="%",
            values=tuple(100 * run.share for run in runs),
        ),
    ]


def _mixed(bench: Bench) -> Idling:
    lengths = [seconds for count, seconds in bench.sizes.mixed for _ in range(count)]
    # The same order in each run.
    random.Random(4).shuffle(lengths)
    late = bench.sizes.mixed_late
    shortest = min(lengths)
    jobs = len(lengths) + late
    bench.wipe()
    with idle_workers(bench, workers=bench.sizes.workers, slots=MIXED_SLOTS, jobs=jobs) as (_, notes):
        enqueue([lasting.prepare(number, seconds) for number, seconds in enumerate(lengths)])
        due = [time.monotonic()] * len(lengths)
        for number in range(len(lengths), jobs):
            time.sleep(LATE_PAUSE)
            lasting.later(number, shortest)
            due.append(time.monotonic())
        wait_for_bodies(notes, range(jobs))
        rows = bench.rows()
        wait_for_ends(rows)
    bench.check(notes, jobs=jobs, rows=rows)
    bodies = []
    for moment, note in zip(due, notes.all(), strict=False):
        begin = note.begin / 1e9
        # A body may begin before the call that queued it has returned.
        slot = f"{note.pid} {note.thread}"
        bodies.append(Body(slot=slot, due=min(moment, begin), begin=begin, end=note.end / 1e9))
    return idling(bodies, slots=MIXED_SLOTS)
