"""The statements of schedules, predicate by predicate: what they expect of a row, and what they leave as it was."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.clock import FrozenClock
from django_jobs.lifecycle import scheduling
from django_jobs.models import Job, Schedule, ScheduleSet
from django_jobs.records import NewJob, ScheduleRow, WorkerLife
from django_jobs.stores import scheduled
from django_jobs.stores.base import Store
from tests.factories import NOON, another_connection, new_job, queue_job, seconds

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def make(name: str = "nightly", **columns: Any) -> Schedule:
    """Insert a row as it is given."""
    values = {"name": name, "cron": "* * * * *", "performer": "shop.report", **columns}
    return Schedule.objects.bulk_create([Schedule(**values)])[0]


def at(count: float) -> datetime:
    return NOON + seconds(count)


def look(store: Store, connection: BaseDatabaseWrapper, *, limit: int = 10) -> list[str]:
    return [row.name for row in scheduled.soonest(store, connection, limit=limit)]


def picture(store: Store, connection: BaseDatabaseWrapper, name: str = "nightly") -> ScheduleRow:
    """Read a schedule as those do that fire."""
    [row] = [row for row in scheduled.named(store, connection, [name], owner="nobody") if row.name == name]
    return row


def row(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


def others(name: str = "nightly") -> list[dict[str, Any]]:
    """Give the other rows, which no write may touch."""
    return list(Schedule.objects.exclude(name=name).order_by("pk").values())


# -- what is looked at


def test_what_fires_comes_by_its_next_tick_and_then_what_has_none_yet(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make("late", next_at=at(20))
    make("soon", next_at=at(10))
    make("due", next_at=at(-10))
    make("new")
    assert look(store, connection) == ["due", "soon", "late", "new"]
    assert look(store, connection, limit=2) == ["due", "soon", "new"]


def test_what_cannot_fire_comes_last(store: Store, connection: BaseDatabaseWrapper) -> None:
    make("bad", error="why")
    make("worse", error="why", next_at=at(-20))
    make("good", next_at=at(10))
    first, *others = look(store, connection)
    assert (first, sorted(others)) == ("good", ["bad", "worse"])


@pytest.mark.parametrize("aside", [{}, {"error": "why"}, {"error": "why", "next_at": at(-20)}])
def test_any_number_that_cannot_fire_keeps_nobody_from_a_turn(
    store: Store, connection: BaseDatabaseWrapper, aside: dict[str, Any]
) -> None:
    for name in ("a", "b", "c", "d"):
        make(name, **aside)
    make("due", next_at=at(-1))
    looks = [look(store, connection, limit=1) for _ in range(200)]
    assert {first for first, _ in looks} == {"due"}
    # That one of four is never drawn in so many looks is as good as impossible.
    assert {second for _, second in looks} == {"a", "b", "c", "d"}


def test_of_equal_ones_the_first_made_comes_first(store: Store, connection: BaseDatabaseWrapper) -> None:
    made = [make(name, next_at=at(1)) for name in ("c", "a", "b")]
    Schedule.objects.filter(pk=made[0].pk).update(queue="moved")
    assert look(store, connection) == ["c", "a", "b"]


def test_what_is_disabled_or_removed_is_not_looked_at(store: Store, connection: BaseDatabaseWrapper) -> None:
    make("disabled", enabled=False)
    make("removed", removed=True)
    assert look(store, connection) == []


def test_what_has_ended_is_looked_at_only_for_the_tick_that_is_left(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make("over", ends=at(-0.001))
    make("ends now", ends=at(0))
    make("has a tick left", ends=at(-1), next_at=at(-2))
    assert look(store, connection) == ["has a tick left", "ends now"]


def test_a_row_is_read_as_it_stands(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    made = make(
        owner="shop", version=3, cron="", every_seconds=1.5, time_zone="UTC", args=[1], kwargs={"to": "ada"},
        queue="slow", priority=-7, origin="code", missed="all", overlap="skip", jitter=2.5, starts=at(1), ends=at(9),
        next_at=at(5), error="why",
    )  # fmt: skip
    [read] = scheduled.soonest(store, connection, limit=1)
    expected = ScheduleRow(
        id=made.pk, name="nightly", owner="shop", version=3, cron="", every_seconds=1.5, time_zone="UTC",
        performer="shop.report", args=read.args, kwargs=read.kwargs, queue="slow", priority=-7, removed=False,
        origin="code", missed="all", overlap="skip", jitter=2.5, starts=at(1), ends=at(9), next_at=at(5), error="why",
        now=frozen.instant,
    )  # fmt: skip
    assert read == expected
    assert (json.loads(read.args), json.loads(read.kwargs)) == ([1], {"to": "ada"})


# -- placing


def test_a_first_tick_is_given_and_its_error_forgotten(store: Store, connection: BaseDatabaseWrapper) -> None:
    make(error="why")
    make("other", error="why")
    before = others()
    assert scheduled.place(store, connection, picture(store, connection), next_at=at(60)) is True
    assert (row().next_at, row().error, row().version) == (at(60), "", 1)
    assert others() == before


CHANGES: list[dict[str, Any]] = [{"version": 2}, {"enabled": False}, {"removed": True}]
"""What somebody may have done to a row since it was read."""


@pytest.mark.parametrize("change", [*CHANGES, {"next_at": at(30)}], ids=lambda change: next(iter(change)))
def test_nothing_is_placed_that_is_not_as_it_was_read(
    store: Store, connection: BaseDatabaseWrapper, change: dict[str, Any]
) -> None:
    make()
    read = picture(store, connection)
    Schedule.objects.update(**change)
    assert scheduled.place(store, connection, read, next_at=at(60)) is False
    assert row().next_at == change.get("next_at")


# -- firing


def test_a_tick_moves_its_schedule_on(store: Store, connection: BaseDatabaseWrapper) -> None:
    make(next_at=at(0), skipped=3, error="why")
    make("other", next_at=at(0), skipped=3, error="why")
    before, read = others(), picture(store, connection)
    assert scheduled.fire(store, connection, read, last_at=at(0), next_at=at(60), skipped=2) is True
    fired = row()
    assert (fired.last_at, fired.next_at, fired.skipped, fired.error, fired.version) == (at(0), at(60), 5, "", 1)
    assert others() == before
    assert scheduled.fire(store, connection, read, last_at=at(1), next_at=at(90), skipped=2) is False


def test_where_all_was_skipped_the_latest_tick_stays_and_after_the_last_one_there_is_no_next(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make(next_at=at(0), last_at=at(-60))
    read = picture(store, connection)
    assert scheduled.fire(store, connection, read, last_at=None, next_at=None, skipped=1) is True
    assert (row().last_at, row().next_at, row().skipped) == (at(-60), None, 1)


@pytest.mark.parametrize("change", [*CHANGES, {"next_at": at(30)}], ids=lambda change: next(iter(change)))
def test_nothing_fires_that_is_not_as_it_was_read(
    store: Store, connection: BaseDatabaseWrapper, change: dict[str, Any]
) -> None:
    make(next_at=at(0))
    read = picture(store, connection)
    Schedule.objects.update(**change)
    assert scheduled.fire(store, connection, read, last_at=at(0), next_at=at(60), skipped=1) is False
    assert (row().last_at, row().next_at, row().skipped) == (None, change.get("next_at", at(0)), 0)


def test_what_was_left_out_is_counted(store: Store, connection: BaseDatabaseWrapper) -> None:
    make(skipped=2)
    make("other", skipped=2)
    scheduled.leave_out(store, connection, picture(store, connection), count=3)
    assert (row().skipped, row("other").skipped) == (5, 2)


def jobs(*ticks: float, **changes: Any) -> list[tuple[datetime, NewJob]]:
    """Give the jobs of ticks, which may start at once."""
    return [(at(tick), new_job(run_at=at(0), **changes)) for tick in ticks]


def test_jobs_carry_their_schedule_and_tick_and_all_that_a_job_has(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make()
    job = new_job(
        args="[7]", kwargs='{"a": 1}', queue="slow", priority=5, run_at=at(5), expires=seconds(30), meta='{"b": 2}',
        unique_for=9.0, max_crashes=2, restart=False, keep_failed=7.0, on_failure="shop.tell",
    )  # fmt: skip
    later = new_job(delay=seconds(7), expires=seconds(30))
    given = [(at(1), job._replace(unique_key="k")), (at(2), later._replace(waiting_key="w"))]
    last = queue_job()
    ids = scheduled.insert_fired(store, connection, picture(store, connection), given)
    assert ids == {at(1): last + 1, at(2): last + 2}
    first, second = Job.objects.filter(schedule="nightly").order_by("pk")
    assert [(row.pk, row.schedule, row.tick) for row in (first, second)] == [
        (last + 1, "nightly", at(1)), (last + 2, "nightly", at(2)),
    ]  # fmt: skip
    assert (first.name, first.queue, first.priority, first.args, first.kwargs, first.meta) == (
        "shop.greet", "slow", 5, [7], {"a": 1}, {"b": 2},
    )  # fmt: skip
    assert (first.enqueued_at, first.run_at, first.expires_at, first.unique_until) == (NOON, at(5), at(35), at(9))
    assert (first.unique_key, first.waiting_key, second.unique_key, second.waiting_key) == ("k", None, None, "w")
    assert (second.run_at, second.expires_at, second.unique_until) == (at(7), at(37), None)
    assert (first.state, first.max_attempts, first.timeout, first.keep) == ("READY", 3, 300.0, 86_400.0)
    assert (first.max_crashes, first.restart, first.keep_failed, first.on_failure) == (2, False, 7.0, "shop.tell")


def test_a_job_whose_key_another_holds_is_left_out_and_the_others_come(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make()
    read = picture(store, connection)
    held = [(at(1), new_job(run_at=at(0))._replace(unique_key="k")), *jobs(2)]
    assert list(scheduled.insert_fired(store, connection, read, held)) == [at(1), at(2)]
    again = [(at(3), new_job(run_at=at(0))._replace(unique_key="k")), *jobs(4)]
    assert list(scheduled.insert_fired(store, connection, read, again)) == [at(4)]


def test_the_jobs_of_ticks_get_ids_in_the_order_of_these_whatever_lies_between(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make()
    ids = scheduled.insert_fired(store, connection, picture(store, connection), jobs(*range(20)))
    assert list(ids.values()) == sorted(ids.values())
    assert queue_job() > max(ids.values())


# -- setting aside, and switching


def test_why_a_schedule_cannot_fire_is_written_once(store: Store, connection: BaseDatabaseWrapper) -> None:
    make(next_at=at(0))
    make("other", next_at=at(0))
    before, read = others(), picture(store, connection)
    assert scheduled.set_aside(store, connection, read, error="why") is True
    assert (row().error, row().next_at, row().version) == ("why", at(0), 1)
    assert scheduled.set_aside(store, connection, read, error="why") is False
    assert others() == before
    Schedule.objects.update(version=2)
    assert scheduled.set_aside(store, connection, read, error="another") is False


@pytest.mark.parametrize("is_enabled", [True, False])
def test_switching_gives_the_next_tick_and_says_whether_it_is_new(
    store: Store, connection: BaseDatabaseWrapper, *, is_enabled: bool
) -> None:
    made = make(enabled=not is_enabled, next_at=at(0), error="why", version=4)
    make("other", enabled=not is_enabled, next_at=at(0), error="why")
    before = others()
    assert scheduled.switch(store, connection, made.pk, enabled=is_enabled, next_at=at(9)) is True
    now = row()
    assert (now.enabled, now.next_at, now.error, now.version) == (is_enabled, at(9), "", 5)
    assert scheduled.switch(store, connection, made.pk, enabled=is_enabled, next_at=None) is False
    assert (row().version, row().next_at) == (5, at(9))
    assert others() == before


# -- the code's schedules


def values(**changes: Any) -> dict[str, Any]:
    """Give a schedule as code says it."""
    return {
        "name": "nightly", "owner": "shop", "cron": "0 3 * * *", "every_seconds": None, "time_zone": "UTC",
        "performer": "shop.report", "args": "[1]", "kwargs": '{"to": "ada"}', "queue": "slow", "priority": 5,
        "missed": "all", "overlap": "skip", "jitter": 1.5, "starts": at(1), "ends": at(9), **changes,
    }  # fmt: skip


SAID = (
    "owner", "cron", "every_seconds", "time_zone", "performer", "args", "kwargs", "queue", "priority", "missed",
    "overlap", "jitter", "starts", "ends", "origin", "enabled", "removed", "version", "next_at", "error",
)  # fmt: skip


def test_what_code_says_is_inserted(store: Store, connection: BaseDatabaseWrapper) -> None:
    assert scheduled.declare(store, connection, values()) is True
    assert Schedule.objects.values_list(*SAID).get() == (
        "shop", "0 3 * * *", None, "UTC", "shop.report", [1], {"to": "ada"}, "slow", 5, "all", "skip", 1.5, at(1),
        at(9), "code", True, False, 1, None, "",
    )  # fmt: skip
    assert scheduled.declare(store, connection, values(cron="0 4 * * *")) is False
    assert row().cron == "0 3 * * *"
    assert scheduled.declare(store, connection, values(name="often", cron="", every_seconds=2.5)) is True
    assert row("often").every_seconds == 2.5


def test_what_code_says_anew_is_written_and_whether_it_is_enabled_is_not(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    make(
        origin="code", version=3, enabled=False, removed=True, next_at=at(0), error="why", performer="shop.old",
        priority=1, starts=at(2), ends=at(3),
    )  # fmt: skip
    make("other", origin="code", version=3, next_at=at(0))
    before, read = others(), picture(store, connection)
    said = values(cron="", every_seconds=2.5, starts=None, ends=None, priority=None)
    assert scheduled.redeclare(store, connection, read, said) is True
    assert Schedule.objects.values_list(*SAID).get(name="nightly") == (
        "shop", "", 2.5, "UTC", "shop.report", [1], {"to": "ada"}, "slow", None, "all", "skip", 1.5, None, None,
        "code", False, False, 4, None, "",
    )  # fmt: skip
    assert scheduled.redeclare(store, connection, read, said) is False
    assert others() == before


def test_what_code_says_no_more_is_removed(store: Store, connection: BaseDatabaseWrapper) -> None:
    make(version=3, next_at=at(0))
    make("other", version=3, next_at=at(0))
    before, read = others(), picture(store, connection)
    assert scheduled.remove(store, connection, read) is True
    assert (row().removed, row().next_at, row().version, row().enabled) == (True, None, 4, True)
    assert scheduled.remove(store, connection, read) is False
    assert others() == before


def test_rows_are_found_by_name_and_by_owner_in_the_order_of_their_names(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    for name, owner in (("d", "shop"), ("c", "bank"), ("b", "shop"), ("a", "bank")):
        make(name, owner=owner)
    found = scheduled.named(store, connection, ["c"], owner="shop")
    assert [row.name for row in found] == ["b", "c", "d"]


def test_the_latest_set_to_take_over_comes_first_with_how_long_ago_that_was(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    for owner, hash_ in (("shop", "a"), ("shop", "b"), ("bank", "c"), ("shop", "a")):
        scheduled.take_over(store, connection, owner, hash_=hash_)
        frozen.advance(seconds(10))
    found = scheduled.sets(store, connection, "shop")
    assert list(found.items()) == [("a", pytest.approx(10, abs=0.001)), ("b", pytest.approx(30, abs=0.001))]
    assert ScheduleSet.objects.count() == 3


def test_of_sets_that_took_over_at_one_moment_the_newer_row_counts(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    for hash_ in ("b", "a", "c"):
        scheduled.take_over(store, connection, "shop", hash_=hash_)
    assert list(scheduled.sets(store, connection, "shop")) == ["c", "a", "b"]


def test_workers_say_which_set_their_release_declares(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    life = WorkerLife(
        identity="w", host="h", pid=1, queues=(), slots=1, versions={"schedules": "shop a"}, age=1.0, claim_age=1.0
    )
    store.beat(connection, [life, dataclasses.replace(life, identity="older", versions={})])
    frozen.advance(seconds(7))
    found = sorted(scheduled.seen_sets(store, connection), key=lambda seen: seen.said)
    assert [(seen.said, seen.beat_age) for seen in found] == [
        ("", pytest.approx(7, abs=0.001)), ("shop a", pytest.approx(7, abs=0.001)),
    ]  # fmt: skip


# -- rows in somebody's hands


@pytest.fixture
def stuck(row_locks: None, transactional_db: None) -> Any:
    """Have somebody hold the row of a schedule, and who waits for it fail."""
    made = make(next_at=at(0))
    with another_connection() as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("select id from django_jobs_schedule where id = %s for update", [made.pk])
        yield made
        other.rollback()


def test_a_locked_schedule_is_passed_over_by_who_fires(stuck: Schedule, store: Store, connection: Any) -> None:
    read = picture(store, connection)
    with connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '500ms'")
    try:
        assert scheduled.fire(store, connection, read, last_at=at(0), next_at=at(60), skipped=0) is False
        assert scheduled.set_aside(store, connection, read, error="why") is False
        assert scheduled.place(store, connection, read, next_at=at(60)) is False
    finally:
        with connection.cursor() as cursor:
            cursor.execute("reset lock_timeout")


def test_a_locked_schedule_that_is_new_is_placed_later(
    stuck: Schedule, store: Store, connection: Any, frozen: FrozenClock
) -> None:
    assert scheduling.fire(connection, picture(store, connection), (), skipped=0, next_at=None) is None
