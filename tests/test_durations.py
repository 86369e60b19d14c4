from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import durations

REMEDY = 'give seconds, a timedelta or text like "5m"'


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (90, 90),
        (0.25, 0.25),
        (-0.0, 0),
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("5m", 300),
        ("1.5h", 5_400),
        ("2 d", 172_800),
        ("1w", 604_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("  5 m  ", 300),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("5m5ms", 300.005),
        ("36525d", 3_155_760_000),
    ],
)
def test_numbers_and_text_are_read_as_lengths_of_time(value: durations.Duration, seconds: float) -> None:
    assert durations.parse(value) == timedelta(seconds=seconds)


def test_a_timedelta_is_given_back() -> None:
    assert durations.parse(timedelta(days=2, microseconds=1)) == timedelta(days=2, microseconds=1)


@pytest.mark.parametrize("value", [None, True, False, b"5m", Decimal(5), ["5m"], 5j, object()])
def test_other_types_are_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="is not a duration; give seconds, a timedelta or text"):
        durations.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "m", "5x", "5 minutes", "5M", "1h30", "30m1h", "5m5m", "5.m", ".5h", "1e3", "-5m", "+5m", "nan", "inf",
        "1_000", "\N{ARABIC-INDIC DIGIT FIVE}m", "5\nm", "5m\x00",
    ],
)  # fmt: skip
def test_text_that_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(microseconds=-1), -math.inf, -(10**400)])
def test_negative_lengths_are_refused(value: durations.Duration) -> None:
    with pytest.raises(ValueError, match="is negative"):
        durations.parse(value)


@pytest.mark.parametrize(
    "value", [3_155_760_001, math.inf, 10**400, 1e300, timedelta.max, "36525d1ms", "9" * 400, "9" * 400 + "w"]
)
def test_lengths_beyond_a_hundred_years_are_refused(value: durations.Duration) -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        durations.parse(value)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="nan is not a duration"):
        durations.parse(math.nan)


def test_the_message_names_what_the_value_and_the_remedy() -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        durations.parse("soon", what="timeout")
    assert str(caught.value) == f"timeout: 'soon' is not a duration; {REMEDY}"


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        durations.parse("x" * 10_000)
    assert str(caught.value) == f"duration: '{'x' * 78}… is not a duration; {REMEDY}"


def test_a_value_whose_repr_raises_is_named_by_its_class() -> None:
    with pytest.raises(TypeError) as caught:
        durations.parse(ReprRaises())  # type: ignore[arg-type]
    assert str(caught.value) == f"duration: a value of type ReprRaises is not a duration; {REMEDY}"


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 999))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    expected = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    assert durations.parse(f"{hours}h{minutes}m{seconds}s") == expected


@given(st.text() | st.from_regex(r"[0-9. wdhms]*", fullmatch=True))
def test_any_text_gives_a_duration_or_a_value_error(text: str) -> None:
    try:
        duration = durations.parse(text)
    except ValueError:
        return
    assert timedelta(0) <= duration <= durations.LONGEST
