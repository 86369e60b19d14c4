"""Write: workers are woken after a commit. A wake is a hint: the poll is the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django_jobs import clock
from django_jobs.conf import settings
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

SILENCE = 0.01
"""Seconds in which a process doesn't notify a queue twice; every wake is followed by a second claim after that time."""


def after_commit(connection: BaseDatabaseWrapper, do: Callable[[], None]) -> bool:
    """Have something done after the commit; a failure of it is logged, and no caller's request raises it.

    False under manual transactions: nobody knows when they commit. `do` is no partial: Django asks a hook that failed
    for its qualified name.
    """
    if not (connection.in_atomic_block or connection.get_autocommit()):
        return False
    connection.on_commit(do, robust=True)
    return True


@dataclass(slots=True)
class Woken:
    """The queues for which a commit has woken workers; its hooks share it, and their running takes as long as it takes.

    Each call has a hook of its own, so that a savepoint that is rolled back takes its own along.
    """

    queues: set[str] = field(default_factory=set)
    is_committed: bool = False


_woken: WeakKeyDictionary[BaseDatabaseWrapper, Woken] = WeakKeyDictionary()


def woken_by_next_commit(connection: BaseDatabaseWrapper) -> Woken:
    woken = _woken.get(connection)
    if woken is None or woken.is_committed:
        woken = _woken[connection] = Woken()
    return woken


MOST_REMEMBERED = 1_000
"""So many queues a process remembers to have notified."""

_notified: dict[tuple[str, str], float] = {}


def wake(connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
    """Notify in a statement of its own: within a business transaction it would hold a lock through the commit.

    Where the settings want nobody to listen, nobody is notified.
    """
    if not settings().listen:
        return
    now = clock.monotonic()
    loud = sorted(q for q in queues if not 0 <= now - _notified.get((connection.alias, q), -1.0) < SILENCE)
    if not loud:
        return
    if len(_notified) > MOST_REMEMBERED:
        _notified.clear()
    _notified.update({(connection.alias, queue): now for queue in loud})
    store_for(connection.alias).notify(connection, loud)
