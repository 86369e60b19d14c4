"""Write: jobs that expire, and finished ones whose keeping is over."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import IntegrityError, connections

from django_jobs import signals
from django_jobs.conf import settings
from django_jobs.lifecycle.batches import savepoint
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

CHUNK = 1_000
"""Rows that one statement writes at the most."""


def expire(connection: BaseDatabaseWrapper, *, limit: int = CHUNK) -> int:
    """Cancel waiting jobs past their `expires_at`, and say how many."""
    expired = store_for(connection.alias).expire(connection, limit=limit)
    if expired:
        signals.tell(signals.jobs_expired, None, ids=tuple(sorted(expired)))
    return len(expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a round of pruning came to: how many jobs it found, how many of them went, and where the next one goes on.

    That is beyond an id, where each job is deleted by itself; None stands for all that may go, in one statement.
    """

    found: int
    gone: int
    after: int | None = None


def prune(connection: BaseDatabaseWrapper | None = None, *, using: str | None = None, limit: int = CHUNK) -> int:
    """Delete finished jobs whose keeping is over, in rounds of `limit`, and say how many went."""
    connection = connection or connections[using or settings().database]
    count, after = 0, None
    while True:
        pruned = prune_round(connection, after=after, limit=limit)
        count, after = count + pruned.gone, pruned.after
        if pruned.found < limit:
            break
    tell_of_pruned(count)
    return count


def prune_round(connection: BaseDatabaseWrapper, *, after: int | None = None, limit: int = CHUNK) -> Pruned:
    """Delete up to `limit` finished jobs whose keeping is over. There may be more where that many were found.

    Where somebody's rows refer to one of them, the next rounds go one by one, and leave it with a line in the log.
    """
    if after is not None:
        return _prune_one_by_one(connection, after=after, limit=limit)
    try:
        gone = _pruned(connection, limit=limit)
    except IntegrityError:
        return Pruned(found=limit, gone=0, after=0)
    return Pruned(found=gone, gone=gone)


def tell_of_pruned(count: int) -> None:
    """Tell that so many jobs were pruned, if there were any."""
    if count:
        signals.tell(signals.jobs_pruned, None, count=count)


def _pruned(connection: BaseDatabaseWrapper, *, limit: int, only: int | None = None) -> int:
    with savepoint(connection):
        return store_for(connection.alias).prune(connection, limit=limit, only=only)


def _prune_one_by_one(connection: BaseDatabaseWrapper, *, after: int, limit: int) -> Pruned:
    ids = store_for(connection.alias).prunable(connection, after=after, limit=limit)
    gone = 0
    for job_id in ids:
        try:
            gone += _pruned(connection, limit=1, only=job_id)
        except IntegrityError as error:
            message = f"job {job_id} can't be pruned, since something refers to it: {error}"
            signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
    return Pruned(found=len(ids), gone=gone, after=ids[-1] if ids else after)
