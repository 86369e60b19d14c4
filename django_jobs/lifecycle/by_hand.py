"""Write: what people do to jobs, on the caller's connection and in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs import signals
from django_jobs.conf import settings
from django_jobs.exceptions import JobFinished, JobGone, JobRunning, VerbRefused
from django_jobs.lifecycle.chores import CHUNK
from django_jobs.lifecycle.waking import wake
from django_jobs.states import State
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def cancel(ids: Iterable[int], *, reason: str = "", using: str | None = None) -> list[int]:
    """Cancel waiting and running jobs, and give the ids of those it moved."""
    return _by_hand(partial(_cancel_chunk, reason), ids, using=using)


def _cancel_chunk(reason: str, connection: BaseDatabaseWrapper, ids: list[int]) -> set[int]:
    return store_for(connection.alias).cancel(connection, ids, reason=reason)


def cancel_one(job_id: int, *, reason: str = "", using: str | None = None) -> None:
    """Cancel a job. Raises JobFinished or JobGone."""
    if not cancel([job_id], reason=reason, using=using):
        raise _refusal(job_id, "cancelled", using=using)


def retry(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Make waiting, failed and cancelled jobs READY now, and give the ids of those it moved."""
    alias = using or settings().database
    moved = _by_hand(lambda connection, chunk: store_for(connection.alias).retry(connection, chunk), ids, using=alias)
    if moved and (connections[alias].in_atomic_block or connections[alias].get_autocommit()):
        connections[alias].on_commit(lambda: _wake_queues_of(connections[alias], moved), robust=True)
    return moved


def _wake_queues_of(connection: BaseDatabaseWrapper, ids: list[int]) -> None:
    wake(connection, store_for(connection.alias).queues(connection, ids))


def retry_one(job_id: int, *, using: str | None = None) -> None:
    """Make a job READY now. Raises JobRunning, JobFinished (it has succeeded) or JobGone."""
    if not retry([job_id], using=using):
        raise _refusal(job_id, "retried", using=using)


def delete(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Delete jobs that nobody holds, and give the ids of those it deleted; the skipped are logged."""
    wanted = list(ids)
    gone = _by_hand(
        lambda connection, chunk: store_for(connection.alias).delete(connection, chunk), wanted, using=using
    )
    if skipped := sorted(set(wanted) - set(gone)):
        message = f"{len(skipped)} jobs were not deleted since they are held or gone: {_few(skipped)}"
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
    return gone


def delete_one(job_id: int, *, using: str | None = None) -> None:
    """Delete a job. Raises JobRunning while it is held, JobGone when there is none."""
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


def _refusal(job_id: int, done: str, *, using: str | None) -> VerbRefused:
    connection = connections[using or settings().database]
    found = store_for(connection.alias).states(connection, [job_id]).get(job_id)
    if found is None:
        return JobGone(f"job {job_id} is no longer here, so it was not {done}", job_id=job_id)
    state, held = found
    if state is State.RUNNING:
        return JobRunning(f"job {job_id} is running now, so it was not {done}", job_id=job_id)
    if held and done != "cancelled":
        message = f"job {job_id} was cancelled and its body is still stopping, so it was not {done}"
        return JobRunning(message, job_id=job_id)
    word = {State.SUCCESSFUL: "has succeeded", State.FAILED: "has failed", State.CANCELLED: "was cancelled before"}
    return JobFinished(f"job {job_id} {word.get(state, 'has just changed')}, so it was not {done}", job_id=job_id)


def _few(ids: list[int]) -> str:
    shown = ", ".join(f"#{job_id}" for job_id in ids[:10])
    return f"{shown} …" if len(ids) > 10 else shown
