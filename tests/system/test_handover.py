"""On hangup a supervisor starts anew within its process; its workers live through that, and are replaced one by one."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from django_jobs.models import Job
from tests.system.fresh_app import FreshApp
from tests.system.processes import Worker, lines, rests_on_no_database, until, worker, workers, workers_of
from tests.system.test_supervisor import ended, is_alive, worker_pid
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    rests_on_no_database,
    pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no hangup"),
]

ANEW = "hangup: starting anew"


def begun(running: Worker) -> int:
    return running.output.count(" slots · ")


def hang_up(running: Worker, *, workers: int) -> None:
    """Send the signal, and wait until all workers have been replaced."""
    before = begun(running)
    running.send(signal.SIGHUP)
    until(lambda: begun(running) >= before + workers, what="all workers are replaced")


def descriptors(pid: int) -> Counter[str]:
    """Count the open files of a process that are handed over, or could be."""
    kinds: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found = re.match(r"/memfd:django_jobs (board|handover)|(pipe):", str(link.readlink()))
            if found:
                kinds[found[1] or found[2]] += 1
    return kinds


def test_the_supervisor_starts_anew_in_its_process_and_takes_the_new_code(tmp_path: Path, fresh_app: FreshApp) -> None:
    with workers(tmp_path, "--processes", "2", "-c", "2") as [running]:
        until(lambda: begun(running) == 2, what="both work")
        first = fresh_app.say()
        until(lambda: ended(first), what="the first edition ran")
        fresh_app.write("second")
        before = [worker_pid(running.output, number) for number in (0, 1)]
        hang_up(running, workers=2)
        until(lambda: not any(is_alive(pid) for pid in before), what="the old workers are gone")
        second = fresh_app.say()
        until(lambda: ended(second), what="the second edition ran")
        assert ANEW in running.output
        assert "died" not in running.output
        running.send(signal.SIGTERM)
        assert running.wait() == 0
        # It is the same command still: its numbers go on.
        assert ": 2 succeeded, 0 failed, 0 released" in running.output
    assert lines(fresh_app.marks) == ["first", "second"]


def test_a_job_runs_through_it_and_keeps_its_lease(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 6.0)
    other = tmp_path / "other"
    other.mkdir()
    settings = {"LEASE": "8s", "GRACE": "30s"}
    # Another supervisor would take the job if its lease were over.
    with workers(tmp_path, jobs=settings) as [running], workers(other, "-q", "other", jobs=settings):
        until(lambda: lines(marks), what="the job begins")
        old = worker_pid(running.output)
        hang_up(running, workers=1)
        until(lambda: ended(job), what="the job ends")
        until(lambda: not is_alive(old), what="the old worker is gone")
        after = jobs.append.later(str(marks), "after")
        until(lambda: ended(after), what="the new one works")
    assert (job.state, job.attempts, job.errors) == ("SUCCESSFUL", 1, [])
    assert lines(marks) == ["begin x", "end x", "after"]


def test_a_job_longer_than_the_grace_is_given_back_and_runs_in_the_new_worker(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.pass_file.later(str(marks), "x", str(gate))
    with workers(tmp_path, "--grace", "0.5") as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGHUP)
        until(lambda: len(lines(marks)) == 2, what="it begins again")
        gate.touch()
        until(lambda: ended(job), what="it ends")
    assert (job.state, job.attempts, job.crashes) == ("SUCCESSFUL", 1, 0)


def test_the_deadline_of_a_body_that_does_not_stop_holds_over_it(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.sleep_in_c.using(timeout=4, max_attempts=1).later(str(marks), 600.0)
    with workers(tmp_path, "-c", "1", jobs={"TIMEOUT_GRACE": "1s"}) as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGHUP)
        until(lambda: ended(job), what="the job fails")
        assert ANEW in running.output
    assert (job.state, [error["kind"] for error in job.errors]) == ("FAILED", ["timeout"])


def test_a_worker_killed_meanwhile_is_buried_by_the_new_image(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 2.0)
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGHUP)
        until(lambda: ANEW in running.output, what="it is about to start anew")
        os.kill(worker_pid(running.output), signal.SIGKILL)
        until(lambda: ended(job), what="the job ends")
    assert (job.state, job.attempts, job.crashes) == ("SUCCESSFUL", 2, 1)
    assert lines(marks) == ["begin x", "begin x", "end x"]


def test_a_storm_of_hangups_loses_and_doubles_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with workers(tmp_path, "--processes", "2", "-c", "4") as [running]:
        pid = running.process.pid
        for number in range(40):
            jobs.append_and_linger.later_many((str(marks), f"{number}-{n}", 0.05) for n in range(10))
            running.send(signal.SIGHUP)
            time.sleep(0.1)
        until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 400, what="all ran")
        hang_up(running, workers=2)
        until(lambda: len(workers_of(pid)) == 2, what="two workers are left")
        # A board and its memory and two pipes for each, and the two ends of the pipe that signals come through.
        expected = {"board": 4, "pipe": 6}
        until(lambda: descriptors(pid) == expected, what="nothing is left open of the others")
        assert "died" not in running.output
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    assert set(Counter(lines(marks)).values()) == {1}
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}


def test_a_stop_that_comes_while_it_starts_anew_is_heard(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 2.0)
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGHUP)
        until(lambda: ANEW in running.output, what="it is about to start anew")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    job.refresh_from_db()
    assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin x", "end x"])


def test_new_code_that_can_not_start_ends_the_command_and_gives_the_jobs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, flag = tmp_path / "marks", tmp_path / "broken"
    monkeypatch.setenv("LIVE_BROKEN_WHEN", str(flag))
    job = jobs.spin.using(timeout=None).later(str(marks))
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        old = worker_pid(running.output)
        flag.touch()
        running.send(signal.SIGHUP)
        assert running.wait() != 0
        assert "these settings can't be used any more" in running.output
        until(lambda: not is_alive(old), what="the worker is gone, too")
    job.refresh_from_db()
    assert (job.state, job.attempts, job.crashes) == ("READY", 0, 0)
    assert lines(marks) == ["begin", "end"]


def test_arguments_that_are_refused_by_the_new_code_give_the_jobs_back_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, key = tmp_path / "marks", tmp_path / "key"
    monkeypatch.setenv("LIVE_UNKNOWN_KEY_WHEN", str(key))
    job = jobs.spin.using(timeout=None).later(str(marks))
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        old = worker_pid(running.output)
        key.touch()
        running.send(signal.SIGHUP)
        assert running.wait() == 1
        assert "DJANGO_JOBS['WORKER'] has the unknown key 'colour'" in running.output
        # It waited for its worker.
        assert not is_alive(old)
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("READY", 0)


def test_fewer_processes_than_before_leave_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "one"
    monkeypatch.setenv("LIVE_ONE_PROCESS_WHEN", str(key))
    with worker(tmp_path, "-c", "2", jobs={"WORKER": {"processes": 2}}) as running:
        until(lambda: begun(running) == 2, what="two work")
        key.touch()
        running.send(signal.SIGHUP)
        pid = running.process.pid
        until(lambda: begun(running) == 3 and len(workers_of(pid)) == 1, what="one is left")
        job = jobs.append.later(str(tmp_path / "marks"), "x")
        until(lambda: ended(job), what="it works")
        assert "died" not in running.output


def test_in_a_terminal_a_hangup_means_that_its_window_was_closed(tmp_path: Path) -> None:
    ours, its = os.openpty()
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.pass_file.later(str(marks), "x", str(gate))
    with worker(tmp_path, stdin=its) as running:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGHUP)
        until(lambda: "finishing 1 running jobs" in running.output, what="it stops")
        gate.touch()
        assert running.wait() == 0
        assert ANEW not in running.output
    os.close(ours)
    os.close(its)
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("SUCCESSFUL", 1)
