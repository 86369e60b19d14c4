"""Write: the PostgreSQL dialect. Claims with SKIP LOCKED; "now" is the server's `statement_timestamp()`."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError
from django.utils.module_loading import import_string

from django_jobs import clock
from django_jobs.records import Draft, NewJob
from django_jobs.stores.base import MOST_CLAIMED, MOST_ERRORS, Store, name_rows

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

CHANNEL = "django_jobs"

PREPARE_AFTER = 3
"""The server prepares a statement that comes for so many times on one connection of ours."""

# Asks whether the session is ours alone, and if so forbids its server three things in it. To compile: a walk reads few
# rows, whatever the planner fears, and compiling it takes a hundred times as long as running it. To read whole tables:
# a plan that was made while a table was empty, and known to be, is kept while the table fills. To plan a prepared
# statement anew for the values of each run: no value changes the plan, and a claim takes as long to plan as to run.
BACKEND = """
select case when pg_backend_pid() = %(pid)s
  then set_config('jit', 'off', false) || set_config('enable_seqscan', 'off', false)
    || set_config('plan_cache_mode', 'force_generic_plan', false) end
"""

UNLISTEN = f"unlisten {CHANNEL}"

MOST_COPIED = 10_000
"""So many rows are written by one COPY."""

BLOCK = 65_536
"""So many characters of it, and the rest of a row, are sent at a time: the server works while the next are written."""

# As one text, since making rows of them would take longer than drawing them. The sequence is looked up once.
DRAW_IDS = """
with own as materialized (select pg_get_serial_sequence(%(table)s, 'id')::regclass as ids)
select string_agg(nextval(own.ids)::text, ' '), {utc:{now}}, row_security_active(%(table)s)
from own, generate_series(1, %(count)s)
"""

COPY = """
copy {job} (
  id, name, queue, priority, args, kwargs, run_at, expires_at, max_attempts, max_crashes, restart, timeout, keep,
  keep_failed, meta, on_failure, enqueued_at)
from stdin
"""

# Whatever the default is: each statement is to see what the others have committed, such as a renewed lease.
BEGIN_ATOMIC = "set transaction isolation level read committed"

# A transaction that does nothing else waits for no disk when it commits. It is planned anew each time, so the usual one
# says no more than that.
NOTIFY = "select pg_notify(%(channel)s, %(word)s)"
NOTIFY_MANY = "select pg_notify(%(channel)s, c.name) from {rows:names}"

LISTEN = f"listen {CHANNEL}"

# The nested loop keeps the order of `open`, and the outer limit ends it as soon as enough rows are locked.
#
# The limit of a thousand is there for the planner. One that it can't know while it plans it takes for a tenth of all
# rows; so of a large table this statement would seem dear enough to be compiled first, which takes up to seconds.
PICKED = """
  select job.id, job.alone, job.run_at, job.expired, open.queue, open.room, open.priority, open.turn
  from open cross join lateral (
    select free.* from (
      select ready.id, ready.alone, ready.run_at, coalesce(ready.expires_at <= {now}, false) as expired
      from {job} as ready
      where ready.state = 'READY' and ready.name > '' and ready.queue = open.queue and ready.priority = open.priority
        and ready.run_at <= {now}EXTRA
      order by ready.run_at, ready.id limit least(%(limit)s, open.room)
      for no key update skip locked) as free
    limit MOST) as job
  limit %(reach)s
""".replace("MOST", str(MOST_CLAIMED))

APPEND = """(
    case when jsonb_typeof(job.errors) <> 'array' then '[]'::jsonb
      when jsonb_array_length(job.errors) >= MOST then job.errors - 1
      else job.errors end
    || jsonb_build_array((ENTRY)::jsonb || jsonb_build_object(
      'attempt', job.attempts, 'worker', job.worker,
      'started_at', to_char(job.started_at at time zone 'UTC', ISO),
      'at', to_char({now} at time zone 'UTC', ISO))))""".replace("ISO", """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'""").replace(
    "MOST", str(MOST_ERRORS)
)


# In the midst of a statement, since it is its own transaction, and the session may be anybody's. Well below the second
# after which the server looks for deadlocks: so of a worker and a caller it is never the caller whose wait is ended.
IMPATIENT = """, case when %(is_alone)s::boolean then set_config('lock_timeout', '100ms', true) end"""

BE_BRIEF = "select set_config('lock_timeout', '100ms', true)"

# Two that are new to their owner have no row which both could lock.
LINE_UP = "lock table {set} in share row exclusive mode"

GAVE_UP = frozenset({"55P03", "40P01"})
"""The codes of a wait that was ended: it took too long, or was a deadlock."""


class PostgreSQLStore(Store):
    """Rows in PostgreSQL 14 or newer, through psycopg 3."""

    needs_proof = True
    wait = "for no key update of job"
    share = "for share of job"
    own = "job."
    bytewise = ' collate "C"'
    skip = "for no key update of job skip locked"
    # The weaker lock passes rows that somebody is about to refer to, and then the delete would wait for him.
    wait_to_delete = "for update of job"
    skip_to_delete = "for update of job skip locked"
    never = "'-infinity'::timestamptz"
    server_start = "pg_postmaster_start_time()"
    last_reason = "job.errors -> -1 ->> 'reason'"

    ways = ("run", "copy")

    def insert_many(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[int]:
        """Draw ids, and copy rows in; where policies guard them, which COPY can't ask, by INSERT."""
        ids: list[int] = []
        for start in range(0, len(jobs), MOST_COPIED):
            part = jobs[start : start + MOST_COPIED]
            numbers, now, is_guarded = self._drawn(connection, len(part))
            if is_guarded:
                self._insert_under(connection, numbers, part)
            else:
                self.copy(connection, COPY, _blocks(numbers, part, clock.read(now)))
            ids += numbers
        return ids

    def draw_ids(self, connection: BaseDatabaseWrapper, count: int) -> list[int]:
        """Take ids from the identity's sequence."""
        return self._drawn(connection, count)[0]

    def _drawn(self, connection: BaseDatabaseWrapper, count: int) -> tuple[list[int], Any, bool]:
        """Take ids, and read the clock and whether policies guard the table."""
        values = {"table": self._tables["job"], "count": count}
        [(drawn, now, is_guarded)] = self.run(connection, DRAW_IDS, values)
        return list(map(int, drawn.split())), now, is_guarded

    def copy(self, connection: BaseDatabaseWrapper, sql: str, blocks: Iterable[str]) -> range:
        """Send rows as text to a COPY, and give as many numbers; Django's execute wrappers see it as a statement."""

        def send(statement: str, *_: Any) -> None:
            with connection.wrap_database_errors, cursor.copy(statement) as copying:
                for block in blocks:
                    copying.write(block)

        with connection.cursor() as cursor:
            execute: Callable[..., None] = send
            for wrapper in reversed(connection.execute_wrappers):
                execute = partial(wrapper, execute)
            execute(self._text(sql, False), None, False, {"connection": connection, "cursor": cursor})  # noqa: FBT003
            return range(cursor.rowcount)

    def notify(self, connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
        """Send one notification a queue; its payload is the queue's name."""
        words = list(queues)
        if len(words) == 1:
            self.run(connection, NOTIFY, {"channel": CHANNEL, "word": words[0]})
        elif words:
            self.run(connection, NOTIFY_MANY, {"channel": CHANNEL, "names": name_rows(words)})

    def gave_up(self, error: DatabaseError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in GAVE_UP

    def be_brief(self, connection: BaseDatabaseWrapper) -> None:
        """Bound the waiting for locks until the transaction ends."""
        self.run(connection, BE_BRIEF, {})

    def line_up_to_declare(self, connection: BaseDatabaseWrapper) -> None:
        """Lock the table of sets against others who declare, and against nobody who reads."""
        self.run(connection, LINE_UP, {})

    def begin(self, connection: BaseDatabaseWrapper) -> None:
        """Have each statement see what others have committed by then."""
        self.run(connection, BEGIN_ATOMIC, {})

    def listen(self, connection: BaseDatabaseWrapper) -> None:
        """Listen on the channel."""
        self.run(connection, LISTEN, {})

    def unlisten(self, connection: BaseDatabaseWrapper) -> None:
        """Leave the channel: behind a pooler the session goes on, and somebody else would get what is said."""
        self.run(connection, UNLISTEN, {})

    def hear(self, connection: BaseDatabaseWrapper, mark: None, *, timeout: float) -> tuple[set[str], None]:
        """Read notifications as they come; whatever came with the first is read with it."""
        raw = connection.connection
        with connection.wrap_database_errors:
            return {heard.payload for heard in raw.notifies(timeout=timeout, stop_after=1)}, None

    def dedicate(self, connection: BaseDatabaseWrapper, *, bound: float) -> bool:
        """Have a dead peer noticed about as soon as a statement without answer; what the project said goes first."""
        options = connection.settings_dict["OPTIONS"]
        for name in ("server_side_binding", "prepare_threshold"):
            options.pop(name, None)
        whole = math.ceil(bound)
        defaults = {
            "connect_timeout": max(2, whole),
            "keepalives": 1,
            "keepalives_idle": whole,
            "keepalives_interval": max(1, whole // 3),
            "keepalives_count": 3,
            "tcp_user_timeout": int(1_500 * bound),
        }
        if "service" not in options:
            connection.settings_dict["OPTIONS"] = defaults | options
        return True

    def prepare_if_direct(self, connection: BaseDatabaseWrapper) -> None:
        """Prepare statements where the session is ours alone, as it is where its process is the one we were told of.

        A pooler invents that number, so this never takes one for a server. Behind one that gives each transaction
        another session, a prepared statement may be missing, or be another client's of the same name.
        """
        raw = connection.connection
        [(is_direct,)] = self.run(connection, BACKEND, {"pid": raw.info.backend_pid})
        if is_direct:
            raw.cursor_factory = import_string("django.db.backends.postgresql.base.ServerBindingCursor")
            raw.prepare_threshold = PREPARE_AFTER

    def cancel_statement(self, connection: BaseDatabaseWrapper, *, timeout: float) -> None:
        """Send a cancel request, by a connection of its own."""
        if (raw := connection.connection) is not None:
            raw.cancel_safe(timeout=timeout)

    def hang_up(self, connection: BaseDatabaseWrapper) -> None:
        """Shut the socket, but leave its number taken until the one who waits closes it."""
        raw = connection.connection
        if raw is None or raw.closed:
            return
        with suppress(OSError), socket.socket(fileno=os.dup(raw.fileno())) as double:
            double.shutdown(socket.SHUT_RDWR)

    def clock_values(self, frozen: datetime | None) -> dict[str, Any]:
        """Nothing: the server knows the time, unless it is frozen."""
        return {} if frozen is None else {"now": frozen}

    def now(self, *, frozen: bool) -> str:
        """Never `now()`: that one stands still in a transaction."""
        return "%(now)s::timestamptz" if frozen else "statement_timestamp()"

    def after(self, instant: str, seconds: str) -> str:
        """Add an interval of seconds."""
        return f"({instant} + make_interval(secs => {seconds}))"

    def before(self, instant: str, seconds: str) -> str:
        """Subtract an interval of seconds."""
        return f"({instant} - make_interval(secs => {seconds}))"

    def seconds_until(self, instant: str, now: str) -> str:
        return f"extract(epoch from ({instant} - {now}))"

    def rows(self, parameter: str, columns: Mapping[str, str]) -> str:
        """Read a JSON array of objects as a table, which the planner takes for a short one."""
        typed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        table = f"jsonb_to_recordset(%({parameter})s::jsonb) as c({typed})"
        if "id" in columns:
            return f"(select * from {table} where {self.few('c.id')}) as c"
        if "key" in columns:
            return f"(select * from {table} where c.key || '' = c.key and c.key = c.key || '') as c"
        return table

    def few(self, number: str) -> str:
        """Write two equations, each of which PostgreSQL believes to hold for one row of two hundred.

        Else it takes a JSON text for a hundred rows, and reads the whole table for them where it knows of few rows in
        it. Prepared on an empty table, such a plan is kept while the table grows.
        """
        return f"{number} - {number} = 0 and {number} & 0 = 0"

    def by(self, number: str) -> str:
        """Write an equation that an index serves, and no merge.

        For a merge PostgreSQL would consider the whole index in its order. Where its statistics say that there are
        pages without rows (they were gathered when a full table had been emptied), that looks as cheap as one lookup.
        """
        return self.at("job.id", number)

    def at(self, column: str, value: str) -> str:
        return f"{column} = any (array[{value}])"

    def holder(self, column: str, value: str, condition: str) -> str:
        """Write a query of its own for each key, which its limit keeps apart.

        In a join PostgreSQL might read the whole index, since that is of no other rows than are asked for: where its
        statistics say that there are none, this looks as cheap as a lookup.
        """
        wanted = f"select job.* from {self._tables['job']} as job where job.{column} = {value} and {condition} limit 1"
        return f"cross join lateral ({wanted}) as job"

    def using(self, table: str) -> str:
        return f"using {table} where {self.by(f'{table}.id')}"

    def append(self, entry: str) -> str:
        """Append with jsonb; a full list loses the second entry, so that the first stays."""
        return APPEND.replace("ENTRY", entry)

    def impatient(self) -> str:
        """Bound the waiting for locks, for as long as the statement's own transaction lasts."""
        return IMPATIENT

    def picked(self, extra: str) -> str:
        """Lock row by row, passing over those in other hands."""
        return PICKED.replace("EXTRA", extra)

    def json(self, value: str) -> str:
        return f"({value})::jsonb"

    def instant(self, value: str) -> str:
        return f"({value})::timestamptz"

    def utc(self, column: str) -> str:
        """Ask for UTC without a zone: Django's own reading depends on USE_TZ."""
        return f"{column} at time zone 'UTC'"

    def boolean(self, value: str) -> str:
        return f"({value})::int::boolean" if value.isdigit() else f"({value})::boolean"

    def write_instant(self, instant: datetime) -> str:
        return instant.isoformat()


def _blocks(ids: Sequence[int], jobs: Sequence[NewJob], now: datetime) -> Iterator[str]:
    """Write rows in COPY's text format, some at a time."""
    frames: dict[int, tuple[str, str]] = {}
    lines: list[str] = []
    size = 0
    for job_id, (draft, args, kwargs, _, _) in zip(ids, jobs, strict=True):
        # By identity: comparing drafts takes longer than writing them, and each lives as long as its job.
        frame = frames.get(id(draft))
        if frame is None:
            frame = frames[id(draft)] = _frame(draft, now)
        line = f"{job_id}{frame[0]}{_escaped(args)}\t{_escaped(kwargs)}{frame[1]}"
        lines.append(line)
        size += len(line)
        if size >= BLOCK:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


def _frame(draft: Draft, now: datetime) -> tuple[str, str]:
    """Write what stands before and behind the arguments in the rows of a draft."""
    run_at = now + draft.delay if draft.run_at is None else draft.run_at.astimezone(UTC)
    expires_at = None if draft.expires is None else run_at + draft.expires
    before = (draft.name, draft.queue, draft.priority)
    behind = (
        run_at, expires_at, draft.max_attempts, draft.max_crashes, draft.restart, draft.timeout, draft.keep,
        draft.keep_failed, draft.meta, draft.on_failure, now,
    )  # fmt: skip
    return "".join(f"\t{_field(value)}" for value in before) + "\t", "".join(
        f"\t{_field(value)}" for value in behind
    ) + "\n"


def _field(value: object) -> str:
    r"""Write a value as COPY reads it; NULL is \\N."""
    return r"\N" if value is None else _escaped(str(value))


def _escaped(text: str) -> str:
    """Escape what ends a field or a row, and the escape itself."""
    return text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")
