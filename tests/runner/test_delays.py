"""How long a failed attempt waits for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import Retry, backoff, signals
from django_jobs.clock import FrozenClock
from django_jobs.performers import UNSET
from tests.performing import perform
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def odd() -> Iterator[list[str]]:
    told: list[str] = []

    def note(*, message: str, exception: BaseException | None, **_: Any) -> None:
        told.append(f"{message}: {exception!r:.60}")

    signals.odd.connect(note)
    yield told
    signals.odd.disconnect(note)


def fail() -> None:
    raise LookupError("no such customer")


def delay_with(chosen: Any, form: Form) -> timedelta:
    return perform(form(fail), policy={"backoff": chosen}).job.run_at - NOON


def test_the_performers_backoff_is_asked_with_the_attempt_and_the_exception(form: Form, frozen: FrozenClock) -> None:
    asked = []

    def choose(attempt: int, error: BaseException | None) -> float:
        asked.append((attempt, repr(error)))
        return 42.5

    assert delay_with(choose, form) == timedelta(seconds=42.5)
    assert asked == [(1, "LookupError('no such customer')")]


def test_a_backoff_may_take_the_attempt_alone(form: Form, frozen: FrozenClock) -> None:
    def choose(attempt: int) -> str:
        return f"{attempt}h"

    assert delay_with(choose, form) == timedelta(hours=1)


def test_a_backoff_sees_that_another_attempt_was_asked_for(form: Form, frozen: FrozenClock) -> None:
    def body() -> None:
        raise Retry("closed")

    def choose(attempt: int, error: BaseException | None) -> int:
        return 5 if isinstance(error, Retry) else 500

    assert perform(form(body), policy={"backoff": choose}).job.run_at == NOON + timedelta(seconds=5)


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
def test_the_backoff_of_the_settings_serves_performers_without_one(frozen: FrozenClock) -> None:
    assert perform(fail, policy={"backoff": UNSET}).job.run_at == NOON + timedelta(seconds=77)


def raises(attempt: int) -> int:
    raise ZeroDivisionError


def leaves(attempt: int) -> int:
    raise SystemExit


def unshowable(attempt: int) -> int:
    class Unshowable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("I won't")

        __str__ = __repr__

    raise Unshowable


@pytest.mark.parametrize("chosen", [raises, leaves, lambda attempt: "soon", lambda attempt: -1, lambda attempt: None])
@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
def test_a_backoff_that_raises_or_gives_nonsense_is_replaced_and_told(
    form: Form, frozen: FrozenClock, odd: list[str], chosen: Callable[..., Any]
) -> None:
    run = perform(form(fail), policy={"backoff": chosen})
    assert run.job.run_at == NOON + timedelta(seconds=77)
    assert run.reason == "no such customer"
    [line] = odd
    assert line.startswith("the backoff of tests.nowhere.fail failed, so another one was used: ")


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
def test_a_backoff_that_raises_what_cannot_be_shown_is_replaced(form: Form, frozen: FrozenClock) -> None:
    assert delay_with(unshowable, form) == timedelta(seconds=77)


@override_settings(DJANGO_JOBS={"BACKOFF": raises})
def test_ours_is_used_where_the_one_of_the_settings_fails_too(form: Form, frozen: FrozenClock, odd: list[str]) -> None:
    assert timedelta(seconds=13.5) <= delay_with(raises, form) <= timedelta(seconds=16.5)
    assert len(odd) == 2


def test_a_backoff_of_centuries_is_cut_to_a_year(form: Form, frozen: FrozenClock) -> None:
    assert delay_with(lambda attempt: 1e12, form) == timedelta(days=365)
