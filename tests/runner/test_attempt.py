"""What a body learns about the job that it is part of."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_jobs import Attempt, current_attempt
from django_jobs.clock import FrozenClock
from tests.declaring import declared
from tests.performing import POLICY, perform, work
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def described(attempt: Attempt) -> dict[str, Any]:
    names = (
        "job_id",
        "name",
        "queue",
        "number",
        "max_attempts",
        "is_last",
        "enqueued_at",
        "run_at",
        "tick",
        "deadline",
    )
    return {name: getattr(attempt, name) for name in names} | {"remaining": attempt.remaining()}


def test_an_attempt_is_given_to_performers_that_take_one(form: Form, frozen: FrozenClock) -> None:
    def body(attempt: Attempt, greeting: str, *, name: str) -> list[object]:
        return [described(attempt), greeting, name]

    with declared(form(body), **POLICY, name="shop.greet", takes_attempt=True, timeout="1m") as performer:
        job = performer.using(queue="mail").after(minutes=1).later("Hello", name="Ada")
        frozen.advance(timedelta(minutes=5))
        run = work(job)
    assert run.result == [
        {
            "job_id": job.pk,
            "name": "shop.greet",
            "queue": "mail",
            "number": 1,
            "max_attempts": 3,
            "is_last": False,
            "enqueued_at": NOON,
            "run_at": NOON + timedelta(minutes=1),
            "tick": None,
            "deadline": NOON + timedelta(minutes=6),
            "remaining": 60.0,
        },
        "Hello",
        "Ada",
    ]


def test_a_job_without_a_timeout_has_no_deadline() -> None:
    def body(attempt: Attempt) -> list[object]:
        return [attempt.deadline, attempt.remaining()]

    assert perform(body, policy={"takes_attempt": True, "timeout": None}).result == [None, None]


def test_the_current_attempt_is_known_wherever_the_body_goes(form: Form) -> None:
    def body(attempt: Attempt) -> bool:
        return current_attempt() is attempt

    assert perform(form(body), policy={"takes_attempt": True}).result is True
    assert current_attempt() is None


def test_the_current_attempt_is_known_in_threads_and_tasks_of_an_async_body() -> None:
    def number() -> int:
        attempt = current_attempt()
        assert attempt is not None
        return attempt.number

    async def child() -> int:
        return number()

    async def body() -> list[int]:
        in_tasks = await asyncio.gather(child(), asyncio.create_task(child()))
        in_threads = await asyncio.gather(sync_to_async(number)(), sync_to_async(number, thread_sensitive=False)())
        return [number(), *in_tasks, *in_threads]

    assert perform(body).result == [1, 1, 1, 1, 1]


def test_the_last_attempt_knows_that_it_is_the_last(frozen: FrozenClock) -> None:
    def body(attempt: Attempt) -> list[object]:
        if not attempt.is_last:
            raise LookupError(attempt.number)
        return [attempt.number, attempt.is_last, repr(attempt).rpartition(" ")[0]]

    with declared(body, **POLICY, takes_attempt=True) as performer:
        job = performer.later()
        for _ in range(3):
            run = work(job)
            frozen.advance(timedelta(seconds=10))
    assert run.result == [3, True, "<Attempt 3 of 3 at tests.nowhere.body"]


def test_errors_of_earlier_attempts_can_be_read(frozen: FrozenClock) -> None:
    def body(attempt: Attempt) -> list[object]:
        if attempt.number < 3:
            raise LookupError(f"try {attempt.number}")
        return [[error["attempt"], error["reason"]] for error in attempt.errors]

    with declared(body, **POLICY, takes_attempt=True) as performer:
        job = performer.later()
        for _ in range(3):
            run = work(job)
            frozen.advance(timedelta(seconds=10))
    assert run.result == [[1, "try 1"], [2, "try 2"]]


def test_errors_can_be_read_in_a_thread_of_an_async_body() -> None:
    async def body(attempt: Attempt) -> list[object]:
        return await sync_to_async(lambda: attempt.errors)()

    assert perform(body, policy={"takes_attempt": True}).result == []


def test_what_was_stored_beside_the_arguments_can_be_read(form: Form) -> None:
    def body(attempt: Attempt) -> dict[str, object]:
        return dict(attempt.meta)

    with declared(form(body), **POLICY, takes_attempt=True) as performer:
        run = work(performer.using(meta={"why": "import", "at": NOON}).later())
    assert run.result == {"why": "import", "at": NOON}
