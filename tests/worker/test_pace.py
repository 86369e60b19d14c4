"""How many jobs may be claimed ahead, as a value: no crew, no time."""

from __future__ import annotations

import pytest

from django_jobs.worker.pace import ENOUGH, FIRST_AHEAD, MOST_AHEAD, SHORT, TINY, WINDOW, Pace


@pytest.fixture
def pace() -> Pace:
    return Pace()


def run(pace: Pace, queue: str = "a", *, count: int = ENOUGH, seconds: float = 0.0) -> None:
    for _ in range(count):
        pace.note(queue, seconds)


def test_nothing_is_known_to_be_short_until_enough_has_run(pace: Pace) -> None:
    assert not pace.is_short("a")
    run(pace, count=ENOUGH - 1)
    assert (pace.is_short("a"), pace.limit(3)) == (False, 3)
    run(pace, count=1)
    assert (pace.is_short("a"), pace.limit(3)) == (True, 3 + FIRST_AHEAD)


@pytest.mark.parametrize(("seconds", "is_short"), [(SHORT - 0.0001, True), (SHORT, False)])
def test_short_is_what_ends_within_five_milliseconds(pace: Pace, seconds: float, is_short: bool) -> None:
    run(pace, seconds=seconds)
    assert pace.is_short("a") is is_short


def test_one_long_run_among_twenty_is_allowed_and_two_are_not(pace: Pace) -> None:
    run(pace, count=19)
    run(pace, count=1, seconds=1.0)
    assert pace.is_short("a")
    run(pace, count=1, seconds=1.0)
    assert not pace.is_short("a")


def test_what_ran_long_ago_is_forgotten(pace: Pace) -> None:
    run(pace, count=WINDOW, seconds=1.0)
    run(pace, count=WINDOW - WINDOW // 20 - 1)
    assert not pace.is_short("a")
    run(pace, count=1)
    assert pace.is_short("a")
    run(pace, "b", count=WINDOW)
    assert not pace.is_short("a")
    assert pace.unsure(()) == set()


def test_claims_grow_while_they_come_back_full_and_shrink_with_long_runs(pace: Pace) -> None:
    run(pace, count=WINDOW)
    limits = [pace.limit(3)]
    for _ in range(6):
        pace.filled()
        limits.append(pace.limit(3))
    assert limits == [3 + ahead for ahead in (8, 16, 32, 64, 128, 200, 200)]
    run(pace, count=1, seconds=SHORT)
    assert pace.limit(3) == 3 + MOST_AHEAD // 2
    run(pace, count=9, seconds=SHORT)
    assert pace.limit(3) == 3 + FIRST_AHEAD


@pytest.mark.parametrize(("seconds", "most"), [(0.0005, 200), (0.001, 100), (0.004, 25), (0.02, FIRST_AHEAD)])
def test_no_more_is_claimed_ahead_than_runs_within_a_tenth_of_a_second(pace: Pace, seconds: float, most: int) -> None:
    run(pace, count=WINDOW, seconds=1.0)
    run(pace, count=WINDOW, seconds=seconds)
    for _ in range(6):
        pace.filled()
    assert pace._ahead == pytest.approx(most, abs=1)


@pytest.mark.parametrize(("seconds", "is_tiny"), [(TINY - 0.00001, True), (TINY, False), (SHORT, False)])
def test_tiny_is_what_ends_within_a_third_of_a_millisecond(pace: Pace, seconds: float, is_tiny: bool) -> None:
    assert not pace.is_tiny("a")
    run(pace, seconds=seconds)
    assert pace.is_tiny("a") is is_tiny


def test_one_run_among_four_that_is_not_tiny_is_allowed_but_not_one_that_is_not_short(pace: Pace) -> None:
    run(pace, count=15)
    run(pace, count=5, seconds=TINY)
    assert pace.is_tiny("a")
    run(pace, count=1, seconds=TINY)
    assert not pace.is_tiny("a")
    run(pace, "b", count=16)
    run(pace, "b", count=1, seconds=SHORT)
    assert not pace.is_tiny("b")
    run(pace, "a", count=WINDOW)
    assert pace.is_tiny("a")
    assert not pace.is_tiny("b")


def test_without_a_free_slot_nothing_is_claimed_ahead(pace: Pace) -> None:
    run(pace)
    assert pace.limit(20) == 20 + FIRST_AHEAD
    assert pace.limit(1) == 1 + FIRST_AHEAD
    assert pace.limit(0) == 0


def test_beside_one_queue_that_is_not_short_others_are_claimed_ahead_beside_two_nothing_is(pace: Pace) -> None:
    run(pace)
    run(pace, "slow", seconds=1.0)
    assert pace.unsure(()) == {"slow"}
    assert pace.limit(3) == 3 + FIRST_AHEAD
    # One is in hand that never ran.
    assert pace.unsure(("new",)) == {"slow", "new"}
    assert pace.limit(3, ("new",)) == 3


def test_where_no_queue_is_short_nothing_is_claimed_ahead(pace: Pace) -> None:
    run(pace, seconds=1.0)
    assert pace.limit(3) == 3


def test_after_a_stumble_jobs_have_to_show_anew_that_they_are_short(pace: Pace) -> None:
    run(pace, count=WINDOW)
    pace.filled()
    pace.stumbled()
    assert (pace.is_short("a"), pace.is_tiny("a"), pace.limit(3)) == (False, False, 3)
    run(pace)
    assert pace.limit(3) == 3 + FIRST_AHEAD
