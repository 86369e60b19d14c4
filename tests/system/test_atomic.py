"""Atomic jobs in real processes: an effect is there exactly once if its job is SUCCESSFUL, and not at all otherwise."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.models import Job
from tests.system.processes import lines, until, workers
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

needs_row_locks = pytest.mark.skipif(
    connections["default"].vendor == "sqlite", reason="a stopped writer stops everybody on SQLite"
)


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


def effects() -> Counter[str]:
    """Count what atomic bodies have left, by its name."""
    return Counter(row.args[0] for row in Job.objects.named("somebody.else"))


def pids(output: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"worker [^:\s]+:(\d+):\w+ · \d+ slots", output)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("point", "attempts"),
    [("in the body", 2), ("before the commit", 2), ("after the commit", 1), ("in a callback", 1)],
)
def test_a_killed_worker_leaves_the_effect_exactly_once(tmp_path: Path, point: str, attempts: int) -> None:
    marks = tmp_path / "marks"
    job = jobs.take_effect_and_die.later(str(marks), "x", point)
    with workers(tmp_path, "-q", "default") as [running]:
        until(lambda: ended(job), what="the job ends")
        assert effects() == {"x": 1}
        until(lambda: len(pids(running.output)) == 2, what="the killed worker is replaced")
        # Whatever is to be taken back has been when the next job has run.
        after = jobs.append.later(str(marks), "after")
        until(lambda: ended(after), what="the next job ends")
    job.refresh_from_db()
    assert (job.state, job.attempts, effects()) == ("SUCCESSFUL", attempts, {"x": 1})
    assert lines(marks) == ["body"] * attempts + ["after"]


def test_under_a_storm_of_kills_each_effect_is_there_once_if_its_job_has_succeeded(tmp_path: Path) -> None:
    chance = random.Random(72)
    count = 150
    queued = jobs.take_effect_slowly.later_many((f"{number}", 0.02) for number in range(count))
    ours = Job.objects.filter(pk__in=[one.id for one in queued])
    killed: set[int] = set()

    def is_over() -> bool:
        return ours.filter(state__in=("SUCCESSFUL", "FAILED"), worker=None).count() == count

    with workers(tmp_path, "-q", "default", "--processes", "3", "-c", "2", jobs={"LEASE": "20s"}) as [running]:
        give_up = time.monotonic() + 20
        while not is_over() and time.monotonic() < give_up:
            # A worker that dies before it has claimed anything would be told from one that can't live.
            busy = ours.filter(state="RUNNING").values_list("worker", flat=True)
            victims = {int(name.split(":")[1]) for name in busy} - killed
            if not victims:
                continue
            victim = chance.choice(sorted(victims))
            before = len(pids(running.output))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            until(lambda before=before: len(pids(running.output)) > before, what="the worker is replaced")
        until(is_over, what="all jobs end")
    succeeded = [row.args[0] for row in ours if row.state == "SUCCESSFUL"]
    assert effects() == dict.fromkeys(succeeded, 1)
    assert len(killed) > 3


@needs_row_locks
def test_a_run_that_slept_past_its_lease_cannot_commit(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.take_effect_at_gate.later(str(marks), str(gate), "x")
    lease = {"LEASE": "2s"}
    (tmp_path / "stopped").mkdir()
    with workers(tmp_path / "stopped", "-q", "default", jobs=lease) as [stopped]:
        until(lambda: lines(marks) == ["begin"], what="the job begins")
        [asleep] = pids(stopped.output)
        for pid in (stopped.process.pid, asleep):
            os.kill(pid, signal.SIGSTOP)
        try:
            with workers(tmp_path, "-q", "default", jobs=lease):
                until(lambda: lines(marks) == ["begin", "begin"], what="another worker runs it")
                gate.touch()
                until(lambda: ended(job), what="the job ends")
        finally:
            for pid in (stopped.process.pid, asleep):
                os.kill(pid, signal.SIGCONT)
        # It ends its body, or itself since nobody could confirm its lease; neither comes to a second effect.
        until(lambda: len(lines(marks)) == 4 or not is_alive(asleep), what="the first run is over")
    assert (job.state, job.attempts, effects()) == ("SUCCESSFUL", 2, {"x": 1})


def test_a_timeout_that_the_body_swallows_leaves_no_effect(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.take_effect_and_swallow.later(str(marks), "x")
    with workers(tmp_path, "-q", "default", jobs={"BACKOFF": "tests.yard.backoffs.soon"}) as [running]:
        until(lambda: ended(job), what="the job fails")
        assert "died" not in running.output
    assert (job.state, job.attempts, [error["kind"] for error in job.errors]) == ("FAILED", 2, ["timeout"] * 2)
    assert effects() == {}


def test_o74_a_cancelled_run_leaves_no_effect(tmp_path: Path) -> None:
    if connections["default"].vendor == "sqlite":
        pytest.skip("on SQLite a cancel waits for the end of the body's transaction")
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.take_effect_at_gate.later(str(marks), str(gate), "x")
    with workers(tmp_path, "-q", "default"):
        until(lambda: lines(marks) == ["begin"], what="the job begins")
        job.cancel("no longer wanted")
        until(lambda: ended(job), what="its body has stopped")
    assert (job.state, lines(marks), effects()) == ("CANCELLED", ["begin"], {})


def test_a_worker_that_is_told_to_stop_lets_the_body_commit(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.take_effect_at_gate.later(str(marks), str(gate), "x")
    with workers(tmp_path, "-q", "default") as [running]:
        until(lambda: lines(marks) == ["begin"], what="the job begins")
        running.send(signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="it says that it finishes")
        gate.touch()
        assert running.wait() == 0
    job.refresh_from_db()
    assert (job.state, effects()) == ("SUCCESSFUL", {"x": 1})


def test_a_worker_that_must_stop_at_once_rolls_the_body_back_and_gives_it_back(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.take_effect_at_gate.later(str(marks), str(gate), "x")
    with workers(tmp_path, "-q", "default") as [running]:
        until(lambda: lines(marks) == ["begin"], what="the job begins")
        running.send(signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="it says that it finishes")
        running.send(signal.SIGTERM)
        running.wait()
    job.refresh_from_db()
    assert (job.state, job.attempts, job.worker, effects()) == ("READY", 0, None, {})


class TestAskingWhetherOneWasCancelled:
    def test_threads_of_a_body_learn_of_it(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.poll_in_threads.later(str(marks))
        with workers(tmp_path):
            until(lambda: lines(marks), what="the job begins")
            job.cancel()
            until(lambda: ended(job), what="the job has stopped")
        assert lines(marks) == ["begin", "thread heard"]

    def test_an_async_body_that_swallowed_it_meets_it_at_a_checkpoint(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.checkpoint_async.later(str(marks))
        with workers(tmp_path):
            until(lambda: lines(marks), what="the job begins")
            job.cancel()
            until(lambda: ended(job), what="the job has stopped")
        assert (job.state, lines(marks)) == ("CANCELLED", ["begin", "JobCancelled"])

    def test_o74_a_cancelled_job_whose_worker_dies_is_let_go(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.swallow.using(timeout=None).later(str(marks))
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            job.cancel()
            [pid] = pids(running.output)
            os.kill(pid, signal.SIGKILL)
            until(lambda: ended(job), what="the job is let go")
        assert (job.state, job.attempts, lines(marks)) == ("CANCELLED", 1, ["begin"])
