"""O20: the command as the first process of a container, which nobody else there reaps or passes signals on to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.processes import Worker, children_of, lines, rests_on_no_database, until, worker
from tests.system.test_supervisor import ended
from tests.yard import jobs

CONTAINED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Runs a command as process 1 of process ids of its own."""


def why_not() -> str:
    """Say why this system lets us make no process ids of our own; '' where it does."""
    if shutil.which("unshare") is None:
        return "util-linux's unshare isn't here"
    done = subprocess.run([*CONTAINED, "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"unshare isn't permitted: {done.stderr.strip()}"


@pytest.fixture(autouse=True)
def _permitted() -> None:
    reason = why_not()
    if reason and os.environ.get("CI"):
        pytest.fail(f"in CI these tests must run: {reason}")
    if reason:
        pytest.skip(reason)


pytestmark = [pytest.mark.django_db(transaction=True), rests_on_no_database]


@contextmanager
def container(folder: Path, *arguments: str) -> Iterator[tuple[Worker, int]]:
    """Run the command in a container, and give with it the process id that its first process has out here."""
    with worker(folder, *arguments, before=CONTAINED) as running:
        running.began()
        [first] = children_of(running.process.pid)
        try:
            yield running, first
        finally:
            if running.process.poll() is None:
                os.kill(first, signal.SIGKILL)


def zombies_below(pid: int) -> list[int]:
    found = []
    for child in children_of(pid):
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        found += [child] if state == "Z" else zombies_below(child)
    return found


def test_o20_as_process_1_it_drains_on_a_stop_signal_and_exits_0(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.pass_file.later(str(marks), "x", str(gate))
    with container(tmp_path) as (running, first):
        until(lambda: lines(marks), what="the job begins")
        assert f"NSpid:\t{first}\t1\n" in Path(f"/proc/{first}/status").read_text()
        os.kill(first, signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="the signal arrived")
        gate.touch()
        assert running.wait() == 0, running.output
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("SUCCESSFUL", 1)


def test_o20_as_process_1_it_reaps_what_jobs_leave_behind(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    started = [jobs.leave_short_orphan.later(str(marks)) for _ in range(5)]
    with container(tmp_path) as (running, first):
        until(lambda: all(ended(job) for job in started), what="the jobs end")
        until(lambda: len(lines(marks)) == 5, what="their orphans have ended")
        # Beside the worker and its sentinel nothing is left, not even a zombie.
        until(lambda: len(children_of(first)) == 2 and not zombies_below(first), what="they are reaped")
        os.kill(first, signal.SIGTERM)
        assert running.wait() == 0, running.output


def test_o20_as_process_1_it_starts_anew_on_hangup(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.pass_file.later(str(marks), "x", str(gate))
    with container(tmp_path) as (running, first):
        until(lambda: lines(marks), what="the job begins")
        os.kill(first, signal.SIGHUP)
        until(lambda: running.output.count(" slots · ") == 2, what="another worker works")
        gate.touch()
        until(lambda: ended(job), what="the job ends")
        os.kill(first, signal.SIGTERM)
        assert running.wait() == 0, running.output
    assert (job.state, job.attempts) == ("SUCCESSFUL", 1)
