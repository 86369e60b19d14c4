"""Jobs whose name has no performer here: a deploy may still bring it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import override_settings

from django_jobs import backoff, enqueue, named, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Retried
from tests.declaring import declared
from tests.performing import perform, work
from tests.shop.jobs import greet

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def queue_missing(max_attempts: int = 3) -> Job:
    [queued] = enqueue([named("missing", options={"max_attempts": max_attempts})])
    return Job.objects.get(pk=queued.id)


def test_an_unknown_name_is_a_failed_attempt_that_names_it_and_the_known_ones(frozen: FrozenClock) -> None:
    run = work(queue_missing())
    assert isinstance(run.outcome, Retried)
    assert (run.job.state, run.job.attempts) == ("READY", 1)
    assert (run.error["kind"], run.reason, run.error["exception"]) == ("unknown", "no performer is named missing", "")
    assert run.error["traceback"].startswith("known here: ")
    assert greet.name in run.error["traceback"]


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
def test_it_waits_by_the_backoff_of_the_settings(frozen: FrozenClock) -> None:
    run = work(queue_missing())
    assert run.job.run_at == NOON + timedelta(seconds=77)


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed("20m")})
def test_it_fails_for_good_only_when_its_attempts_are_used_up_and_an_hour_has_passed(frozen: FrozenClock) -> None:
    job = queue_missing(max_attempts=2)
    trace = []
    for _ in range(4):
        run = work(job)
        trace.append((run.job.state, run.job.attempts, run.job.max_attempts))
        frozen.advance(timedelta(minutes=20))
    assert trace == [("READY", 1, 2), ("READY", 2, 3), ("READY", 3, 4), ("FAILED", 4, 4)]
    assert run.reason == "no performer is named missing"
    assert work_one() is None


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed("2h")})
def test_after_an_hour_its_attempts_alone_count(frozen: FrozenClock) -> None:
    job = queue_missing(max_attempts=3)
    states = []
    for _ in range(3):
        states.append(work(job).job.state)
        frozen.advance(timedelta(hours=2))
    assert states == ["READY", "READY", "FAILED"]


@override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed("20m")})
def test_a_retry_by_hand_gives_it_another_hour(frozen: FrozenClock) -> None:
    job = queue_missing(max_attempts=1)
    for _ in range(4):
        run = work(job)
        frozen.advance(timedelta(minutes=20))
    assert (run.job.state, run.job.attempts) == ("FAILED", 4)
    run.job.retry()
    assert work(job).job.state == "READY"


def test_it_succeeds_once_the_deploy_has_brought_the_performer(frozen: FrozenClock) -> None:
    job = queue_missing()
    work(job)
    frozen.advance(timedelta(days=1))

    def missing() -> str:
        return "found"

    with declared(missing, name="missing"):
        run = work(job)
    assert (run.job.state, run.job.attempts, run.result) == ("SUCCESSFUL", 2, "found")


def test_an_alias_is_a_known_name() -> None:
    def renamed() -> str:
        return "found"

    with declared(renamed, name="present", aliases=["missing"]):
        assert work(queue_missing()).result == "found"


def test_good_jobs_behind_unknown_ones_are_not_held_up(frozen: FrozenClock) -> None:
    def body() -> None:
        pass

    for _ in range(3):
        queue_missing()
    for _ in range(3):
        assert work_one() is not None
    assert perform(body).job.state == "SUCCESSFUL"
    assert work_one() is None
