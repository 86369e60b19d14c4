"""Schedules: what code declares comes into rows, and ticks come to jobs, each once; no edit or gap changes the past."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, connections, transaction
from django.test import override_settings

from django_jobs import every, lifecycle, preview, queues, schedules, work_one
from django_jobs.clock import FrozenClock
from django_jobs.cron import Cron
from django_jobs.lifecycle import scheduling
from django_jobs.models import Job, Schedule, ScheduleSet
from django_jobs.performers import AnyPerformer
from django_jobs.records import WorkerLife
from django_jobs.schedules import CodeSet, Tick
from tests.declaring import declared
from tests.factories import NOON, seconds
from tests.stores.refusing import refused_queue

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]

ran: list[tuple[Any, ...]] = []


def report(*args: Any, **kwargs: Any) -> None:
    ran.append((args, kwargs))


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(report, name="shop.report", queue="reports") as performer:
        yield performer


def fire() -> int:
    """Look once, as any worker's chore does."""
    return schedules.fire_due(connections["default"])[0]


def sync() -> bool:
    return schedules.declare(connections["default"], schedules.code_set())


def row(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


def ticks_of(name: str = "nightly") -> list[datetime | None]:
    return list(Job.objects.filter(schedule=name).order_by("pk").values_list("tick", flat=True))


def minutely(**changes: Any) -> Schedule:
    """Make a row by hand that fires each minute, from the next one on."""
    made = Schedule.objects.create(**{"name": "nightly", "cron": "* * * * *", "performer": "shop.report", **changes})
    fire()
    return made


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


# -- from code to rows


def test_what_code_declares_becomes_a_row_that_fires_from_its_next_time_on(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    every(
        "30 12 * * *", performer, args=(1,), kwargs={"to": "ada"}, name="nightly", queue="slow", priority=5,
        time_zone="UTC", missed="all", overlap="skip", jitter="10s", starts=NOON, ends=NOON + timedelta(days=9),
    )  # fmt: skip
    assert sync() is True
    made = row()
    assert (made.owner, made.origin, made.cron, made.every_seconds, made.time_zone) == (
        "tests", "code", "30 12 * * *", None, "UTC",
    )  # fmt: skip
    assert (made.performer, made.args, made.kwargs, made.queue, made.priority) == (
        "shop.report", [1], {"to": "ada"}, "slow", 5,
    )  # fmt: skip
    assert (made.missed, made.overlap, made.jitter, made.starts, made.ends) == (
        "all", "skip", 10.0, NOON, NOON + timedelta(days=9),
    )  # fmt: skip
    assert (made.enabled, made.removed, made.version, made.next_at) == (True, False, 1, None)
    assert fire() == 0
    assert row().next_at == minute(30)


def test_a_performer_may_have_a_schedule_of_its_own_name() -> None:
    with declared(report, name="shop.report", schedule="0 3 * * *", time_zone="Europe/Berlin"):
        sync()
    made = row("shop.report")
    assert (made.performer, made.cron, made.time_zone, made.args) == ("shop.report", "0 3 * * *", "Europe/Berlin", [])


def test_an_interval_is_written_in_seconds(performer: AnyPerformer, frozen: FrozenClock) -> None:
    every(timedelta(minutes=10), performer, name="nightly")
    sync()
    fire()
    assert (row().cron, row().every_seconds, row().next_at) == ("", 600.0, minute(10))


def test_what_did_not_change_is_not_written(performer: AnyPerformer, django_assert_num_queries: Any) -> None:
    every("* * * * *", performer, name="nightly", args=(1.5, datetime(2026, 1, 1, tzinfo=UTC)))
    sync()
    fire()
    before = row()
    with django_assert_num_queries(2):
        sync()
    assert (row().version, row().next_at) == (before.version, before.next_at)


def test_o58_an_edited_schedule_fires_from_its_next_time_on(frozen: FrozenClock) -> None:
    with override_settings(DJANGO_JOBS={"TIME_ZONE": "UTC"}):
        with declared(report, name="shop.report", schedule="0 3 * * *"):
            sync()
            fire()
        frozen.advance(timedelta(hours=3))
        with declared(report, name="shop.report", schedule="0 4 * * *"):
            sync()
            assert (row("shop.report").version, row("shop.report").next_at) == (2, None)
            assert fire() == 0
        assert row("shop.report").next_at == datetime(2026, 3, 2, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"args": (2,)}, {"kwargs": {"to": "bo"}}, {"queue": "other"}, {"priority": 1}, {"time_zone": "Asia/Tokyo"},
        {"missed": "skip"}, {"overlap": "skip"}, {"jitter": 5}, {"starts": NOON}, {"ends": NOON + timedelta(days=1)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_each_thing_that_is_said_anew_is_an_edit(change: dict[str, Any]) -> None:
    for said in ({}, change):
        with declared(report, name="shop.report") as performer:
            every("* * * * *", performer, name="nightly", **{"args": (1,), **said})
            sync()
    assert row().version == 2


def test_o59_what_is_no_longer_declared_stops_and_stays_to_be_seen(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", schedule="* * * * *"):
        sync()
        fire()
    sync()
    frozen.advance(seconds(300))
    assert fire() == 0
    gone = row("shop.report")
    assert (gone.removed, gone.next_at, gone.enabled) == (True, None, True)
    with declared(report, name="shop.report", schedule="* * * * *"):
        sync()
        assert fire() == 0
    assert (row("shop.report").removed, row("shop.report").next_at) == (False, minute(6))


def test_o59_a_renamed_schedule_is_a_new_one_and_the_old_stops(performer: AnyPerformer, frozen: FrozenClock) -> None:
    with declared(report, name="shop.old", schedule="* * * * *"):
        sync()
    with declared(report, name="shop.new", schedule="* * * * *"):
        sync()
        fire()
        frozen.advance(seconds(60))
        assert fire() == 1
    assert list(Job.objects.values_list("schedule", flat=True)) == ["shop.new"]


def test_a_sync_never_touches_whether_a_schedule_is_enabled(frozen: FrozenClock) -> None:
    for line in ("* * * * *", "*/2 * * * *"):
        with declared(report, name="shop.report", schedule=line):
            sync()
            row("shop.report").disable()
    assert (row("shop.report").cron, row("shop.report").enabled) == ("*/2 * * * *", False)
    fire()
    frozen.advance(seconds(600))
    assert fire() == 0


def test_rows_that_were_made_by_hand_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    minutely(name="shop.report")
    minutely(name="other")
    with declared(report, name="shop.report", schedule="0 3 * * *"), caplog.at_level(logging.WARNING, "django_jobs"):
        sync()
    assert (row("shop.report").cron, row("shop.report").origin) == ("* * * * *", "admin")
    assert not row("other").removed
    assert "a schedule named shop.report was made by hand already" in caplog.text


def test_two_projects_in_one_database_keep_to_their_own(caplog: pytest.LogCaptureFixture) -> None:
    for owner, name in (("shop", "nightly"), ("bank", "daily"), ("bank", "nightly")):
        one = CodeSet(owner=owner, hash=f"{owner}{name}", schedules=(_declared_as(name),))
        with caplog.at_level(logging.WARNING, "django_jobs"):
            schedules.declare(connections["default"], one)
    assert {one.name: (one.owner, one.removed) for one in Schedule.objects.all()} == {
        "nightly": ("shop", False), "daily": ("bank", True),
    }  # fmt: skip
    assert "a schedule named nightly is declared by shop already" in caplog.text


def _declared_as(name: str) -> Any:
    with declared(report, name="shop.report") as performer:
        every("* * * * *", performer, name=name)
        return next(one for one in schedules.code_set().schedules if one.name == name)


# -- O59: releases of one project


def code(*names: str) -> CodeSet:
    """Give what a release declares that has these schedules."""
    return CodeSet(owner="shop", hash=" ".join(names) or "", schedules=tuple(map(_declared_as, names)))


def declare(release: CodeSet) -> bool:
    return schedules.declare(connections["default"], release)


def beat(release: CodeSet) -> None:
    life = WorkerLife(
        identity=release.hash or "none", host="h", pid=1, queues=(), slots=1, versions={"schedules": release.said},
        age=1.0, claim_age=1.0,
    )  # fmt: skip
    lifecycle.beat(connections["default"], [life])


def firing() -> list[str]:
    return sorted(Schedule.objects.filter(removed=False).values_list("name", flat=True))


def test_o59_a_new_release_counts_at_once_and_an_old_worker_revives_nothing(frozen: FrozenClock) -> None:
    old, new = code("a", "b"), code("b", "c")
    assert declare(old)
    beat(old)
    assert declare(new)
    beat(new)
    assert firing() == ["b", "c"]
    # A worker of the old release starts again, late in the deploy.
    assert declare(old) is False
    assert firing() == ["b", "c"]


def test_o59_a_rollback_counts_when_nobody_of_the_other_release_is_left_for_two_minutes(frozen: FrozenClock) -> None:
    old, new = code("a"), code("b")
    declare(old)
    declare(new)
    beat(new)
    frozen.advance(seconds(60))
    beat(new)
    frozen.advance(seconds(120))
    assert declare(old) is False
    frozen.advance(seconds(0.001))
    assert declare(old) is True
    assert firing() == ["a"]
    # And now the other one is the one that was.
    beat(old)
    assert declare(new) is False


def test_o59_a_release_that_declares_none_any_more_is_a_release_too(frozen: FrozenClock) -> None:
    declare(code("a"))
    assert declare(code())
    assert firing() == []


def test_o59_while_workers_of_a_release_that_declares_none_are_alive_an_old_one_revives_nothing(
    frozen: FrozenClock,
) -> None:
    old, none = code("a"), code()
    declare(old)
    declare(none)
    frozen.advance(seconds(121))
    beat(none)
    assert declare(old) is False
    assert firing() == []


def test_a_project_that_declares_none_writes_nothing(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):
        assert declare(code())
    assert not ScheduleSet.objects.exists()


def test_the_workers_of_another_project_keep_no_rollback_waiting(frozen: FrozenClock) -> None:
    old, new = code("a"), code("b")
    declare(old)
    declare(new)
    frozen.advance(seconds(121))
    beat(CodeSet(owner="bank", hash="b", schedules=new.schedules))
    assert declare(old) is True


def test_o59_a_release_that_has_just_taken_over_counts_before_its_workers_first_beat(frozen: FrozenClock) -> None:
    old, new = code("a"), code("b")
    declare(old)
    declare(new)
    frozen.advance(seconds(120))
    assert declare(old) is False
    assert firing() == ["b"]
    frozen.advance(seconds(0.001))
    assert declare(old) is True
    assert firing() == ["a"]


def test_who_declared_later_meets_a_row_that_changed_meanwhile_and_leaves_it() -> None:
    declare(code("a"))
    [stale] = scheduling.named(connections["default"], ["a"], owner="shop")
    row("a").disable()
    scheduling.declare(connections["default"], "shop", hash_="x", new=(), edited=(), gone=(stale,))
    assert row("a").removed is False


# -- from ticks to jobs


def test_a_tick_comes_to_a_job_that_carries_it(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely(args=[1], kwargs={"to": "ada"})
    frozen.advance(seconds(59))
    assert fire() == 0
    frozen.advance(seconds(1))
    assert fire() == 1
    job = Job.objects.get()
    assert (job.name, job.queue, job.schedule, job.tick, job.run_at) == (
        "shop.report", "reports", "nightly", minute(1), minute(1),
    )  # fmt: skip
    assert (row().last_at, row().next_at, row().skipped) == (minute(1), minute(2), 0)
    work_one()
    assert ran == [((1,), {"to": "ada"})]


def test_the_body_is_told_which_tick_it_is_for(frozen: FrozenClock) -> None:
    def tell(attempt: Any) -> None:
        ran.append(attempt.tick)

    with declared(tell, name="shop.tell", takes_attempt=True):
        minutely(performer="shop.tell")
        frozen.advance(seconds(65))
        fire()
        work_one()
    assert ran == [minute(1)]


def test_the_policy_is_the_performers_and_the_row_says_where_it_waits(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", max_attempts=3, timeout=9, priority=1, keep="1h"):
        minutely(queue="slow", priority=7)
        frozen.advance(seconds(60))
        fire()
    job = Job.objects.get()
    assert (job.queue, job.priority, job.max_attempts, job.timeout, job.keep) == ("slow", 7, 3, 9.0, 3600.0)


def test_a_second_look_fires_nothing_more(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely()
    frozen.advance(seconds(60))
    assert [fire(), fire(), fire()] == [1, 0, 0]


def test_o57_of_two_with_one_picture_one_fires(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely()
    frozen.advance(seconds(60))
    [stale] = scheduling.soonest(connections["default"])
    assert fire() == 1
    assert scheduling.fire(connections["default"], stale, (), skipped=0, next_at=minute(9)) is None
    assert (row().next_at, ticks_of()) == (minute(2), [minute(1)])


def test_o57_a_stale_picture_fires_nothing_though_the_tick_is_the_same(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely()
    frozen.advance(seconds(60))
    [stale] = scheduling.soonest(connections["default"])
    Schedule.objects.update(version=7)
    assert scheduling.fire(connections["default"], stale, (), skipped=0, next_at=None) is None
    Schedule.objects.update(version=1, enabled=False)
    assert scheduling.fire(connections["default"], stale, (), skipped=0, next_at=None) is None
    Schedule.objects.update(enabled=True, removed=True)
    assert scheduling.fire(connections["default"], stale, (), skipped=0, next_at=None) is None


def test_a_job_that_is_gone_is_not_fired_again(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely()
    frozen.advance(seconds(60))
    fire()
    Job.objects.all().delete()
    assert fire() == 0


def test_several_schedules_fire_in_one_look_and_each_by_itself(performer: AnyPerformer, frozen: FrozenClock) -> None:
    for name in ("a", "b", "c"):
        minutely(name=name)
    frozen.advance(seconds(60))
    assert fire() == 3
    assert sorted(Job.objects.values_list("schedule", flat=True)) == ["a", "b", "c"]


def test_a_pause_holds_for_what_schedules_fire(performer: AnyPerformer, frozen: FrozenClock) -> None:
    """O76, the rest of it."""
    minutely()
    queues["reports"].pause()
    frozen.advance(seconds(60))
    assert fire() == 1
    assert work_one() is None
    queues["reports"].resume()
    assert work_one() is not None


def test_the_look_says_when_the_next_one_is_due(performer: AnyPerformer, frozen: FrozenClock) -> None:
    look = schedules.fire_due
    assert look(connections["default"]) == (0, 20.0)
    minutely()
    frozen.advance(seconds(57))
    assert look(connections["default"]) == (0, 3.0)
    frozen.advance(seconds(3))
    assert look(connections["default"]) == (1, 20.0)


def test_everyone_who_listens_hears_of_a_tick(
    performer: AnyPerformer, frozen: FrozenClock, django_capture_on_commit_callbacks: Any
) -> None:
    from django_jobs import signals

    heard: list[dict[str, Any]] = []

    def listen(signal: object, sender: object, **said: Any) -> None:
        heard.append(said)

    signals.schedule_fired.connect(listen)
    try:
        minutely()
        frozen.advance(seconds(60))
        with django_capture_on_commit_callbacks(execute=True):
            fire()
    finally:
        signals.schedule_fired.disconnect(listen)
    assert heard == [{"name": "nightly", "job_ids": (Job.objects.get().pk,), "skipped": 0, "next_at": minute(2)}]


def test_ticks_are_lines_in_the_log_and_what_was_skipped_is_a_warning(
    performer: AnyPerformer, frozen: FrozenClock, caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Any,
) -> None:  # fmt: skip
    minutely()
    caplog.set_level(logging.INFO, "django_jobs")
    with django_capture_on_commit_callbacks(execute=True):
        for passed in (60, 180):
            frozen.advance(seconds(passed))
            fire()
    first, second = Job.objects.order_by("pk").values_list("pk", flat=True)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", f"schedule nightly: #{first}"),
        ("WARNING", f"schedule nightly: #{second}, and 2 ticks skipped"),
    ]


# -- O56: missed ticks


@pytest.mark.parametrize(
    ("missed", "expected", "skipped"),
    [("once", [minute(180)], 179), ("skip", [minute(180)], 179), ("all", [minute(n) for n in range(81, 181)], 80)],
)
def test_o56_after_three_hours_without_workers(
    performer: AnyPerformer, frozen: FrozenClock, missed: str, expected: list[datetime], skipped: int
) -> None:
    minutely(missed=missed)
    frozen.advance(timedelta(hours=3, seconds=5))
    fire()
    assert (ticks_of(), row().skipped, row().next_at) == (expected, skipped, minute(181))
    # What was missed may start at once, whatever its tick.
    assert set(Job.objects.values_list("run_at", flat=True)) == {frozen.instant}


@pytest.mark.parametrize(("missed", "expected", "skipped"), [("once", 1, 0), ("skip", 0, 1), ("all", 1, 0)])
def test_o56_a_daily_tick_that_was_missed(
    performer: AnyPerformer, frozen: FrozenClock, missed: str, expected: int, skipped: int
) -> None:
    minutely(cron="30 12 * * *", time_zone="UTC", missed=missed)
    frozen.advance(timedelta(hours=3))
    assert fire() == expected
    assert (row().skipped, row().next_at) == (skipped, minute(30) + timedelta(days=1))


def test_a_missed_tick_of_a_job_that_expires_has_its_whole_time_left(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", expires="1m"):
        minutely(cron="30 12 * * *", time_zone="UTC")
        frozen.advance(timedelta(hours=3))
        fire()
        assert work_one() is not None
    assert len(ran) == 1


# -- O58: enabling, disabling, editing by hand


def test_o58_what_is_disabled_fires_nothing_and_enabling_never_fires_the_past(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    made = minutely()
    assert made.disable() is True
    assert made.disable() is False
    assert (made.enabled, made.next_at) == (False, None)
    frozen.advance(timedelta(days=7))
    assert fire() == 0
    assert made.enable() is True
    assert fire() == 0
    assert (ticks_of(), row().next_at) == ([], minute(7 * 1440 + 1))
    frozen.advance(seconds(60))
    assert fire() == 1


def test_o58_a_saved_edit_fires_from_its_next_time_on(performer: AnyPerformer, frozen: FrozenClock) -> None:
    made = minutely(cron="30 12 * * *", time_zone="UTC")
    frozen.advance(timedelta(hours=2))
    made.cron = "0 13 * * *"
    made.save()
    assert (made.version, made.next_at) == (2, minute(60) + timedelta(days=1))
    assert fire() == 0
    assert row().next_at == minute(60) + timedelta(days=1)


def test_an_edit_of_some_fields_raises_the_version_too(performer: AnyPerformer) -> None:
    made = minutely()
    made.queue = "slow"
    made.save(update_fields=["queue"])
    assert (row().queue, row().version, row().next_at) == ("slow", 2, minute(1))


def test_two_edits_from_one_picture_raise_the_version_twice(performer: AnyPerformer) -> None:
    minutely()
    one, other = row(), row()
    one.save()
    other.save()
    assert (one.version, other.version, row().version) == (2, 3, 3)


def test_an_edit_takes_nothing_back_of_what_has_fired_since_its_picture(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely()
    picture = row()
    frozen.advance(seconds(185))
    assert fire() == 1
    picture.queue = "slow"
    picture.save()
    now = row()
    assert (now.queue, now.last_at, now.skipped) == ("slow", minute(3), 2)
    assert (picture.last_at, picture.skipped) == (minute(3), 2)


def test_an_edit_of_a_schedule_that_is_gone_makes_none(performer: AnyPerformer) -> None:
    minutely()
    picture = row()
    Schedule.objects.all().delete()
    with pytest.raises(DatabaseError), transaction.atomic():
        picture.save()
    assert not Schedule.objects.exists()


def test_a_schedule_that_is_made_or_switched_on_has_its_next_tick_at_once(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    made = Schedule.objects.create(name="nightly", cron="* * * * *", performer="shop.report")
    assert (made.next_at, row().next_at) == (minute(1), minute(1))
    made.disable()
    assert (made.next_at, row().next_at) == (None, None)
    frozen.advance(seconds(3600))
    made.enable()
    assert (made.next_at, row().next_at) == (minute(61), minute(61))


def test_a_schedule_that_is_made_disabled_has_no_next_tick(performer: AnyPerformer) -> None:
    made = Schedule.objects.create(name="nightly", cron="* * * * *", performer="shop.report", enabled=False)
    assert (made.next_at, row().next_at) == (None, None)


# -- O60: overlap


def test_o60_while_an_earlier_run_waits_or_runs_its_ticks_are_left_out(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(overlap="skip")
    frozen.advance(seconds(60))
    assert fire() == 1
    frozen.advance(seconds(60))
    assert fire() == 0
    [claim] = lifecycle.claim(connections["default"], _one()).claims
    frozen.advance(seconds(60))
    assert fire() == 0
    assert (row().skipped, row().last_at, row().next_at) == (2, minute(3), minute(4))
    from django_jobs.outcomes import Succeeded

    lifecycle.settle(connections["default"], [(claim, Succeeded())])
    frozen.advance(seconds(60))
    assert fire() == 1
    assert ticks_of() == [minute(1), minute(4)]


def _one() -> Any:
    from tests.factories import request

    return request(limit=1)


def test_o60_a_run_whose_worker_died_holds_its_schedule_until_it_has_ended(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(overlap="skip")
    frozen.advance(seconds(60))
    fire()
    lifecycle.claim(connections["default"], _one())
    frozen.advance(seconds(120))
    lifecycle.reclaim(connections["default"])
    assert Job.objects.get().state == "READY"
    assert fire() == 0
    work_one()
    frozen.advance(seconds(60))
    assert fire() == 1


def test_schedules_that_must_not_overlap_know_nothing_of_each_other(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(name="a", overlap="skip")
    minutely(name="b", overlap="skip")
    frozen.advance(seconds(60))
    assert fire() == 2


def test_a_performer_with_a_key_of_its_own_may_overlap_as_its_key_says(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", unique=True):
        minutely()
        for _ in range(2):
            frozen.advance(seconds(60))
            fire()
    assert (ticks_of(), row().skipped) == ([minute(1)], 1)


def test_a_key_that_is_held_for_a_while_is_free_when_that_is_over(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", unique="k", unique_for="90s"):
        minutely()
        for number in range(1, 5):
            frozen.move_to(minute(number))
            fire()
            work_one()
    assert (ticks_of(), row().skipped) == ([minute(1), minute(3)], 2)


# -- jitter, starts, ends


def test_a_job_starts_up_to_its_jitter_after_its_tick(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely(jitter=50)
    late = []
    for count in range(1, 11):
        frozen.move_to(minute(count))
        fire()
        late.append((Job.objects.latest("pk").run_at - minute(count)).total_seconds())
    assert 0 <= min(late) < 15
    assert 35 < max(late) < 50
    assert ticks_of() == [minute(count) for count in range(1, 11)]


def test_there_is_no_tick_before_the_start_or_after_the_end(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely(starts=minute(5), ends=minute(6))
    assert row().next_at == minute(5)
    for count in range(1, 11):
        frozen.move_to(minute(count))
        fire()
    assert (ticks_of(), row().next_at) == ([minute(5), minute(6)], None)


# -- O55: a bad row


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"cron": "61 * * * *"}, "minute '61' can't be"),
        ({"cron": "0 0 31 2 *"}, "day of month '31' can't be"),
        ({"time_zone": "Mars/Phobos"}, "time zone 'Mars/Phobos'"),
        ({"cron": "", "every_seconds": 0}, "an interval of 0.0 seconds"),
        ({"cron": ""}, "an interval of None seconds"),
        ({"cron": "", "every_seconds": 60, "time_zone": "Mars/Phobos"}, "time zone 'Mars/Phobos'"),
    ],
)
def test_o55_a_bad_row_is_put_aside_with_its_error_and_others_go_on(
    performer: AnyPerformer, frozen: FrozenClock, columns: dict[str, Any], problem: str
) -> None:
    minutely(name="bad")
    minutely(name="good")
    Schedule.objects.filter(name="bad").update(**columns)
    for _ in range(3):
        frozen.advance(seconds(60))
        assert fire() == 1
    assert problem in row("bad").error
    assert set(Job.objects.values_list("schedule", flat=True)) == {"good"}
    # Mended, it goes on from its next time.
    mended = row("bad")
    mended.cron, mended.every_seconds, mended.time_zone = "* * * * *", None, ""
    mended.save()
    fire()
    frozen.advance(seconds(60))
    assert fire() == 2
    assert row("bad").error == ""


@pytest.mark.parametrize(
    "columns",
    [
        {"jitter": 1e300}, {"jitter": float("inf")}, {"jitter": -1.0}, {"cron": "", "every_seconds": 1e300},
        {"cron": "", "every_seconds": float("inf")}, {"cron": "", "every_seconds": 1e-300}, {"args": {"a": 1}},
        {"args": "x"}, {"kwargs": [1]}, {"kwargs": {"attempt": {"$": "?"}}}, {"priority": 999},
        {"queue": "no queue\n"}, {"performer": ""}, {"missed": "?"}, {"overlap": "?"}, {"time_zone": "../etc"},
        {"starts": NOON + timedelta(days=3_000_000 // 2)}, {"ends": NOON - timedelta(days=700_000)},
        {"cron": "0 0 31 2 *"}, {"cron": "* * * * * * *"}, {"cron": "\x01"},
    ],
    ids=str,
)  # fmt: skip
def test_o55_whatever_is_in_a_row_the_others_fire(
    performer: AnyPerformer, frozen: FrozenClock, columns: dict[str, Any]
) -> None:
    for is_placed in (True, False):
        minutely(name=f"bad {is_placed}")
        Schedule.objects.filter(name=f"bad {is_placed}").update(**columns, **({} if is_placed else {"next_at": None}))
    minutely(name="good")
    for number in range(1, 4):
        frozen.advance(seconds(60))
        fire()
        assert len(ticks_of("good")) == number


def test_o55_a_bad_row_is_told_once(
    performer: AnyPerformer, frozen: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    minutely(name="bad")
    Schedule.objects.update(cron="61 * * * *")
    with caplog.at_level(logging.ERROR, "django_jobs"):
        for _ in range(3):
            frozen.advance(seconds(60))
            fire()
    assert caplog.text.count("schedule bad can't fire: cron line '61 * * * *'") == 1


def test_a_performer_that_nobody_knows_is_told_when_its_tick_is_late(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(performer="shop.gone")
    frozen.advance(seconds(70))
    assert fire() == 0
    assert (row().error, row().next_at) == ("", minute(1))
    frozen.advance(seconds(0.1))
    assert fire() == 0
    assert row().error == "no performer is named shop.gone where schedules are fired"
    with declared(report, name="shop.gone"):
        assert fire() == 1
    assert (row().error, row().next_at) == ("", minute(2))


def test_arguments_that_no_longer_fit_are_told(frozen: FrozenClock) -> None:
    def narrow(one: int) -> None: ...

    with declared(narrow, name="shop.report"):
        minutely(args=[1, 2])
        frozen.advance(seconds(60))
        assert fire() == 0
    assert row().error.startswith("its job can't be queued: shop.report(")
    assert row().error.endswith("too many positional arguments")


def test_overlap_and_a_key_of_the_performers_are_told(frozen: FrozenClock) -> None:
    with declared(report, name="shop.report", unique="k"):
        minutely(overlap="skip")
        frozen.advance(seconds(60))
        assert fire() == 0
    assert row().error.startswith("overlap=skip is a unique key, and shop.report has one of its own")


def test_o55_a_schedule_whose_jobs_a_trigger_of_the_projects_refuses_keeps_no_other(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(name="a", queue="closed")
    minutely(name="good")
    frozen.advance(seconds(60))
    with refused_queue(connections["default"], "closed"):
        assert fire() == 1
        assert row("a").error.startswith("its job can't be queued: ")
        assert "closed, says the shop" in row("a").error
        assert ticks_of("good") == [minute(1)]
        frozen.advance(seconds(60))
        assert fire() == 1
    # It is looked at again, now and then, beside the others.
    assert fire() == 1
    assert (row("a").error, ticks_of("a")) == ("", [minute(2)])


def test_o55_more_rows_than_are_looked_at_that_have_no_tick_left_neither_stop_the_others_nor_keep_anybody_awake(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    over = {"cron": "0 0 1 1 *", "time_zone": "UTC", "performer": "shop.report", "ends": NOON + timedelta(days=3)}
    Schedule.objects.bulk_create(
        Schedule(name=f"over {number}", **over) for number in range(2 * scheduling.MOST_LOOKED_AT)
    )
    minutely(name="good")
    for number in range(1, 4):
        frozen.move_to(minute(number))
        fired, pause = schedules.fire_due(connections["default"])
        assert (fired, pause) == (1, 20.0)
    assert ticks_of("good") == [minute(1), minute(2), minute(3)]


def test_o55_a_row_that_can_fire_again_has_its_turn_beside_more_that_wait_than_are_looked_at(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    minutely(name="bad")
    Schedule.objects.update(error="it was once")
    later = {"cron": "0 * * * *", "performer": "shop.report", "next_at": minute(60)}
    Schedule.objects.bulk_create(
        Schedule(name=f"later {number}", **later) for number in range(scheduling.MOST_LOOKED_AT)
    )
    frozen.move_to(minute(1))
    assert fire() == 1
    assert (ticks_of("bad"), row("bad").error) == ([minute(1)], "")


def test_a_bad_row_keeps_nobody_awake(performer: AnyPerformer, frozen: FrozenClock) -> None:
    minutely()
    Schedule.objects.update(cron="61 * * * *")
    frozen.advance(seconds(600))
    assert schedules.fire_due(connections["default"]) == (0, 20.0)


# -- by hand, refused


@pytest.mark.parametrize(
    "columns",
    [
        {"cron": "61 * * * *"}, {"cron": "", "every_seconds": -1}, {"cron": ""}, {"time_zone": "Mars/Phobos"},
        {"cron": "0 0 31 2 *"},
    ],
    ids=str,
)  # fmt: skip
def test_o55_a_row_that_can_never_fire_is_not_saved(performer: AnyPerformer, columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cron line|interval|time zone"):
        Schedule.objects.create(**{"name": "bad", "cron": "* * * * *", "performer": "shop.report", **columns})
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("columns", "field", "words"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute '61'"),
        ({"cron": "", "every_seconds": 0}, "every_seconds", "give a tenth of a second"),
        ({"time_zone": "Mars/Phobos"}, "time_zone", "Mars/Phobos"),
        ({"performer": "shop.gone"}, "performer", "no job is named shop.gone"),
        ({"args": [1, 2, 3]}, "args", "too many positional arguments"),
    ],
)
def test_o55_a_form_is_told_which_field_is_wrong(columns: dict[str, Any], field: str, words: str) -> None:
    from django.core.exceptions import ValidationError

    def narrow(one: int = 0) -> None: ...

    with declared(narrow, name="shop.narrow"):
        made = Schedule(**{"name": "bad", "cron": "* * * * *", "performer": "shop.narrow", **columns})
        with pytest.raises(ValidationError) as raised:
            made.full_clean()
    assert list(raised.value.message_dict) == [field]
    assert words in raised.value.message_dict[field][0]


# -- O62


@pytest.mark.parametrize("zone", ["America/New_York", "UTC", "Asia/Kolkata"])
def test_o62_without_use_tz_ticks_come_at_the_same_moments(frozen: FrozenClock, zone: str, settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = zone
    settings.DJANGO_JOBS = {}
    with declared(report, name="shop.report", schedule="0 9 * * *"):
        sync()
        fire()
        expected = Cron(line="0 9 * * *", zone=ZoneInfo(zone)).next_after(NOON)
        assert row("shop.report").next_at == expected
        frozen.move_to(expected)
        assert [fire(), fire()] == [1, 0]
        assert Job.objects.get().tick == expected
        work_one()
    assert len(ran) == 1


# -- preview


def test_a_preview_gives_the_next_moments_by_the_clock_of_the_zone(frozen: FrozenClock) -> None:
    found = preview("0 9 * * MON-FRI", 3, time_zone="Europe/Berlin")
    assert [f"{tick.at:%a %d %H:%M %Z}" for tick in found] == [
        "Mon 02 09:00 CET",
        "Tue 03 09:00 CET",
        "Wed 04 09:00 CET",
    ]
    assert {tick.remark for tick in found} == {""}


def test_a_preview_remarks_where_a_shift_bends_a_moment(frozen: FrozenClock) -> None:
    found = preview("30 2 * * *", 30, time_zone="Europe/Berlin")
    [bent] = [tick for tick in found if tick.remark]
    assert f"{bent.at:%d %H:%M}" == "29 03:00"
    assert bent.remark == "the clock is put forward to 03:00, past the time at which it would have run"


def test_a_preview_takes_intervals_performers_and_rows(frozen: FrozenClock) -> None:
    assert preview(timedelta(minutes=30), 2) == [Tick(at=minute(30)), Tick(at=minute(60))]
    with declared(report, name="shop.report", schedule="0 9 * * *", time_zone="UTC") as performer:
        assert preview(performer, 1)[0].at == datetime(2026, 3, 2, 9, tzinfo=UTC)
        made = minutely(starts=minute(3), ends=minute(4))
        assert [tick.at for tick in preview(made)] == [minute(3), minute(4)]


def test_a_preview_begins_where_it_is_told(frozen: FrozenClock) -> None:
    [tick] = preview("0 9 * * *", 1, time_zone="UTC", after=datetime(2030, 1, 1, 12, tzinfo=UTC))
    assert tick.at == datetime(2030, 1, 2, 9, tzinfo=UTC)


def test_what_cannot_be_previewed_is_refused(performer: AnyPerformer) -> None:
    with pytest.raises(ValueError, match="minute '61'"):
        preview("61 * * * *")
    with pytest.raises(LookupError, match=r"shop\.report has no schedule of its own name"):
        preview(performer)


def test_a_schedule_is_described_in_plain_words() -> None:
    assert schedules.describe("0 9 * * MON-FRI") == "At 09:00 on Monday through Friday"
    assert schedules.describe(timedelta(minutes=10)) == "Every 10 minutes"


def test_rows_are_plain_json_in_the_database(performer: AnyPerformer) -> None:
    every("* * * * *", performer, name="nightly", args=(datetime(2026, 1, 1, tzinfo=UTC), {1, 2}))
    sync()
    assert json.loads(json.dumps(row().args)) == row().args
