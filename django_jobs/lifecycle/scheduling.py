"""Write: schedules. A tick moves on and its jobs come to be in one transaction; the code's schedules come and go.

There is no leader: whoever sees that a tick is due tries, and the row decides. Rooms above say what a schedule means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, connections

from django_jobs import signals
from django_jobs.conf import settings
from django_jobs.lifecycle.batches import together
from django_jobs.lifecycle.keys import clear
from django_jobs.lifecycle.queueing import Insertion
from django_jobs.records import NewJob, ScheduleRow
from django_jobs.stores import scheduled, store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

MOST_LOOKED_AT = 200
"""So many schedules are looked at at a time."""

GONE_AFTER = timedelta(minutes=2)
"""A set of schedules no longer counts for anybody when no worker of its release has beaten for so long.

Nor did it take over since: workers beat for the first time a moment after that.
"""


def soonest(connection: BaseDatabaseWrapper) -> list[ScheduleRow]:
    """Read the schedules that have no next tick yet, and those whose next one comes first."""
    return scheduled.soonest(store_for(connection.alias), connection, limit=MOST_LOOKED_AT)


def place(connection: BaseDatabaseWrapper, row: ScheduleRow, *, next_at: datetime) -> bool:
    """Give a schedule its first tick. False where somebody else did, has changed it, or has it in hand."""
    return scheduled.place(store_for(connection.alias), connection, row, next_at=next_at)


def fire(
    connection: BaseDatabaseWrapper,
    row: ScheduleRow,
    jobs: Sequence[tuple[datetime, NewJob]],
    *,
    skipped: int,
    next_at: datetime | None,
) -> list[int] | None:
    """Move a schedule on and queue the jobs of its ticks, both or neither, and give their ids.

    None where it isn't any more as it was read: somebody else fired, or changed it; and where it is in somebody's hands
    just now, or a key is that its job would have. A job whose key another holds isn't queued, and counted as skipped.
    """
    store = store_for(connection.alias)
    last_at = jobs[-1][0] if jobs else None
    try:
        with together(connection):
            if not scheduled.fire(store, connection, row, last_at=last_at, next_at=next_at, skipped=skipped):
                return None
            if keys := [job.key for _, job in jobs if job.key is not None]:
                # One that was kept for a while after its job's end may be free by now.
                clear(connection, keys)
            inserted = scheduled.insert_fired(store, connection, row, jobs) if jobs else {}
            if left_out := len(jobs) - len(inserted):
                scheduled.leave_out(store, connection, row, count=left_out)
    except OperationalError as error:
        if not store.gave_up(error):
            raise
        return None
    ids = [inserted[tick] for tick, _ in jobs if tick in inserted]
    Insertion(connection, ids, [job for tick, job in jobs if tick in inserted]).tell()
    signals.tell(
        signals.schedule_fired, None, name=row.name, job_ids=tuple(ids), skipped=skipped + left_out, next_at=next_at
    )
    return ids


def set_aside(connection: BaseDatabaseWrapper, row: ScheduleRow, *, error: str) -> bool:
    """Write why a schedule can't fire, and say whether that is new; others go on."""
    return scheduled.set_aside(store_for(connection.alias), connection, row, error=error)


def switch(schedule_id: int, *, enabled: bool, next_at: datetime | None, using: str | None = None) -> bool:
    """Have a schedule fire from `next_at` on, or no more, in the caller's transaction, and say whether that is new."""
    connection = connections[using or settings().database]
    store = store_for(connection.alias)
    return scheduled.switch(store, connection, schedule_id, enabled=enabled, next_at=next_at)


# -- the code's schedules


class Standing(Enum):
    """How a set of schedules stands to its owner."""

    COUNTS = "counts"
    """It is the latest that took over."""
    MAY = "may"
    """It may take over: a new release, or a rollback that nobody of the other release is left of."""
    WAITS = "waits"
    """It counted before, and was followed by another whose workers live: an old release, on its way out or back."""


def standing(connection: BaseDatabaseWrapper, owner: str, *, hash_: str) -> Standing:
    """Say how a set of schedules stands. One that never counted may at once; an empty one where others did."""
    store = store_for(connection.alias)
    sets = scheduled.sets(store, connection, owner)
    if hash_ == next(iter(sets), ""):
        return Standing.COUNTS
    if hash_ not in sets:
        return Standing.MAY
    counting, age = next(iter(sets.items()))
    said, bound = said_of(owner, counting), GONE_AFTER.total_seconds()
    seen = scheduled.seen_sets(store, connection)
    is_alive = age <= bound or any(each.said == said and each.beat_age <= bound for each in seen)
    return Standing.WAITS if is_alive else Standing.MAY


def said_of(owner: str, hash_: str) -> str:
    """Write what workers say of the set of schedules that their release declares."""
    return f"{owner} {hash_}"


def named(connection: BaseDatabaseWrapper, names: Iterable[str], *, owner: str) -> list[ScheduleRow]:
    """Read the schedules of these names, and all of an owner."""
    return scheduled.named(store_for(connection.alias), connection, names, owner=owner)


def declare(
    connection: BaseDatabaseWrapper,
    owner: str,
    *,
    hash_: str,
    new: Iterable[Mapping[str, Any]],
    edited: Iterable[tuple[ScheduleRow, Mapping[str, Any]]],
    gone: Iterable[ScheduleRow],
) -> bool:
    """Have this set count, and the rows be as it says, in one transaction; what somebody changed meanwhile stays.

    False, with nothing written, where somebody has one of the rows in hand. One comes after the other: whoever counts
    in the end wrote last, and may look what his picture of the rows was too old for.
    """
    store = store_for(connection.alias)
    try:
        with together(connection):
            store.line_up_to_declare(connection)
            scheduled.take_over(store, connection, owner, hash_=hash_)
            for values in new:
                scheduled.declare(store, connection, values)
            for row, values in edited:
                scheduled.redeclare(store, connection, row, values)
            for row in gone:
                scheduled.remove(store, connection, row)
    except OperationalError as error:
        if not store.gave_up(error):
            raise
        return False
    return True
