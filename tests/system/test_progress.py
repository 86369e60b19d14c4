"""How far a job is, as others see it while `runjobs` runs it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from django_jobs.models import Job
from tests.system.processes import until, workers
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)


def said(job: Job) -> tuple[int, int, str] | None:
    job.refresh_from_db()
    return None if job.progress is None else (job.progress["done"], job.progress["total"], job.progress["message"])


@pytest.mark.parametrize("processes", ["1", "0"], ids=["supervised", "one process"])
def test_others_see_it_while_the_job_runs_and_its_last_value_with_the_end(tmp_path: Path, processes: str) -> None:
    gate = tmp_path / "gate"
    job = jobs.report_beside_gate.later(str(gate))
    with workers(tmp_path, "--processes", processes):
        until(lambda: said(job) == (1, 3, "attempt 1"), what="the progress is seen")
        assert job.state == "RUNNING"
        gate.touch()
        until(lambda: said(job) and job.state == "SUCCESSFUL", what="the job ends")
    assert said(job) == (3, 3, "behind the gate")


def test_it_outlives_the_process_that_said_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = jobs.report_beside_gate.later(str(gate))
    with workers(tmp_path, "--processes", "1"):
        until(lambda: said(job) == (1, 3, "attempt 1"), what="the progress is seen")
        assert job.worker is not None
        os.kill(int(job.worker.split(":")[1]), signal.SIGKILL)
        until(lambda: said(job) == (1, 3, "attempt 2"), what="the next attempt says it anew")
        assert job.crashes == 1
        gate.touch()
        until(lambda: said(job) == (3, 3, "behind the gate"), what="the job ends")


def test_what_was_said_just_before_the_command_stops_is_written(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = jobs.report_beside_gate.later(str(gate))
    with workers(tmp_path, "--processes", "1") as [running]:
        until(lambda: said(job), what="the progress is seen")
        running.send(signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="the worker heard the signal")
        gate.touch()
        assert running.wait() == 0
    assert said(job) == (3, 3, "behind the gate")
