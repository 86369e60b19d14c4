"""Write: a job comes to be, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_jobs import signals
from django_jobs.lifecycle.waking import Woken, wake, woken_by_next_commit
from django_jobs.records import Inserted, NewJob, Queued
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def enqueue(job: NewJob, *, using: str) -> Inserted:
    """Insert one job in the caller's transaction; after its commit, wake workers and tell."""
    connection = connections[using]
    inserted = store_for(using).insert(connection, job)
    _after_commit(connection, (inserted.id,), (job,))
    return inserted


def enqueue_many(jobs: Sequence[NewJob], *, using: str) -> list[Queued]:
    """Insert any number of jobs in the caller's transaction, all or nothing, and answer in the order of `jobs`."""
    if not jobs:
        return []
    connection = connections[using]
    with transaction.atomic(using=using):
        ids = store_for(using).insert_many(connection, jobs)
    _after_commit(connection, ids, jobs)
    return list(map(Queued, ids))


def _after_commit(connection: BaseDatabaseWrapper, ids: Sequence[int], jobs: Sequence[NewJob]) -> None:
    """Have the commit wake workers and tell. Under manual transactions nobody is told: the poll finds the rows."""
    if connection.in_atomic_block or connection.get_autocommit():
        woken = woken_by_next_commit(connection) if connection.in_atomic_block else Woken()
        # Not a partial: Django asks a hook that failed for its qualified name, and would raise in the caller's request.
        connection.on_commit(lambda: _announce(connection, ids, jobs, woken), robust=True)


def _announce(connection: BaseDatabaseWrapper, ids: Sequence[int], jobs: Sequence[NewJob], woken: Woken) -> None:
    woken.is_committed = True
    queues = {job.draft.queue for job in jobs} - woken.queues
    woken.queues |= queues
    wake(connection, queues)
    if signals.job_enqueued.receivers:
        for job_id, job in zip(ids, jobs, strict=True):
            signals.tell(signals.job_enqueued, job.name, job_id=job_id, name=job.name, queue=job.queue)
