"""Write: every verb on rows, as SQL run on the connection handed in. Never decides and never asks for the time itself.

The statements below are written once for both databases. What differs stands in braces and is filled in by a dialect:
`{now}`, `{later:seconds}` (that long after now), `{rows:name}` (a table made from one JSON parameter), `{append:entry}`
(the row's errors with one more), `{wait}` and `{skip}` (how rows are locked), `{returning:columns}`, `{json:x}`,
`{instant:x}`, `{boolean:x}`, `{float:x}`.

Each write names what it expects of a row, and the rows that come back are the answer. Rows are locked in the order of
their ids; those in somebody else's hands are waited for by the verbs of people, and skipped by those of workers.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django_jobs import clock
from django_jobs.records import Claim, Claimed, ClaimRequest, Failure, HeldRow, Inserted, Lease, NewJob
from django_jobs.states import State
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

MOST_ERRORS = 20
"""So many entries of a row's errors stay: the first, and the newest of the others."""

ENTRY_BYTES = 3_000
"""The texts of an entry of errors are cut to so many bytes when they are written."""

CUT_MARK = "\n…\n"

ROWS: dict[str, dict[str, str]] = {
    "ids": {"id": "bigint"},
    "leases": {"id": "bigint", "token": "bigint"},
    "successes": {"id": "bigint", "token": "bigint", "result": "text"},
    "changes": {
        "id": "bigint", "token": "bigint", "state": "text", "attempts": "int", "max_attempts": "int", "crashes": "int",
        "alone": "boolean", "delay": "float8", "entry": "text", "fingerprint": "text", "result": "text",
    },
    "queues": {"queue": "text", "room": "int"},
    "names": {"name": "text"},
    "jobs": {
        "id": "bigint", "name": "text", "queue": "text", "priority": "int", "args": "text", "kwargs": "text",
        "run_at": "text", "delay": "float8", "expires": "float8", "max_attempts": "int", "max_crashes": "int",
        "restart": "boolean", "timeout": "float8", "keep": "float8", "keep_failed": "float8", "meta": "text",
    },
}  # fmt: skip
"""The JSON parameters that statements read as tables, with their columns."""

INSTANTS = frozenset({"enqueued_at", "run_at", "expires_at", "first_started_at", "started_at", "tick"})
"""The instants among the columns that statements return."""

INSERT = """
insert into {job} as job (
  name, queue, priority, args, kwargs, run_at, expires_at, max_attempts, max_crashes, restart, timeout, keep,
  keep_failed, meta, enqueued_at)
select %(name)s, %(queue)s, %(priority)s, {json:%(args)s}, {json:%(kwargs)s},
  coalesce({instant:%(run_at)s}, {later:%(delay)s}),
  {after:coalesce({instant:%(run_at)s}, {later:%(delay)s}); %(expires)s},
  %(max_attempts)s, %(max_crashes)s, {boolean:%(restart)s}, {float:%(timeout)s}, {float:%(keep)s},
  {float:%(keep_failed)s}, {json:%(meta)s}, {now}
{returning:id, enqueued_at, run_at, expires_at}
"""

INSERT_MANY = """
insert into {job} (
  id, name, queue, priority, args, kwargs, run_at, expires_at, max_attempts, max_crashes, restart, timeout, keep,
  keep_failed, meta, enqueued_at)
select c.id, c.name, c.queue, c.priority, {json:c.args}, {json:c.kwargs},
  coalesce({instant:c.run_at}, {later:c.delay}), {after:coalesce({instant:c.run_at}, {later:c.delay}); c.expires},
  c.max_attempts, c.max_crashes, c.restart, c.timeout, c.keep, c.keep_failed, {json:c.meta}, {now}
from {rows:jobs} order by c.id
"""

# The queues that have READY rows, found by one probe each, whatever else the table holds.
EVERY_QUEUE = """
every_queue(queue) as (
  select (select ready.queue from {job} as ready where ready.state = 'READY' and ready.name > ''
          order by ready.queue limit 1)
  union all
  select (select ready.queue from {job} as ready
          where ready.state = 'READY' and ready.name > '' and ready.queue > every_queue.queue
          order by ready.queue limit 1)
  from every_queue where every_queue.queue is not null
),
served(queue, room) as (
  select every_queue.queue, (select c.room from {rows:queues} where c.queue = every_queue.queue)
  from every_queue where every_queue.queue is not null
)
"""

NAMED_QUEUES = """
served(queue, room) as (select c.queue, c.room from {rows:queues})
"""

# The claim walks the (queue, priority) pairs that exist, highest priority first, and takes the oldest due rows of each:
# finished rows are not in the index, and future ones of a higher priority cost one probe a pair.
WALK = """
with recursive
{served},
pair(queue, room, priority) as (
  select served.queue, served.room, (
    select ready.priority from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = served.queue
    order by ready.priority desc limit 1)
  from served
  union all
  select pair.queue, pair.room, (
    select ready.priority from {job} as ready
    where ready.state = 'READY' and ready.name > '' and ready.queue = pair.queue and ready.priority < pair.priority
    order by ready.priority desc limit 1)
  from pair where pair.priority is not null
),
open as materialized (
  select pair.queue, pair.room, pair.priority, case when pair.queue > %(last_queue)s then 0 else 1 end as turn
  from pair
  where pair.priority is not null and not exists (
    select 1 from {queue} as paused where paused.name = pair.queue and paused.paused_at is not null)
  order by pair.priority desc, turn, pair.queue
)
"""

CLAIM = (
    WALK
    + """,
picked as materialized ({picked}),
counted as (
  select picked.*, row_number() over (
    partition by picked.queue order by picked.priority desc, picked.run_at, picked.id) as nth
  from picked
),
placed as (
  select counted.id, counted.alone, counted.expired, row_number() over (
    order by counted.priority desc, counted.turn, counted.queue, counted.run_at, counted.id) as place
  from counted where counted.room is null or counted.nth <= counted.room
),
taken as materialized (
  select placed.id, placed.expired from placed
  where placed.place = 1 or not exists (
    select 1 from placed as suspect where suspect.alone and suspect.place <= placed.place)
  order by placed.place limit %(limit)s
)
update {job} as job set
  state = case when taken.expired then 'CANCELLED' else 'RUNNING' end,
  token = case when taken.expired then job.token else %(token)s end,
  worker = case when taken.expired then null else %(worker)s end,
  last_worker = case when taken.expired then job.last_worker else %(worker)s end,
  attempts = job.attempts + case when taken.expired then 0 else 1 end,
  first_started_at = case when taken.expired then job.first_started_at else coalesce(job.first_started_at, {now}) end,
  started_at = case when taken.expired then job.started_at else {now} end,
  lease_expires_at = case when taken.expired then null else {later:%(lease)s} end,
  deadline_at = case when taken.expired then null else {later:job.timeout + {float:%(grace)s} + {float:%(lease)s}} end,
  finished_at = case when taken.expired then {now} end,
  prune_at = case when taken.expired then {later:job.keep_failed} end,
  errors = case when taken.expired then {append:%(expiry)s} else job.errors end
from taken where job.id = taken.id and job.state = 'READY'
{returning:id, state, name, queue, priority, args, kwargs, meta, attempts, max_attempts, crashes, max_crashes, alone,
  restart, timeout, keep, enqueued_at, run_at, first_started_at, started_at, schedule, tick}
"""
)

# When the next job of these queues is due, in seconds from now; negative where one is due already.
NEXT_DUE = (
    WALK
    + """
select min({seconds_until:(select ready.run_at from {job} as ready
  where ready.state = 'READY' and ready.name > '' and ready.queue = open.queue and ready.priority = open.priority
  order by ready.run_at, ready.id limit 1)})
from open
"""
)

RENEW = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on job.id = c.id
  where job.token = c.token and job.worker is not null order by job.id {skip}
)
update {job} as job set lease_expires_at = {later:%(lease)s} from todo where job.id = todo.id
{returning:id, token, state}
"""

SUCCEED = """
with todo as materialized (
  select job.id, c.result from {rows:successes} join {job} as job on job.id = c.id
  where job.token = c.token and job.state = 'RUNNING' order by job.id {skip}
)
update {job} as job set state = 'SUCCESSFUL', finished_at = {now}, prune_at = {later:job.keep},
  result = {json:todo.result}, worker = null, lease_expires_at = null, deadline_at = null
from todo where job.id = todo.id
{returning:id, token}
"""

SUCCEED_AND_GO = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on job.id = c.id
  where job.token = c.token and job.state = 'RUNNING' order by job.id {skip}
)
delete from {job} as job where job.id in (select todo.id from todo) {returning:id, token}
"""

_CHANGE = """
with todo as materialized (
  select c.* from {rows:changes} join {job} as job on job.id = c.id
  where job.token = c.token and job.state = 'RUNNING'GUARD order by job.id {skip}
)
update {job} as job set
  state = todo.state, attempts = todo.attempts, max_attempts = todo.max_attempts, crashes = todo.crashes,
  alone = todo.alone,
  run_at = case when todo.delay is null then job.run_at else {later:todo.delay} end,
  finished_at = case when todo.state = 'READY' then null else {now} end,
  prune_at = case todo.state
    when 'READY' then null when 'SUCCESSFUL' then {later:job.keep} else {later:job.keep_failed} end,
  errors = case when todo.entry is null then job.errors else {append:todo.entry} end,
  fingerprint = case when todo.entry is null then job.fingerprint else todo.fingerprint end,
  result = {json:todo.result},
  worker = null, lease_expires_at = null, deadline_at = null
from todo where job.id = todo.id
{returning:id, token}
"""

# A broken supervisor may renew a run for ever; its deadline is the last resort.
_LAPSED = "(job.lease_expires_at <= {now} or job.deadline_at <= {now})"

CHANGE = _CHANGE.replace("GUARD", "")
CHANGE_LAPSED = _CHANGE.replace("GUARD", f"\n    and job.worker is not null and {_LAPSED}")

_LET_GO = """
with todo as materialized (
  select job.id from {rows:leases} join {job} as job on job.id = c.id
  where job.token = c.token and job.state = 'CANCELLED' and job.worker is not nullGUARD order by job.id {skip}
)
update {job} as job set worker = null, lease_expires_at = null, deadline_at = null from todo where job.id = todo.id
{returning:id, token}
"""

LET_GO = _LET_GO.replace("GUARD", "")
LET_GO_LAPSED = _LET_GO.replace("GUARD", f" and {_LAPSED}")

HELD_COLUMNS = """
job.id, job.token, job.state, job.worker, job.name, job.queue, job.attempts, job.max_attempts, job.crashes,
job.max_crashes, job.alone, job.restart
"""

# The plus keeps both planners from walking the ids of the whole table for the order; the few held rows have an index.
HELD_BY = f"""
select {HELD_COLUMNS} from {{job}} as job where job.worker = %(worker)s order by job.id
"""

LAPSED = f"""
select {HELD_COLUMNS} from {{job}} as job
where job.worker is not null and {_LAPSED} and job.name > ''
order by +job.id limit %(limit)s
"""

PEEK = f"""
select {HELD_COLUMNS} from {{rows:ids}} join {{job}} as job on job.id = c.id where job.token is not null
"""

STATES = """
select job.id, job.state, case when job.worker is null then 0 else 1 end
from {rows:ids} join {job} as job on job.id = c.id
"""

QUEUES = """
select distinct job.queue from {rows:ids} join {job} as job on job.id = c.id
"""

EXPIRE = """
with todo as materialized (
  select job.id from {job} as job
  where job.state = 'READY' and job.expires_at is not null and job.expires_at <= {now}
  order by job.id limit %(limit)s {skip}
)
update {job} as job set state = 'CANCELLED', finished_at = {now}, prune_at = {later:job.keep_failed},
  errors = {append:%(expiry)s}
from todo where job.id = todo.id
{returning:id}
"""

CANCEL = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on job.id = c.id
  where job.state in ('READY', 'RUNNING') order by job.id {wait}
)
update {job} as job set state = 'CANCELLED', finished_at = {now}, prune_at = {later:job.keep_failed},
  errors = {append:%(entry)s}
from todo where job.id = todo.id
{returning:id}
"""

RETRY = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on job.id = c.id
  where job.state in ('READY', 'FAILED', 'CANCELLED') and job.worker is null order by job.id {wait}
)
update {job} as job set state = 'READY', run_at = {now}, finished_at = null, prune_at = null, expires_at = null,
  crashes = 0, alone = {boolean:0}, first_started_at = null,
  max_attempts = case when job.max_attempts > job.attempts then job.max_attempts else job.attempts + 1 end
from todo where job.id = todo.id
{returning:id}
"""

DELETE = """
with todo as materialized (
  select job.id from {rows:ids} join {job} as job on job.id = c.id where job.worker is null order by job.id {wait}
)
delete from {job} as job where job.id in (select todo.id from todo) {returning:id}
"""

PRUNABLE = """
select job.id from {job} as job
where job.prune_at is not null and job.prune_at <= {now} and job.worker is null
  and job.state in ('SUCCESSFUL', 'FAILED', 'CANCELLED')
  and (job.unique_until is null or job.unique_until <= {now})
"""

PRUNABLE_AFTER = f"{PRUNABLE} and job.id > %(after)s order by job.id limit %(limit)s"

_PRUNE = f"""
with todo as materialized ({PRUNABLE}ONLY order by job.id limit %(limit)s {{skip}})
delete from {{job}} as job where job.id in (select todo.id from todo) {{returning:id}}
"""

PRUNE = _PRUNE.replace("ONLY", "")
PRUNE_ONE = _PRUNE.replace("ONLY", " and job.id = %(only)s")


class Store(ABC):
    """Every verb on rows. A verb takes the connection to run on: the caller's, or one of the worker's own."""

    def __init__(self, *, job_table: str, queue_table: str) -> None:
        self._tables = {"job": f'"{job_table}"', "queue": f'"{queue_table}"'}
        self._text = lru_cache(maxsize=None)(self._filled)
        self._claim_text = lru_cache(maxsize=None)(self._composed_claim)

    # -- enqueue

    def insert(self, connection: BaseDatabaseWrapper, job: NewJob) -> Inserted:
        """Insert one READY row."""
        [(job_id, enqueued_at, run_at, expires_at)] = self.run(connection, INSERT, self._job_values(job))
        return Inserted(
            id=job_id,
            enqueued_at=self.read_instant(enqueued_at),
            run_at=self.read_instant(run_at),
            expires_at=self._maybe_instant(expires_at),
        )

    def insert_many(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[int]:
        """Insert READY rows, within a transaction of the caller's, and give their ids in the order of `jobs`."""
        ids = self.draw_ids(connection, len(jobs))
        rows = [{"id": job_id, **self._job_values(job)} for job_id, job in zip(ids, jobs, strict=True)]
        self.run(connection, INSERT_MANY, {"jobs": _dump(rows)})
        return ids

    @abstractmethod
    def draw_ids(self, connection: BaseDatabaseWrapper, count: int) -> list[int]:
        """Take `count` ids, ascending, that nobody else will get."""

    @abstractmethod
    def notify(self, connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
        """Tell listening workers that these queues have jobs: a hint, in a statement of its own."""

    @abstractmethod
    def listen(self, connection: BaseDatabaseWrapper) -> Any:
        """Begin to hear of new jobs on a connection kept for that, and give what `hear` wants to know."""

    @abstractmethod
    def hear(self, connection: BaseDatabaseWrapper, mark: Any, *, timeout: float) -> tuple[set[str], Any]:
        """Wait up to `timeout` seconds for news, and give what was said, with the mark for the next call."""

    # -- a worker's verbs

    def claim(self, connection: BaseDatabaseWrapper, request: ClaimRequest, token: int) -> Claimed:
        """Take due rows under `token`, in order, and end expired ones in passing; never more than asked for."""
        entry = _entry(Failure(kind="expired", reason="expired before it could start"))
        named = request.rooms if request.queues is None else request.queues
        rows = self.run(
            connection,
            self._claim_text(request.queues is None, request.empty_handed, request.names is not None),
            {
                "limit": request.limit,
                "reach": 2**31 - 1 if request.rooms else request.limit,
                "token": token,
                "worker": request.worker,
                "lease": request.lease.total_seconds(),
                "grace": request.grace.total_seconds(),
                "last_queue": request.last_queue,
                "queues": _dump([{"queue": q, "room": request.rooms.get(q)} for q in named]),
                "names": name_rows(request.names or ()),
                "expiry": entry,
            },
        )
        claims = [self._read_claim(row, token) for row in rows if row[1] == State.RUNNING]
        # RETURNING promises no order.
        claims.sort(key=lambda c: (-c.priority, c.queue <= request.last_queue, c.queue, c.run_at, c.id))
        expired = tuple(sorted(row[0] for row in rows if row[1] == State.CANCELLED))
        return Claimed(claims=tuple(claims), expired=expired)

    def next_due(self, connection: BaseDatabaseWrapper, request: ClaimRequest) -> float | None:
        """Say in how many seconds the next job of the request's queues is due; None where none waits."""
        text = NEXT_DUE.replace("{served}", (EVERY_QUEUE if request.queues is None else NAMED_QUEUES).strip())
        values = {"queues": _dump([{"queue": q, "room": None} for q in request.queues or ()]), "last_queue": ""}
        [(seconds,)] = self.run(connection, text, values)
        return None if seconds is None else float(seconds)

    def renew(
        self, connection: BaseDatabaseWrapper, leases: Sequence[Lease], *, lease: timedelta
    ) -> dict[Lease, State]:
        """Let these held rows be held for `lease` from now, and give the states of those that still are."""
        values = {"leases": _lease_rows(leases), "lease": lease.total_seconds()}
        rows = self.run(connection, RENEW, values)
        return {Lease(id=job_id, token=token): State(state) for job_id, token, state in rows}

    def settle(self, connection: BaseDatabaseWrapper, changes: Sequence[Change]) -> set[Lease]:
        """Write the ends of runs whose token still stands in a RUNNING row, and give the leases that were written.

        A row that is missing in the answer was taken away, or is locked by somebody just now: `peek` tells which.
        """
        gone = [change for change in changes if change.gone]
        plain = [change for change in changes if change.state is State.SUCCESSFUL and not change.gone]
        others = [change for change in changes if change.state is not State.SUCCESSFUL]
        written: set[Lease] = set()
        if gone:
            written |= self._leases(connection, SUCCEED_AND_GO, {"leases": _lease_rows([c.lease for c in gone])})
        if plain:
            rows = [{"id": c.lease.id, "token": c.lease.token, "result": c.result} for c in plain]
            written |= self._leases(connection, SUCCEED, {"successes": _dump(rows)})
        if others:
            written |= self._leases(connection, CHANGE, {"changes": _change_rows(others)})
        return written

    def let_go(self, connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> set[Lease]:
        """End the holding of cancelled rows whose body has stopped."""
        return self._leases(connection, LET_GO, {"leases": _lease_rows(leases)})

    def peek(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> dict[int, HeldRow]:
        """Read back rows that have been claimed at some time."""
        rows = self.run(connection, PEEK, {"ids": _id_rows(ids)})
        return {row[0]: _read_held(row) for row in rows}

    def held_by(self, connection: BaseDatabaseWrapper, worker: str) -> list[HeldRow]:
        """Find the rows that a worker holds."""
        return [_read_held(row) for row in self.run(connection, HELD_BY, {"worker": worker})]

    # -- chores

    def lapsed(self, connection: BaseDatabaseWrapper, *, limit: int) -> list[HeldRow]:
        """Find held rows whose lease, or deadline, is over."""
        return [_read_held(row) for row in self.run(connection, LAPSED, {"limit": limit})]

    def reclaim(self, connection: BaseDatabaseWrapper, changes: Sequence[Change]) -> set[Lease]:
        """Take RUNNING rows back, each only if its token stands and its lease, or deadline, is still over."""
        return self._leases(connection, CHANGE_LAPSED, {"changes": _change_rows(changes)})

    def let_go_lapsed(self, connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> set[Lease]:
        """End the holding of cancelled rows, each only if its lease, or deadline, is still over."""
        return self._leases(connection, LET_GO_LAPSED, {"leases": _lease_rows(leases)})

    def expire(self, connection: BaseDatabaseWrapper, *, limit: int) -> set[int]:
        """Cancel READY rows past their `expires_at`."""
        entry = _entry(Failure(kind="expired", reason="expired before it could start"))
        return self._ids(connection, EXPIRE, {"limit": limit, "expiry": entry})

    def prune(self, connection: BaseDatabaseWrapper, *, limit: int, only: int | None = None) -> int:
        """Delete finished rows whose keeping is over, or only one of them, and say how many went."""
        text = PRUNE if only is None else PRUNE_ONE
        return len(self._ids(connection, text, {"limit": limit, "only": only}))

    def prunable(self, connection: BaseDatabaseWrapper, *, after: int, limit: int) -> list[int]:
        """List finished rows whose keeping is over, beyond an id."""
        return [row[0] for row in self.run(connection, PRUNABLE_AFTER, {"after": after, "limit": limit})]

    # -- verbs by hand

    def cancel(self, connection: BaseDatabaseWrapper, ids: Iterable[int], *, reason: str) -> set[int]:
        """Cancel READY rows, and RUNNING ones, which stay held until their body has stopped."""
        entry = _entry(Failure(kind="cancelled", reason=reason))
        return self._ids(connection, CANCEL, {"ids": _id_rows(ids), "entry": entry})

    def retry(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[int]:
        """Make waiting, failed and cancelled rows READY now, with at least one attempt more; held ones stay."""
        return self._ids(connection, RETRY, {"ids": _id_rows(ids)})

    def delete(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[int]:
        """Delete rows that nobody holds."""
        return self._ids(connection, DELETE, {"ids": _id_rows(ids)})

    def states(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> dict[int, tuple[State, bool]]:
        """Read the state of rows, and whether they are held."""
        rows = self.run(connection, STATES, {"ids": _id_rows(ids)})
        return {job_id: (State(state), bool(held)) for job_id, state, held in rows}

    def queues(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[str]:
        """Read which queues rows wait under."""
        return {row[0] for row in self.run(connection, QUEUES, {"ids": _id_rows(ids)})}

    # -- how a statement runs

    def run(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement with its named values and give the rows it returns."""
        frozen = clock.frozen_now()
        with connection.cursor() as cursor:
            cursor.execute(self._text(sql, frozen is not None), {**values, **self.clock_values(frozen)})
            return cursor.fetchall() if cursor.description else []

    @abstractmethod
    def clock_values(self, frozen: datetime | None) -> dict[str, Any]:
        """Give the values that `{now}` refers to."""

    # -- what a dialect says of each thing in braces

    @abstractmethod
    def now(self, *, frozen: bool) -> str:
        """Write the present instant."""

    @abstractmethod
    def after(self, instant: str, seconds: str) -> str:
        """Write the instant that many seconds after another; NULL where either is."""

    @abstractmethod
    def seconds_until(self, instant: str, now: str) -> str:
        """Write how many seconds it is from now to an instant."""

    @abstractmethod
    def rows(self, parameter: str, columns: Mapping[str, str]) -> str:
        """Write a table called c with typed columns, made of the JSON text in a parameter."""

    @abstractmethod
    def append(self, entry: str) -> str:
        """Write the row's errors with one entry more, completed by attempt, instants and worker of the row."""

    @abstractmethod
    def picked(self, extra: str) -> str:
        """Write the query that finds and locks the oldest due rows of each open (queue, priority) pair."""

    needs_proof: bool
    """Whether hearing may fail without an error."""

    wait: str
    skip: str
    own: str
    """How RETURNING names a column of the row it wrote: a prefix."""

    @abstractmethod
    def json(self, value: str) -> str:
        """Write JSON text as a value for a JSON column."""

    @abstractmethod
    def instant(self, value: str) -> str:
        """Write the text of `write_instant` as an instant."""

    @abstractmethod
    def utc(self, column: str) -> str:
        """Write a column such that `read_instant` understands what comes back."""

    @abstractmethod
    def boolean(self, value: str) -> str:
        """Write a parameter or 0 or 1 as a truth value."""

    @abstractmethod
    def write_instant(self, instant: datetime) -> str:
        """Turn an aware datetime into text for a statement."""

    @abstractmethod
    def read_instant(self, value: Any) -> datetime:
        """Turn what the database gave for an instant into an aware UTC datetime."""

    def _filled(self, sql: str, frozen: bool) -> str:  # noqa: FBT001 - the key of a cache
        now = self.now(frozen=frozen)
        fillers: dict[str, Callable[[str], str]] = {
            "job": lambda _: self._tables["job"],
            "queue": lambda _: self._tables["queue"],
            "now": lambda _: now,
            "later": lambda seconds: self.after(now, seconds),
            "after": lambda pair: self.after(*pair.split(";")),
            "rows": lambda name: self.rows(name, ROWS[name]),
            "returning": lambda columns: f"returning {', '.join(map(self._returned, columns.split(',')))}",
            "seconds_until": lambda instant: self.seconds_until(instant, now),
            "float": lambda value: f"cast({value} as float8)",
            "append": self.append,
            "json": self.json,
            "instant": self.instant,
            "boolean": self.boolean,
            "wait": lambda _: self.wait,
            "skip": lambda _: self.skip,
        }

        def fill(match: re.Match[str]) -> str:
            return fillers[match["word"]](match["argument"] or "")

        # Innermost braces first, until none is left.
        while (filled := _BRACES.sub(fill, sql)) != sql:
            sql = filled
        return sql

    def _returned(self, column: str) -> str:
        name = column.strip()
        return self.utc(self.own + name) if name in INSTANTS else self.own + name

    def _composed_claim(self, every_queue: bool, alone_too: bool, some_names: bool) -> str:  # noqa: FBT001 - a cache's key
        extra = "" if alone_too else "\n      and not ready.alone"
        if some_names:
            extra += "\n      and ready.name in (select c.name from {rows:names})"
        served = EVERY_QUEUE if every_queue else NAMED_QUEUES
        return CLAIM.replace("{served}", served.strip()).replace("{picked}", self.picked(extra))

    def _ids(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> set[int]:
        return {row[0] for row in self.run(connection, sql, values)}

    def _leases(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> set[Lease]:
        return {Lease(id=job_id, token=token) for job_id, token in self.run(connection, sql, values)}

    def _job_values(self, job: NewJob) -> dict[str, Any]:
        return {
            "name": job.name,
            "queue": job.queue,
            "priority": job.priority,
            "args": job.args,
            "kwargs": job.kwargs,
            "run_at": None if job.run_at is None else self.write_instant(job.run_at),
            "delay": job.delay.total_seconds(),
            "expires": None if job.expires is None else job.expires.total_seconds(),
            "max_attempts": job.max_attempts,
            "max_crashes": job.max_crashes,
            "restart": job.restart,
            "timeout": job.timeout,
            "keep": job.keep,
            "keep_failed": job.keep_failed,
            "meta": job.meta,
        }

    def _read_claim(self, row: tuple[Any, ...], token: int) -> Claim:
        (
            job_id, _state, name, queue, priority, args, kwargs, meta, attempts, max_attempts, crashes, max_crashes,
            alone, restart, timeout, keep, enqueued_at, run_at, first_started_at, started_at, schedule, tick,
        ) = row  # fmt: skip
        return Claim(
            id=job_id,
            token=token,
            name=name,
            queue=queue,
            priority=priority,
            args=args,
            kwargs=kwargs,
            meta=meta,
            attempt=attempts,
            max_attempts=max_attempts,
            crashes=crashes,
            max_crashes=max_crashes,
            alone=bool(alone),
            restart=bool(restart),
            timeout=timeout,
            keep=keep,
            enqueued_at=self.read_instant(enqueued_at),
            run_at=self.read_instant(run_at),
            first_started_at=self.read_instant(first_started_at),
            started_at=self.read_instant(started_at),
            schedule=schedule,
            tick=self._maybe_instant(tick),
        )

    def _maybe_instant(self, value: Any) -> datetime | None:
        return None if value is None else self.read_instant(value)


_BRACES = re.compile(r"\{(?P<word>[a-z_]+)(?::(?P<argument>[^{}]*))?\}")


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def name_rows(names: Iterable[str]) -> str:
    """Write the parameter that `{rows:names}` reads."""
    return _dump([{"name": name} for name in names])


def _id_rows(ids: Iterable[int]) -> str:
    return _dump([{"id": job_id} for job_id in ids])


def _lease_rows(leases: Iterable[Lease]) -> str:
    return _dump([{"id": lease.id, "token": lease.token} for lease in leases])


def _change_rows(changes: Iterable[Change]) -> str:
    return _dump(
        [
            {
                "id": change.lease.id,
                "token": change.lease.token,
                "state": change.state.value,
                "attempts": change.attempts,
                "max_attempts": change.max_attempts,
                "crashes": change.crashes,
                "alone": change.alone,
                "delay": None if change.delay is None else change.delay.total_seconds(),
                "entry": None if change.failure is None else _entry(change.failure),
                "fingerprint": (change.failure.fingerprint or None) if change.failure else None,
                "result": change.result,
            }
            for change in changes
        ]
    )


def _entry(failure: Failure) -> str:
    """Write an entry of errors; where it is too long, the middle of its traceback goes first."""
    reason, exception = (_cut(clean(text), ENTRY_BYTES // 3) for text in (failure.reason, failure.exception))
    room = ENTRY_BYTES - len(reason.encode()) - len(exception.encode())
    entry = {"kind": failure.kind, "reason": reason, "exception": exception}
    return _dump(entry | {"traceback": _cut(clean(failure.traceback), room)})


def clean(text: str) -> str:
    """Replace what a database can't store in a text: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _cut(text: str, room: int) -> str:
    """Cut the middle out of a text that takes more than `room` bytes; the end tells most, so it keeps most."""
    data = text.encode()
    if len(data) <= room:
        return text
    head, tail = data[: room // 4], data[-(room - room // 4 - len(CUT_MARK.encode())) :]
    return head.decode("utf-8", "ignore") + CUT_MARK + tail.decode("utf-8", "ignore")


def _read_held(row: tuple[Any, ...]) -> HeldRow:
    job_id, token, state, worker, name, queue, attempts, max_attempts, crashes, max_crashes, alone, restart = row
    return HeldRow(
        id=job_id,
        token=token,
        state=State(state),
        worker=worker,
        name=name,
        queue=queue,
        attempts=attempts,
        max_attempts=max_attempts,
        crashes=crashes,
        max_crashes=max_crashes,
        alone=bool(alone),
        restart=bool(restart),
    )
