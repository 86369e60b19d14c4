"""What a performer may return or raise, and what its job comes to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import Cancel, GiveUp, Retry, Snooze, work_one
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import ControlWord
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Retried, Snoozed, Succeeded
from tests.declaring import declared
from tests.performing import POLICY, as_async, perform, work
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def returning(value: object) -> Callable[[], object]:
    def body() -> object:
        return value

    return body


def test_a_job_that_returns_has_succeeded(form: Form, frozen: FrozenClock) -> None:
    run = perform(form(returning(None)))
    assert run.outcome == Succeeded()
    assert (run.job.state, run.job.attempts, run.job.errors) == ("SUCCESSFUL", 1, [])
    assert run.job.result is None
    assert run.job.finished_at == NOON


def test_an_exception_is_a_failed_attempt(form: Form, frozen: FrozenClock) -> None:
    run = perform(form(raising(LookupError("no such customer"))))
    assert isinstance(run.outcome, Retried)
    assert (run.job.state, run.job.attempts) == ("READY", 1)
    assert run.job.run_at == NOON + timedelta(seconds=10)
    assert (run.error["kind"], run.error["exception"]) == ("error", "builtins.LookupError")
    assert run.reason == "no such customer"
    assert run.error["traceback"].endswith("LookupError: no such customer\n")
    assert "django_jobs/runner" not in run.error["traceback"]


def test_the_last_failed_attempt_fails_the_job(form: Form, frozen: FrozenClock) -> None:
    with declared(form(raising(LookupError("no such customer"))), **POLICY) as performer:
        job = performer.later()
        for _ in range(3):
            run = work(job)
            frozen.advance(timedelta(seconds=10))
    assert isinstance(run.outcome, Failed)
    assert (run.job.state, run.job.attempts, len(run.job.errors)) == ("FAILED", 3, 3)
    assert [entry["attempt"] for entry in run.job.errors] == [1, 2, 3]


# -- what is worth another attempt


@pytest.mark.parametrize(
    ("policy", "error", "state"),
    [
        ({"give_up_on": ValueError}, ValueError("no"), "FAILED"),
        ({"give_up_on": (KeyError, ValueError)}, UnicodeError("of a subclass"), "FAILED"),
        ({"give_up_on": [ValueError]}, KeyError("another"), "READY"),
        ({"retry_on": ValueError}, ValueError("no"), "READY"),
        ({"retry_on": (KeyError, ValueError)}, UnicodeError("of a subclass"), "READY"),
        ({"retry_on": ValueError}, KeyError("another"), "FAILED"),
        ({"retry_on": Exception, "give_up_on": KeyError}, KeyError("both"), "FAILED"),
        ({"retry_on": ()}, KeyError("nothing is"), "FAILED"),
        ({"retry_on": (), "give_up_on": ()}, KeyError("nothing is"), "FAILED"),
        ({"retry_on": ValueError}, SystemExit("is no Exception"), "READY"),
        ({"retry_on": ValueError}, Retry("asked for"), "READY"),
        ({"give_up_on": Exception}, Snooze(5), "READY"),
    ],
)
def test_the_policy_says_what_is_worth_another_attempt(
    form: Form, policy: dict[str, Any], error: BaseException, state: str
) -> None:
    run = perform(form(raising(error)), policy=policy)
    assert run.job.state == state
    if state == "FAILED":
        assert isinstance(run.outcome, GaveUp)
        assert (run.error["kind"], run.error["exception"]) == ("gave_up", f"builtins.{type(error).__name__}")
        assert run.error["traceback"].endswith(f"{type(error).__name__}: {error}\n")
        assert run.job.attempts == 1


# -- control words, raised and returned alike


@pytest.fixture(params=[raising, returning], ids=["raised", "returned"])
def say(request: pytest.FixtureRequest, form: Form) -> Callable[[ControlWord], Callable[..., Any]]:
    return lambda word: form(request.param(word))


def test_retry_asks_for_another_attempt_after_the_backoff(say: Any, frozen: FrozenClock) -> None:
    run = perform(say(Retry("the shop is closed")))
    assert isinstance(run.outcome, Retried)
    assert (run.job.state, run.job.attempts, run.reason) == ("READY", 1, "the shop is closed")
    assert run.job.run_at == NOON + timedelta(seconds=10)
    assert (run.error["kind"], run.error["exception"]) == ("error", "django_jobs.exceptions.Retry")


@pytest.mark.parametrize("after", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
def test_retry_may_say_after_how_long(say: Any, frozen: FrozenClock, after: Any) -> None:
    run = perform(say(Retry(after=after)))
    assert run.job.run_at == NOON + timedelta(seconds=90)
    assert run.reason == "asked for another attempt"


def test_retry_on_the_last_attempt_fails_the_job(say: Any, frozen: FrozenClock) -> None:
    run = perform(say(Retry("still closed", after=5)), policy={"max_attempts": 1})
    assert isinstance(run.outcome, Failed)
    assert (run.job.state, run.reason) == ("FAILED", "still closed")


def test_snooze_puts_the_job_off_and_counts_no_attempt(say: Any, frozen: FrozenClock) -> None:
    run = perform(say(Snooze("1h", "the shop is closed")), policy={"max_attempts": 1})
    assert run.outcome == Snoozed(delay=timedelta(hours=1), reason="the shop is closed")
    assert (run.job.state, run.job.attempts, run.job.errors) == ("READY", 0, [])
    assert run.job.run_at == NOON + timedelta(hours=1)
    assert work_one() is None


def test_a_job_may_snooze_more_often_than_it_has_attempts(say: Any, frozen: FrozenClock) -> None:
    with declared(say(Snooze("1h")), **POLICY) as performer:
        job = performer.later()
        for _ in range(5):
            run = work(job)
            frozen.advance(timedelta(hours=1))
    assert (run.job.state, run.job.attempts) == ("READY", 0)


def test_cancel_ends_the_job_as_no_longer_needed(say: Any, frozen: FrozenClock) -> None:
    run = perform(say(Cancel("the order was withdrawn")))
    assert run.outcome == Cancelled(reason="the order was withdrawn")
    assert (run.job.state, run.job.finished_at) == ("CANCELLED", NOON)
    assert (run.error["kind"], run.reason) == ("cancelled", "the order was withdrawn")


def test_give_up_fails_the_job_without_further_attempts(say: Any, frozen: FrozenClock) -> None:
    run = perform(say(GiveUp("the card is stolen")))
    assert isinstance(run.outcome, GaveUp)
    assert (run.job.state, run.job.attempts, run.job.finished_at) == ("FAILED", 1, NOON)
    assert (run.error["kind"], run.reason) == ("gave_up", "the card is stolen")


def test_a_word_without_a_reason_is_recorded_all_the_same(say: Any) -> None:
    assert perform(say(Cancel())).reason == ""
    assert perform(say(GiveUp())).reason == "GiveUp"


def test_the_cause_of_a_word_is_told_with_it(form: Form) -> None:
    def body() -> None:
        try:
            raise ConnectionError("the bank is away")
        except ConnectionError as error:
            raise Retry("try again") from error

    run = perform(form(body))
    assert "ConnectionError: the bank is away" in run.error["traceback"]


class Mine(Snooze):
    """Forgets what a snooze needs."""

    def __init__(self) -> None:
        pass


class Nonsense(Snooze):
    def __init__(self) -> None:
        super().__init__(1)
        self.after = "soon"  # type: ignore[assignment]


class Never(Retry):
    def __init__(self) -> None:
        super().__init__(after=1)
        self.after = -5  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        (Mine(), "'Mine' object has no attribute 'after'"),
        (Nonsense(), "Snooze.after: 'soon' is not a duration"),
        (Never(), "Retry.after: -5 is negative"),
    ],
)
def test_a_broken_word_is_a_failed_attempt_that_says_what_is_wrong(say: Any, word: ControlWord, problem: str) -> None:
    run = perform(say(word))
    assert isinstance(run.outcome, Retried)
    assert problem in run.reason


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("I won't")


@pytest.mark.parametrize("reason", [5, None, b"bytes", ["a", "list"], Unshowable(), "a\0b\ud800", "x" * 5_000_000])
def test_a_reason_may_be_anything(say: Any, frozen: FrozenClock, reason: Any) -> None:
    words = [Retry(reason), Snooze(60, reason), Cancel(reason), GiveUp(reason)]
    states = [perform(say(word)).job.state for word in words]
    assert states == ["READY", "READY", "CANCELLED", "FAILED"]


def test_a_word_said_by_a_child_of_its_class_counts(say: Any) -> None:
    class ShopClosed(Retry):
        pass

    assert perform(say(ShopClosed("closed"))).reason == "closed"


def test_the_class_of_a_word_may_be_raised_but_not_returned(form: Form) -> None:
    def body() -> None:
        raise Cancel

    assert isinstance(perform(form(body)).outcome, Cancelled)
    returned = perform(form(returning(Cancel)))
    assert (returned.job.state, returned.error["kind"]) == ("FAILED", "result")


# -- what isn't even an Exception


class HomeMade(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(), SystemExit(0), SystemExit(3), SystemExit("bye"), KeyboardInterrupt(), GeneratorExit(),
        HomeMade("mine"), asyncio.CancelledError(), StopIteration(), StopAsyncIteration(), MemoryError(),
        RecursionError(), BaseExceptionGroup("several", [SystemExit()]),
    ],
    ids=repr,
)  # fmt: skip
def test_whatever_is_raised_is_that_jobs_failure_and_the_next_one_runs(form: Form, error: BaseException) -> None:
    run = perform(form(raising(error)))
    assert isinstance(run.outcome, Retried)
    # Python itself lets no StopIteration out of a coroutine.
    is_replaced = form is as_async and isinstance(error, StopIteration)
    expected = "RuntimeError" if is_replaced else type(error).__qualname__
    assert run.error["exception"].rpartition(".")[2] == expected
    assert isinstance(perform(form(returning(None))).outcome, Succeeded)


def test_exit_code_0_is_a_failure_too() -> None:
    def body() -> None:
        sys.exit(0)

    run = perform(body)
    assert (run.job.state, run.error["exception"], run.reason) == ("READY", "builtins.SystemExit", "0")


def test_an_exit_in_a_child_task_is_the_jobs_failure() -> None:
    async def leave() -> None:
        sys.exit(3)

    async def body() -> None:
        await asyncio.gather(leave(), asyncio.sleep(60))

    run = perform(body)
    assert (run.job.state, run.error["exception"], run.reason) == ("READY", "builtins.SystemExit", "3")


def test_a_body_that_cancels_its_own_task_has_failed() -> None:
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    run = perform(body)
    assert (run.job.state, run.error["exception"]) == ("READY", "asyncio.exceptions.CancelledError")


def test_a_body_that_cancels_its_own_task_as_it_ends_has_failed() -> None:
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    run = perform(body)
    assert (run.job.state, run.error["exception"].rpartition(".")[2]) == ("READY", "CancelledError")


def test_a_group_of_a_task_group_shows_what_its_tasks_raised() -> None:
    async def fail() -> None:
        raise LookupError("no such customer")

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    run = perform(body)
    assert run.error["exception"] == "builtins.ExceptionGroup"
    assert "  | LookupError: no such customer" in run.error["traceback"]
