"""Read: what there is, as plain values for commands and pages. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import connections

from django_jobs import lifecycle, ticks
from django_jobs.conf import settings
from django_jobs.durations import words
from django_jobs.performers import UNSET, Declared, declared, find_performer
from django_jobs.performers.scheduling import timing_of

if TYPE_CHECKING:
    from django_jobs.models import Schedule

CODE = "code"

LATE = timedelta(minutes=1)
"""A tick that is so late, and hasn't fired, has nobody who fires it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReport:
    """A schedule as people look at it, as it stood at `now`.

    - `cron` '' stands for an interval of `every_seconds`; `words` says when it fires, '' where that can't be read
    - `time_zone` is where its cron line is read; `queue` where its jobs wait, '' where that is for a performer to say
      which isn't known here
    - `last_at` and `next_at` are ticks; `next_at` is None where none comes
    - `origin` is "code" or "admin", `owner` the project whose code declares it
    - `is_stored` is False while no worker has written yet what this project's code declares
    - `notes` say what people ought to know beside that, a sentence each
    """

    name: str
    performer: str
    words: str
    cron: str
    every_seconds: float | None
    time_zone: str
    queue: str
    last_at: datetime | None
    next_at: datetime | None
    enabled: bool
    removed: bool
    error: str
    origin: str
    owner: str
    skipped: int
    is_stored: bool
    notes: tuple[str, ...]
    now: datetime


def schedules() -> list[ScheduleReport]:
    """List the schedules of the jobs' database, and those of this project's code that nobody has written there yet.

    They come by name. Those of other projects are among them, and so are those that fire no more.
    """
    alias = settings().database
    model: type[Schedule] = apps.get_model("django_jobs", "Schedule")
    rows = {row.name: row for row in model.objects.using(alias).defer("args", "kwargs").order_by("name")}
    now = lifecycle.pulse(connections[alias]).now
    said = {one.name: one for one in declared()}
    found = [_of_row(row, now, is_declared=name in said) for name, row in rows.items()]
    found += [_of_code(one, now) for name, one in said.items() if name not in rows]
    return sorted(found, key=lambda report: report.name)


def _of_row(row: Schedule, now: datetime, *, is_declared: bool) -> ScheduleReport:
    fires = row.enabled and not row.removed
    told, error, first = _timing(row, now)
    next_at = (row.next_at or first) if fires and told else None
    error = row.error or error
    return ScheduleReport(
        name=row.name,
        performer=row.performer,
        words=told,
        cron=row.cron,
        every_seconds=row.every_seconds,
        time_zone=row.time_zone or settings().time_zone,
        queue=queue_of(row.queue, row.performer),
        last_at=row.last_at,
        next_at=next_at,
        enabled=row.enabled,
        removed=row.removed,
        error=error,
        origin=row.origin,
        owner=row.owner,
        skipped=row.skipped,
        is_stored=True,
        notes=tuple(_notes(row, next_at, error, now, is_declared=is_declared)),
        now=now,
    )


def _of_code(one: Declared, now: datetime) -> ScheduleReport:
    told, error, first = _timing(one, now)
    return ScheduleReport(
        name=one.name,
        performer=one.performer,
        words=told,
        cron=one.cron,
        every_seconds=one.every_seconds,
        time_zone=one.time_zone or settings().time_zone,
        queue=queue_of(one.queue, one.performer),
        last_at=None,
        next_at=first,
        enabled=True,
        removed=False,
        error=error,
        origin=CODE,
        owner=settings().owner,
        skipped=0,
        is_stored=False,
        notes=("not in the database yet, so nothing fires it; `runjobs` writes it when it starts",),
        now=now,
    )


def _timing(one: Schedule | Declared, now: datetime) -> tuple[str, str, datetime | None]:
    """Give the words for when a schedule fires, or why that can't be read; and its first tick from now on."""
    try:
        timing = timing_of(one)
    except (TypeError, ValueError) as error:
        return "", str(error), None
    return timing.describe(), "", ticks.first_tick(timing, now, starts=one.starts, ends=one.ends)


def queue_of(said: str, name: str) -> str:
    """Give the queue of a schedule's jobs: what it says itself, or its performer; '' where that isn't known here."""
    if said or (performer := find_performer(name)) is None:
        return said
    queue = performer.options.queue
    return settings().default_queue if queue is UNSET else str(queue)


def _notes(row: Schedule, next_at: datetime | None, error: str, now: datetime, *, is_declared: bool) -> list[str]:
    found = []
    if row.removed:
        found.append("removed: its project's code no longer declares it")
    elif not row.enabled:
        found.append("disabled: somebody has stopped it")
    elif error:
        found.append(f"can't fire: {error}")
    elif next_at is None:
        found.append("over: no time comes any more at which it fires")
    elif now - next_at > LATE:
        found.append(f"{words((now - next_at).total_seconds())} late: nothing fires it; does `runjobs` run?")
    if is_declared and (row.origin, row.owner) != (CODE, settings().owner):
        found.append("this project's code declares one of that name, too, which isn't used; rename it")
    return found
