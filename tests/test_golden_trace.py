"""The golden trace: one story over three jobs and a neighbour queue, moments injected, the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from django_jobs import backoff, clock, enqueue, named, work_one
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Outcome, Retried, Succeeded
from tests.shop import jobs

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def greeted() -> list[str]:
    jobs.greeted.clear()
    return jobs.greeted


def word(outcome: Outcome | None) -> str:
    match outcome:
        case None:
            return "nothing due"
        case Succeeded():
            return "succeeded"
        case Retried(failure=failure):
            return f"again: {failure.reason}"
        case Failed(failure=failure):
            return f"failed: {failure.reason}"
    raise AssertionError(outcome)


@pytest.mark.django_db
@override_settings(DJANGO_JOBS={"BACKOFF": backoff.polynomial(), "MAX_ATTEMPTS": 5})
def test_the_golden_trace(greeted: list[str]) -> None:
    with clock.freeze(START) as frozen:
        jobs.greet.later(name="Ada")
        jobs.broken.later()
        [missing] = enqueue([named("missing")])
        jobs.greet.after(minutes=1).later(name="Bo")
        jobs.greet.using(queue="mail").later(name="Cy")
        broken = Job.objects.get(name="tests.shop.broken")

        def work(at_ms: int) -> tuple[str, int, int]:
            frozen.move_to(START + timedelta(milliseconds=at_ms))
            outcome = work_one("default")
            attempts = dict(Job.objects.values_list("pk", "attempts"))
            return word(outcome), attempts[broken.pk], attempts[missing.id]

        moments = [0, 0, 0, 0, 3_000, 60_000, 60_000, 60_000]
        moments += [at for at in (1_000_000, 10_000_000, 100_000_000) for _ in range(2)]
        trace = [work(at) for at in moments]

    unknown = "no performer is named missing"
    assert trace == [
        ("succeeded", 0, 0),
        ("again: it broke", 1, 0),
        (f"again: {unknown}", 1, 1),
        ("nothing due", 1, 1),
        ("again: it broke", 2, 1),
        (f"again: {unknown}", 2, 2),
        ("again: it broke", 3, 2),
        ("succeeded", 3, 2),
        (f"again: {unknown}", 3, 3),
        ("again: it broke", 4, 3),
        (f"again: {unknown}", 4, 4),
        ("failed: it broke", 5, 4),
        (f"failed: {unknown}", 5, 5),
        ("nothing due", 5, 5),
    ]
    assert greeted == ["Ada", "Bo"]
    ends = {job.name: (job.queue, job.state, job.attempts) for job in Job.objects.all()}
    assert ends == {
        "tests.shop.broken": ("default", "FAILED", 5),
        "missing": ("default", "FAILED", 5),
        "tests.shop.greet": ("mail", "READY", 0),
    }
    assert {job.name: job.errors[-1]["reason"] for job in Job.objects.failed()} == {
        "tests.shop.broken": "it broke",
        "missing": unknown,
    }
