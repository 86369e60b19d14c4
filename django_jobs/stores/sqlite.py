"""Write: the SQLite dialect. One writer at a time; "now" is this host's clock, as one text of fixed width.

A statement that writes begins as a write, so it waits for the file's lock instead of failing half-way. What the busy
timeout doesn't cover is retried within a bound, but never inside a caller's transaction: its error is theirs to see.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import OperationalError

from django_jobs import clock, signals
from django_jobs.records import Claim, HeldRow, NewJob
from django_jobs.stores import lives
from django_jobs.stores.base import MOST_ERRORS, Store

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

FORMAT = "%Y-%m-%d %H:%M:%S.%f"

LOCKED_BOUND = 30.0
"""Seconds that a statement of ours is tried again while the file is locked."""

EAGER_TIMEOUT = 50
"""Milliseconds of SQLite's own waiting, after which an eager statement is tried anew."""

BRIEF_BOUND = 1.0
"""Seconds that a statement waits for the file's lock which is soon tried again anyway."""

LOOK_INTERVAL = 0.05
"""Seconds between two looks at the file's version."""

DRAW_IDS = "update sqlite_sequence set seq = seq + %(count)s where name = %(table)s returning seq"

VERSION = "pragma data_version"
DATABASE_LIST = "pragma database_list"
BUSY_TIMEOUT = "pragma busy_timeout"

# Writes nothing, but as a write: it takes the file's write lock, and so the newest picture of the file. A transaction
# that reads first, and writes when others have written meanwhile, could never be committed.
BEGIN_ATOMIC = "update {job} set state = state where 0"

# SQLite knows no LATERAL; an IN with a limit of its own, asked once for each pair, comes to the same.
PICKED = """
  select job.id, job.alone, job.run_at, coalesce(job.expires_at <= {now}, 0) as expired,
    open.queue, open.room, open.priority, open.turn
  from open cross join {job} as job
  where job.id in (
    select ready.id from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = open.queue and ready.priority = open.priority
      and ready.run_at <= {now}EXTRA
    order by ready.run_at, ready.id limit %(limit)s)
"""

APPEND = """json_insert(
    case when json_type(job.errors) <> 'array' then '[]'
      when json_array_length(job.errors) >= MOST then json_remove(job.errors, '$[1]')
      else job.errors end,
    '$[#]', json_set(ENTRY,
      '$.attempt', job.attempts, '$.worker', job.worker,
      '$.started_at', replace(job.started_at, ' ', 'T') || 'Z', '$.at', replace({now}, ' ', 'T') || 'Z'))""".replace(
    "MOST", str(MOST_ERRORS)
)


class SQLiteStore(Store):
    """Rows in an SQLite file, 3.35 or newer."""

    needs_proof = False
    wait = ""
    share = ""
    skip = ""
    wait_to_delete = ""
    skip_to_delete = ""
    own = ""
    bytewise = ""
    never = "''"
    ways = ("run", "run_unless_locked")
    server_start = "null"
    last_reason = "json_extract(errors, '$[#-1].reason')"

    def __init__(self, **tables: str) -> None:
        super().__init__(**tables)
        self._spared: dict[int, str] = {}

    def run(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement, again for a while where the file is locked and no transaction is open."""
        bound = LOCKED_BOUND if _is_alone(connection) else 0.0
        return self._run_for_long(connection, sql, values, bound=bound)

    def _run_for_long(
        self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any], *, bound: float
    ) -> list[tuple[Any, ...]]:
        give_up = time.monotonic() + bound
        while True:
            try:
                return super().run(connection, sql, values)
            except OperationalError as error:
                if not (_is_locked(error) and time.monotonic() < give_up):
                    raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreads writers, no secret

    def begin_life(self, connection: BaseDatabaseWrapper, token: int) -> Callable[[], None]:
        """Lock a byte beside the file."""
        return lives.begin(self._file(connection), token)

    def lapsed(self, connection: BaseDatabaseWrapper, *, limit: int) -> list[HeldRow]:
        """Ask for the locks beside the file; looks at all rows, so that those of a stopped process hide no other."""
        rows = super().lapsed(connection, limit=-1)
        file = self._file(connection) if rows else ""
        spared = {row.token: row.worker or "" for row in rows if lives.is_there(file, row.token)}
        self._tell_of_spared(spared)
        return [row for row in rows if row.token not in spared][:limit]

    def _tell_of_spared(self, spared: dict[int, str]) -> None:
        """Say once of each claim that time would have ended and that is left with its holder."""
        new, self._spared = spared.keys() - self._spared.keys(), spared
        for worker in sorted({spared[token] for token in new}):
            message = (
                f"the lease of worker {worker} ran out, but its process lives, so its jobs are left to it until it "
                "ends; was it stopped, or has somebody locked the database file for that long?"
            )
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)

    def _file(self, connection: BaseDatabaseWrapper) -> str:
        """Give the path of the database's file, '' where it has none."""
        databases = self.run(connection, DATABASE_LIST, {})
        return next((path or "" for _, name, path in databases if name == "main"), "")

    def run_unless_locked(
        self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Run one statement, trying more often than others, and give nothing where somebody keeps the file's lock.

        SQLite lets those that wait try again at ever longer intervals, up to 100 ms, and who comes new tries first
        after 1 ms; so under many writers one that has waited for long seldom wins. Waiting shortly, again and again,
        does.
        """
        if not _is_alone(connection):
            return self._run_for_long(connection, sql, values, bound=0.0)
        [(patience,)] = self.run(connection, BUSY_TIMEOUT, {})
        self._set_busy_timeout(connection, min(patience, EAGER_TIMEOUT))
        try:
            return self._run_for_long(connection, sql, values, bound=BRIEF_BOUND)
        except OperationalError as error:
            if not _is_locked(error):
                raise
            return []
        finally:
            self._set_busy_timeout(connection, patience)

    def _set_busy_timeout(self, connection: BaseDatabaseWrapper, milliseconds: int) -> None:
        self.run(connection, f"{BUSY_TIMEOUT} = {milliseconds:d}", {})

    def begin(self, connection: BaseDatabaseWrapper) -> None:
        """Take the file's write lock; waited for within the usual bound, since nothing has happened yet in here."""
        self._run_for_long(connection, BEGIN_ATOMIC, {}, bound=LOCKED_BOUND)

    def be_brief(self, connection: BaseDatabaseWrapper) -> None:
        """Do nothing: who writes waits for no other, since he has the whole file."""

    def line_up_to_declare(self, connection: BaseDatabaseWrapper) -> None:
        """Do nothing, as above."""

    def insert_many(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[int]:
        ids = self.draw_ids(connection, len(jobs))
        self._insert_under(connection, ids, jobs)
        return list(ids)

    def draw_ids(self, connection: BaseDatabaseWrapper, count: int) -> range:
        """Move the table's AUTOINCREMENT on, as an insert would; the caller's transaction keeps the two together."""
        values = {"table": self._tables["job"].strip('"'), "count": count}
        rows = self.run(connection, DRAW_IDS, values)
        # A table that never had a row has no sequence yet: it begins one with the first row, and from its id.
        last = rows[0][0] if rows else count
        return range(last - count + 1, last + 1)

    def notify(self, connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
        """Do nothing: workers see that the file changed."""

    def listen(self, connection: BaseDatabaseWrapper) -> int:
        """Note the file's version; it changes whenever another connection has written."""
        return self._version(connection)

    def unlisten(self, connection: BaseDatabaseWrapper) -> None:
        """Do nothing: there is nothing to leave."""

    def hear(self, connection: BaseDatabaseWrapper, mark: int, *, timeout: float) -> tuple[set[str], int]:
        """Look at the file's version every 50 ms."""
        give_up = time.monotonic() + timeout
        while (version := self._version(connection)) == mark and time.monotonic() < give_up:
            time.sleep(LOOK_INTERVAL)
        return ({""} if version != mark else set()), version

    def _version(self, connection: BaseDatabaseWrapper) -> int:
        [(version,)] = self.run(connection, VERSION, {})
        return int(version)

    def dedicate(self, connection: BaseDatabaseWrapper, *, bound: float) -> bool:
        """Leave it as it is: no network lies between, and the file's lock has a timeout."""
        return False

    def prepare_if_direct(self, connection: BaseDatabaseWrapper) -> None:
        """Do nothing: the driver keeps its statements prepared."""

    def cancel_statement(self, connection: BaseDatabaseWrapper, *, timeout: float) -> None:
        """Do nothing: nobody watches it."""

    def hang_up(self, connection: BaseDatabaseWrapper) -> None:
        """Do nothing: nobody watches it."""

    def clock_values(self, frozen: datetime | None) -> dict[str, Any]:
        return {"now": (frozen or clock.now()).strftime(FORMAT)}

    def now(self, *, frozen: bool) -> str:
        return "%(now)s"

    def after(self, instant: str, seconds: str) -> str:
        """Add seconds to the microsecond, in the fixed width of instants; SQLite itself rounds to milliseconds."""
        micros = f"(cast(substr({instant} || '000000', 21, 6) as int) + cast(round(({seconds}) * 1000000) as int))"
        whole = f"datetime(substr({instant}, 1, 19), ({micros} / 1000000) || ' seconds')"
        return f"({whole} || printf('.%%06d', {micros} %% 1000000))"

    def before(self, instant: str, seconds: str) -> str:
        """Subtract seconds as SQLite does it, to the millisecond, in the fixed width of instants."""
        moved = f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', {instant}, printf('-%%.3f seconds', {seconds})) || '000'"
        return f"(case when ({seconds}) is not null then {moved} end)"

    def seconds_until(self, instant: str, now: str) -> str:
        return f"((julianday({instant}) - julianday({now})) * 86400.0)"

    def rows(self, parameter: str, columns: Mapping[str, str]) -> str:
        """Read a JSON array of objects as a table."""
        typed = ", ".join(f"json_extract(value, '$.{column}') as {column}" for column in columns)
        return f"(select {typed} from json_each(%({parameter})s)) as c"

    def few(self, number: str) -> str:
        """Nothing: rows of an IN or a join are looked up by their ids."""
        return "true"

    def by(self, number: str) -> str:
        return f"job.id = {number}"

    def at(self, column: str, value: str) -> str:
        return f"{column} = {value}"

    def holder(self, column: str, value: str, condition: str) -> str:
        return f"join {self._tables['job']} as job on job.{column} = {value} and {condition}"

    def using(self, table: str) -> str:
        return f"where job.id in (select {table}.id from {table})"

    def append(self, entry: str) -> str:
        """Append with the JSON functions; a full list loses the second entry, so that the first stays."""
        return APPEND.replace("ENTRY", entry)

    def impatient(self) -> str:
        """Nothing: who writes waits for no other, since he has the whole file."""
        return ""

    def picked(self, extra: str) -> str:
        return PICKED.replace("EXTRA", extra)

    def json(self, value: str) -> str:
        return value

    def instant(self, value: str) -> str:
        return value

    def utc(self, column: str) -> str:
        return column

    def boolean(self, value: str) -> str:
        return value

    def _read_claim(self, row: tuple[Any, ...], token: int) -> Claim:
        return super()._read_claim((*row[:12], bool(row[12]), bool(row[13]), *row[14:]), token)

    def write_instant(self, instant: datetime) -> str:
        return instant.astimezone(UTC).strftime(FORMAT)


def _is_alone(connection: BaseDatabaseWrapper) -> bool:
    """Whether each statement is a transaction of its own."""
    return connection.autocommit and not connection.in_atomic_block


def _is_locked(error: OperationalError) -> bool:
    text = str(error)
    return "locked" in text or "busy" in text
