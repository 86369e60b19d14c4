"""Write: what people do to jobs, on the caller's connection and in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from django.db import IntegrityError, connections

from django_jobs import signals
from django_jobs.conf import settings
from django_jobs.exceptions import (
    JobFinished,
    JobGone,
    JobRunning,
    JobStopping,
    JobSucceeded,
    JobWaiting,
    KeyHeld,
    VerbRefused,
)
from django_jobs.lifecycle.batches import savepoint
from django_jobs.lifecycle.chores import CHUNK
from django_jobs.lifecycle.keys import clear
from django_jobs.lifecycle.waking import after_commit, wake
from django_jobs.records import Moved, Places
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.wording import few

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


RETRIED = "retried"


def cancel(ids: Iterable[int], *, reason: str = "", using: str | None = None) -> list[int]:
    """Cancel waiting and running jobs, and give the ids of those it moved."""
    return _by_hand(partial(_cancel_chunk, reason), ids, using=using)


def _cancel_chunk(reason: str, connection: BaseDatabaseWrapper, ids: list[int]) -> set[int]:
    return store_for(connection.alias).cancel(connection, ids, reason=reason)


def cancel_one(job_id: int, *, reason: str = "", using: str | None = None) -> None:
    """Cancel a job. Raises JobFinished, JobSucceeded or JobGone."""
    if not cancel([job_id], reason=reason, using=using):
        raise _refusal(job_id, "cancelled", using=using)


def retry(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Make waiting, failed and cancelled jobs READY now, and give the ids of those it moved.

    One whose key another job holds stays as it is, and of several with one key the oldest is moved.
    """
    moved = _by_hand(_retry_chunk, ids, using=using)
    _wake_after_commit(moved, using=using)
    return moved


def _retry_chunk(connection: BaseDatabaseWrapper, ids: list[int]) -> set[int]:
    """Retry these; where somebody took a key meanwhile, one by one."""
    store = store_for(connection.alias)
    try:
        with savepoint(connection):
            moved = store.retry(connection, ids)
            left = [job_id for job_id in ids if job_id not in moved]
            if left and clear(connection, store.keys(connection, left)):
                moved |= store.retry(connection, left)
            return moved
    except IntegrityError:
        if len(ids) == 1:
            return set()
        return {moved for job_id in ids for moved in _retry_chunk(connection, [job_id])}


def retry_one(job_id: int, *, using: str | None = None) -> None:
    """Make a job READY now. Raises JobRunning, JobStopping, JobSucceeded, KeyHeld or JobGone."""
    if not retry([job_id], using=using):
        raise _refusal(job_id, RETRIED, using=using)


def reschedule(ids: Iterable[int], places: Places, *, using: str | None = None) -> list[int]:
    """Give waiting jobs another queue, priority, time or number of attempts, and give the ids of those it moved."""
    moved = _by_hand(
        lambda connection, chunk: store_for(connection.alias).reschedule(connection, chunk, places), ids, using=using
    )
    _wake_after_commit(moved, using=using)
    return moved


def reschedule_one(job_id: int, places: Places, *, using: str | None = None) -> None:
    """Reschedule a job. Raises JobRunning, JobStopping, JobFinished, JobSucceeded or JobGone."""
    if not reschedule([job_id], places, using=using):
        raise _refusal(job_id, "rescheduled", using=using)


def _wake_after_commit(ids: list[int], *, using: str | None) -> None:
    connection = connections[using or settings().database]
    if ids:
        after_commit(connection, lambda: wake(connection, store_for(connection.alias).queues(connection, ids)))


def delete(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Delete jobs that nobody holds, and give the ids of those it deleted; the skipped are logged."""
    wanted = list(ids)
    gone = _by_hand(
        lambda connection, chunk: store_for(connection.alias).delete(connection, chunk), wanted, using=using
    )
    if skipped := sorted(set(wanted) - set(gone)):
        message = f"{len(skipped)} jobs were not deleted since they are held or gone: {few(skipped)}"
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
    return gone


def delete_one(job_id: int, *, using: str | None = None) -> None:
    """Delete a job. Raises JobRunning or JobStopping while it is held, JobGone when there is none."""
    if not delete([job_id], using=using):
        raise _refusal(job_id, "deleted", using=using)


def _by_hand(
    verb: Callable[[BaseDatabaseWrapper, list[int]], set[int]], ids: Iterable[int], *, using: str | None
) -> list[int]:
    connection = connections[using or settings().database]
    wanted = sorted(set(ids))
    moved: list[int] = []
    for start in range(0, len(wanted), CHUNK):
        moved += sorted(verb(connection, wanted[start : start + CHUNK]))
    return moved


# -- why a job stays as it is


KEY_HELD = "key held"


def moved_and_why(ids: Iterable[int], moved: Iterable[int], done: str, *, using: str | None = None) -> Moved:
    """Say of those that a verb left alone why it did, as they stand now; `done` is what it did to the others."""
    went = tuple(moved)
    left = sorted(set(ids).difference(went))
    connection = connections[using or settings().database]
    skipped: dict[str, list[int]] = {}
    for start in range(0, len(left), CHUNK):
        chunk = left[start : start + CHUNK]
        found = store_for(connection.alias).states(connection, chunk)
        for job_id in chunk:
            word = _word(found.get(job_id))
            # By its state it could have been retried.
            skipped.setdefault(KEY_HELD if done == RETRIED and word in _RETRIABLE else word, []).append(job_id)
    return Moved(ids=went, skipped={word: tuple(some) for word, some in sorted(skipped.items())})


def _word(found: tuple[State, bool] | None) -> str:
    if found is None:
        return "gone"
    state, is_held = found
    if state is State.CANCELLED and is_held:
        return "stopping"
    return _WORDS[state]


_RETRIABLE = frozenset({"waiting", "failed", "cancelled"})

_WORDS = {
    State.READY: "waiting",
    State.RUNNING: "running",
    State.SUCCESSFUL: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}


def _refusal(job_id: int, done: str, *, using: str | None) -> VerbRefused:
    connection = connections[using or settings().database]
    word = _word(store_for(connection.alias).states(connection, [job_id]).get(job_id))
    holder = store_for(connection.alias).key_holder(connection, job_id) if done == RETRIED else None
    if holder is not None and word in _RETRIABLE:
        return KeyHeld(f"key held by #{holder}, so job {job_id} was not {done}", job_id=job_id, holder_id=holder)
    kind, why = _REFUSALS["cancelled" if (word, done) == ("stopping", "cancelled") else word]
    return kind(f"job {job_id} {why}, so it was not {done}", job_id=job_id)


_REFUSALS: dict[str, tuple[type[VerbRefused], str]] = {
    "gone": (JobGone, "is no longer here"),
    "waiting": (JobWaiting, "has just changed, and waits"),
    "running": (JobRunning, "is running now"),
    "stopping": (JobStopping, "was cancelled and its body is still stopping"),
    "succeeded": (JobSucceeded, "has succeeded"),
    "failed": (JobFinished, "has failed"),
    "cancelled": (JobFinished, "was cancelled before"),
}


def key_holder(job_id: int, *, using: str | None = None) -> int | None:
    """Find another job that holds the key of this one."""
    connection = connections[using or settings().database]
    return store_for(connection.alias).key_holder(connection, job_id)


def ahead(job_id: int, *, queue: str, priority: int, run_at: datetime, limit: int, using: str | None = None) -> int:
    """Count the due jobs that a claim of this queue takes before this one; of each priority at most `limit`."""
    connection = connections[using or settings().database]
    return store_for(connection.alias).ahead(
        connection, job_id, queue=queue, priority=priority, run_at=run_at, limit=limit
    )
