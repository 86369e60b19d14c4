"""Write: the rows of the low level, whose name is '': their statements, and what runs them on the connection handed in.

No worker runs these and none of theirs meets such a row; whoever pushes and takes does so on a connection of their own.
A row is taken by the queue, not by a process: `worker` says "take:" and the queue, so that the index of held rows finds
what lapsed in one. A dead row's fingerprint begins with "pushed" and says the queue, so that the index of failed rows
finds the dead of one, and tells them from failed jobs, whose fingerprints are hexadecimal.

Rows in a consumer's hands are few and its writes are about one of them, so these wait for who has it locked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from django_jobs import clock
from django_jobs.records import DeadRow, Failure, Lease, TakenRow
from django_jobs.states import State

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.stores.base import Store

# What lapsed waits again as if it had never been taken, but for its attempts; what was cancelled meanwhile is held no
# more. In a `case`, so that nothing but the holder is asked of the index of held rows.
BRING_BACK = """
with todo as materialized (
  select job.id from {job} as job
  where job.worker = %(holder)s and case when job.lease_expires_at <= {now} then true else false end
  order by job.lease_expires_at limit %(limit)s {skip}
)
update {job} as job set
  state = case when job.state = 'RUNNING' then 'READY' else job.state end,
  errors = case when job.state = 'RUNNING' then {append:%(entry)s} else job.errors end,
  worker = null, lease_expires_at = null
from todo where {by:todo.id} and {few:todo.id}
{returning:id, state}
"""

# The priorities that exist are walked as in a claim, the highest first: people may reschedule what was pushed. The
# limit of 201, which is that of priorities, has PostgreSQL look at them one by one, and lock no row that isn't taken.
TAKE = """
with recursive
pair(priority) as (
  select (
    select job.priority from {job} as job
    where job.state = 'READY' and job.name = '' and job.queue = %(queue)s
    order by job.priority desc limit 1)
  union all
  select (
    select job.priority from {job} as job
    where job.state = 'READY' and job.name = '' and job.queue = %(queue)s and job.priority < pair.priority
    order by job.priority desc limit 1)
  from pair where pair.priority >= -100
),
tried as materialized (
  select (
    select job.id from {job} as job
    where job.state = 'READY' and job.name = '' and job.queue = %(queue)s and job.priority = pair.priority
      and job.run_at <= {now}
    order by job.run_at, job.id limit 1 {skip}) as id
  from pair
  where pair.priority >= -100 and not exists (
    select 1 from {queue} as paused where paused.name = %(queue)s and paused.paused_at is not null)
  order by pair.priority desc limit 201
),
taken as materialized (
  select tried.id from tried where tried.id > 0 limit 1
)
update {job} as job set
  state = 'RUNNING', token = %(token)s, worker = %(holder)s, last_worker = %(consumer)s, attempts = job.attempts + 1,
  first_started_at = coalesce(job.first_started_at, {now}), started_at = {now}, lease_expires_at = {later:%(lease)s}
from taken where {by:taken.id} and {few:taken.id} and case when job.state = 'READY' then true else false end
{returning:id, token, queue, args, attempts, max_attempts, run_at, lease_expires_at}, {last_reason}
"""

_IS_OURS = "where job.id = %(id)s and job.token = %(token)s and job.state = 'RUNNING'"

ACK = f"""
delete from {{job}} as job {_IS_OURS} {{returning:id}}
"""

_PUT_BACK = f"""
update {{job}} as job set STATE, max_attempts = %(max_attempts)s, errors = {{append:%(entry)s}},
  worker = null, lease_expires_at = null
{_IS_OURS} {{returning:id}}
"""

PUT_BACK = _PUT_BACK.replace("STATE", "state = 'READY', run_at = {later:%(delay)s}")
FAIL = _PUT_BACK.replace("STATE", "state = 'FAILED', finished_at = {now}, fingerprint = %(fingerprint)s")

EXTEND = f"""
update {{job}} as job set lease_expires_at = {{later:%(lease)s}} {_IS_OURS} {{returning:lease_expires_at}}
"""

# What the index doesn't know stands in a `case`, as in the chores. Holders are told from most workers by their first
# letters, whatever the database's collation thinks of a colon; a bound on both sides looks like few rows.
STATS = """
select job.queue, sum(case when job.run_at <= {now} then 1 else 0 end), count(*), 0, 0
from {job} as job where job.state = 'READY' and job.name = '' group by job.queue
union all
select job.queue, 0, 0, count(*), 0
from {job} as job
where job.worker > 'take' and job.worker < 'takf'
  and case when job.state = 'RUNNING' and job.name = '' then true else false end
group by job.queue
union all
select job.queue, 0, 0, 0, count(*)
from {job} as job
where job.state = 'FAILED' and job.fingerprint > 'pushed' and case when job.name = '' then true else false end
group by job.queue
"""

DEAD = """
select job.id, job.queue, job.args, job.attempts, {utc:job.run_at}, {utc:job.finished_at}, {last_reason}
from {job} as job where job.state = 'FAILED' and job.fingerprint = %(fingerprint)s
order by job.id limit %(limit)s
"""

LAPSE = Failure(kind="lapse", reason="the lease ran out while a consumer had this")
"""Why a row came back that nobody put back."""


class Counts(NamedTuple):
    """How many rows of a queue are due, wait for their time, are taken, and are dead."""

    ready: int
    waiting: int
    taken: int
    dead: int


def bring_back(store: Store, connection: BaseDatabaseWrapper, queue: str, *, limit: int) -> dict[int, State]:
    """Take rows of a queue back whose lease is over, and give their states: READY, or CANCELLED and held no more."""
    values = {"holder": _holder(queue), "limit": limit, "entry": store.entry(LAPSE)}
    return {job_id: State(state) for job_id, state in store.run(connection, BRING_BACK, values)}


def take(
    store: Store, connection: BaseDatabaseWrapper, queue: str, *, token: int, lease: timedelta, consumer: str
) -> TakenRow | None:
    """Take the first due row of a queue under `token`; `consumer` names the process that does."""
    values = {
        "queue": queue,
        "token": token,
        "holder": _holder(queue),
        "consumer": consumer,
        "lease": lease.total_seconds(),
    }
    rows = store.run(connection, TAKE, values)
    if not rows:
        return None
    job_id, token, queue, args, attempts, max_attempts, run_at, lease_expires_at, reason = rows[0]
    return TakenRow(
        lease=Lease(job_id, token),
        queue=queue,
        args=args,
        attempts=attempts,
        max_attempts=max_attempts,
        error=reason or "",
        run_at=clock.read(run_at),
        lease_expires_at=clock.read(lease_expires_at),
    )


def ack(store: Store, connection: BaseDatabaseWrapper, lease: Lease) -> bool:
    """Delete a row that is still taken under this lease."""
    return bool(store.run(connection, ACK, lease._asdict()))


def put_back(
    store: Store,
    connection: BaseDatabaseWrapper,
    lease: Lease,
    *,
    failure: Failure,
    delay: timedelta,
    max_attempts: int,
) -> bool:
    """Have a row wait again that is still taken under this lease, for `delay` from now."""
    values = {
        **lease._asdict(),
        "entry": store.entry(failure),
        "delay": delay.total_seconds(),
        "max_attempts": max_attempts,
    }
    return bool(store.run(connection, PUT_BACK, values))


def fail(
    store: Store, connection: BaseDatabaseWrapper, lease: Lease, *, queue: str, failure: Failure, max_attempts: int
) -> bool:
    """End a row for good that is still taken under this lease."""
    values = {
        **lease._asdict(),
        "entry": store.entry(failure),
        "fingerprint": fingerprint(queue),
        "max_attempts": max_attempts,
    }
    return bool(store.run(connection, FAIL, values))


def extend(store: Store, connection: BaseDatabaseWrapper, lease: Lease, *, lasting: timedelta) -> datetime | None:
    """Let a row be taken for so long from now, and give until when; None where this lease holds none."""
    rows = store.run(connection, EXTEND, {**lease._asdict(), "lease": lasting.total_seconds()})
    return clock.read(rows[0][0]) if rows else None


def stats(store: Store, connection: BaseDatabaseWrapper) -> dict[str, Counts]:
    """Count the rows of each queue that has any which are due, wait, are taken or dead."""
    found: dict[str, Counts] = {}
    for queue, due, waiting_or_due, taken, dead in store.run(connection, STATS, {}):
        more = Counts(ready=due, waiting=waiting_or_due - due, taken=taken, dead=dead)
        found[queue] = Counts(*map(sum, zip(found.get(queue, Counts(0, 0, 0, 0)), more, strict=True)))
    return found


def dead(store: Store, connection: BaseDatabaseWrapper, queue: str, *, limit: int) -> Iterable[DeadRow]:
    """Read the dead rows of a queue, the oldest first."""
    values = {"fingerprint": fingerprint(queue), "limit": limit}
    return [
        DeadRow(
            id=job_id,
            queue=queue,
            args=args,
            attempts=attempts,
            error=reason or "",
            run_at=clock.read(run_at),
            died_at=clock.read(died_at),
        )
        for job_id, queue, args, attempts, run_at, died_at, reason in store.run(connection, DEAD, values)
    ]


def _holder(queue: str) -> str:
    """Say who holds what was taken from a queue. A worker's identity ends with a number and a random part."""
    return f"take:{queue}"


def fingerprint(queue: str) -> str:
    """Give what the dead of a queue have in common, and nothing else has."""
    return f"pushed{hashlib.sha1(queue.encode(), usedforsecurity=False).hexdigest()[:34]}"


WHOLE = ("BRING_BACK", "TAKE", "ACK", "PUT_BACK", "FAIL", "EXTEND", "STATS", "DEAD")
"""The names of the statements above."""
