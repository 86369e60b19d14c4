"""What a body may say of how far it is."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.progress import MESSAGE_LENGTH, MOST, Progress, checked

HUGE = pytest.param(10**5_000, id="huge")
"""More digits than Python writes."""


class Stage(IntEnum):
    SECOND = 2


class Counter:
    """As integers of other libraries are."""

    def __index__(self) -> int:
        return 7


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("done", "total", "kept"),
    [
        (0, None, Progress(0)),
        (3, 10, Progress(3, 10)),
        (0, 0, Progress(0, 0)),
        (612, 600, Progress(612, 600)),
        (0.25, 1.0, Progress(0.25, 1.0)),
        (Stage.SECOND, 5, Progress(2, 5)),
        (Counter(), Counter(), Progress(7, 7)),
        (9007199254740991, 9007199254740991.0, Progress(9007199254740991, 9007199254740991.0)),
    ],
)
def test_numbers_are_kept_also_when_more_is_done_than_was_expected(done: Any, total: Any, kept: Progress) -> None:
    assert checked(done, total) == kept


def test_numbers_of_other_kinds_become_plain_ones() -> None:
    said = checked(Stage.SECOND, Counter())  # type: ignore[arg-type]
    assert (type(said.done), type(said.total)) == (int, int)


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf"), -float("inf"), 2**53, 1e300, HUGE])
@pytest.mark.parametrize("what", ["done", "total"])
def test_a_number_that_cannot_be_shown_is_refused_by_name_and_with_a_remedy(value: float, what: str) -> None:
    with pytest.raises(ValueError, match=rf"progress\({what}=.*: give a number from 0 to 9007199254740991; count in"):
        checked(**{"done": 1, what: value})


@pytest.mark.parametrize("value", ["3", None, True, Decimal(3), Fraction(1, 2), [1], 1j])
def test_what_is_no_int_or_float_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"progress\(done=.*: give an int or a float"):
        checked(value)
    if value is not None:
        with pytest.raises(TypeError, match=r"progress\(total=.*: give an int or a float"):
            checked(1, value)


@pytest.mark.parametrize("value", [None, 5, b"reading"])
def test_a_message_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"progress\(message=.*: give a str"):
        checked(1, message=value)


def test_a_long_message_is_cut_and_shows_it() -> None:
    assert checked(1, message="x" * 500).message == "x" * 500
    assert checked(1, message="x" * 501).message == "x" * 499 + "…"


def test_a_message_of_a_subclass_becomes_plain_text() -> None:
    assert type(checked(1, message=Text("reading")).message) is str


def test_a_row_gets_three_keys() -> None:
    assert checked(1, 2, "three").values == {"done": 1, "total": 2, "message": "three"}
    assert checked(1).values == {"done": 1, "total": None, "message": ""}


@given(st.one_of(st.integers(), st.floats()), st.one_of(st.none(), st.integers(), st.floats()), st.text())
def test_whatever_is_kept_can_be_shown(done: float, total: float | None, message: str) -> None:
    try:
        said = checked(done, total, message)
    except ValueError:
        assert not all(number is None or 0 <= number <= MOST for number in (done, total))
        return
    assert (said.done, said.total) == (done, total)
    assert 0 <= said.done <= MOST
    assert len(said.message) <= MESSAGE_LENGTH
