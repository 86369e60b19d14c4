"""Holders that live past their leases: stopped, or kept from renewing by somebody who locks the database file."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.models import Job
from tests.factories import another_connection
from tests.system.processes import Worker, lines, until, workers
from tests.system.test_supervisor import ended, is_alive, worker_pid
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connections["default"].vendor != "sqlite",
        reason="a server's workers live on other hosts, so time alone judges them",
    ),
]

QUICK = {"LEASE": "4s"}

SPARED = "so its jobs are left to it until it ends"


def lease_is_over(job: Job) -> bool:
    job.refresh_from_db()
    return job.lease_expires_at is not None and job.lease_expires_at < clock.now()


def renewed_since(job: Job, then: datetime | None) -> bool:
    job.refresh_from_db()
    return None not in (then, job.lease_expires_at) and job.lease_expires_at > then


@contextmanager
def locked_file() -> Iterator[None]:
    """Keep everybody from writing."""
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("begin immediate")
        yield
        cursor.execute("commit")


@contextmanager
def stopped(running: Worker) -> Iterator[list[int]]:
    """Stop a supervisor and its worker, and have them go on in the end, if they are there then."""
    pids = [running.process.pid, worker_pid(running.output)]
    # One that is stopped as it writes would keep the file from everybody.
    with locked_file():
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)


def test_a_stopped_tree_keeps_its_job_past_its_lease_and_loses_it_when_it_is_killed(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.wait_alone_for_file.later(str(marks), str(gate))
    with workers(tmp_path, jobs=QUICK) as [running]:
        until(lambda: lines(marks), what="the job begins")
        with stopped(running) as pids, other_workers(tmp_path) as other:
            until(lambda: SPARED in other.output, what="another supervisor finds the lease over")
            assert other.output.count(SPARED) == 1
            beside = jobs.append.later(str(tmp_path / "beside"), "x")
            until(lambda: ended(beside), what="it works on other jobs meanwhile")
            assert (lease_is_over(job), job.state, job.attempts, lines(marks)) == (True, "RUNNING", 1, ["begin"])
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            until(lambda: len(lines(marks)) == 2, what="the job begins again")
            gate.touch()
            until(lambda: ended(job), what="the job ends")
    assert (job.state, job.crashes, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "begin", "end"])


def test_o06_a_stopped_tree_that_goes_on_runs_its_job_beside_no_other(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.wait_alone_for_file.later(str(marks), str(gate))
    with workers(tmp_path, jobs=QUICK) as [running], other_workers(tmp_path) as other:
        until(lambda: lines(marks), what="the job begins")
        holder = running if str(job_worker(job)) in running.output else other
        with stopped(holder):
            until(lambda: SPARED in running.output + other.output, what="the other supervisor finds the lease over")
        gate.touch()
        until(lambda: ended(job), what="the job ends")
    assert job.state == "SUCCESSFUL"
    assert lines(marks)[-1] == "end"
    assert Counter(lines(marks))["end"] == 1
    assert "beside another" not in lines(marks)


def test_o10_a_file_locked_for_longer_than_a_lease_costs_no_job_its_run(tmp_path: Path) -> None:
    """Nobody can write that a lease is renewed, and nobody that it is over; then the holder's life keeps it."""
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.wait_alone_for_file.later(str(marks), str(gate))
    waiting = jobs.append.later_many([(str(tmp_path / "waited"), "x")] * 8)
    with workers(tmp_path, "-c", "1", jobs=QUICK, count=2) as running:
        until(lambda: lines(marks), what="the job begins")
        until(lambda: len(lines(tmp_path / "waited")) == len(waiting), what="the other worker does the rest")
        with locked_file():
            until(lambda: lease_is_over(job), what="the lease can't be renewed")
            over = job.lease_expires_at
            until(lambda: any(SPARED in each.output for each in running), what="the other finds the lease over")
        until(lambda: renewed_since(job, over), what="the lease is renewed")
        assert lines(marks) == ["begin"]
        gate.touch()
        until(lambda: ended(job), what="the job ends")
    assert (job.state, job.attempts, job.crashes) == ("SUCCESSFUL", 1, 0)
    assert lines(marks) == ["begin", "end"]


@pytest.mark.parametrize("processes", ["0", "1"])
def test_o33_an_end_that_cannot_be_written_for_longer_than_a_lease_is_written_at_last(
    tmp_path: Path, processes: str
) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.wait_alone_for_file.later(str(marks), str(gate))
    with workers(tmp_path, "--processes", processes, jobs=QUICK, count=2):
        until(lambda: lines(marks), what="the job begins")
        with locked_file():
            gate.touch()
            until(lambda: len(lines(marks)) == 2, what="the body ends")
            until(lambda: lease_is_over(job), what="the lease can't be renewed")
        until(lambda: ended(job), what="the job ends")
    assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])


def test_o10_in_one_process_a_body_that_nothing_can_stop_runs_beside_no_other(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.sleep_alone_in_c.later(str(marks), 6.0)
    with workers(tmp_path, "--processes", "0", jobs=QUICK, count=2):
        until(lambda: lines(marks), what="the job begins")
        with locked_file():
            until(lambda: lease_is_over(job), what="the lease can't be renewed")
        until(lambda: ended(job), what="the job ends")
    assert job.state == "SUCCESSFUL"
    assert "beside another" not in lines(marks)


@contextmanager
def other_workers(folder: Path) -> Iterator[Worker]:
    (folder / "other").mkdir()
    with workers(folder / "other", jobs=QUICK) as [other]:
        yield other


def job_worker(job: Job) -> str | None:
    job.refresh_from_db()
    return job.worker
