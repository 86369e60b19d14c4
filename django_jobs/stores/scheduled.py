"""Write: schedules: their statements, and what runs them on the connection handed in. Decides nothing.

A tick is fired by whoever moves `next_at` on from it: the statement names the version that was read and the tick, so of
many that try one meets the row. The jobs follow in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django_jobs import clock
from django_jobs.records import NewJob, ScheduleRow, SetSeen

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.stores.base import Store

_COLUMNS = """schedule.id, schedule.name, schedule.owner, schedule.version, schedule.cron, schedule.every_seconds,
  schedule.time_zone, schedule.performer, schedule.args, schedule.kwargs, schedule.queue, schedule.priority,
  schedule.removed, schedule.origin, schedule.missed, schedule.overlap, schedule.jitter, {utc:schedule.starts},
  {utc:schedule.ends}, {utc:schedule.next_at}, schedule.error, {utc:{now}}"""

_FIRES = "schedule.enabled = {boolean:1} and schedule.removed = {boolean:0}"

# What is due for the longest, and then what comes next; beside those as many of what has no next tick or can't fire.
# These are drawn, since any number of them may stay so: each has its turn at some look, and keeps nobody from his.
SOONEST = f"""
select * from (
  select {_COLUMNS} from {{schedule}} as schedule
  where {_FIRES} and schedule.error = '' and schedule.next_at is not null
  order by schedule.next_at, schedule.id limit %(limit)s) as soon
union all
select * from (
  select {_COLUMNS} from {{schedule}} as schedule
  where {_FIRES} and (schedule.error <> '' or schedule.next_at is null)
    and (schedule.ends is null or schedule.ends >= {{now}} or schedule.next_at is not null)
  order by random() limit %(limit)s) as aside
"""

# A row that somebody has locked is passed over, so that one schedule holds up no other.
_TODO = """
with todo as materialized (
  select schedule.id from {schedule} as schedule
  where schedule.id = %(id)s and schedule.version = %(version)s and ONLY {skip:schedule}
)
"""

PLACE = (
    _TODO.replace("ONLY", f"{_FIRES} and schedule.next_at is null")
    + """update {schedule} as schedule set next_at = {instant:%(next_at)s}, error = ''
where schedule.id in (select todo.id from todo)
returning id
"""
)

FIRE = (
    _TODO.replace("ONLY", f"{_FIRES} and schedule.next_at = {{instant:%(tick)s}}")
    + """update {schedule} as schedule set last_at = coalesce({instant:%(last_at)s}, schedule.last_at),
  next_at = {instant:%(next_at)s}, skipped = schedule.skipped + %(skipped)s, error = ''
where schedule.id in (select todo.id from todo)
returning id
"""
)

LEAVE_OUT = """
update {schedule} as schedule set skipped = schedule.skipped + %(count)s where schedule.id = %(id)s returning id
"""

SET_ASIDE = (
    _TODO.replace("ONLY", "schedule.error <> %(error)s")
    + """update {schedule} as schedule set error = %(error)s
where schedule.id in (select todo.id from todo)
returning id
"""
)

# Whatever passed while it was disabled is not made up for: its next tick is found anew.
SWITCH = """
update {schedule} as schedule set enabled = {boolean:%(enabled)s}, next_at = {instant:%(next_at)s}, error = '',
  version = schedule.version + 1
where schedule.id = %(id)s and schedule.enabled <> {boolean:%(enabled)s}
returning id
"""

# -- the code's schedules

NAMED = f"""
select {_COLUMNS} from {{schedule}} as schedule
where schedule.owner = %(owner)s or schedule.name in (select c.name from {{rows:names}})
order by schedule.name
"""

_DECLARED = (
    "owner", "cron", "every_seconds", "time_zone", "performer", "args", "kwargs", "queue", "priority", "missed",
    "overlap", "jitter", "starts", "ends",
)  # fmt: skip

_VALUES = {
    "every_seconds": "{float:%(every_seconds)s}", "args": "{json:%(args)s}", "kwargs": "{json:%(kwargs)s}",
    "jitter": "{float:%(jitter)s}", "starts": "{instant:%(starts)s}", "ends": "{instant:%(ends)s}",
}  # fmt: skip


def _value(column: str) -> str:
    return _VALUES.get(column, f"%({column})s")


DECLARE = f"""
insert into {{schedule}} as schedule (name, origin, {", ".join(_DECLARED)})
values (%(name)s, 'code', {", ".join(map(_value, _DECLARED))})
on conflict (name) do nothing
returning id
"""

# `enabled` is people's: a release doesn't start what somebody has stopped.
REDECLARE = f"""
update {{schedule}} as schedule set {", ".join(f"{column} = {_value(column)}" for column in _DECLARED)},
  removed = {{boolean:0}}, error = '', next_at = null, version = schedule.version + 1
where schedule.id = %(id)s and schedule.version = %(version)s
returning id
"""

REMOVE = """
update {schedule} as schedule set removed = {boolean:1}, next_at = null, version = schedule.version + 1
where schedule.id = %(id)s and schedule.version = %(version)s
returning id
"""

SETS = """
select found.hash, -{seconds_until:found.counts_since} from {set} as found where found.owner = %(owner)s
order by found.counts_since desc, found.id desc
"""

TAKE_OVER = """
insert into {set} as found (owner, hash, counts_since) values (%(owner)s, %(hash)s, {now})
on conflict (owner, hash) do update set counts_since = excluded.counts_since
"""

SEEN_SETS = """
select worker.versions, -{seconds_until:worker.beat_at} from {worker} as worker
"""

WHOLE = (
    "SOONEST", "PLACE", "FIRE", "LEAVE_OUT", "SET_ASIDE", "SWITCH", "NAMED", "DECLARE", "REDECLARE", "REMOVE",
    "SETS", "TAKE_OVER", "SEEN_SETS",
)  # fmt: skip
"""The names of the statements above."""


def soonest(store: Store, connection: BaseDatabaseWrapper, *, limit: int) -> list[ScheduleRow]:
    """Read schedules that fire, by their next ticks, and then some that have none or can't; each says the time."""
    return [_read(row) for row in store.run(connection, SOONEST, {"limit": limit})]


def place(store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow, *, next_at: datetime) -> bool:
    """Give a schedule that has none its next tick, if it is as it was read and in nobody's hands."""
    return bool(store.run(connection, PLACE, {**_ours(row), "next_at": store.write_instant(next_at)}))


def fire(
    store: Store,
    connection: BaseDatabaseWrapper,
    row: ScheduleRow,
    *,
    last_at: datetime | None,
    next_at: datetime | None,
    skipped: int,
) -> bool:
    """Move a schedule on from the tick that was read, if it is as it was read and in nobody's hands, and say so."""
    assert row.next_at is not None
    values = {
        **_ours(row),
        "tick": store.write_instant(row.next_at),
        "last_at": _written(store, last_at),
        "next_at": _written(store, next_at),
        "skipped": skipped,
    }
    return bool(store.run(connection, FIRE, values))


def leave_out(store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow, *, count: int) -> None:
    """Count ticks of a schedule whose jobs weren't queued."""
    store.run(connection, LEAVE_OUT, {"id": row.id, "count": count})


def set_aside(store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow, *, error: str) -> bool:
    """Write why a schedule can't fire, and say whether that is new."""
    return bool(store.run(connection, SET_ASIDE, {**_ours(row), "error": error}))


def insert_fired(
    store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow, jobs: Sequence[tuple[datetime, NewJob]]
) -> dict[datetime, int]:
    """Insert the jobs of ticks, and give the ids of those whose key nobody else held."""
    ticks = {store.write_instant(tick): tick for tick, _ in jobs}
    more = [{"schedule": row.name, "tick": written} for written in ticks]
    inserted = store.insert_fired(connection, [job for _, job in jobs], more)
    return {ticks[written]: job_id for written, job_id in inserted.items()}


def switch(
    store: Store, connection: BaseDatabaseWrapper, schedule_id: int, *, enabled: bool, next_at: datetime | None
) -> bool:
    """Have a schedule fire from `next_at` on, or no more, and say whether that is new."""
    values = {"id": schedule_id, "enabled": enabled, "next_at": _written(store, next_at)}
    return bool(store.run(connection, SWITCH, values))


def named(store: Store, connection: BaseDatabaseWrapper, names: Iterable[str], *, owner: str) -> list[ScheduleRow]:
    """Read the schedules of these names, and all of an owner."""
    values = {"owner": owner, "names": json.dumps([{"name": name} for name in names])}
    return [_read(row) for row in store.run(connection, NAMED, values)]


def declare(store: Store, connection: BaseDatabaseWrapper, values: Mapping[str, Any]) -> bool:
    """Insert a schedule of the code's; False where there is one of that name."""
    return bool(store.run(connection, DECLARE, _instants(store, values)))


def redeclare(store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow, values: Mapping[str, Any]) -> bool:
    """Have a schedule be as the code says now, if it is as it was read."""
    return bool(store.run(connection, REDECLARE, {**_instants(store, values), **_ours(row)}))


def remove(store: Store, connection: BaseDatabaseWrapper, row: ScheduleRow) -> bool:
    """Have a schedule fire no more that the code no longer declares, if it is as it was read."""
    return bool(store.run(connection, REMOVE, _ours(row)))


def sets(store: Store, connection: BaseDatabaseWrapper, owner: str) -> dict[str, float]:
    """Read the hashes of the sets that have counted for an owner, the latest first, and for how long they have."""
    return {hash_: float(age) for hash_, age in store.run(connection, SETS, {"owner": owner})}


def take_over(store: Store, connection: BaseDatabaseWrapper, owner: str, *, hash_: str) -> None:
    """Have this set count from now on."""
    store.run(connection, TAKE_OVER, {"owner": owner, "hash": hash_})


def seen_sets(store: Store, connection: BaseDatabaseWrapper) -> list[SetSeen]:
    """Read which sets the releases of workers declare, and for how long these haven't beaten."""
    found = []
    for versions, age in store.run(connection, SEEN_SETS, {}):
        said = json.loads(versions) if isinstance(versions, str) else versions
        found.append(SetSeen(said=str(said.get("schedules", "")), beat_age=float(age)))
    return found


def _ours(row: ScheduleRow) -> dict[str, int]:
    return {"id": row.id, "version": row.version}


def _instants(store: Store, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: store.write_instant(value) if isinstance(value, datetime) else value for key, value in values.items()}


def _written(store: Store, instant: datetime | None) -> str | None:
    return None if instant is None else store.write_instant(instant)


def _read(row: tuple[Any, ...]) -> ScheduleRow:
    (
        schedule_id, name, owner, version, line, every_seconds, time_zone, performer, args, kwargs, queue, priority,
        removed, origin, missed, overlap, jitter, starts, ends, next_at, error, now,
    ) = row  # fmt: skip
    return ScheduleRow(
        id=schedule_id,
        name=name,
        owner=owner,
        version=version,
        cron=line,
        every_seconds=every_seconds,
        time_zone=time_zone,
        performer=performer,
        args=args if isinstance(args, str) else json.dumps(args),
        kwargs=kwargs if isinstance(kwargs, str) else json.dumps(kwargs),
        queue=queue,
        priority=priority,
        removed=bool(removed),
        origin=origin,
        missed=missed,
        overlap=overlap,
        jitter=jitter,
        starts=None if starts is None else clock.read(starts),
        ends=None if ends is None else clock.read(ends),
        next_at=None if next_at is None else clock.read(next_at),
        error=error,
        now=clock.read(now),
    )
