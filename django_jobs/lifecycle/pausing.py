"""Write: queues stand still and go on. What is claimed already runs on; whatever else comes to a paused queue waits.

Every claim looks at the rows of queues in its own statement, so a pause holds from its commit on for all workers, those
that start later included, and for jobs that come back, are queued or fired meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_jobs import signals
from django_jobs.conf import settings
from django_jobs.lifecycle.waking import after_commit, wake
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def pause(queue: str, *, by: str = "", reason: str = "", using: str | None = None) -> bool:
    """Have no job of this queue be claimed, in the caller's transaction, and say whether it was not paused before."""
    connection = connections[using or settings().database]
    is_new = store_for(connection.alias).pause(connection, queue, by=by, reason=reason)
    if is_new:
        after_commit(connection, lambda: signals.tell(signals.queue_paused, None, queue=queue, by=by, reason=reason))
    return is_new


def resume(queue: str, *, using: str | None = None) -> bool:
    """Have jobs of this queue be claimed again, wake workers after the commit, and say whether it was paused."""
    connection = connections[using or settings().database]
    was_paused = store_for(connection.alias).resume(connection, queue)
    if was_paused:
        after_commit(connection, lambda: _tell_of_resumed(connection, queue))
    return was_paused


def _tell_of_resumed(connection: BaseDatabaseWrapper, queue: str) -> None:
    wake(connection, [queue])
    signals.tell(signals.queue_resumed, None, queue=queue)
