"""Schedules in virtual time: with `until` their ticks come, each in its order, and nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync

from django_jobs import Attempt, every, queues
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Schedule
from django_jobs.performers import AnyPerformer
from django_jobs.testing import arun_jobs, drain, run_jobs
from tests.declaring import declared
from tests.factories import NOON

pytestmark = pytest.mark.django_db

ran: list[tuple[str, datetime | None]] = []


def report(attempt: Attempt, kind: str = "") -> None:
    ran.append((kind or attempt.name, attempt.tick))


def other(attempt: Attempt) -> None:
    ran.append((attempt.name, attempt.tick))


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(report, name="shop.report", queue="reports", takes_attempt=True) as performer:
        yield performer


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


@pytest.mark.usefixtures("frozen")
def test_ticks_of_what_code_declares_come_in_their_order(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, args=("hourly",), name="hourly")
    every(timedelta(minutes=40), performer, args=("often",), name="often")
    done = run_jobs(until="2h")
    assert ran == [
        ("often", at(12, 40)), ("hourly", at(13)), ("often", at(13, 20)), ("hourly", at(14)), ("often", at(14)),
    ]  # fmt: skip
    assert (done.succeeded, [job.run_at for job in done.jobs][:2]) == (5, [at(12, 40), at(13)])


@pytest.mark.usefixtures("frozen")
def test_ticks_and_jobs_come_as_their_moments_do(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, args=("hourly",), name="hourly")
    performer.after(minutes=30).later("queued")
    run_jobs(until="1h")
    assert ran == [("queued", None), ("hourly", at(13))]


@pytest.mark.usefixtures("frozen")
def test_without_until_no_tick_comes(performer: AnyPerformer) -> None:
    every("* * * * *", performer, name="minutely")
    assert run_jobs().jobs == ()
    assert not Schedule.objects.exists()


@pytest.mark.usefixtures("frozen")
def test_none_comes_where_schedules_are_left_out(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, name="hourly")
    assert run_jobs(until="2h", schedules=False).jobs == ()
    assert drain(until="2h", schedules=False).jobs == ()
    assert not Schedule.objects.exists()


@pytest.mark.usefixtures("frozen")
def test_rows_that_were_made_by_hand_fire_too(performer: AnyPerformer) -> None:
    Schedule.objects.create(name="by hand", cron="0 * * * *", performer="shop.report", args=["by hand"])
    run_jobs(until="1h")
    assert ran == [("by hand", at(13))]


@pytest.mark.usefixtures("frozen")
def test_a_schedule_that_is_made_by_a_job_fires_from_then_on(performer: AnyPerformer) -> None:
    def make() -> None:
        Schedule.objects.create(name="made", cron="15 * * * *", performer="shop.report", args=["made"])

    with declared(make, name="shop.make") as maker:
        maker.after(hours=1).later()
        run_jobs(until="2h")
    assert ran == [("made", at(13, 15))]


@pytest.mark.usefixtures("frozen")
def test_a_tick_comes_once_however_often_it_is_asked_for(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, name="hourly")
    run_jobs(until="1h")
    run_jobs(until="1h")
    run_jobs(until="2h")
    assert [tick for _, tick in ran] == [at(13), at(14)]


@pytest.mark.usefixtures("frozen")
def test_only_ticks_for_the_jobs_that_are_named_come(performer: AnyPerformer) -> None:
    with declared(other, name="shop.other", takes_attempt=True, schedule="0 * * * *") as another:
        every("0 * * * *", performer, args=("hourly",), name="hourly")
        run_jobs(another, until="1h")
        assert ran == [("shop.other", at(13))]
        assert Job.objects.count() == 1


@pytest.mark.usefixtures("frozen")
def test_only_ticks_for_the_queue_that_is_named_come(performer: AnyPerformer) -> None:
    with declared(other, name="shop.other", takes_attempt=True, schedule="0 * * * *"):
        every("0 * * * *", performer, args=("its own",), name="one")
        every("0 * * * *", performer, args=("said",), name="two", queue="slow")
        run_jobs(queue="reports", until="1h")
        run_jobs(queue="default", until="1h")
    assert ran == [("its own", at(13)), ("shop.other", at(13))]
    assert Job.objects.count() == 2


@pytest.mark.usefixtures("frozen")
def test_a_job_starts_its_jitter_after_its_tick(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, name="hourly", jitter="10m")
    [job] = run_jobs(until="90m").jobs
    assert job.tick == at(13)
    assert at(13) < job.run_at < at(13, 10)


@pytest.mark.usefixtures("frozen")
def test_a_paused_queue_holds_what_comes(performer: AnyPerformer) -> None:
    every("0 * * * *", performer, name="hourly")
    queues["reports"].pause()
    assert run_jobs(until="2h").jobs == ()
    assert list(Job.objects.order_by("pk").values_list("tick", flat=True)) == [at(13), at(14)]


@pytest.mark.usefixtures("frozen")
def test_more_ticks_than_jobs_are_allowed_are_an_error(performer: AnyPerformer) -> None:
    every("* * * * *", performer, name="minutely")
    with pytest.raises(RuntimeError, match=r"5 attempts were made.*or come by a schedule"):
        run_jobs(until="1d", max_jobs=5)
    assert len(ran) == 5


@pytest.mark.usefixtures("frozen")
def test_exactly_as_many_ticks_as_jobs_are_allowed_are_fine(performer: AnyPerformer) -> None:
    every("* * * * *", performer, name="minutely")
    assert run_jobs(until="5m", max_jobs=5).succeeded == 5


def test_the_clock_is_as_before_and_the_real_one_begins_it(performer: AnyPerformer) -> None:
    every(timedelta(hours=1), performer, name="hourly")
    done = drain(until="1h")
    [job] = done.jobs
    assert job.tick is not None
    assert timedelta(0) < job.tick - datetime.now(UTC) <= timedelta(hours=1)


def test_from_async_code_too(performer: AnyPerformer) -> None:
    every(timedelta(hours=1), performer, name="hourly")
    assert async_to_sync(arun_jobs)(until="1h").succeeded == 1


@pytest.mark.usefixtures("performer")
def test_a_failing_tick_raises_as_any_job_does(frozen: FrozenClock) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with declared(fail, name="shop.fail", schedule="0 * * * *", max_attempts=1), pytest.raises(ZeroDivisionError):
        run_jobs(until="1h")
    assert frozen.instant == NOON
