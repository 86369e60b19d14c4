from __future__ import annotations

from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import Attempt, context, current_attempt
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import Interruption, JobCancelled, JobLost, JobTimeout
from django_jobs.records import Claim, Lease

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK = datetime(2026, 3, 1, 3, tzinfo=UTC)


def attempt(
    *,
    meta: dict[str, Any] | None = None,
    errors: Any = None,
    interruption: type[Interruption] | None = None,
    **changes: Any,
) -> Attempt:
    values: dict[str, Any] = {
        "lease": Lease(id=7, token=99),
        "name": "shop.send",
        "queue": "mail",
        "priority": 5,
        "args": "[]",
        "kwargs": "{}",
        "meta": "{}",
        "attempt": 2,
        "max_attempts": 3,
        "crashes": 0,
        "max_crashes": 3,
        "alone": False,
        "restart": True,
        "timeout": 30.0,
        "keep": None,
        "schedule": "nightly",
        "waiting_key": None,
        "on_failure": "",
        "instants": (*(NOON - timedelta(minutes=minutes) for minutes in (3, 2, 1, 0)), TICK),
    }
    claim = Claim(**{**values, **changes})
    return Attempt(claim, meta=meta or {}, load_errors=errors or list, interruption=lambda: interruption)


def test_an_attempt_tells_what_the_claim_holds() -> None:
    told = attempt(meta={"why": "import"})
    assert (told.job_id, told.name, told.queue) == (7, "shop.send", "mail")
    assert (told.number, told.max_attempts) == (2, 3)
    assert told.enqueued_at == datetime(2026, 3, 1, 11, 57, tzinfo=UTC)
    assert told.run_at == datetime(2026, 3, 1, 11, 58, tzinfo=UTC)
    assert told.tick == TICK
    assert told.meta == {"why": "import"}
    assert repr(told) == "<Attempt 2 of 3 at shop.send #7>"


@pytest.mark.parametrize(("number", "is_last"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_last_attempt_knows_that_it_is(number: int, is_last: bool) -> None:
    assert attempt(attempt=number).is_last is is_last


def test_a_job_that_no_schedule_fired_has_no_tick() -> None:
    assert attempt(instants=(NOON, NOON, NOON, NOON, None)).tick is None


def test_the_deadline_is_the_start_and_the_timeout() -> None:
    assert attempt(timeout=90.0).deadline == datetime(2026, 3, 1, 12, 1, 30, tzinfo=UTC)


def test_what_remains_shrinks_with_time_and_ends_at_nothing(frozen: FrozenClock) -> None:
    running = attempt(timeout=30.0)
    assert running.remaining() == 30.0
    frozen.advance(timedelta(seconds=12.5))
    assert running.remaining() == 17.5
    frozen.advance(timedelta(seconds=60))
    assert running.remaining() == 0.0


def test_without_a_timeout_there_is_neither_deadline_nor_remainder() -> None:
    unlimited = attempt(timeout=None)
    assert (unlimited.deadline, unlimited.remaining()) == (None, None)


def test_errors_are_loaded_when_asked_and_once() -> None:
    loads: list[str] = []

    def load() -> list[dict[str, Any]]:
        loads.append("loaded")
        return [{"attempt": 1, "reason": "it broke"}]

    running = attempt(errors=load)
    assert loads == []
    assert running.errors == [{"attempt": 1, "reason": "it broke"}]
    assert running.errors[0]["attempt"] == 1
    assert loads == ["loaded"]


def test_there_is_no_current_attempt_outside_of_a_job() -> None:
    assert current_attempt() is None


def test_the_current_attempt_is_that_of_the_context() -> None:
    first, second = attempt(lease=Lease(1, 99)), attempt(lease=Lease(2, 99))

    def in_a_job(running: Attempt) -> Attempt | None:
        context.enter(running)
        return current_attempt()

    assert Context().run(in_a_job, first) is first
    assert Context().run(in_a_job, second) is second
    assert current_attempt() is None


@pytest.mark.parametrize(
    ("interruption", "cancelled"), [(None, False), (JobCancelled, True), (JobLost, False), (JobTimeout, False)]
)
def test_it_is_cancelled_only_if_somebody_cancelled_it(
    interruption: type[Interruption] | None, cancelled: bool
) -> None:
    assert attempt(interruption=interruption).cancelled is cancelled


@pytest.mark.parametrize("kind", [JobCancelled, JobLost, JobTimeout])
def test_a_checkpoint_raises_what_the_job_was_interrupted_with(kind: type[Interruption]) -> None:
    with pytest.raises(kind):
        attempt(interruption=kind).checkpoint()


def test_a_checkpoint_raises_when_the_time_is_over(frozen: FrozenClock) -> None:
    running, unlimited = attempt(timeout=30.0), attempt(timeout=None)
    frozen.advance(timedelta(seconds=29))
    running.checkpoint()
    frozen.advance(timedelta(seconds=1))
    with pytest.raises(JobTimeout):
        running.checkpoint()
    unlimited.checkpoint()


def test_a_cancelled_job_that_is_out_of_time_as_well_is_cancelled(frozen: FrozenClock) -> None:
    running = attempt(timeout=30.0, interruption=JobCancelled)
    frozen.advance(timedelta(seconds=60))
    with pytest.raises(JobCancelled):
        running.checkpoint()
