"""Write: the rows of the low level, on the caller's connection and in the caller's transaction.

They have no performer, no worker and no supervisor: whoever takes one says how long the lease is, and nobody but the
next `take` looks whether it is over.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs import signals, transitions
from django_jobs.exceptions import LeaseLost
from django_jobs.lifecycle.chores import CHUNK
from django_jobs.lifecycle.running import new_token
from django_jobs.lifecycle.waking import after_commit
from django_jobs.records import DeadRow, Failure, Lease, NewJob, TakenRow
from django_jobs.states import State
from django_jobs.stores import pushed, store_for
from django_jobs.wording import few, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.backends.base.base import BaseDatabaseWrapper


def push(row: NewJob, *, using: str) -> int:
    """Insert a row without a name, and give its id. Nobody is woken: who takes rows looks for them."""
    return store_for(using).insert(connections[using], row).id


def take(queue: str, *, lease: timedelta, consumer: str, using: str) -> TakenRow | None:
    """Take the first due row of a queue, once those have come back whose lease is over. None where none is due."""
    connection, store = connections[using], store_for(using)
    back = pushed.bring_back(store, connection, queue, limit=CHUNK)
    if lapsed := sorted(row_id for row_id, state in back.items() if state is State.READY):
        message = f"taken back from consumers of {queue} that let the lease run out: {few(lapsed)}"
        _tell_after_commit(connection, logging.WARNING, message)
    return pushed.take(store, connection, queue, token=new_token(), lease=lease, consumer=consumer)


def ack(lease: Lease, *, using: str) -> bool:
    """Delete a row whose work is done, and say whether this lease still held it."""
    connection, store = connections[using], store_for(using)
    if pushed.ack(store, connection, lease):
        return True
    # One that was cancelled is held no longer than until its consumer has heard of that.
    store.let_go(connection, [lease])
    return False


def put_back(row: TakenRow, *, failure: Failure, delay: timedelta, max_attempts: int, using: str) -> State:
    """Have a row wait again, for `delay` from now, or end where that many attempts were made; give its state.

    Raises LeaseLost.
    """
    connection, store, lease = connections[using], store_for(using), row.lease
    state = transitions.put_back(row.attempts, max_attempts=max_attempts)
    if state is State.READY:
        written = pushed.put_back(store, connection, lease, failure=failure, delay=delay, max_attempts=max_attempts)
    else:
        written = pushed.fail(store, connection, lease, queue=row.queue, failure=failure, max_attempts=max_attempts)
    if not written:
        store.let_go(connection, [lease])
        raise _lost(lease, "put back")
    if state is State.FAILED:
        why = one_line(failure.reason) or "no reason given"
        message = f"row {lease.id} pushed to {row.queue} is dead after attempt {row.attempts}: {why}"
        _tell_after_commit(connection, logging.ERROR, message)
    return state


def extend(lease: Lease, *, lasting: timedelta, using: str) -> datetime:
    """Let a row be held for so long from now, and say until when. Raises LeaseLost, also where it was cancelled.

    A cancelled one is held for no longer than it was to be: its consumer has heard of that, and may still be at it.
    """
    until = pushed.extend(store_for(using), connections[using], lease, lasting=lasting)
    if until is None:
        raise _lost(lease, "extended")
    return until


def pushed_counts(*, using: str) -> dict[str, pushed.Counts]:
    """Count the rows of each queue that has any."""
    return pushed.stats(store_for(using), connections[using])


def dead(queue: str, *, limit: int, using: str) -> Iterable[DeadRow]:
    """Read the dead rows of a queue, the oldest first."""
    return pushed.dead(store_for(using), connections[using], queue, limit=limit)


def _lost(lease: Lease, done: str) -> LeaseLost:
    message = (
        f"row {lease.id} was not {done}: this claim holds it no more, since its lease ran out and the row was taken "
        "back, or it was acked, put back, cancelled or deleted; leave its work to whoever has it now"
    )
    return LeaseLost(message, row_id=lease.id)


def _tell_after_commit(connection: BaseDatabaseWrapper, level: int, message: str) -> None:
    """Have a line logged once what it tells of is committed; under manual transactions nobody knows when that is."""

    def tell() -> None:
        signals.tell(signals.odd, None, message=message, exception=None, level=level)

    if not after_commit(connection, tell):
        tell()
