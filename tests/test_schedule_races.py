"""Schedules that several look at, change or declare at one instant, over real connections: what stands in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections

from django_jobs import every, schedules
from django_jobs.clock import FrozenClock
from django_jobs.lifecycle import scheduling
from django_jobs.models import Job, Schedule, ScheduleSet
from django_jobs.performers import AnyPerformer
from django_jobs.schedules import CodeSet
from django_jobs.stores import scheduled
from tests.declaring import declared
from tests.factories import NOON, another_connection, seconds
from tests.lifecycle.hearing import connection
from tests.racing import PATIENCE, Somebody, at_once, between, somebody, waits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("frozen")]

FIRERS, TICKS = 8, 200

SECOND = timedelta(seconds=1)


def report(*args: Any, **kwargs: Any) -> None: ...


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(report, name="shop.report") as performer:
        yield performer


@pytest.fixture
def other() -> Iterator[Somebody]:
    with somebody() as other:
        yield other


@pytest.fixture
def row_locks() -> None:
    if connection().vendor != "postgresql":
        pytest.skip("this database locks whole files, not rows")


def fire() -> int:
    return schedules.fire_due(connections["default"])[0]


def secondly(name: str = "nightly", **changes: Any) -> Schedule:
    """Make a schedule by hand that has its first tick."""
    made = Schedule.objects.create(**{"name": name, "cron": "* * * * * *", "performer": "shop.report", **changes})
    fire()
    return made


def row(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


def ticks_of(name: str = "nightly") -> list[datetime | None]:
    return list(Job.objects.filter(schedule=name).order_by("tick").values_list("tick", flat=True))


# -- O57: several that fire


def test_o57_of_eight_that_see_a_tick_one_fires_it(performer: AnyPerformer, frozen: FrozenClock) -> None:
    secondly()
    secondly("other", overlap="skip")
    gate = threading.Barrier(FIRERS, action=lambda: frozen.advance(SECOND))

    def fires(_: int) -> int:
        fired = 0
        for _ in range(TICKS):
            gate.wait(PATIENCE)
            fired += fire()
        return fired

    fired = at_once(FIRERS, fires)
    # Somebody may find that another has the row, and all be gone before that one is done.
    fired.append(fire())
    assert ticks_of() == [NOON + n * SECOND for n in range(1, TICKS + 1)]
    assert ticks_of("other") == [NOON + SECOND]
    assert row("other").skipped == TICKS - 1
    assert sum(fired) == TICKS + 1


@pytest.mark.parametrize("missed", ["once", "all", "skip"])
def test_o57_of_eight_that_find_many_ticks_overdue_one_makes_up_for_them(
    performer: AnyPerformer, frozen: FrozenClock, missed: str
) -> None:
    secondly(missed=missed)
    frozen.advance(seconds(50.5))
    fired = at_once(FIRERS, lambda _: fire())
    assert sum(fired) == {"once": 1, "all": 50, "skip": 1}[missed] == Job.objects.count()
    assert row().skipped == 50 - sum(fired)


# -- somebody changes a schedule while it fires


def disable(made: Schedule) -> None:
    made.disable()


def save(made: Schedule) -> None:
    made.refresh_from_db()
    made.queue = "slow"
    made.save()


def delete(made: Schedule) -> None:
    made.delete()


def remove(made: Schedule) -> None:
    [read] = scheduling.named(connections["default"], [made.name], owner="nobody")
    scheduling.declare(connections["default"], "shop", hash_="x", new=(), edited=(), gone=(read,))


CHANGES: list[Callable[[Schedule], None]] = [disable, save, delete, remove]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_tick_that_was_seen_before_a_change_does_not_fire_after_it(
    performer: AnyPerformer,
    frozen: FrozenClock,
    other: Somebody,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Schedule], None],
) -> None:
    made = secondly()
    frozen.advance(SECOND)
    right = scheduling.fire

    def late(*given: Any, **options: Any) -> Any:
        other.does(lambda: change(made))
        return right(*given, **options)

    monkeypatch.setattr(scheduling, "fire", late)
    assert schedules.fire_due(connections["default"]) == (0, 1.0)
    assert ticks_of() == []


NEXT: dict[str, list[datetime | None]] = {"disable": [None], "save": [NOON + 2 * SECOND], "delete": []}


@pytest.mark.parametrize("change", CHANGES[:3], ids=lambda change: change.__name__)
def test_a_change_while_a_tick_fires_comes_after_it(
    performer: AnyPerformer,
    frozen: FrozenClock,
    other: Somebody,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Schedule], None],
) -> None:
    made = secondly()
    frozen.advance(SECOND)
    begun = []

    def begin() -> None:
        begun.append(other.starts(lambda: change(made)))
        if connection().vendor == "postgresql":
            # Within a transaction the activity of others is seen as it was at first.
            with another_connection() as third, third.cursor() as cursor:
                assert waits(begun[0], cursor)

    between(monkeypatch, "insert_fired", begin)
    assert fire() == 1
    begun[0].result(timeout=PATIENCE)
    assert ticks_of() == [NOON + SECOND]
    # What was disabled or is gone has no next tick; what was edited has one from then on, not that of before again.
    assert list(Schedule.objects.values_list("next_at", flat=True)) == NEXT[change.__name__]


def test_eight_that_fire_and_one_who_switches_leave_no_tick_twice_and_none_of_the_past(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    made = secondly()
    gate = threading.Barrier(FIRERS + 1, action=lambda: frozen.advance(SECOND))
    enabled_at: list[datetime] = []

    def work(number: int) -> None:
        for count in range(60):
            gate.wait(PATIENCE)
            if number < FIRERS:
                fire()
            elif count % 3 == 0:
                made.disable()
            elif count % 3 == 1:
                enabled_at.append(frozen.instant)
                made.enable()

    at_once(FIRERS + 1, work)
    fired = ticks_of()
    assert len(fired) == len(set(fired))
    # What comes back fires from its next time on.
    assert not set(enabled_at) & set(fired)


# -- a row in somebody's hands


@contextmanager
def held(made: Schedule) -> Iterator[None]:
    """Have the row of a schedule be in somebody's open transaction."""
    with another_connection() as another:
        another.set_autocommit(False)
        with another.cursor() as cursor:
            cursor.execute("select id from django_jobs_schedule where id = %s for update", [made.pk])
        yield
        another.rollback()


def test_a_schedule_in_somebodys_hands_holds_up_no_other_and_fires_when_it_is_free(
    row_locks: None, performer: AnyPerformer, frozen: FrozenClock, other: Somebody
) -> None:
    stuck = secondly("a")
    secondly("b")
    frozen.advance(SECOND)
    with held(stuck):
        looked = other.does(lambda: schedules.fire_due(connections["default"]))
        assert looked == (1, 1.0)
        assert ticks_of("b") == [NOON + SECOND]
    assert fire() == 1
    assert ticks_of("a") == [NOON + SECOND]


def test_a_schedule_in_somebodys_hands_gets_its_first_tick_when_it_is_free(
    row_locks: None, performer: AnyPerformer, frozen: FrozenClock, other: Somebody
) -> None:
    stuck = Schedule.objects.create(name="a", cron="* * * * * *", performer="shop.report")
    with held(stuck):
        assert other.does(lambda: schedules.fire_due(connections["default"])) == (0, 1.0)
    assert fire() == 0
    assert row("a").next_at == NOON + SECOND


def test_a_key_that_somebody_may_yet_commit_holds_up_no_other_schedule(
    row_locks: None, frozen: FrozenClock, other: Somebody
) -> None:
    with declared(report, name="shop.report", unique="one") as keyed, declared(report, name="shop.free"):
        secondly("a")
        secondly("b", performer="shop.free")
        frozen.advance(SECOND)
        with other.in_transaction(is_committed=False):
            other.does(keyed.later)
            assert schedules.fire_due(connections["default"]) == (1, 1.0)
            assert (row("a").next_at, row("a").skipped, row("a").error) == (NOON + SECOND, 0, "")
        assert fire() == 1
    assert ticks_of("a") == ticks_of("b") == [NOON + SECOND]


def test_a_job_that_a_constraint_refuses_sets_its_schedule_aside_and_the_others_fire(
    performer: AnyPerformer, frozen: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    secondly("a", queue="forbidden")
    secondly("b")
    frozen.advance(SECOND)
    with refusing(), caplog.at_level(logging.ERROR, "django_jobs"):
        assert fire() == 1
        assert fire() == 0
        assert row("a").error.startswith("its job can't be queued: ")
        assert len(caplog.records) == 1
    frozen.advance(SECOND)
    assert fire() == 2
    assert row("a").error == ""


ABORT = "select raise(abort, 'forbidden')"

REFUSALS = {
    "postgresql": (
        "alter table django_jobs_job add constraint forbidden check (queue <> 'forbidden')",
        "alter table django_jobs_job drop constraint forbidden",
    ),
    "sqlite": (
        f"create trigger forbidden before insert on django_jobs_job when new.queue = 'forbidden' begin {ABORT}; end",
        "drop trigger forbidden",
    ),
}
"""How a project has its database refuse jobs of the queue `forbidden`, and how it takes that back."""


@contextmanager
def refusing() -> Iterator[None]:
    """Have the database refuse jobs of the queue `forbidden`."""
    begin, end = REFUSALS[connection().vendor]
    with connection().cursor() as cursor:
        cursor.execute(begin)
        try:
            yield
        finally:
            cursor.execute(end)


# -- several that declare


def test_two_supervisors_of_one_release_that_start_at_once_write_each_row_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = code(*"abcdefgh")
    with caplog.at_level(logging.INFO, "django_jobs"):
        at_once(4, lambda _: schedules.declare(connections["default"], release))
    assert schedules.declare(connections["default"], release) is True
    assert {(one.name, one.version, one.removed) for one in Schedule.objects.all()} == {
        (name, 1, False) for name in "abcdefgh"
    }
    assert ScheduleSet.objects.count() == 1
    assert caplog.records == []


@pytest.mark.parametrize("attempt", range(5))
def test_o59_of_two_releases_that_declare_at_once_one_counts_and_the_rows_are_as_it_says(attempt: int) -> None:
    schedules.declare(connections["default"], code("a", "b", "c"))
    releases = [code("b", "c", "d"), code("c", "d", "e")]
    done = at_once(2, lambda number: schedules.declare(connections["default"], releases[number]))
    [counting] = [release for release in releases if schedules.counts(connections["default"], release)]
    schedules.declare(connections["default"], counting)
    assert done[releases.index(counting)] is True
    assert firing() == sorted(counting.hash.split())


def test_o59_what_another_release_wrote_between_the_look_and_the_writing_is_put_right(
    row_locks: None, other: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = code("b", "c"), code("a", "b")
    between(
        monkeypatch, "line_up_to_declare", lambda: other.does(lambda: schedules.declare(connections["default"], theirs))
    )
    assert schedules.declare(connections["default"], mine) is True
    assert firing() == ["b", "c"]
    assert schedules.counts(connections["default"], mine)


def test_o59_while_a_release_declares_another_one_waits_its_turn(
    row_locks: None, other: Somebody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one that took over first might be the last to write, and leave rows that the other never sees."""
    first, second = code("a", "b"), code("b", "c")
    answers = []
    right = scheduled.take_over

    def take_over(*given: Any, **options: Any) -> None:
        right(*given, **options)
        monkeypatch.setattr(scheduled, "take_over", right)
        answers.append(other.does(lambda: schedules.declare(connections["default"], second)))

    monkeypatch.setattr(scheduled, "take_over", take_over)
    assert schedules.declare(connections["default"], first) is True
    assert answers == [False]
    assert firing() == ["a", "b"]
    assert schedules.declare(connections["default"], second) is True
    assert firing() == ["b", "c"]


def test_a_row_in_somebodys_hands_keeps_a_release_from_counting_until_it_is_free(
    row_locks: None, other: Somebody
) -> None:
    schedules.declare(connections["default"], code("a", "b"))
    release = code("b")
    with held(row("a")):
        assert other.does(lambda: schedules.declare(connections["default"], release)) is False
        assert firing() == ["a", "b"]
    assert schedules.declare(connections["default"], release) is True
    assert firing() == ["b"]


def code(*names: str) -> CodeSet:
    """Give what a release declares that has these schedules."""
    with declared(report, name="shop.report") as performer:
        for name in names:
            every("* * * * *", performer, name=name)
        return CodeSet(owner="shop", hash=" ".join(names), schedules=schedules.code_set().schedules)


def firing() -> list[str]:
    return sorted(Schedule.objects.filter(removed=False).values_list("name", flat=True))
