"""Front door: a plain queue for consumers that are no performers. Thin: checks, encodes, and asks lifecycle.

A row is pushed and taken by hand. No worker runs it, and none has to run: each `take` brings back what earlier ones let
lapse. All of this happens on the jobs' database, in the caller's transaction, and every verb has an async twin.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from asgiref.sync import sync_to_async

from django_jobs import codec, durations, lifecycle, transitions
from django_jobs.conf import MOST, settings
from django_jobs.durations import Duration
from django_jobs.exceptions import InstanceGone, LeaseLost, UndecodableValue
from django_jobs.failures import failure_of
from django_jobs.performers.instances import reference, resolve
from django_jobs.performers.options import check_name, check_whole
from django_jobs.performers.queueing import allowed_queue, refuse_in_event_loop
from django_jobs.records import Draft, Failure, Lease, NewJob, TakenRow
from django_jobs.states import State

__all__ = [
    "Counts", "Dead", "LeaseLost", "Taken", "aack", "ack", "adead", "aextend", "apush", "aretry", "astats", "atake",
    "dead", "extend", "push", "retry", "stats", "take",
]  # fmt: skip

SHORTEST_LEASE = timedelta(seconds=1)

MOST_DEAD = 1_000
"""So many dead rows are read by one call at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A row in a consumer's hands, until `lease_expires_at` or later; `token` is what each further verb names.

    `attempts` counts how often it was taken, this time too. `error` says why it came back last, '' where it never did.
    Instants are aware UTC.
    """

    id: int
    queue: str
    payload: Any
    attempts: int
    max_attempts: int
    error: str
    run_at: datetime
    lease_expires_at: datetime
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A row that nobody takes any more, until somebody retries or deletes its job of the same id."""

    id: int
    queue: str
    attempts: int
    error: str
    run_at: datetime
    died_at: datetime
    args: str = field(repr=False)

    @property
    def payload(self) -> Any:
        """The payload, read when it is asked for. Raises UndecodableValue where it can't be read any more."""
        try:
            return _payload(self.args)
        except InstanceGone as error:
            raise UndecodableValue("payload", str(error)) from error


class Counts(TypedDict):
    """The rows of a queue: `ready` ones are due, `waiting` ones aren't yet."""

    ready: int
    waiting: int
    taken: int
    dead: int


def push(queue: str, payload: object, delay: Duration = 0) -> int:
    """Write a row in the caller's transaction, to be taken no sooner than `delay` from now, and give its id.

    A negative delay counts as 0. Raises UnencodableValue, with the path, or ArgumentsTooLarge for a payload that can't
    be stored, TypeError or ValueError for a queue or delay that can't be read, and ValueError for a queue that the
    settings don't allow.
    """
    refuse_in_event_loop("push", "apush")
    conf = settings()
    draft = Draft(
        name="",
        queue=allowed_queue(check_name("queue", queue), conf.queues),
        priority=0,
        max_attempts=conf.max_attempts,
        max_crashes=1,
        restart=True,
        timeout=None,
        keep=None,
        keep_failed=None,
        delay=_at_least(timedelta(0), delay, what="delay"),
    )
    text = codec.encode(payload, path="payload", limit=conf.max_args_bytes, reference=reference)
    return lifecycle.push(NewJob(draft, f"[{text}]", "{}"), using=conf.database)


def take(queue: str, lease: Duration | None = None) -> Taken | None:
    """Take the first row of a queue that is due, for `lease` (the setting LEASE), or None where there is none.

    First those come back that were taken and whose lease is over. Nothing is taken from a paused queue. A lease below a
    second counts as a second. A payload that can't be read any more counts as an attempt that failed; the row waits for
    a while, and the next one is taken.

    Raises TypeError or ValueError for a queue or lease that can't be read.
    """
    refuse_in_event_loop("take", "atake")
    check_name("queue", queue)
    lasting, using = _lasting(lease), settings().database
    consumer = f"{socket.gethostname()[:120]}:{os.getpid()}"
    while (row := lifecycle.take(queue, lease=lasting, consumer=consumer, using=using)) is not None:
        try:
            return _taken(row, _payload(row.args))
        except (UndecodableValue, InstanceGone) as error:
            _refuse(row, error, using=using)
    return None


def ack(claim: Taken) -> bool:
    """Delete the row, whose work is done; in a transaction of the caller's both are committed together.

    False says that this claim holds it no more: the lease was over when somebody came to take from the queue, or the
    row was cancelled or is gone. Then whoever takes it next does its work, so take yours back if you can.
    """
    refuse_in_event_loop("ack", "aack")
    return lifecycle.ack(Lease(claim.id, claim.token), using=settings().database)


def retry(
    claim: Taken, error: str | BaseException = "", delay: Duration = 0, max_attempts: int | None = None
) -> Literal["ready", "dead"]:
    """Put the row back, to be taken no sooner than `delay` from now: "ready"; or "dead" where no attempt is left.

    That is when it has been taken `max_attempts` times (by default as often as the row says, which begins with the
    setting MAX_ATTEMPTS). `error`, a text or an exception, is what the next claim tells as its `error`. A negative
    delay counts as 0.

    Raises LeaseLost where this claim holds the row no more, and TypeError or ValueError for what can't be read.
    """
    refuse_in_event_loop("retry", "aretry")
    most = claim.max_attempts if max_attempts is None else check_whole("max_attempts", max_attempts, 1, MOST)
    state = lifecycle.put_back(
        _row(claim),
        failure=_failure(error, claim.queue),
        delay=_at_least(timedelta(0), delay, what="delay"),
        max_attempts=most,
        using=settings().database,
    )
    return "dead" if state is State.FAILED else "ready"


def extend(claim: Taken, lease: Duration | None = None) -> Taken:
    """Hold the row for `lease` from now (the setting LEASE; at least a second), and give the claim as it is then.

    Raises LeaseLost where this claim holds the row no more, or somebody cancelled it, and TypeError or ValueError for a
    lease that can't be read.
    """
    refuse_in_event_loop("extend", "aextend")
    until = lifecycle.extend(Lease(claim.id, claim.token), lasting=_lasting(lease), using=settings().database)
    return replace(claim, lease_expires_at=until)


def stats() -> dict[str, Counts]:
    """Count the rows of each queue that has any: due, not due yet, taken and dead, none of them left out.

    What was taken counts as taken until the next `take` of its queue, also when its lease is over.
    """
    refuse_in_event_loop("stats", "astats")
    counted = lifecycle.pushed_counts(using=settings().database)
    return {
        queue: Counts(ready=counts.ready, waiting=counts.waiting, taken=counts.taken, dead=counts.dead)
        for queue, counts in sorted(counted.items())
    }


def dead(queue: str, limit: int = 100) -> list[Dead]:
    """Read up to `limit` dead rows of a queue, the oldest first. Raises ValueError for a limit outside 1 to 1000.

    They stay until somebody retries or deletes the job of that id: `Job.objects.filter(pk=…).retry()`.
    """
    refuse_in_event_loop("dead", "adead")
    check_name("queue", queue)
    rows = lifecycle.dead(queue, limit=check_whole("limit", limit, 1, MOST_DEAD), using=settings().database)
    return [
        Dead(
            id=row.id, queue=row.queue, attempts=row.attempts, error=row.error, run_at=row.run_at,
            died_at=row.died_at, args=row.args,
        )
        for row in rows
    ]  # fmt: skip


# -- from async code


async def apush(queue: str, payload: object, delay: Duration = 0) -> int:
    """Do as `push`, from async code."""
    return await sync_to_async(push)(queue, payload, delay)


async def atake(queue: str, lease: Duration | None = None) -> Taken | None:
    """Do as `take`, from async code."""
    return await sync_to_async(take)(queue, lease)


async def aack(claim: Taken) -> bool:
    """Do as `ack`, from async code."""
    return await sync_to_async(ack)(claim)


async def aretry(
    claim: Taken, error: str | BaseException = "", delay: Duration = 0, max_attempts: int | None = None
) -> Literal["ready", "dead"]:
    """Do as `retry`, from async code."""
    return await sync_to_async(retry)(claim, error, delay, max_attempts)


async def aextend(claim: Taken, lease: Duration | None = None) -> Taken:
    """Do as `extend`, from async code."""
    return await sync_to_async(extend)(claim, lease)


async def astats() -> dict[str, Counts]:
    """Do as `stats`, from async code."""
    return await sync_to_async(stats)()


async def adead(queue: str, limit: int = 100) -> list[Dead]:
    """Do as `dead`, from async code."""
    return await sync_to_async(dead)(queue, limit)


# -- payloads


def _payload(args: str) -> Any:
    """Read a payload. Raises UndecodableValue where this code can't, InstanceGone where a model's row is gone."""
    [payload], _ = codec.decode_arguments(args, "{}", resolve=resolve)
    return payload


def _refuse(row: TakenRow, error: Exception, *, using: str) -> None:
    """Put back what can't be read: newer code may have pushed it. What refers to a row that is gone is dead."""
    most = row.attempts if isinstance(error, InstanceGone) else row.max_attempts
    failure = Failure(kind="misfit", reason=f"the payload can't be read: {error}")
    hold = transitions.hold_of_unreadable(row.attempts)
    with suppress(LeaseLost):
        lifecycle.put_back(row, failure=failure, delay=hold, max_attempts=most, using=using)


# -- what callers give


def _row(claim: Taken) -> TakenRow:
    return TakenRow(
        lease=Lease(claim.id, claim.token), queue=claim.queue, args="", attempts=claim.attempts,
        max_attempts=claim.max_attempts, error=claim.error, run_at=claim.run_at,
        lease_expires_at=claim.lease_expires_at,
    )  # fmt: skip


def _taken(row: TakenRow, payload: Any) -> Taken:
    return Taken(
        id=row.lease.id, queue=row.queue, payload=payload, attempts=row.attempts, max_attempts=row.max_attempts,
        error=row.error, run_at=row.run_at, lease_expires_at=row.lease_expires_at, token=row.lease.token,
    )  # fmt: skip


def _failure(error: object, queue: str) -> Failure:
    if isinstance(error, BaseException):
        return failure_of(error, job=queue)
    if not isinstance(error, str):
        message = f"error={error!r:.80}: give a text or an exception"
        raise TypeError(message)
    return Failure(kind="error", reason=error)


def _lasting(lease: Duration | None) -> timedelta:
    return settings().lease if lease is None else _at_least(SHORTEST_LEASE, lease, what="lease")


def _at_least(lowest: timedelta, value: Duration, *, what: str) -> timedelta:
    """Read a duration that may be negative, and give the lowest for one that is below it."""
    match value:
        case str() if value.strip().startswith("-"):
            durations.parse(value.strip()[1:], what=what)
            return lowest
        case timedelta() if value < timedelta(0):
            return lowest
        case int() | float() if value < 0:
            return lowest
        case _:
            return max(lowest, durations.parse(value, what=what))
