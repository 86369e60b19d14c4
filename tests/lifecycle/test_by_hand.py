from __future__ import annotations

import logging

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import JobFinished, JobGone, JobRunning, JobStopping, JobSucceeded, JobWaiting, VerbRefused
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, Outcome, Succeeded
from django_jobs.records import Moved, Places
from django_jobs.transitions import Place
from tests.factories import (
    NOON,
    claim_one,
    failure,
    new_job,
    place_of,
    queue_job,
    queue_jobs,
    read,
    run_job,
    seconds,
)
from tests.lifecycle.hearing import Heard, ended, settle
from tests.racing import between

pytestmark = pytest.mark.django_db


# -- verbs by hand


def test_cancel_gives_the_ids_it_moved() -> None:
    waiting, running = queue_job(), run_job().id
    [succeeded] = ended(1)
    assert lifecycle.cancel([succeeded, running, waiting, waiting, 10**12], reason="no") == [waiting, running]
    assert [place_of(waiting), place_of(running)] == [Place.CANCELLED, Place.STOPPING]


def test_verbs_by_hand_take_any_number_of_ids() -> None:
    queued = lifecycle.enqueue_many([new_job() for _ in range(2_100)], using="default")
    ids = [one.id for one in queued]
    assert lifecycle.cancel(reversed(ids)) == ids
    assert lifecycle.retry(iter(ids)) == ids
    assert lifecycle.delete(ids) == ids


def test_retry_gives_the_ids_it_moved() -> None:
    failed, running, waiting = run_job(), run_job(), queue_job()
    settle(failed, Failed(failure=failure()))
    assert lifecycle.retry([waiting, running.id, failed.id]) == [failed.id, waiting]


def test_delete_tells_what_it_skipped(heard: list[Heard]) -> None:
    running, waiting = run_job().id, queue_job()
    assert lifecycle.delete([running, waiting, 10**12]) == [waiting]
    message = f"2 jobs were not deleted since they are held or gone: #{running}, #1000000000000"
    assert heard == [Heard("odd", None, {"message": message, "exception": None, "level": logging.WARNING})]


def test_delete_without_skipped_ones_tells_nothing(heard: list[Heard]) -> None:
    assert len(lifecycle.delete(queue_jobs(2))) == 2
    assert heard == []


def test_a_long_list_of_skipped_ids_is_cut(heard: list[Heard]) -> None:
    lifecycle.delete(range(1_001, 1_013))
    shown = "#1001, #1002, #1003, #1004, #1005, #1006, #1007, #1008, #1009, #1010 …"
    assert heard[0].said["message"] == f"12 jobs were not deleted since they are held or gone: {shown}"


def refused(verb: str, job_id: int) -> tuple[type[VerbRefused], str]:
    """Give the error with which a verb is refused, the id replaced by N."""
    with pytest.raises(VerbRefused) as caught:
        getattr(lifecycle, f"{verb}_one")(job_id)
    assert caught.value.job_id == job_id
    return type(caught.value), str(caught.value).replace(str(job_id), "N")


@pytest.mark.parametrize(("verb", "done"), [("cancel", "cancelled"), ("retry", "retried"), ("delete", "deleted")])
def test_a_job_that_is_gone_is_refused_as_gone(verb: str, done: str) -> None:
    assert refused(verb, 10**12) == (JobGone, f"job N is no longer here, so it was not {done}")


@pytest.mark.parametrize(("verb", "done"), [("retry", "retried"), ("delete", "deleted")])
def test_a_running_job_is_refused_as_running(verb: str, done: str) -> None:
    assert refused(verb, run_job().id) == (JobRunning, f"job N is running now, so it was not {done}")


@pytest.mark.parametrize(("verb", "done"), [("retry", "retried"), ("delete", "deleted")])
def test_a_stopping_job_is_refused_as_stopping(verb: str, done: str) -> None:
    job_id = run_job().id
    lifecycle.cancel_one(job_id)
    message = f"job N was cancelled and its body is still stopping, so it was not {done}"
    assert refused(verb, job_id) == (JobStopping, message)
    assert issubclass(JobStopping, JobRunning)


def test_a_succeeded_job_is_not_retried() -> None:
    [job_id] = ended(1)
    assert refused("retry", job_id) == (JobSucceeded, "job N has succeeded, so it was not retried")


@pytest.mark.parametrize(
    ("outcome", "kind", "word"),
    [
        (Succeeded(), JobSucceeded, "has succeeded"),
        (Failed(failure=failure()), JobFinished, "has failed"),
        (Cancelled(), JobFinished, "was cancelled before"),
    ],
)
def test_a_finished_job_is_not_cancelled(outcome: Outcome, kind: type[JobFinished], word: str) -> None:
    claim = run_job()
    settle(claim, outcome)
    assert refused("cancel", claim.id) == (kind, f"job N {word}, so it was not cancelled")


def test_a_stopping_job_is_not_cancelled_again() -> None:
    job_id = run_job().id
    lifecycle.cancel_one(job_id)
    assert refused("cancel", job_id) == (JobFinished, "job N was cancelled before, so it was not cancelled")


def test_a_job_that_changed_just_before_it_was_said_why_is_refused_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = run_job()
    settle(claim, Failed(failure=failure()))
    between(monkeypatch, "states", lambda: lifecycle.retry_one(claim.id))
    assert refused("cancel", claim.id) == (JobWaiting, "job N has just changed, and waits, so it was not cancelled")


def test_a_verb_that_is_refused_changes_nothing() -> None:
    running, stopping = run_job(), run_job()
    lifecycle.cancel_one(stopping.id)
    [succeeded] = ended(1)
    before = list(Job.objects.order_by("pk").values())
    for job_id in (running.id, stopping.id, succeeded):
        refused("retry", job_id)
        with pytest.raises(VerbRefused):
            lifecycle.reschedule_one(job_id, Places(priority=1))
    for job_id in (stopping.id, succeeded):
        refused("cancel", job_id)
    for job_id in (running.id, stopping.id):
        refused("delete", job_id)
    assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("verb", ["cancel", "retry", "reschedule", "delete"])
def test_a_verb_takes_as_many_statements_for_many_jobs_as_for_one(verb: str) -> None:
    def statements(count: int) -> int:
        jobs = Job.objects.filter(pk__in=queue_jobs(count))
        places = {"priority": 5} if verb == "reschedule" else {}
        with CaptureQueriesContext(connections["default"]) as asked:
            getattr(jobs, verb)(**places)
        return len(asked)

    assert statements(100) == statements(1)


def test_verbs_for_one_job_do_what_they_say() -> None:
    job_id = queue_job()
    lifecycle.cancel_one(job_id, reason="no")
    assert place_of(job_id) is Place.CANCELLED
    lifecycle.retry_one(job_id)
    assert place_of(job_id) is Place.READY
    lifecycle.delete_one(job_id)
    assert place_of(job_id) is Place.ABSENT


def test_verbs_by_hand_join_the_callers_transaction() -> None:
    cancelled, deleted = queue_jobs(2)
    with transaction.atomic():
        lifecycle.cancel([cancelled])
        lifecycle.delete([deleted])
        transaction.set_rollback(True)
    assert [place_of(cancelled), place_of(deleted)] == [Place.READY, Place.READY]


# -- on another database


@pytest.mark.django_db(databases=["default", "other"])
def test_every_verb_works_on_the_database_it_is_given(frozen: FrozenClock) -> None:
    other = connections["other"]
    first = lifecycle.enqueue(new_job(), using="other").id
    [second] = [one.id for one in lifecycle.enqueue_many([new_job(expires=seconds(1))], using="other")]
    assert lifecycle.cancel([first], using="other") == [first]
    assert lifecycle.retry([first], using="other") == [first]
    frozen.advance(seconds(1))
    assert lifecycle.expire(other) == 1
    assert lifecycle.delete([first, second], using="other") == [first, second]
    assert lifecycle.prune(using="other") == 0
    assert Job.objects.count() == 0


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(DJANGO_JOBS={"DATABASE": "other"})
def test_the_setting_says_where_verbs_by_hand_work() -> None:
    job_id = lifecycle.enqueue(new_job(), using="other").id
    lifecycle.cancel_one(job_id)
    lifecycle.retry_one(job_id)
    assert lifecycle.prune() == 0
    lifecycle.delete_one(job_id)
    with pytest.raises(JobGone):
        lifecycle.delete_one(job_id)


# -- reschedule


def test_reschedule_moves_what_waits(frozen: FrozenClock) -> None:
    waiting, other, running = queue_job(priority=1), queue_job(priority=1), run_job(queue="other").id
    later = NOON + seconds(60)
    places = Places(queue="aside", priority=-5, run_at=later, max_attempts=9)
    assert lifecycle.reschedule([running, waiting, 10**12], places) == [waiting]
    row = read(waiting)
    assert (row.state, row.queue, row.priority, row.run_at, row.max_attempts) == ("READY", "aside", -5, later, 9)
    assert read(other).queue == "default"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (Places(queue="aside"), ("aside", 3, NOON, 4)),
        (Places(priority=0), ("mail", 0, NOON, 4)),
        (Places(run_at=NOON + seconds(5)), ("mail", 3, NOON + seconds(5), 4)),
        (Places(max_attempts=1), ("mail", 3, NOON, 1)),
    ],
)
def test_what_is_not_said_stays(frozen: FrozenClock, places: Places, expected: tuple[object, ...]) -> None:
    job_id = queue_job(queue="mail", priority=3, max_attempts=4)
    lifecycle.reschedule_one(job_id, places)
    row = read(job_id)
    assert (row.queue, row.priority, row.run_at, row.max_attempts) == expected


def test_a_rescheduled_job_is_claimed_where_it_waits_now(frozen: FrozenClock) -> None:
    job_id = queue_job()
    lifecycle.reschedule_one(job_id, Places(queue="aside", run_at=NOON + seconds(5)))
    frozen.advance(seconds(5))
    assert claim_one(queues=("aside",)).id == job_id


@pytest.mark.parametrize(
    ("outcome", "kind", "word"),
    [
        (Succeeded(), JobSucceeded, "has succeeded"),
        (Failed(failure=failure()), JobFinished, "has failed"),
        (Cancelled(), JobFinished, "was cancelled before"),
    ],
)
def test_a_finished_job_is_not_rescheduled(outcome: Outcome, kind: type[JobFinished], word: str) -> None:
    claim = run_job()
    settle(claim, outcome)
    with pytest.raises(kind, match=f"^job {claim.id} {word}, so it was not rescheduled$"):
        lifecycle.reschedule_one(claim.id, Places(priority=1))


def test_a_running_job_is_not_rescheduled() -> None:
    job_id = run_job().id
    with pytest.raises(JobRunning, match=f"^job {job_id} is running now, so it was not rescheduled$"):
        lifecycle.reschedule_one(job_id, Places(priority=1))
    lifecycle.cancel_one(job_id)
    with pytest.raises(JobStopping):
        lifecycle.reschedule_one(job_id, Places(priority=1))


# -- why the others stay


def test_it_is_said_of_each_that_stays_why() -> None:
    waiting, running = queue_job(), run_job().id
    [succeeded] = ended(1)
    failed, stopping, cancelled = run_job(), run_job(), run_job()
    settle(failed, Failed(failure=failure()))
    settle(cancelled, Cancelled())
    lifecycle.cancel_one(stopping.id)
    ids = [waiting, running, succeeded, failed.id, stopping.id, cancelled.id, 10**12]
    moved = lifecycle.moved_and_why(ids, [waiting], "cancelled")
    assert moved == Moved(
        ids=(waiting,),
        skipped={
            "cancelled": (cancelled.id,),
            "failed": (failed.id,),
            "gone": (10**12,),
            "running": (running,),
            "stopping": (stopping.id,),
            "succeeded": (succeeded,),
        },
    )
    assert len(moved) == 1
