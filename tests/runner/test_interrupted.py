"""What a run comes to that the worker interrupted, or whose surroundings failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_jobs import backoff, runner
from django_jobs.exceptions import JobCancelled, JobLost, JobTimeout
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim
from tests.declaring import declared
from tests.factories import claim_one, failure, run_job

pytestmark = pytest.mark.django_db

RAISED = failure(kind="error", traceback="Traceback: in the middle of it", fingerprint="f" * 40)

OUTCOMES: list[Outcome] = [
    Succeeded(result="1"),
    Failed(failure=RAISED),
    Retried(failure=RAISED, delay=timedelta(seconds=5)),
    Snoozed(delay=timedelta(seconds=5)),
    Cancelled(reason="no longer needed"),
    GaveUp(failure=RAISED),
    Released(started=True),
]

NOT_SUCCEEDED = OUTCOMES[1:]


def name_of(outcome: Outcome) -> str:
    return type(outcome).__name__


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
def test_a_timeout_is_a_counted_failure_whatever_the_body_made_of_it(outcome: Outcome) -> None:
    ended = runner.interrupted(run_job(timeout=1.5), JobTimeout, outcome)
    assert isinstance(ended, Retried)
    assert (ended.failure.kind, ended.failure.reason, ended.failure.exception, ended.patient) == (
        "timeout",
        "timed out after 1.5 s",
        "django_jobs.exceptions.JobTimeout",
        False,
    )


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
def test_a_timeout_of_the_last_attempt_fails_the_job(outcome: Outcome) -> None:
    ended = runner.interrupted(run_job(max_attempts=1, timeout=300.0), JobTimeout, outcome)
    assert isinstance(ended, Failed)
    assert (ended.failure.kind, ended.failure.reason) == ("timeout", "timed out after 300 s")


@pytest.mark.parametrize(
    ("outcome", "traceback"),
    [
        (Failed(failure=RAISED), "Traceback: in the middle of it"),
        (Retried(failure=RAISED, delay=timedelta(0)), "Traceback: in the middle of it"),
        (Succeeded(), ""),
        (Released(started=True), ""),
    ],
    ids=["failed", "retried", "succeeded", "released"],
)
def test_a_timeout_shows_where_the_body_was_if_that_is_known(outcome: Outcome, traceback: str) -> None:
    ended = runner.interrupted(run_job(), JobTimeout, outcome)
    assert isinstance(ended, Retried)
    assert ended.failure.traceback == traceback


def test_timeouts_of_one_job_are_one_group_and_those_of_another_another() -> None:
    claims = [run_job(), run_job(), run_job(name="shop.other")]
    prints = []
    for claim, outcome in zip(claims, (Succeeded(), Failed(failure=RAISED), Succeeded()), strict=True):
        ended = runner.interrupted(claim, JobTimeout, outcome)
        assert isinstance(ended, Retried)
        prints.append(ended.failure.fingerprint)
    first, second, other = prints
    assert len(first) == 40
    assert first == second
    assert first != other


def test_the_performers_backoff_is_asked_with_the_timeout() -> None:
    asked = []

    def choose(attempt: int, error: BaseException | None) -> int:
        asked.append((attempt, type(error)))
        return 42

    def body() -> None: ...

    with declared(body, backoff=choose, max_attempts=3) as performer:
        performer.later()
        ended = runner.interrupted(claim_one(), JobTimeout, Succeeded())
    assert isinstance(ended, Retried)
    assert ended.delay == timedelta(seconds=42)
    assert asked == [(1, JobTimeout)]


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
def test_a_job_without_performer_waits_as_the_settings_say() -> None:
    ended = runner.interrupted(run_job(), JobTimeout, Succeeded())
    assert isinstance(ended, Retried)
    assert ended.delay == timedelta(seconds=77)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=name_of)
def test_a_cancelled_job_is_cancelled_whatever_its_body_made_of_it(outcome: Outcome) -> None:
    assert runner.interrupted(run_job(), JobCancelled, outcome) == Cancelled(reason="cancelled while it ran")


def test_a_success_is_kept_where_the_job_was_lost() -> None:
    assert runner.interrupted(run_job(), JobLost, Succeeded(result="1")) == Succeeded(result="1")


@pytest.mark.parametrize("outcome", NOT_SUCCEEDED, ids=name_of)
def test_whatever_else_a_lost_job_came_to_it_is_given_back_as_started(outcome: Outcome) -> None:
    assert runner.interrupted(run_job(), JobLost, outcome) == Released(started=True)


# -- broken


def broken(claim: Claim) -> Outcome:
    try:
        raise ConnectionResetError("the connection broke")
    except ConnectionResetError as error:
        return runner.broken(claim, error)


def test_a_run_whose_surroundings_failed_is_tried_again_after_our_own_backoff() -> None:
    with override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(5_000)}):
        ended = broken(run_job())
    assert isinstance(ended, Retried)
    assert timedelta(seconds=13.5) <= ended.delay <= timedelta(seconds=16.5)
    assert (ended.failure.kind, ended.failure.reason, ended.failure.exception) == (
        "error",
        "the connection broke",
        "builtins.ConnectionResetError",
    )
    assert "ConnectionResetError: the connection broke" in ended.failure.traceback


def test_on_the_last_attempt_it_fails() -> None:
    ended = broken(run_job(max_attempts=1))
    assert isinstance(ended, Failed)
    assert ended.failure.reason == "the connection broke"


def test_what_is_no_exception_of_the_ordinary_kind_breaks_a_run_too() -> None:
    ended = runner.broken(run_job(), JobLost())
    assert isinstance(ended, Retried)
    assert ended.failure.exception == "django_jobs.exceptions.JobLost"
