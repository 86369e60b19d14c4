"""Front door: `jobs schedules` lists schedules, and `jobs schedules preview` says when a cron line fires."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_jobs import reports
from django_jobs.cli.subs import Answer, Said, Sub, shortened, table, wrapped
from django_jobs.conf import settings
from django_jobs.durations import words
from django_jobs.reports import ScheduleReport
from django_jobs.schedules import Tick, describe, preview

HEAD = ("NAME", "WHEN", "QUEUE", "LAST", "NEXT")
WHEN_WIDTH = 24
QUEUE_WIDTH = 16
INDENT = "    "

NONE = "-"

EMPTY = """\
There are no schedules. A job has one of its own by

    @job(schedule="0 9 * * *", time_zone="Europe/Paris")
    def report(): ...

or by `every("0 9 * * *", report, args=(…), name="…")` beside it. docs/schedules.md says more."""

MOST = 1_000
"""So many moments are shown at the most."""


def list_all(_: Said, style: Style) -> Answer:
    """List all schedules, and what there is to be known of each."""
    found = reports.schedules()
    return Answer(lines=list(_listed(found, style)) if found else EMPTY.splitlines(), data=found)


def _listed(found: list[ScheduleReport], style: Style) -> Iterator[str]:
    rows = [
        (
            report.name,
            shortened(report.cron or "interval", WHEN_WIDTH),
            shortened(report.queue or NONE, QUEUE_WIDTH),
            NONE if report.last_at is None else f"{_span(report.now, report.last_at)} ago",
            _until(report),
        )
        for report in found
    ]
    head, *lines = table(HEAD, rows, style)
    yield head
    for line, report in zip(lines, found, strict=True):
        yield line
        yield from wrapped(_told(report), indent=INDENT)
        for note in report.notes:
            for part in wrapped(f"! {note}", indent=INDENT):
                yield style.WARNING(part)


def _told(report: ScheduleReport) -> str:
    """Say when a schedule fires and what, by the clock of its zone."""
    when = f"{report.words} ({report.time_zone})" if report.words and report.cron else report.words
    if report.next_at is not None:
        when += f", next {_short(report.next_at.astimezone(ZoneInfo(report.time_zone)))}"
    job = "" if report.performer == report.name else f"job {report.performer}"
    skipped = f"{report.skipped:,} skipped" if report.skipped else ""
    return "; ".join(filter(None, (when, job, _whose(report), skipped)))


def _whose(report: ScheduleReport) -> str:
    if report.origin != reports.CODE:
        return "made by hand"
    return "in code" if report.owner == settings().owner else f"in the code of {report.owner or 'another project'}"


def _until(report: ScheduleReport) -> str:
    if report.next_at is None:
        return NONE
    return "due" if report.next_at <= report.now else f"in {_span(report.next_at, report.now)}"


def _span(later: datetime, earlier: datetime) -> str:
    return words(max(0.0, (later - earlier).total_seconds()))


def _short(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00")


def _shown(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M:%S %z}"


# -- looking ahead


def _preview_arguments(parser: CommandParser) -> None:
    parser.add_argument("line", help='a cron line, as in "30 3 * * MON-FRI", or a word such as @daily')
    parser.add_argument("--zone", default=None, help="key of its time zone; by default that of the setting TIME_ZONE")
    parser.add_argument("--count", type=int, default=10, help=f"how many moments, 1 to {MOST:,}; 10 by default")


def look_ahead(said: Said, style: Style) -> Answer:
    """Say in words when a cron line fires, and its next moments, with what shifts of the clock do to them."""
    line, zone, count = said["line"], said["zone"] or settings().time_zone, said["count"]
    if not 1 <= count <= MOST:
        message = f"--count {count}: give 1 to {MOST:,}"
        raise CommandError(message)
    try:
        told, found = describe(line, time_zone=zone), preview(line, count, time_zone=zone)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    data = {"cron": line, "time_zone": zone, "words": told, "ticks": found}
    return Answer(lines=[f"{told} ({zone})", "", *(_moment(tick, style) for tick in found)], data=data)


def _moment(tick: Tick, style: Style) -> str:
    shown = _shown(tick.at)
    return f"{shown}  {style.WARNING(tick.remark)}" if tick.remark else shown


SUBS = (
    Sub(
        name="schedules",
        help="list schedules: when each fires, where its jobs wait, its last and next time",
        run=list_all,
        subs=(
            Sub(
                name="preview",
                help="show the next moments of a cron line, with what shifts of the clock do to them",
                run=look_ahead,
                arguments=_preview_arguments,
            ),
        ),
    ),
)
