"""The raw loops: the least that a driver can do for the same work, on our own table with its columns and indexes.

They do the writes that our promises need (a token, a lease, states expected by each write), and nothing else: no
supervisor, no threads, no codec, no retries. Run as a program this is one process of a raw drain, or a raw listener.
Without Django, so that its start and its memory are its own.
"""

from __future__ import annotations

import os
import resource
import secrets
import select
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks import addresses, notes

BATCH = 100
"""Jobs that one claim takes."""

LEASE = 60
CHANNEL = "django_jobs"

LONGEST_WAIT = 1.0
"""Seconds after which the listener looks for jobs of which it heard nothing."""

LOOK_INTERVAL = 0.001
"""Seconds between two looks at an SQLite file."""


class Row(NamedTuple):
    """The columns of a new job, as our own enqueue writes them; instants are the database's."""

    name: str
    queue: str
    priority: int
    args: str
    kwargs: str
    max_attempts: int
    max_crashes: int
    restart: bool
    timeout: float | None
    keep: float | None
    keep_failed: float | None
    meta: str


COLUMNS = ", ".join(Row._fields)


class Raw(ABC):
    """One plain connection."""

    statements = 0
    connection: Any

    @abstractmethod
    def insert(self, row: Row) -> None:
        """Insert a row, and commit."""

    @abstractmethod
    def insert_many(self, rows: Sequence[Row]) -> None:
        """Insert rows that differ in `args` only, by one statement if the database has one for that, and commit."""

    @abstractmethod
    def claim(self, limit: int) -> tuple[int, list[tuple[int, Any]]]:
        """Take due rows of the one queue and priority that there is, and commit; give the token, ids and arguments."""

    @abstractmethod
    def finish(self, token: int, ids: Sequence[int]) -> None:
        """Say that claimed rows have succeeded, and commit."""

    @abstractmethod
    def delete(self, token: int, ids: Sequence[int]) -> None:
        """Delete claimed rows, and commit."""

    @abstractmethod
    def notify(self) -> None:
        """Tell the listener."""

    @abstractmethod
    def listen(self) -> None:
        """Begin to hear."""

    @abstractmethod
    def hear(self) -> None:
        """Wait for news, or for the end of the standard input, which ends the process."""

    @abstractmethod
    def close(self) -> None: ...


class RawPostgreSQL(Raw):
    """By psycopg, which has the server prepare statements that come again."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(addresses.conninfo(url), autocommit=True)

    def insert(self, row: Row) -> None:
        self._run(
            f"""insert into django_jobs_job ({COLUMNS}, run_at, enqueued_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, statement_timestamp(), statement_timestamp())
            returning id""",
            row,
        )

    def insert_many(self, rows: Sequence[Row]) -> None:
        self._run(
            f"""insert into django_jobs_job ({COLUMNS}, run_at, enqueued_at)
            select %s, %s, %s::int, c.args::jsonb, %s::jsonb, %s::int, %s::int, %s::boolean, %s::float8, %s::float8,
              %s::float8, %s::jsonb, statement_timestamp(), statement_timestamp()
            from unnest(%s::text[]) as c(args)""",
            (*rows[0][:3], *rows[0][4:], [row.args for row in rows]),
        )

    def copy_many(self, rows: Sequence[Row]) -> None:
        """Insert rows by COPY."""
        now = datetime.now(UTC)
        with self.connection.cursor() as cursor:
            statement = f"copy django_jobs_job ({COLUMNS}, run_at, enqueued_at) from stdin"
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row((*row, now, now))

    def claim(self, limit: int) -> tuple[int, list[tuple[int, Any]]]:
        token = secrets.randbits(62) + 1
        rows = self._run(
            """update django_jobs_job as job set state = 'RUNNING', token = %s, worker = %s, last_worker = %s,
              attempts = attempts + 1, first_started_at = coalesce(first_started_at, statement_timestamp()),
              started_at = statement_timestamp(),
              lease_expires_at = statement_timestamp() + make_interval(secs => %s),
              deadline_at = statement_timestamp() + make_interval(secs => timeout + %s)
            from (select id from django_jobs_job where state = 'READY' and name > '' and queue = 'default'
                and priority = 0 and run_at <= statement_timestamp()
              order by run_at, id limit %s for no key update skip locked) as picked
            where job.id = picked.id returning job.id, job.args""",
            (token, f"raw-{os.getpid()}", f"raw-{os.getpid()}", LEASE, LEASE, limit),
        )
        return token, [(job_id, args[0]) for job_id, args in rows]

    def finish(self, token: int, ids: Sequence[int]) -> None:
        self._run(
            """update django_jobs_job as job set state = 'SUCCESSFUL', finished_at = statement_timestamp(),
              prune_at = statement_timestamp() + make_interval(secs => keep),
              worker = null, lease_expires_at = null, deadline_at = null
            from unnest(%s::bigint[]) as c(id) where job.id = c.id and token = %s and state = 'RUNNING'
            returning job.id""",
            (list(ids), token),
        )

    def delete(self, token: int, ids: Sequence[int]) -> None:
        self._run(
            """delete from django_jobs_job as job using unnest(%s::bigint[]) as c(id)
            where job.id = c.id and token = %s and state = 'RUNNING' returning job.id""",
            (list(ids), token),
        )

    def notify(self) -> None:
        self._run("select pg_notify(%s, '')", (CHANNEL,))

    def listen(self) -> None:
        self._run(f"listen {CHANNEL}", ())

    def hear(self) -> None:
        ready, _, _ = select.select([self.connection.fileno(), sys.stdin], [], [], LONGEST_WAIT)
        _end_with_stdin(ready)
        for _ in self.connection.notifies(timeout=0):
            pass

    def close(self) -> None:
        self.connection.close()

    def _run(self, statement: str, values: Sequence[Any]) -> list[Any]:
        self.statements += 1
        cursor = self.connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


class RawSQLite(Raw):
    """By the standard library's module, on a file as the README advises it: WAL, synchronous NORMAL."""

    def __init__(self, url: str) -> None:
        self.connection = sqlite3.connect(addresses.parts(url)["NAME"], timeout=20, isolation_level=None)
        for pragma in ("journal_mode = wal", "synchronous = normal"):
            self.connection.execute(f"pragma {pragma}")
        self._version = 0

    def insert(self, row: Row) -> None:
        now = _text(datetime.now(UTC))
        self._run(
            f"""insert into django_jobs_job ({COLUMNS}, run_at, enqueued_at)
            values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id""",
            (*row, now, now),
        )

    def insert_many(self, rows: Sequence[Row]) -> None:
        now = _text(datetime.now(UTC))
        self.connection.execute("begin immediate")
        self.connection.executemany(
            f"""insert into django_jobs_job ({COLUMNS}, run_at, enqueued_at)
            values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            [(*row, now, now) for row in rows],
        )
        self.connection.execute("commit")

    def claim(self, limit: int) -> tuple[int, list[tuple[int, Any]]]:
        token, now = secrets.randbits(62) + 1, datetime.now(UTC)
        lease = _text(now + timedelta(seconds=LEASE))
        rows = self._run(
            """update django_jobs_job set state = 'RUNNING', token = ?, worker = ?, last_worker = ?,
              attempts = attempts + 1, first_started_at = coalesce(first_started_at, ?), started_at = ?,
              lease_expires_at = ?, deadline_at = ?
            where id in (select id from django_jobs_job where state = 'READY' and name > '' and queue = 'default'
              and priority = 0 and run_at <= ? order by run_at, id limit ?) returning id, args""",
            (token, f"raw-{os.getpid()}", f"raw-{os.getpid()}", *[_text(now)] * 2, lease, lease, _text(now), limit),
        )
        return token, [(job_id, int(args[1:-1])) for job_id, args in rows]

    def finish(self, token: int, ids: Sequence[int]) -> None:
        now = datetime.now(UTC)
        self._run(
            f"""update django_jobs_job set state = 'SUCCESSFUL', finished_at = ?, prune_at = ?,
              worker = null, lease_expires_at = null, deadline_at = null
            where id in ({", ".join("?" * len(ids))}) and token = ? and state = 'RUNNING' returning id""",
            (_text(now), _text(now + timedelta(days=1)), *ids, token),
        )

    def delete(self, token: int, ids: Sequence[int]) -> None:
        self._run(
            f"""delete from django_jobs_job where id in ({", ".join("?" * len(ids))}) and token = ?
              and state = 'RUNNING' returning id""",
            (*ids, token),
        )

    def notify(self) -> None:
        """Do nothing: the file has changed."""

    def listen(self) -> None:
        self._version = self._seen()

    def hear(self) -> None:
        while (version := self._seen()) == self._version:
            _end_with_stdin(select.select([sys.stdin], [], [], LOOK_INTERVAL)[0])
        self._version = version

    def close(self) -> None:
        self.connection.close()

    def _seen(self) -> int:
        return int(self.connection.execute("pragma data_version").fetchone()[0])

    def _run(self, statement: str, values: Sequence[Any]) -> list[Any]:
        self.statements += 1
        found: list[Any] = self.connection.execute(statement, values).fetchall()
        return found


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")


def _end_with_stdin(ready: Sequence[Any]) -> None:
    if sys.stdin in ready:
        raise EOFError


def connect(url: str) -> Raw:
    return RawSQLite(url) if addresses.vendor(url) == "sqlite" else RawPostgreSQL(url)


# -- as a program


def drain(raw: Raw, end: Callable[[int, Sequence[int]], None], batch: int) -> None:
    """Claim and end until nothing is due."""
    own = notes.own()
    while True:
        token, claimed = raw.claim(batch)
        if not claimed:
            return
        for _, number in claimed:
            own.begin(number)
        end(token, [job_id for job_id, _ in claimed])


def listen(raw: Raw) -> None:
    """Run each job as soon as it is heard of, until the standard input ends."""
    own = notes.own()
    raw.listen()
    print("ready", flush=True)
    with suppress(EOFError):
        while True:
            token, claimed = raw.claim(BATCH)
            if claimed:
                for _, number in claimed:
                    own.begin(number)
                raw.finish(token, [job_id for job_id, _ in claimed])
            else:
                raw.hear()


def main(verb: str) -> None:
    """Do as a process of a run: `drain`, `drain-and-delete`, `listen`. A drain begins with the file BENCHMARK_GO."""
    raw = connect(os.environ["DATABASE_URL"])
    if verb == "listen":
        listen(raw)
        return
    print("ready", flush=True)
    gate = Path(os.environ["BENCHMARK_GO"])
    while not gate.exists():
        time.sleep(0.001)
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = used.ru_utime + used.ru_stime
    end = raw.delete if verb == "drain-and-delete" else raw.finish
    drain(raw, end, int(os.environ.get("BENCHMARK_BATCH", BATCH)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime - before, raw.statements, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
