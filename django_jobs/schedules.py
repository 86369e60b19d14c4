"""Declare and run: schedules. What a row means, which ticks are due, what the code declares; writes by lifecycle alone.

Nothing here rests on a leader or on what a process remembers: each look reads the rows, and the row that was read is
named in what is written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import clock, signals, ticks
from django_jobs.conf import settings
from django_jobs.cron import Cron, parse, zone_of
from django_jobs.failures import shown
from django_jobs.lifecycle import scheduling
from django_jobs.performers import AnyPerformer, Performer, find_performer
from django_jobs.performers import scheduling as declaring
from django_jobs.performers.scheduling import Declared
from django_jobs.records import NewJob, ScheduleRow
from django_jobs.ticks import Timing

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.models import Schedule

LONGEST_SLEEP = 20.0
"""Seconds after which schedules are looked at again though none is due: somebody may have added or changed one."""

AGAIN = 1.0
"""Seconds after which a schedule is looked at again that was in somebody else's hands."""

PATIENCE = timedelta(seconds=10)
"""So late is a tick whose performer isn't known here before that is written: who knows it has fired it by then."""

DECLARE_TRIES = 3
"""So many times rows are looked at and written, where others change them between the two."""

CODE = "code"


class _Unfireable(Exception):
    """Why a schedule can't fire as it stands, in words for people."""


# -- firing


def fire_due(
    connection: BaseDatabaseWrapper, *, only: Callable[[ScheduleRow], bool] | None = None
) -> tuple[int, float]:
    """Queue the jobs of all ticks that are due; gives how many, and the seconds until it is to be asked again.

    A schedule that can't fire is marked with why, and the others go on. Of `only` some none but these are looked at.
    """
    count, delay, moved = 0, LONGEST_SLEEP, 0
    for row in filter(only, scheduling.soonest(connection)):
        next_at = row.next_at
        if next_at is None or next_at <= row.now:
            try:
                moved_on = _place(connection, row) if next_at is None else _fire(connection, row, next_at)
            except _Unfireable as problem:
                _set_aside(connection, row, str(problem))
                continue
            if moved_on is None:
                delay = min(delay, AGAIN)
                continue
            fired, next_at = moved_on
            count, moved = count + fired, moved + (next_at is not None)
        if next_at is not None:
            delay = min(delay, max(0.0, (next_at - row.now).total_seconds()))
    # As many as are read at a time were due, so there may be more.
    return count, 0.0 if moved >= scheduling.MOST_LOOKED_AT else delay


def _place(connection: BaseDatabaseWrapper, row: ScheduleRow) -> tuple[int, datetime | None] | None:
    """Find the first tick of a schedule that is new, was edited, or is enabled again: never one that has passed.

    None where the row is somebody else's just now.
    """
    next_at = ticks.first_tick(_timing(row), row.now, starts=row.starts, ends=row.ends)
    if next_at is not None and not scheduling.place(connection, row, next_at=next_at):
        return None
    return 0, next_at


def _fire(connection: BaseDatabaseWrapper, row: ScheduleRow, next_at: datetime) -> tuple[int, datetime | None] | None:
    """Queue the jobs of a schedule's due ticks; None where it is somebody else who does, or has its row just now."""
    if (performer := find_performer(row.performer)) is None:
        if row.now - next_at <= PATIENCE:
            return 0, None
        raise _Unfireable(f"no performer is named {row.performer} where schedules are fired")
    due = ticks.due(_timing(row), next_at, row.now, missed=row.missed, ends=row.ends)
    jobs = [(tick, _job(row, performer, tick)) for tick in due.ticks]
    try:
        ids = scheduling.fire(connection, row, jobs, skipped=due.skipped, next_at=due.next_at)
    except DatabaseError as error:
        if isinstance(error, (OperationalError, InterfaceError)):
            # It is about the connection.
            raise
        # A constraint or a trigger of the project's own, or a column that somebody wrote past all checks. What follows
        # the first line is about the row, which is another one each time.
        said, _, _ = shown(error).partition("\n")
        raise _Unfireable(f"its job can't be queued: {said}") from error
    return None if ids is None else (len(ids), due.next_at)


def _job(row: ScheduleRow, performer: AnyPerformer, tick: datetime) -> NewJob:
    """Prepare the job of a tick. It may start at once where it is late."""
    try:
        run_at = max(ticks.jittered(row.name, tick, row.jitter), row.now)
        job = declaring.fired(performer, row.args, row.kwargs, queue=row.queue, priority=row.priority, run_at=run_at)
    except Exception as error:
        # What is in the row may be anybody's, and a key is made by user code.
        raise _Unfireable(f"its job can't be queued: {shown(error)}") from error
    if row.overlap != "skip":
        return job
    if job.key is not None:
        raise _Unfireable(
            f"overlap=skip is a unique key, and {row.performer} has one of its own; leave out one of them"
        )
    return job._replace(unique_key=overlap_key(row.name))


def overlap_key(name: str) -> str:
    """Give the key that the job of a schedule holds while it waits or runs, where its ticks mustn't overlap."""
    return f"schedule {name}"


def _timing(row: ScheduleRow) -> Timing:
    try:
        return declaring.timing_of(row)
    except (TypeError, ValueError) as error:
        raise _Unfireable(str(error)) from error


def _set_aside(connection: BaseDatabaseWrapper, row: ScheduleRow, problem: str) -> None:
    if row.error != problem and scheduling.set_aside(connection, row, error=problem):
        message = f"schedule {row.name} can't fire: {problem}"
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.ERROR)


# -- looking ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A moment at which a schedule fires, aware, by the clock of its zone; `remark` says what a shift of that does."""

    at: datetime
    remark: str = ""


def preview(
    schedule: str | timedelta | AnyPerformer | Schedule,
    count: int = 10,
    *,
    time_zone: str | None = None,
    after: datetime | None = None,
) -> list[Tick]:
    """Give the next moments of a schedule, at most `count` of them, with a remark where a shift of the clock bends one.

    It is a cron line or an interval, with `time_zone` (by default that of the setting); a performer that has a schedule
    of its own name; or a row. `after` (aware) is now unless it is said. Raises TypeError or ValueError for what can't
    be read, LookupError for a performer without a schedule.
    """
    timing, starts, ends = _readable(schedule, time_zone)
    moment = after or clock.now()
    found: list[Tick] = []
    while len(found) < count and (tick := ticks.first_tick(timing, moment, starts=starts, ends=ends)) is not None:
        found.append(_shown(timing, tick))
        moment = tick
    return found


def describe(schedule: str | timedelta | AnyPerformer | Schedule, *, time_zone: str | None = None) -> str:
    """Say in plain words when a schedule fires. Takes, and raises, what `preview` does."""
    return _readable(schedule, time_zone)[0].describe()


def _readable(schedule: object, time_zone: str | None) -> tuple[Timing, datetime | None, datetime | None]:
    if isinstance(schedule, timedelta):
        return declaring.interval_of(schedule.total_seconds()), None, None
    if isinstance(schedule, str):
        return parse(schedule, zone=zone_of(time_zone or settings().time_zone)), None, None
    if isinstance(schedule, Performer):
        found: Any = next((one for one in declaring.declared() if one.name == schedule.name), None)
        if found is None:
            message = f"{schedule.name} has no schedule of its own name; give a cron line, an interval or a row"
            raise LookupError(message)
    else:
        found = schedule
    return declaring.timing_of(found, time_zone=time_zone), found.starts, found.ends


def _shown(timing: Timing, tick: datetime) -> Tick:
    if isinstance(timing, Cron):
        return Tick(at=tick.astimezone(timing.zone), remark=timing.bent(tick))
    return Tick(at=tick)


# -- the code's schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSet:
    """The schedules that this process' code declares, and whose they are."""

    owner: str
    hash: str
    schedules: tuple[Declared, ...]

    @property
    def said(self) -> str:
        """What workers of this release say of it."""
        return scheduling.said_of(self.owner, self.hash)


def code_set() -> CodeSet:
    """Give what this process' code declares."""
    declared = tuple(declaring.declared())
    return CodeSet(owner=settings().owner, hash=declaring.hash_of(declared), schedules=declared)


def counts(connection: BaseDatabaseWrapper, code: CodeSet) -> bool:
    """Tell whether what the code declares is what counts."""
    return scheduling.standing(connection, code.owner, hash_=code.hash) is scheduling.Standing.COUNTS


def declare(connection: BaseDatabaseWrapper, code: CodeSet) -> bool:
    """Have the rows be as the code says, and tell whether they are; False while another release counts.

    What isn't declared any more stops firing, and stays to be seen. Nothing says whether a schedule is enabled: that is
    people's. A name that others hold is left to them, with a line in the log. False, too, where somebody else was at
    the rows meanwhile: it is to be asked again.
    """
    standing = scheduling.standing(connection, code.owner, hash_=code.hash)
    if standing is scheduling.Standing.WAITS:
        return False
    for _ in range(DECLARE_TRIES):
        difference = _difference(connection, code)
        if standing is scheduling.Standing.COUNTS and not difference.is_any:
            _tell_of_strangers(difference.strangers)
            return True
        written = scheduling.declare(
            connection, code.owner, hash_=code.hash, new=difference.new, edited=difference.edited, gone=difference.gone
        )
        # The picture of the rows was older than the writing, and another release may have been between the two.
        standing = scheduling.standing(connection, code.owner, hash_=code.hash)
        if not written or standing is not scheduling.Standing.COUNTS:
            return False
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """What is to be written that the rows be as code says, and the rows that have a name of its but are others'."""

    new: list[dict[str, Any]]
    edited: list[tuple[ScheduleRow, dict[str, Any]]]
    gone: list[ScheduleRow]
    strangers: list[ScheduleRow]

    @property
    def is_any(self) -> bool:
        return bool(self.new or self.edited or self.gone)


def _difference(connection: BaseDatabaseWrapper, code: CodeSet) -> _Difference:
    rows = {
        row.name: row for row in scheduling.named(connection, [one.name for one in code.schedules], owner=code.owner)
    }
    ours = {name: row for name, row in rows.items() if (row.owner, row.origin) == (code.owner, CODE)}
    wanted = {one.name: _values(one, code.owner) for one in code.schedules}
    return _Difference(
        new=[values for name, values in wanted.items() if name not in rows],
        edited=[(row, wanted[name]) for name, row in ours.items() if name in wanted and _differs(row, wanted[name])],
        gone=[row for name, row in ours.items() if name not in wanted and not row.removed],
        strangers=[row for name, row in rows.items() if name in wanted and name not in ours],
    )


def _values(declared: Declared, owner: str) -> dict[str, Any]:
    return asdict(declared) | {"owner": owner}


def _differs(row: ScheduleRow, values: dict[str, Any]) -> bool:
    if row.removed or any(json.loads(getattr(row, name)) != json.loads(values[name]) for name in ("args", "kwargs")):
        return True
    return any(getattr(row, name) != value for name, value in values.items() if name not in ("args", "kwargs"))


def _tell_of_strangers(rows: Iterable[ScheduleRow]) -> None:
    for row in rows:
        whose = "was made by hand" if row.origin != CODE else f"is declared by {row.owner or 'another project'}"
        message = (
            f"a schedule named {row.name} {whose} already, so the one that this code declares isn't used; rename it"
        )
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
