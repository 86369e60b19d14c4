"""Queues that stand still: a pause that something goes past, and a queue that nobody serves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.db import connections
from django.test import override_settings

from django_jobs import lifecycle, queues, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Retried
from django_jobs.performers import AnyPerformer
from django_jobs.records import WorkerLife
from django_jobs.vitals import QueueSeen, problems
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.factories import failure, queue_job, read, run_job, seconds, take, write
from tests.system.processes import lines, until, worker, workers, workers_of
from tests.yard import jobs

MANY = 10_000


def act(number: int) -> None: ...


def states() -> list[str]:
    return sorted(Job.objects.values_list("state", flat=True))


# -- O76: a pause is forgotten, or something goes past it


@pytest.mark.django_db(transaction=True)
def test_o76_a_pause_holds_over_the_death_of_a_worker_and_the_restart_of_all(tmp_path: Path) -> None:
    marks, gate, other = tmp_path / "marks", tmp_path / "gate", tmp_path / "other"
    job = jobs.wait_for_file.using(queue="mail").later(str(marks), str(gate))
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        queues["mail"].pause("the server moves")
        [pid] = workers_of(running.process.pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: read(job.pk).state == "READY", what="the job is taken back")
        # A free slot, and jobs of another queue get it.
        jobs.append.later(str(other), "beside")
        until(lambda: lines(other), what="another queue is served")
        assert (lines(marks), read(job.pk).state) == (["begin"], "READY")
    with worker(tmp_path, "--drain", name="restarted") as restarted:
        assert restarted.wait() == 0
    assert (lines(marks), read(job.pk).state) == (["begin"], "READY")
    gate.touch()
    queues["mail"].resume()
    with worker(tmp_path, "--drain", name="resumed") as resumed:
        assert resumed.wait() == 0
    assert (lines(marks), read(job.pk).state) == (["begin", "begin", "end"], "SUCCESSFUL")


@pytest.mark.django_db(transaction=True)
def test_o76_what_runs_when_its_queue_is_paused_runs_to_its_end(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.wait_for_file.using(queue="mail").later(str(marks), str(gate))
    with workers(tmp_path, "--processes", "0"):
        until(lambda: lines(marks), what="the job begins")
        queues["mail"].pause()
        gate.touch()
        until(lambda: read(job.pk).state == "SUCCESSFUL", what="the job ends")


@pytest.mark.django_db(transaction=True)
def test_o76_a_worker_is_not_kept_busy_by_a_paused_queue_and_hears_when_it_goes_on(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    queues["mail"].pause()
    jobs.append.using(queue="mail").later(str(marks), "mail")
    with workers(tmp_path, "--processes", "0"):
        jobs.append.later(str(marks), "other")
        until(lambda: lines(marks), what="another queue is served")
        assert lines(marks) == ["other"]
        queues["mail"].resume()
        until(lambda: len(lines(marks)) == 2, what="the queue goes on")


@pytest.mark.django_db
def test_o76_jobs_that_come_back_in_whatever_way_wait_as_all_others(frozen: FrozenClock) -> None:
    connection = connections["default"]
    retried, released, lapsed, by_hand = (run_job(queue="mail") for _ in range(4))
    later = queue_job(queue="mail", delay=seconds(5))
    queues["mail"].pause()
    again = Retried(failure=failure(), delay=seconds(1))
    lifecycle.settle(connection, [(retried, again)])
    lifecycle.release(connection, [released])
    write(lapsed.id, lease_expires_at=frozen.instant)
    lifecycle.cancel([by_hand.id])
    write(by_hand.id, worker=None)
    lifecycle.retry([by_hand.id])
    frozen.advance(seconds(30))
    assert lifecycle.reclaim(connection) == 1
    ids = [retried.id, released.id, lapsed.id, by_hand.id, later]
    assert [read(job_id).state for job_id in ids] == ["READY"] * 5
    assert Job.objects.due().count() == 5
    assert work_one() is None
    queues["mail"].resume()
    assert {claim.id for claim in take().claims} == set(ids)


@pytest.mark.django_db(transaction=True)
def test_o76_ten_thousand_that_waited_run_when_their_queue_goes_on() -> None:
    with declared(act) as performer:
        queues["mail"].pause()
        performer.using(queue="mail").later_many((n,) for n in range(MANY))
        plan = Plan(alias="default", concurrency=2, drain=True)
        assert Process(plan).run() == 0
        assert Job.objects.ready().count() == MANY
        queues["mail"].resume()
        assert Process(plan).run() == 0
    assert (Job.objects.succeeded().count(), Job.objects.exclude(attempts=1).count()) == (MANY, 0)


# -- O77: a queue without any worker waits in silence


@pytest.fixture
def performer() -> object:
    with declared(act) as performer:
        yield performer


@pytest.mark.django_db
def test_o77_a_queue_that_is_not_declared_is_refused_when_a_job_is_queued(performer: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"QUEUES": ["email", "default"]}):
        with pytest.raises(ValueError, match="queue 'emial' is not in"):
            performer.using(queue="emial").later(1)
        assert states() == []


@pytest.mark.django_db
def test_o77_a_due_job_of_a_queue_that_no_live_worker_serves_says_so_and_what_may_be_meant(
    performer: AnyPerformer,
) -> None:
    life = WorkerLife(
        identity="w", host="h", pid=1, queues=("email", "default"), slots=1, versions={}, age=1.0, claim_age=1.0
    )
    lifecycle.beat(connections["default"], [life])
    job = performer.using(queue="emial").later(1)
    assert job.explain() == (
        "No live worker serves queue emial; those that are alive serve default, email. Was queue email meant? "
        "Start one: python manage.py runjobs -q emial"
    )


@pytest.mark.django_db
def test_o77_it_is_a_problem_of_health_for_as_long_as_the_oldest_waits() -> None:
    life = WorkerLife(identity="w", host="h", pid=1, queues=("email",), slots=1, versions={}, age=1.0, claim_age=1.0)
    lifecycle.beat(connections["default"], [life])
    seen = lifecycle.workers(connections["default"])
    assert problems(seen, [QueueSeen(name="emial", oldest=5.0)]) == [
        "queue emial has jobs due, and no live worker serves it: runjobs -q emial"
    ]
