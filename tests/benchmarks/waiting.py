"""Measure what happens while there is nothing to do: how soon a job is picked up, and what idling costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from django.db import connection, transaction

from tests.benchmarks import processes, raw
from tests.benchmarks.bench import Bench, wait_for_bodies, wait_for_ends
from tests.benchmarks.enqueueing import row_of
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.jobs import lasting, noop
from tests.benchmarks.notes import Notes
from tests.benchmarks.processes import Program


def pickup(bench: Bench) -> list[Figure]:
    """Queue jobs one at a time while workers idle, and take the time from each commit to the body's begin."""
    ours, plain = bench.alternated(lambda: _picked_up(bench), lambda: _picked_up_raw(bench))
    goals = {0.5: "≤ 2", 0.99: "≤ 6"} if bench.is_postgresql else {0.99: "≤ 60"}
    hearing = "NOTIFY and LISTEN" if bench.is_postgresql else "a look at the file each millisecond"
    of = f"processes {bench.sizes.workers}, slots {bench.sizes.slots}"
    found = []
    for share in (0.5, 0.99):
        name = f"p{share * 100:g}"
        what = f"pickup on idle workers ({of}), commit to body, {name}; raw: {hearing}"
        found.append(
            Figure(
                name=f"pickup_{name}",
                what=what,
                unit="ms",
                values=tuple(percentile(run.from_commit, share) for run in ours),
                raw=tuple(percentile(run, share) for run in plain),
                goal=goals.get(share, ""),
            )
        )
        found.append(
            Figure(
                name=f"pickup_call_{name}",
                what=f"the same from the call of `later()`, {name} (as peers are measured)",
                unit="ms",
                values=tuple(percentile(run.from_call, share) for run in ours),
            )
        )
    return found


class _Pickups:
    def __init__(self) -> None:
        self.from_call: list[float] = []
        self.from_commit: list[float] = []


def _picked_up(bench: Bench) -> _Pickups:
    jobs, found = bench.sizes.pickup, _Pickups()
    bench.wipe()
    with idle_workers(bench, workers=bench.sizes.workers, slots=bench.sizes.slots, jobs=jobs) as (_, notes):
        connection.ensure_connection()
        for number in range(jobs):
            _pause(bench)
            called, committed = _queued(number)
            wait_for_bodies(notes, [number])
            begun = notes[number].begin
            found.from_call.append((begun - called) / 1e6)
            found.from_commit.append((begun - committed) / 1e6)
        rows = bench.rows()
        wait_for_ends(rows)
    bench.check(notes, jobs=jobs, rows=rows)
    return found


def _queued(number: int) -> tuple[int, int]:
    """Queue a job, and give when that was called and when it was committed."""
    committed: list[int] = []
    called = time.monotonic_ns()
    with transaction.atomic():
        # The first of the commit's hooks, before ours that wakes workers.
        transaction.on_commit(lambda: committed.append(time.monotonic_ns()))
        noop.later(number)
    return called, committed[0]


def _picked_up_raw(bench: Bench) -> list[float]:
    jobs, found = bench.sizes.pickup, []
    bench.wipe()
    notes = bench.notes(jobs)
    listener = processes.raw_loop("listen", log=bench.path("raw"), variables=bench.variables(notes))
    try:
        listener.says("ready")
        with closing(raw.connect(bench.url)) as limit:
            for number in range(jobs):
                _pause(bench)
                limit.insert(row_of(number))
                committed = time.monotonic_ns()
                limit.notify()
                wait_for_bodies(notes, [number])
                found.append((notes[number].begin - committed) / 1e6)
    finally:
        listener.end()
    bench.check(notes)
    return found


def _pause(bench: Bench) -> None:
    # Uneven, so that it falls in step with nothing that looks at intervals.
    time.sleep(bench.sizes.pickup_pause * random.uniform(1.0, 2.0))


@contextmanager
def idle_workers(
    bench: Bench, *, workers: int, slots: int, jobs: int, variables: dict[str, str] | None = None
) -> Iterator[tuple[Program, Notes]]:
    """Run the command until each of its workers has worked and nothing is left; give it, with notes for `jobs` jobs."""
    warming = [jobs + number for number in range(64 * slots)]
    notes = bench.notes(jobs + len(warming))
    with bench.running("--processes", f"{workers}", "-c", f"{slots}", notes=notes, **(variables or {})) as command:
        command.says(processes.SAYS_IT_WORKS)
        sent = 0
        while len({note.pid for note in notes.all() if note.runs}) < workers:
            batch = warming[sent : sent + slots]
            sent += slots
            lasting.later_many((number, 0.02) for number in batch)
            wait_for_bodies(notes, batch)
        wait_for_ends(sent)
        connection.close()
        yield command, notes


def idle(bench: Bench) -> list[Figure]:
    """Leave a command alone that has nothing to do."""
    found = []
    for workers in bench.sizes.idle_processes:
        spent = [_idled(bench, workers) for _ in range(bench.times)]
        whole = f"idle command, {workers} worker process{'es' * (workers > 1)}"
        columns = ["processor", "statements", *(["transactions"] if bench.is_postgresql else [])]
        said = {
            "processor": ("all its processes' CPU time", "% of a core", "≤ 1"),
            "statements": ("statements of its own", "/s", ""),
            "transactions": ("transactions that the server counts", "/s", "≤ 2"),
        }
        for column in columns:
            what, unit, goal = said[column]
            found.append(
                Figure(
                    name=f"idle_{workers}_{column}",
                    what=f"{whole}: {what}",
                    unit=unit,
                    values=tuple(run[column] for run in spent),
                    goal=goal,
                )
            )
    return found


def _idled(bench: Bench, workers: int) -> dict[str, float]:
    bench.wipe()
    counting = bench.counting()
    with idle_workers(bench, workers=workers, slots=8, jobs=0, variables=counting) as (command, _):
        pids = [command.process.pid, *processes.children(command.process.pid)]

        def looks() -> dict[str, float]:
            return {
                "processor": 100 * sum(map(processes.processor_seconds, pids)),
                "statements": bench.counted(counting),
                "transactions": bench.transactions() if bench.is_postgresql else 0,
            }

        time.sleep(bench.sizes.idle_settling)
        return per_second(looks, bench.sizes.idle_seconds)


def per_second(looks: Callable[[], dict[str, float]], seconds: float) -> dict[str, float]:
    """Look twice, and give by how much each number grew in a second."""
    begun, before = time.monotonic(), looks()
    time.sleep(seconds)
    after, taken = looks(), time.monotonic() - begun
    return {what: (after[what] - before[what]) / taken for what in before}
