"""What the key of a job is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs import named
from django_jobs.performers import AnyPerformer
from tests.declaring import declared

pytestmark = pytest.mark.django_db


def act(first: Any, second: Any = 2, *more: Any, flag: bool = False, **others: Any) -> None: ...


def keys(*args: Any, policy: dict[str, Any] | None = None, options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    """Give the unique and the waiting key of a job."""
    with declared(act, name="shop.act", **(policy or {})) as performer:
        job = performer.using(**(options or {})).prepare(*args, **kwargs)
    return job.unique_key, job.waiting_key


def whole(*args: Any, **kwargs: Any) -> str:
    """Give the key made of all arguments."""
    unique, waiting = keys(*args, policy={"unique": True}, **kwargs)
    assert waiting is None
    return str(unique)


def test_a_job_has_no_key_unless_one_is_asked_for() -> None:
    assert keys(1) == (None, None)
    assert keys(1, policy={"unique": None, "unique_while_waiting": None}) == (None, None)


def test_a_text_is_a_key_of_the_performer() -> None:
    assert keys(1, options={"unique": "7"}) == ("shop.act/7", None)
    assert keys(1, options={"unique_while_waiting": "7"}) == (None, "shop.act/7")
    assert keys(1, policy={"unique": "7"}, options={"unique": None}) == (None, None)


def test_the_empty_text_is_a_key() -> None:
    assert keys(1, options={"unique": ""}) == ("shop.act/", None)


def test_a_function_of_the_arguments_names_the_key() -> None:
    def of(first: Any, *rest: Any, **others: Any) -> str | None:
        return None if first is None else f"{first}-{sorted(others)}"

    assert keys(5, flag=True, policy={"unique": of}) == ("shop.act/5-['flag']", None)
    assert keys(5, policy={"unique_while_waiting": of}) == (None, "shop.act/5-[]")
    assert keys(None, policy={"unique": of}) == (None, None)


@pytest.mark.parametrize("value", [7, b"7", True])
def test_a_function_must_give_a_text(value: object) -> None:
    message = f"shop.act: the function of unique gave {value!r}; let it give a text, or None for no key"
    with pytest.raises(TypeError, match=re.escape(message)):
        keys(1, policy={"unique": lambda *_: value})


def test_o65_all_arguments_are_written_in_one_form_however_they_are_given() -> None:
    written = {whole(1, 2), whole(first=1), whole(second=2, first=1), whole(1, second=2, flag=False)}
    assert len(written) == 1
    assert whole(1, 2, 3) != whole(1, 2)
    assert whole(1, flag=True) != whole(1)
    assert whole(1, other=5) != whole(1)


def test_o65_values_of_different_types_are_different() -> None:
    values: list[Any] = [1, 1.5, True, "1", None, [1], (1,), {"a": 1}, {1}, frozenset({1})]
    assert len({whole(value) for value in values}) == len(values)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)


@given(st.dictionaries(TEXTS, st.integers() | st.dictionaries(TEXTS, st.integers())))
def test_o65_the_order_of_mappings_does_not_count(mapping: dict[str, Any]) -> None:
    turned = {key: mapping[key] for key in reversed(mapping)}
    assert whole(mapping) == whole(turned)


@given(st.lists(TEXTS | st.integers(), unique=True))
def test_o65_the_order_of_sets_does_not_count(items: list[Any]) -> None:
    # In another order, since that of a set hangs on the order of its making where hashes collide.
    turned = set()
    for item in reversed(items):
        turned.add(item)
    assert whole(set(items)) == whole(turned)
    assert whole([set(items), 1]) == whole([turned, 1])


def test_other_performers_have_other_keys() -> None:
    def other(first: int) -> None: ...

    with declared(other, name="shop.other", unique="7") as performer:
        assert performer.prepare(1).unique_key == "shop.other/7"


@pytest.mark.parametrize("key", ["k" * 400, "a\0b", "\ud800", "line\nbreak"])
def test_what_a_column_cannot_hold_is_hashed(key: str) -> None:
    unique, _ = keys(1, options={"unique": key})
    assert re.fullmatch("shop.act#[0-9a-f]{64}", unique)
    assert keys(1, options={"unique": key + "x"}) != (unique, None)


def test_a_key_fits_the_column_whatever_it_is() -> None:
    longest = "k" * (300 - len("shop.act/"))
    assert keys(1, options={"unique": longest}) == (f"shop.act/{longest}", None)
    assert len(keys(1, options={"unique": longest + "k"})[0]) < 300


class TestNamed:
    def test_an_alias_has_the_keys_of_the_performer(self) -> None:
        with declared(act, name="shop.act", aliases=["old.act"]):
            assert named("old.act", 1, options={"unique": "7"}).unique_key == "shop.act/7"
            assert named("old.act", 1, 2, options={"unique": True}).unique_key == whole_of_named("shop.act", first=1)

    def test_a_name_that_nobody_knows_here_may_have_a_text_or_a_function(self) -> None:
        assert named("other.service", 1, options={"unique": "7"}).unique_key == "other.service/7"
        assert named("other.service", 1, options={"unique": lambda n: f"n{n}"}).unique_key == "other.service/n1"

    def test_but_not_all_arguments(self) -> None:
        message = "other.service: unique=True needs the signature, and no performer of that name is here"
        with pytest.raises(TypeError, match=message):
            named("other.service", 1, options={"unique": True})


def whole_of_named(name: str, **kwargs: Any) -> str | None:
    return named(name, options={"unique": True}, **kwargs).unique_key


# -- what may be said


@pytest.mark.parametrize("option", ["unique", "unique_while_waiting"])
@pytest.mark.parametrize("value", [False, 7, b"7", ["a"]])
def test_a_wrong_key_is_refused_where_it_is_said(option: str, value: Any) -> None:
    message = f"{option}={value!r}: give a text, True for all arguments, a function of them, or None"
    with pytest.raises(TypeError, match=re.escape(message)):
        keys(1, policy={option: value})
    with pytest.raises(TypeError, match=re.escape(message)):
        keys(1, options={option: value})


@pytest.mark.parametrize("value", ["ignore", None, True])
def test_a_wrong_way_with_duplicates_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f'on_duplicate={value!r}: give "return", "replace" or "raise"')):
        keys(1, policy={"on_duplicate": value})


def test_a_job_has_one_kind_of_key() -> None:
    message = "using(): unique='a' and unique_while_waiting='b'; a job has one kind of key, so give None for the other"
    with pytest.raises(ValueError, match=re.escape(message)):
        keys(1, policy={"unique": "a"}, options={"unique_while_waiting": "b"})
    both = {"unique": None, "unique_while_waiting": "b"}
    assert keys(1, policy={"unique": "a"}, options=both) == (None, "shop.act/b")


@pytest.mark.parametrize("policy", [{}, {"unique": None}, {"unique_while_waiting": "a"}])
def test_a_time_for_a_key_needs_a_unique_one(policy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=re.escape("says how long a key is held, so give unique, too")):
        keys(1, policy={**policy, "unique_for": "5m"})


@pytest.mark.parametrize("value", [0, -1, "soon"])
def test_a_wrong_time_for_a_key_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^unique_for"):
        keys(1, policy={"unique": "a", "unique_for": value})


def test_a_bulk_call_names_the_key_of_each_job(declare: Callable[..., AnyPerformer]) -> None:
    performer = declare(act, name="shop.act", unique=lambda first, *_: str(first))
    jobs = performer._all_prepared([(1,), {"first": 2}, performer.prepare(3)])
    assert [job.unique_key for job in jobs] == ["shop.act/1", "shop.act/2", "shop.act/3"]
    assert [json.loads(job.args) for job in jobs] == [[1], [], [3]]
