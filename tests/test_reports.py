"""Reports: what there is, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_jobs import every, reports, schedules
from django_jobs.clock import FrozenClock
from django_jobs.models import Schedule
from django_jobs.performers import AnyPerformer
from django_jobs.reports import ScheduleReport
from tests.declaring import declared
from tests.factories import NOON, seconds

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]

NOT_WRITTEN = "not in the database yet, so nothing fires it; `runjobs` writes it when it starts"


def report(size: int = 1) -> None: ...


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(report, name="shop.report", queue="reports") as performer:
        yield performer


def look() -> None:
    """Have the code's schedules be written, and fire, as any worker's chore does."""
    schedules.declare(connections["default"], schedules.code_set())
    schedules.fire_due(connections["default"])


def listed(name: str = "nightly") -> ScheduleReport:
    [found] = [report for report in reports.schedules() if report.name == name]
    return found


def made(**changes: Any) -> Schedule:
    """Make a schedule by hand."""
    said = {"name": "nightly", "cron": "* * * * *", "time_zone": "UTC", "performer": "shop.report"}
    return Schedule.objects.create(**{**said, **changes})


def test_a_schedule_is_listed_with_what_is_to_be_known_of_it(performer: AnyPerformer, frozen: FrozenClock) -> None:
    every("0 3 * * *", performer, name="nightly", time_zone="Europe/Paris")
    look()
    frozen.advance(timedelta(hours=15))
    look()
    assert listed() == ScheduleReport(
        name="nightly", performer="shop.report", words="At 03:00 every day", cron="0 3 * * *", every_seconds=None,
        time_zone="Europe/Paris", queue="reports", last_at=datetime(2026, 3, 2, 2, tzinfo=UTC),
        next_at=datetime(2026, 3, 3, 2, tzinfo=UTC), enabled=True, removed=False, error="", origin="code",
        owner="tests", skipped=0, is_stored=True, notes=(), now=datetime(2026, 3, 2, 3, tzinfo=UTC),
    )  # fmt: skip


def test_what_nobody_has_written_yet_is_listed_too(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="nightly", time_zone="UTC", queue="slow")
    assert listed() == ScheduleReport(
        name="nightly", performer="shop.report", words="At 03:00 every day", cron="0 3 * * *", every_seconds=None,
        time_zone="UTC", queue="slow", last_at=None, next_at=datetime(2026, 3, 2, 3, tzinfo=UTC), enabled=True,
        removed=False, error="", origin="code", owner="tests", skipped=0, is_stored=False, notes=(NOT_WRITTEN,),
        now=NOON,
    )  # fmt: skip


def test_they_come_by_name(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="m")
    made(name="z")
    made(name="a")
    names = [report.name for report in reports.schedules()]
    assert [name for name in names if len(name) == 1] == ["a", "m", "z"]
    assert names == sorted(names)


def test_the_list_costs_two_statements(performer: AnyPerformer, django_assert_num_queries: Any) -> None:
    for number in range(5):
        made(name=f"nightly {number}")
    with django_assert_num_queries(2):
        assert len(reports.schedules()) >= 5


def test_an_interval_is_listed_in_words(performer: AnyPerformer) -> None:
    made(cron="", every_seconds=600.0)
    assert (listed().words, listed().cron, listed().every_seconds) == ("Every 10 minutes", "", 600.0)


@pytest.mark.parametrize(
    ("said", "performer_queue", "queue"), [("slow", "reports", "slow"), ("", "reports", "reports"), ("", None, "plain")]
)
def test_the_queue_is_the_schedules_or_the_performers_or_the_settings(
    said: str, performer_queue: str | None, queue: str
) -> None:
    options = {} if performer_queue is None else {"queue": performer_queue}
    with override_settings(DJANGO_JOBS={"DEFAULT_QUEUE": "plain"}), declared(report, name="shop.report", **options):
        made(queue=said)
        assert listed().queue == queue


def test_the_queue_of_a_job_that_is_not_known_here_is_not_guessed() -> None:
    made(performer="other.project")
    assert listed().queue == ""


def test_the_next_time_of_one_that_nobody_has_looked_at_yet_is_what_will_be_found(performer: AnyPerformer) -> None:
    made(starts=NOON + timedelta(hours=1))
    assert listed().next_at == NOON + timedelta(hours=1)


def notes() -> tuple[str, ...]:
    return listed().notes


def test_what_is_disabled_says_so(performer: AnyPerformer) -> None:
    made().disable()
    assert (listed().enabled, listed().next_at, notes()) == (False, None, ("disabled: somebody has stopped it",))


def test_what_is_removed_says_so(performer: AnyPerformer) -> None:
    made(removed=True, origin="code", owner="tests")
    assert (listed().removed, listed().next_at) == (True, None)
    assert notes() == ("removed: its project's code no longer declares it",)


def test_what_cannot_fire_says_why(frozen: FrozenClock) -> None:
    made()
    schedules.fire_due(connections["default"])
    frozen.advance(seconds(600))
    schedules.fire_due(connections["default"])
    assert notes() == ("can't fire: no performer is named shop.report where schedules are fired",)


def test_what_cannot_be_read_says_why_and_has_no_next_time(performer: AnyPerformer) -> None:
    made()
    Schedule.objects.update(time_zone="Mars/Base", next_at=NOON)
    why = "time zone 'Mars/Base': there is none of this name here; give one such as 'Europe/Paris' or 'UTC'"
    assert (listed().words, listed().error, listed().next_at, notes()) == ("", why, None, (f"can't fire: {why}",))


def test_what_is_over_says_so(performer: AnyPerformer) -> None:
    made(ends=NOON)
    assert (listed().next_at, notes()) == (None, ("over: no time comes any more at which it fires",))


def test_what_nobody_fires_says_so_after_a_minute(performer: AnyPerformer, frozen: FrozenClock) -> None:
    made()
    schedules.fire_due(connections["default"])
    frozen.advance(seconds(120))
    assert notes() == ()
    frozen.advance(seconds(60))
    assert notes() == ("2 min late: nothing fires it; does `runjobs` run?",)


def test_a_name_that_others_hold_says_so(performer: AnyPerformer) -> None:
    made()
    every("0 3 * * *", performer, name="nightly")
    assert notes() == ("this project's code declares one of that name, too, which isn't used; rename it",)
    assert (listed().cron, listed().origin) == ("* * * * *", "admin")
