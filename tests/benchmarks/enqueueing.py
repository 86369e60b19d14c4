"""Measure how fast jobs are queued."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from django.db import connection

from django_jobs.records import NewJob
from tests.benchmarks import raw
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import Figure, Rejected
from tests.benchmarks.jobs import noop
from tests.benchmarks.raw import Raw, Row

TURNS = 10
"""So often both sides take turns in one run."""


def one_by_one(bench: Bench) -> list[Figure]:
    """Queue by `later()`, each a commit of its own, beside plain inserts; connections stay open on both sides."""
    jobs = bench.sizes.one_by_one
    rows = [row_of(number) for number in range(jobs)]
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(bench.times):
        bench.wipe()
        with closing(raw.connect(bench.url)) as limit:
            sides: list[Callable[[int], object]] = [noop.later, partial(_insert, limit, rows)]
            for insert in sides:
                _turn(insert, range(min(jobs, bench.sizes.warm_up // 10)))
            begun = bench.rows()
            spent = [0.0, 0.0]
            for turn in range(TURNS):
                numbers = range(turn, jobs, TURNS)
                for side in (0, 1) if turn % 2 else (1, 0):
                    spent[side] += _turn(sides[side], numbers)
        if bench.rows() - begun != 2 * jobs:
            raise Rejected("not every job was queued")
        ours.append(jobs / spent[0])
        plain.append(jobs / spent[1])
    goal = "≥ 0.8 of raw" if bench.is_postgresql else "≥ 3,000"
    what = "queue one by one: `later()`, each its own commit, workers told; raw: INSERT"
    return [
        Figure(name="one_by_one", what=what, unit="jobs/s", values=tuple(ours), raw=tuple(plain), goal=goal),
    ]


def _insert(limit: Raw, rows: list[Row], number: int) -> None:
    limit.insert(rows[number])


def _turn(insert: Callable[[int], object], numbers: range) -> float:
    begun = time.perf_counter()
    for number in numbers:
        insert(number)
    return time.perf_counter() - begun


def many(bench: Bench) -> list[Figure]:
    """Queue by `later_many` beside one statement for all rows, and beside COPY."""
    jobs = bench.sizes.many
    rows = [row_of(number) for number in range(jobs)]

    def by_us(jobs: int = jobs) -> float:
        return _timed(bench, jobs, lambda: noop.later_many((number,) for number in range(jobs)))

    def by(insert: Callable[[Any], object]) -> float:
        with closing(raw.connect(bench.url)) as limit:
            return _timed(bench, jobs, lambda: insert(limit))

    def by_one_statement() -> float:
        return by(lambda limit: limit.insert_many(rows))

    if bench.sizes.warm_up:
        by_us(bench.sizes.warm_up)
        by_one_statement()
    ours, plain = bench.alternated(by_us, by_one_statement)
    first = "one INSERT from unnest" if bench.is_postgresql else "executemany in one transaction"
    goal = "≥ 0.6 of raw, ≥ 40,000" if bench.is_postgresql else "≥ 25,000"
    what = f"queue {jobs:,} by `later_many`; raw: {first}"
    found = [Figure(name="many", what=what, unit="jobs/s", values=tuple(ours), raw=tuple(plain), goal=goal)]
    if bench.is_postgresql:
        copied = [by(lambda limit: limit.copy_many(rows)) for _ in range(bench.times)]
        what = f"queue {jobs:,} by `later_many`; raw: COPY"
        found.append(Figure(name="many_copy", what=what, unit="jobs/s", values=tuple(ours), raw=tuple(copied)))
    bench.wipe()
    return found


def _timed(bench: Bench, jobs: int, insert: Callable[[], object]) -> float:
    bench.wipe()
    connection.ensure_connection()
    begun = time.perf_counter()
    insert()
    taken = time.perf_counter() - begun
    if bench.rows() != jobs:
        raise Rejected("not every job was queued")
    return jobs / taken


def row_of(number: int) -> Row:
    """Give the row that our own enqueue would write; the raw loop isn't charged with encoding it."""
    job: NewJob = noop.prepare(number)
    return Row(*(getattr(job if column in NewJob._fields else job.draft, column) for column in Row._fields))
