"""What every measurement needs: an empty table, jobs in it, a drain by us or by raw loops, a look at the rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection

from django_jobs.models import Job
from tests.benchmarks import addresses, processes, raw
from tests.benchmarks.figures import Rejected
from tests.benchmarks.jobs import noop
from tests.benchmarks.notes import STATEMENTS_VARIABLE, VARIABLE, Notes, statements
from tests.benchmarks.processes import Program
from tests.benchmarks.sizes import Sizes

CROWD = "crowd"
"""The name of rows that are only there to be in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain left: who ended each job and when, when bodies began, and for raw loops what they took of it all."""

    ends: Sequence[tuple[str, float]]
    bodies: Sequence[float]
    processor: float = 0.0
    statements: int = 0
    bytes: int = 0
    transactions: int = 0


@dataclass(slots=True, kw_only=True)
class Bench:
    """One database to measure on, with a folder for files of the runs."""

    url: str
    folder: Path
    sizes: Sizes
    times: int
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def is_postgresql(self) -> bool:
        return connection.vendor == "postgresql"

    def say(self, text: str) -> None:
        sys.stderr.write(f"{connection.vendor}: {text}\n")
        sys.stderr.flush()

    # -- rows

    def wipe(self) -> None:
        """Have the table be empty but for the crowd, and its files as after a checkpoint and a vacuum."""
        with connection.cursor() as cursor:
            cursor.execute("delete from django_jobs_queue")
            if self.is_postgresql and not Job.objects.filter(name=CROWD).exists():
                cursor.execute("truncate django_jobs_job")
            else:
                cursor.execute(f"delete from django_jobs_job where name <> '{CROWD}'")
        self.settle_down()

    def settle_down(self) -> None:
        """Have nothing of what was done before be left to do in the next run: both sides begin alike."""
        with connection.cursor() as cursor:
            if self.is_postgresql:
                cursor.execute("vacuum (analyze) django_jobs_job")
                try:
                    cursor.execute("checkpoint")
                except DatabaseError:
                    self.say("no right to CHECKPOINT: runs may pay for each other's writes")
            else:
                cursor.execute("pragma wal_checkpoint(truncate)")
                cursor.fetchall()
        # Neither a statistics view nor a held file is to show this process.
        connection.close()

    def queue(self, jobs: int, **options: Any) -> Notes:
        """Queue no-op jobs into the empty table, and give the notes that their bodies will make."""
        self.wipe()
        noop.using(**options).later_many((number,) for number in range(jobs))
        self.settle_down()
        return self.notes(jobs)

    def notes(self, jobs: int) -> Notes:
        return Notes.made(self.path("notes"), jobs)

    def rows(self) -> int:
        return Job.objects.exclude(name=CROWD).count()

    def check(self, notes: Notes, *, jobs: int | None = None, rows: int | None = None) -> None:
        """Refuse the run unless each job, or the first so many, ran once, and all rows succeeded at once."""
        jobs = len(notes) if jobs is None else jobs
        odd = [number for number, note in enumerate(notes.all()[:jobs]) if note.runs != 1]
        if odd:
            raise Rejected(f"{len(odd)} of {jobs} jobs didn't run exactly once, such as number {odd[0]}")
        found = Job.objects.exclude(name=CROWD)
        good, everything = found.filter(state="SUCCESSFUL", attempts=1, worker=None).count(), found.count()
        wanted = jobs if rows is None else rows
        if (good, everything) != (wanted, wanted):
            raise Rejected(f"{good} of {everything} rows are SUCCESSFUL at their first attempt, not {wanted}")

    # -- drains

    def drained_by_us(self, jobs: int, *, keep: bool = True, workers: int, slots: int, held: bool = False) -> Drained:
        """Have `manage.py runjobs --drain` run so many jobs, and look at what it left."""
        notes = self.queue(jobs, **({} if keep else {"keep": 0}))
        arguments = ("--drain", "--processes", f"{workers}", "-c", f"{slots}")
        with self._snapshot(held=held), self.running(*arguments, notes=notes) as command:
            command.wait()
        self.check(notes, rows=None if keep else 0)
        return self.drained(notes)

    def drained(self, notes: Notes) -> Drained:
        """Look at what a drain has left."""
        return Drained(ends=_ends(), bodies=_bodies(notes))

    def drained_raw(
        self, jobs: int, *, keep: bool = True, workers: int, held: bool = False, batch: int = raw.BATCH
    ) -> Drained:
        """Have raw loops do the same."""
        notes = self.queue(jobs)
        gate = self.path("go")
        variables = self.variables(notes) | {"BENCHMARK_GO": str(gate), "BENCHMARK_BATCH": f"{batch}"}
        verb = "drain" if keep else "drain-and-delete"
        loops = [processes.raw_loop(verb, log=self.path("raw"), variables=variables) for _ in range(workers)]
        try:
            for loop in loops:
                loop.says("ready")
            with self._snapshot(held=held):
                before = self.server_numbers()
                gate.touch()
                for loop in loops:
                    loop.wait()
                after = self.server_numbers()
        finally:
            for loop in loops:
                loop.end()
        self.check(notes, rows=None if keep else 0)
        said = [loop.output.split() for loop in loops]
        return Drained(
            ends=_ends(),
            bodies=_bodies(notes),
            processor=sum(float(words[1]) for words in said),
            statements=sum(int(words[2]) for words in said),
            bytes=after[0] - before[0],
            transactions=after[1] - before[1],
        )

    def alternated(
        self, ours: Callable[[], Any], other: Callable[[], Any], *, times: int | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Run both so often, one beside the other, and each first in turn; give what they gave."""
        mine: list[Any] = []
        others: list[Any] = []
        for number in range(times or self.times):
            turns = [(ours, mine), (other, others)]
            for run, given in turns if number % 2 else reversed(turns):
                given.append(run())
        return mine, others

    # -- processes

    @contextmanager
    def running(self, *arguments: str, notes: Notes | None, **variables: str) -> Iterator[Program]:
        """Run the command, and end it if it hasn't ended by itself."""
        command = processes.runjobs(*arguments, log=self.path("runjobs"), variables=self.variables(notes) | variables)
        try:
            yield command
        finally:
            command.end()

    def variables(self, notes: Notes | None = None) -> dict[str, str]:
        said = {"DATABASE_URL": self.url, "DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings", "DEBUG": "0"}
        return said | ({VARIABLE: str(notes.path)} if notes else {})

    def counting(self) -> dict[str, str]:
        """Give what has processes count their statements, in a folder of its own."""
        folder = self.path("statements")
        folder.mkdir()
        return {STATEMENTS_VARIABLE: str(folder)}

    def counted(self, counting: dict[str, str]) -> int:
        """Give how many statements they have counted so far."""
        return statements(Path(counting[STATEMENTS_VARIABLE]))

    @contextmanager
    def _snapshot(self, *, held: bool) -> Iterator[None]:
        """Have another session keep the present picture of the rows for as long as this lasts."""
        if not held:
            yield
            return
        holder = raw.connect(self.url)
        plain: Any = holder.connection
        plain.execute("begin isolation level repeatable read" if self.is_postgresql else "begin")
        plain.execute("select count(*) from django_jobs_job").fetchone()
        try:
            yield
        finally:
            plain.execute("rollback")
            holder.close()

    def server_numbers(self) -> tuple[int, int]:
        """Give the position in PostgreSQL's log of changes, in bytes, and how many transactions have written so far."""
        if not self.is_postgresql:
            return 0, 0
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_snapshot_xmax(pg_current_snapshot())::text"
            )
            position, transactions = cursor.fetchone()
        connection.close()
        return int(position), int(transactions)

    def transactions(self) -> int:
        """Give how many transactions PostgreSQL counts in the database; asked in another one, so that it adds none."""
        import psycopg

        name = addresses.parts(self.url)["NAME"]
        with psycopg.connect(addresses.conninfo(addresses.beside(self.url, "postgres"))) as other:
            row = other.execute(
                "select xact_commit + xact_rollback from pg_stat_database where datname = %s", (name,)
            ).fetchone()
        assert row is not None
        return int(row[0])

    def path(self, what: str) -> Path:
        """Give a new path in the folder of the runs."""
        return self.folder / f"{next(self._numbers):04}-{what}"


def _ends() -> list[tuple[str, float]]:
    rows = Job.objects.filter(name=noop.name, state="SUCCESSFUL").values_list("last_worker", "finished_at")
    found = [(worker or "", end.timestamp()) for worker, end in rows if end]
    connection.close()
    return found


def _bodies(notes: Notes) -> list[float]:
    return [note.begin / 1e9 for note in notes.all()]


def wait_for_bodies(notes: Notes, numbers: Sequence[int]) -> None:
    """Wait until these jobs have begun, asking nobody."""
    for number in numbers:
        # One after the other: looking at all of them again and again would take a core from those that work.
        processes.until(partial(_has_begun, notes, number), what=f"job {number} begins", pause=0.002)


def _has_begun(notes: Notes, number: int) -> bool:
    return notes[number].runs > 0


def wait_for_ends(jobs: int) -> None:
    """Wait until so many jobs have succeeded; asks seldom, since asking costs the database, too."""

    def have_ended() -> bool:
        ended = Job.objects.filter(state="SUCCESSFUL").exclude(name=CROWD).count()
        connection.close()
        return ended >= jobs

    processes.until(have_ended, what="jobs end", pause=0.2)
