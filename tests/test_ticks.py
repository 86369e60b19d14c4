"""What is done about ticks that are due: on time, late, missed by the thousand; never two jobs for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobs.cron import Interval, parse
from django_jobs.ticks import Due, Timing, due, first_tick, jittered
from tests.factories import NOON

UTC_ZONE = ZoneInfo("UTC")
DAILY = parse("0 3 * * *", zone=UTC_ZONE)
MINUTELY = parse("* * * * *", zone=UTC_ZONE)
SECONDLY = parse("* * * * * *", zone=UTC_ZONE)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01 {text}").replace(tzinfo=UTC)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


# -- on time


def test_a_tick_that_has_come_is_fired_and_the_next_one_is_found() -> None:
    for missed in ("once", "skip", "all"):
        assert due(MINUTELY, NOON, NOON + timedelta(seconds=2), missed=missed) == Due(
            ticks=(NOON,), skipped=0, next_at=NOON + minutes(1)
        )


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
@pytest.mark.parametrize("late", [0.0, 59.9, 60.0])
def test_a_minute_late_is_not_missed(missed: str, late: float) -> None:
    assert due(DAILY, at("03:00"), at("03:00") + timedelta(seconds=late), missed=missed).ticks == (at("03:00"),)


def test_an_interval_that_is_shorter_than_a_minute_is_the_bound() -> None:
    now = NOON + timedelta(seconds=2.5)
    assert due(SECONDLY, NOON, now, missed="skip") == Due(
        ticks=(NOON + timedelta(seconds=2),), skipped=2, next_at=NOON + timedelta(seconds=3)
    )


# -- O56: missed


def test_o56_a_day_that_was_missed_is_made_up_for_once() -> None:
    for missed, ticks, skipped in (("once", (at("03:00"),), 0), ("skip", (), 1), ("all", (at("03:00"),), 0)):
        assert due(DAILY, at("03:00"), at("06:00"), missed=missed) == Due(
            ticks=ticks, skipped=skipped, next_at=at("03:00") + timedelta(days=1)
        )


def test_o56_of_three_hours_of_minutes_one_job_is_left_or_none_or_a_hundred() -> None:
    began, now = at("09:00"), at("12:00") + timedelta(seconds=5)
    next_at = at("12:01")
    assert due(MINUTELY, began, now) == Due(ticks=(at("12:00"),), skipped=180, next_at=next_at)
    assert due(MINUTELY, began, now, missed="skip") == Due(ticks=(at("12:00"),), skipped=180, next_at=next_at)
    every = due(MINUTELY, began, now, missed="all")
    assert (len(every.ticks), every.ticks[0], every.ticks[-1]) == (100, at("10:21"), at("12:00"))
    assert (every.skipped, every.next_at) == (81, next_at)


def test_o56_of_a_burst_that_is_longer_than_what_is_counted_the_newest_are_fired() -> None:
    # The seconds of one hour a day, of which many days were missed.
    hourly = parse("* * 3 * * *", zone=UTC_ZONE)
    began = at("03:00") - timedelta(days=9)
    found = due(hourly, began, at("12:00"), missed="all")
    last = at("03:59") + timedelta(seconds=59)
    assert found.ticks == tuple(last - timedelta(seconds=99 - number) for number in range(100))
    assert found.next_at == at("03:00") + timedelta(days=1)


def test_o56_a_month_of_seconds_is_not_counted_to_its_end() -> None:
    began = NOON - timedelta(days=30)
    for missed, count in (("once", 1), ("skip", 1), ("all", 100)):
        found = due(SECONDLY, began, NOON + timedelta(seconds=0.5), missed=missed)
        assert (len(found.ticks), found.ticks[-1], found.next_at) == (count, NOON, NOON + timedelta(seconds=1))
        assert found.skipped >= 10_000


def test_o56_many_ticks_of_a_line_that_came_to_its_end_long_ago_are_found_too() -> None:
    began = NOON - timedelta(days=3)
    ends = began + timedelta(hours=4)
    found = due(SECONDLY, began, NOON, missed="all", ends=ends)
    assert (len(found.ticks), found.ticks[-1], found.next_at) == (100, ends, None)


@settings(deadline=None)
@given(
    st.sampled_from(
        [MINUTELY, DAILY, Interval(seconds=7.5), Interval(seconds=3_600), parse("*/20 9-17 * * 1-5", zone=UTC_ZONE)]
    ),
    st.integers(0, 60_000),
    st.sampled_from(["once", "skip", "all"]),
)
def test_every_tick_is_fired_or_skipped_and_none_twice(timing: Timing, seconds: int, missed: str) -> None:
    next_at = timing.next_after(NOON)
    now = next_at + timedelta(seconds=seconds)
    found = due(timing, next_at, now, missed=missed)
    overdue = [next_at]
    while (following := timing.next_after(overdue[-1])) <= now:
        overdue.append(following)
    assert found.next_at == following
    assert len(found.ticks) + found.skipped == len(overdue)
    assert list(found.ticks) == overdue[len(overdue) - len(found.ticks) :]
    assert len(found.ticks) <= (100 if missed == "all" else 1 if missed == "once" else 2)


# -- starts and ends


def test_no_tick_comes_before_the_start_nor_after_the_end() -> None:
    assert first_tick(DAILY, NOON) == at("03:00") + timedelta(days=1)
    starts = NOON + timedelta(days=5)
    assert first_tick(DAILY, NOON, starts=starts) == at("03:00") + timedelta(days=6)
    assert first_tick(MINUTELY, NOON, starts=starts) == starts
    assert first_tick(MINUTELY, NOON, ends=NOON + minutes(1)) == NOON + minutes(1)
    assert first_tick(MINUTELY, NOON, ends=NOON + minutes(0.9)) is None


def test_the_last_tick_is_fired_and_none_follows() -> None:
    assert due(MINUTELY, NOON, NOON, ends=NOON) == Due(ticks=(NOON,), skipped=0, next_at=None)


def test_a_calendar_that_has_come_to_its_end_has_no_next_tick() -> None:
    assert first_tick(DAILY, datetime(9999, 12, 31, 12, tzinfo=UTC)) is None


# -- jitter


def test_jitter_is_the_same_for_whoever_asks_and_within_its_bound() -> None:
    moments = [jittered("nightly", NOON + timedelta(days=day), 300) for day in range(50)]
    assert moments == [jittered("nightly", NOON + timedelta(days=day), 300) for day in range(50)]
    late = [(moment - NOON).total_seconds() % 86_400 for moment in moments]
    assert 0 <= min(late) < 60 < 240 < max(late) < 300
    assert jittered("nightly", NOON, 0) == NOON
    assert jittered("weekly", NOON, 300) != jittered("nightly", NOON, 300)
