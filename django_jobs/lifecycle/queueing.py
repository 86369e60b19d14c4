"""Write: a job comes to be, in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from django.db import connections, transaction

from django_jobs import signals
from django_jobs.lifecycle.keys import insert_keyed
from django_jobs.lifecycle.waking import Woken, after_commit, wake, woken_by_next_commit
from django_jobs.records import Inserted, NewJob, Queued
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def enqueue(job: NewJob, *, using: str) -> Inserted:
    """Insert one job in the caller's transaction; after its commit, wake workers and tell.

    Where another holds its key, that one is given. Raises DuplicateJob where the job says so, and KeyContended.
    """
    connection = connections[using]
    if job.key is None:
        inserted = store_for(using).insert(connection, job)
    else:
        [inserted] = insert_keyed(connection, [job])
    if not inserted.duplicate or inserted.replaced:
        _after_commit(connection, (inserted.id,), (job,))
    return inserted


def enqueue_many(jobs: Sequence[NewJob], *, using: str) -> list[Queued]:
    """Insert any number of jobs in the caller's transaction, all or nothing, and answer in the order of `jobs`.

    Raises as `enqueue` does.
    """
    if not jobs:
        return []
    connection = connections[using]
    with transaction.atomic(using=using):
        queued = _inserted(connection, jobs)
    _news(connection, queued, jobs).tell()
    return queued


def _inserted(connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Queued]:
    keyed = [place for place, job in enumerate(jobs) if job.key is not None]
    store = store_for(connection.alias)
    if not keyed:
        return list(map(Queued, store.insert_many(connection, jobs)))
    plain = [place for place, job in enumerate(jobs) if job.key is None]
    queued: dict[int, Queued] = {}
    if plain:
        ids = store.insert_many(connection, [jobs[place] for place in plain])
        queued |= dict(zip(plain, map(Queued, ids), strict=True))
    for place, inserted in zip(keyed, insert_keyed(connection, [jobs[place] for place in keyed]), strict=True):
        queued[place] = Queued(inserted.id, inserted.duplicate, inserted.replaced)
    return [queued[place] for place in range(len(jobs))]


# -- what is queued because another job has failed


Prepare: TypeAlias = Callable[[str, int], NewJob]
"""Makes a job for the performer of that name of the id of a job that has failed."""

_prepare: Prepare | None = None


def prepare_follow_ups_by(prepare: Prepare) -> None:
    """Say who knows performers and their policies."""
    global _prepare  # noqa: PLW0603 - put in once, by the room above that does
    _prepare = prepare


@dataclass(frozen=True, slots=True)
class Insertion:
    """Rows that were inserted, to be told of once that is committed."""

    connection: BaseDatabaseWrapper
    ids: Sequence[int]
    jobs: Sequence[NewJob]

    def tell(self) -> None:
        """Wake workers and tell, after the commit of the transaction that the connection is in."""
        if self.jobs:
            _after_commit(self.connection, self.ids, self.jobs)


def insert_follow_ups(connection: BaseDatabaseWrapper, failed: Iterable[tuple[str, int]]) -> Insertion:
    """Insert a job for each performer that hears of a job's failure. One that can't be made is left, with a line.

    One whose key is held is there already, whatever its policy says to that. Raises KeyContended.
    """
    jobs: list[NewJob] = []
    for name, job_id in failed:
        try:
            assert _prepare is not None, "performers puts it in"
            jobs.append(_that_gives_way(_prepare(name, job_id)))
        except Exception as error:  # noqa: BLE001 - the policy may be anybody's, and the failure must be written
            message = f"job {job_id} has failed, and {name} can't be queued to hear of it: {error}"
            signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
    return _news(connection, _inserted(connection, jobs) if jobs else [], jobs)


def _news(connection: BaseDatabaseWrapper, queued: Sequence[Queued], jobs: Sequence[NewJob]) -> Insertion:
    """Leave out what was given in the place of a twin."""
    is_news = [not each.duplicate or each.replaced for each in queued]
    if all(is_news):
        return Insertion(connection, [each.id for each in queued], jobs)
    news = [(each.id, job) for each, job, is_new in zip(queued, jobs, is_news, strict=True) if is_new]
    return Insertion(connection, [job_id for job_id, _ in news], [job for _, job in news])


def _that_gives_way(job: NewJob) -> NewJob:
    """Have a duplicate be no error: whoever writes a failure can do nothing about it."""
    if job.draft.on_duplicate != "raise":
        return job
    return job._replace(draft=replace(job.draft, on_duplicate="return"))


def _after_commit(connection: BaseDatabaseWrapper, ids: Sequence[int], jobs: Sequence[NewJob]) -> None:
    """Have the commit wake workers and tell. Under manual transactions nobody is told: the poll finds the rows."""
    woken = woken_by_next_commit(connection) if connection.in_atomic_block else Woken()
    after_commit(connection, lambda: _announce(connection, ids, jobs, woken))


def _announce(connection: BaseDatabaseWrapper, ids: Sequence[int], jobs: Sequence[NewJob], woken: Woken) -> None:
    woken.is_committed = True
    queues = {job.draft.queue for job in jobs} - woken.queues
    woken.queues |= queues
    wake(connection, queues)
    if signals.job_enqueued.receivers:
        for job_id, job in zip(ids, jobs, strict=True):
            signals.tell(signals.job_enqueued, job.name, job_id=job_id, name=job.name, queue=job.queue)
