from __future__ import annotations

import random
from dataclasses import FrozenInstanceError, dataclass, fields
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import backoff
from django_jobs.backoff import MAX_DELAY, Backoff, delay_of

if TYPE_CHECKING:
    from collections.abc import Callable

FAMILY = [
    backoff.exponential(),
    backoff.exponential(1, factor=1.0000001, cap="36525d", jitter=1),
    backoff.exponential("36525d", factor=1e308, cap="36525d"),
    backoff.exponential(0, factor=10),
    backoff.polynomial(),
    backoff.polynomial(1e308, cap="36525d", jitter=1),
    backoff.linear("36525d", cap="36525d"),
    backoff.fixed("36525d"),
    backoff.steps(1, "36525d"),
]


def seconds(waits: Callable[[int], timedelta], *attempts: int) -> list[float]:
    return [waits(attempt).total_seconds() for attempt in attempts]


# What each of them waits ---------------------------------------------------------------------------------------------


def test_exponential_doubles_from_fifteen_seconds_up_to_six_hours() -> None:
    waits = backoff.exponential(jitter=0)
    assert seconds(waits, 1, 2, 3, 4, 11, 12, 5000) == [15, 30, 60, 120, 15_360, 21_600, 21_600]


def test_twenty_attempts_of_the_default_span_about_two_and_a_half_days() -> None:
    waits = backoff.exponential(jitter=0)
    assert sum(seconds(waits, *range(1, 20))) == 203_505


def test_polynomial_waits_the_fourth_power_and_two_seconds() -> None:
    assert seconds(backoff.polynomial(), 1, 2, 3, 10) == [3, 18, 83, 10_002]


def test_polynomial_takes_a_power_an_offset_and_a_cap() -> None:
    assert seconds(backoff.polynomial(2, plus="1m", cap="2m"), 1, 2, 7, 8) == [61, 64, 109, 120]


def test_linear_grows_by_a_step() -> None:
    assert seconds(backoff.linear("1m", cap="5m"), 1, 2, 5, 6, 1000) == [60, 120, 300, 300, 300]


def test_fixed_is_the_same_every_time() -> None:
    assert seconds(backoff.fixed("1.5s"), 1, 2, 1000) == [1.5, 1.5, 1.5]


def test_steps_follow_each_other_and_the_last_repeats() -> None:
    assert seconds(backoff.steps("10s", 60, timedelta(hours=1)), 1, 2, 3, 4, 1000) == [10, 60, 3_600, 3_600, 3_600]


@pytest.mark.parametrize("waits", [backoff.exponential(jitter=0), backoff.linear(15), backoff.steps(15, 60)])
def test_an_attempt_below_one_waits_like_the_first(waits: Callable[[int], timedelta]) -> None:
    assert seconds(waits, 0, -7) == [15, 15]


# Jitter --------------------------------------------------------------------------------------------------------------


def test_jitter_stays_within_its_share_and_varies() -> None:
    drawn = seconds(backoff.exponential(100, jitter=0.1), *[1] * 500)
    assert all(90 <= delay <= 110 for delay in drawn)
    assert len(set(drawn)) > 400


def test_jitter_applies_to_the_cap_too() -> None:
    drawn = seconds(backoff.polynomial(cap=100, jitter=0.5), *[1000] * 500)
    assert all(50 <= delay <= 150 for delay in drawn)
    assert len(set(drawn)) > 400


def test_jitter_neither_follows_nor_disturbs_the_global_seed() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    first = backoff.exponential()(1)
    assert random.random() == expected
    random.seed(1)
    assert backoff.exponential()(1) != first


# Bounds: FAULTS.md O67 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", FAMILY, ids=repr)
@pytest.mark.parametrize("attempt", [1, 2, 4_000, 10**9, 2**63])
def test_o67_no_attempt_overflows_or_waits_beyond_a_year(waits: Callable[[int], timedelta], attempt: int) -> None:
    assert timedelta(0) <= waits(attempt) <= timedelta(days=365)


@given(
    base=st.floats(0, 3e9),
    factor=st.floats(1, 1e308),
    cap=st.floats(0, 3e9),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**9),
)
def test_o67_no_exponential_leaves_its_bounds(
    base: float, factor: float, cap: float, jitter: float, attempt: int
) -> None:
    waits = backoff.exponential(base, factor=factor, cap=cap, jitter=jitter)
    assert timedelta(0) <= waits(attempt) <= min(timedelta(seconds=2 * cap), timedelta(days=365))


@given(power=st.floats(0, 1e308), plus=st.floats(0, 3e9), attempt=st.integers(1, 10**9))
def test_o67_no_polynomial_leaves_its_bounds(power: float, plus: float, attempt: int) -> None:
    assert timedelta(0) <= backoff.polynomial(power, plus=plus)(attempt) <= timedelta(days=365)


def test_delays_without_jitter_never_shrink() -> None:
    for waits in (backoff.exponential(jitter=0), backoff.polynomial(), backoff.linear("1h")):
        delays = seconds(waits, *range(1, 500))
        assert delays == sorted(delays)


# Construction --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (backoff.exponential(), "exponential(base=15, factor=2, cap='6h', jitter=0.1)"),
        (backoff.polynomial(), "polynomial(power=4, plus=2, cap='365d', jitter=0)"),
        (backoff.linear("1m"), "linear(step='1m', cap='365d')"),
        (backoff.fixed(5), "fixed(delay=5)"),
        (backoff.steps("10s", 60), "steps('10s', 60)"),
        (backoff.steps(60), "steps(60)"),
    ],
)
def test_the_repr_reads_like_the_call(value: object, text: str) -> None:
    assert repr(value) == text
    assert eval(text, vars(backoff)) == value


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: backoff.exponential(-1), ValueError, "base: -1 is negative; give seconds, a timedelta or text"),
        (lambda: backoff.exponential(cap="later"), ValueError, "cap: 'later' is not a duration; give seconds"),
        (lambda: backoff.exponential(None), TypeError, "base: None is not a duration; give seconds"),  # type: ignore[arg-type]
        (lambda: backoff.exponential(factor=0.5), ValueError, "factor: 0.5 is out of range; give a number of 1"),
        (lambda: backoff.exponential(factor=float("nan")), ValueError, "factor: nan is out of range"),
        (lambda: backoff.exponential(factor=float("inf")), ValueError, "factor: inf is out of range"),
        (lambda: backoff.exponential(factor=10**400), ValueError, "factor: 1000"),
        (lambda: backoff.exponential(factor="2"), TypeError, "factor: '2' is not a number; give a number of 1 or more"),  # type: ignore[arg-type]
        (lambda: backoff.exponential(jitter=1.5), ValueError, "jitter: 1.5 is out of range; give a number from 0 to 1"),
        (lambda: backoff.exponential(jitter=True), TypeError, "jitter: True is not a number"),
        (lambda: backoff.polynomial(-1), ValueError, "power: -1 is out of range; give a number of 0 or more"),
        (lambda: backoff.polynomial(plus="x"), ValueError, "plus: 'x' is not a duration"),
        (lambda: backoff.polynomial(jitter=-1), ValueError, "jitter: -1 is out of range"),
        (lambda: backoff.linear("x"), ValueError, "step: 'x' is not a duration"),
        (lambda: backoff.linear(1, cap=-1), ValueError, "cap: -1 is negative"),
        (lambda: backoff.fixed("x"), ValueError, "delay: 'x' is not a duration"),
        (lambda: backoff.steps(1, "x"), ValueError, "delay 2: 'x' is not a duration"),
        (backoff.steps, ValueError, "steps: no delay is given; give one or more"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_with_name_value_and_remedy(
    build: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", FAMILY, ids=repr)
def test_they_are_frozen_hashable_values(value: Any) -> None:
    assert hash(value) == hash(value)
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, 1)


def test_only_tidy_names_are_public() -> None:
    assert backoff.__all__ == [
        "MAX_DELAY", "Backoff", "delay_of", "exponential", "fixed", "linear", "polynomial", "steps",
    ]  # fmt: skip


# delay_of: any callable ----------------------------------------------------------------------------------------------


class Waits:
    def of_the_number(self, attempt: int) -> float:
        return attempt * 10

    def of_both(self, attempt: int, exception: BaseException | None) -> float:
        return attempt * 10 if exception is None else 1

    def __call__(self, attempt: int, exception: BaseException | None) -> float:
        return attempt * 10 if exception is None else 1


@dataclass
class Unhashable:
    step: float

    def __call__(self, attempt: int) -> float:
        return attempt * self.step


@pytest.mark.parametrize(
    ("waits", "delay"),
    [
        (lambda attempt: attempt * 10, 30),
        (lambda attempt, exception: 1 if isinstance(exception, OSError) else 2, 1),
        (lambda *arguments: len(arguments), 2),
        (lambda attempt, exception=None: 0 if exception is None else 7, 7),
        (lambda attempt, /, *, factor=2: attempt * factor, 6),
        (Waits().of_the_number, 30),
        (Waits().of_both, 1),
        (Waits(), 1),
        (Unhashable(5), 15),
        (backoff.linear(5), 15),
        (backoff.steps(5, 6), 6),
    ],
)
def test_a_callable_is_given_the_number_or_the_number_and_the_exception(waits: Backoff, delay: float) -> None:
    assert delay_of(waits, 3, OSError()) == timedelta(seconds=delay)
    assert delay_of(waits, 3, OSError()) == timedelta(seconds=delay)


@pytest.mark.parametrize("answer", [90, 90.0, "90", "90s", "1m30s", timedelta(seconds=90)])
def test_an_answer_may_be_seconds_a_timedelta_or_text(answer: Any) -> None:
    assert delay_of(lambda attempt: answer, 1) == timedelta(seconds=90)


@pytest.mark.parametrize("answer", [MAX_DELAY + timedelta(1), timedelta.max, "366d", 1e300, 2**4000, 31_536_001])
def test_o67_a_long_answer_is_cut_to_a_year(answer: Any) -> None:
    assert delay_of(lambda attempt: answer, 1) == timedelta(days=365)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (None, TypeError, "the backoff's answer: None is not a duration"),
        (True, TypeError, "the backoff's answer: True is not a duration"),
        (Decimal(5), TypeError, "the backoff's answer: Decimal('5') is not a duration"),
        (-1, ValueError, "the backoff's answer: -1 is negative"),
        (timedelta(seconds=-1), ValueError, "the backoff's answer: datetime.timedelta(days=-1, seconds=86399) is neg"),
        (float("nan"), ValueError, "the backoff's answer: nan is not a duration"),
        (float("inf"), ValueError, "the backoff's answer: inf is longer than 100 years"),
        ("soon", ValueError, "the backoff's answer: 'soon' is not a duration"),
    ],
)
def test_nonsense_is_refused_with_the_value_in_the_message(answer: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        delay_of(lambda attempt: answer, 1)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("waits", [lambda: 1, lambda one, two, three: 1, lambda attempt, *, needed: 1, 5, None])
def test_what_takes_neither_one_nor_two_arguments_is_a_type_error(waits: Any) -> None:
    for _ in range(2):
        with pytest.raises(TypeError):
            delay_of(waits, 1)


def test_what_the_callable_raises_passes_through() -> None:
    def waits(attempt: int) -> float:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        delay_of(waits, 1)
