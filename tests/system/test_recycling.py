"""Workers that are replaced as planned: after so many jobs, above so much memory, after some time. And exit codes."""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from django_jobs.models import Job
from tests.system.processes import lines, rests_on_no_database, until, worker, workers
from tests.yard import jobs

pytestmark = [pytest.mark.django_db(transaction=True), rests_on_no_database]


def all_succeeded(count: int) -> bool:
    return Job.objects.filter(state="SUCCESSFUL", attempts=1).count() == count


def begun(output: str) -> int:
    """Count the processes that began to work."""
    return output.count(" slots · ")


class TestMaxJobs:
    @pytest.mark.parametrize("concurrency", ["1", "4"])
    def test_o15_with_one_job_a_process_all_jobs_run_once(self, tmp_path: Path, concurrency: str) -> None:
        marks = tmp_path / "marks"
        jobs.append_pid.later_many((str(marks),) for _ in range(12))
        with worker(tmp_path, "--max-jobs", "1", "-c", concurrency, "--drain") as running:
            assert running.wait() == 0, running.output
            assert "died" not in running.output
        assert all_succeeded(12)
        assert set(Counter(lines(marks)).values()) == {1}

    def test_o15_a_hundred_jobs_at_ten_a_process(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.append_pid.later_many((str(marks),) for _ in range(100))
        with worker(tmp_path, "--max-jobs", "10", "-c", "2", "--processes", "2", "--drain") as running:
            assert running.wait() == 0, running.output
            assert "stopped after " in running.output
            assert ": 100 succeeded, 0 failed, 0 released" in running.output
        assert all_succeeded(100)
        counts = Counter(lines(marks))
        assert len(counts) >= 100 / 11
        assert max(counts.values()) <= 11

    def test_a_long_job_does_not_keep_the_other_slots_empty(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        long = jobs.pass_file.using(priority=1).later(str(tmp_path / "long"), "x", str(gate))
        jobs.append_pid.later_many((str(marks),) for _ in range(8))
        with workers(tmp_path, "--max-jobs", "2", "-c", "2") as [running]:
            until(lambda: all_succeeded(8), what="all the others ran")
            assert lines(tmp_path / "long")[0].startswith("begin x ")
            gate.touch()
            until(lambda: all_succeeded(9), what="the long one ends")
            assert running.process.poll() is None
        long.refresh_from_db()
        assert (long.attempts, len(lines(tmp_path / "long"))) == (1, 2)

    def test_a_follower_keeps_to_the_slots_and_caps_of_the_command(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        gates = {n: tmp_path / f"gate-{n}" for n in range(8)}
        for n, gate in gates.items():
            jobs.pass_file.using(queue="capped" if n % 2 else "free").later(str(marks), str(n), str(gate))
        with workers(tmp_path, "-c", "3", "-q", "free,capped:1", "--max-jobs", "1") as [running]:
            for _ in range(8):
                until(lambda: open_runs(marks), what="a job runs")
                # What runs longest ends first, so that processes of several lives are there at once.
                gates[open_runs(marks)[0]].touch()
                done = len(ends(marks))
                until(lambda done=done: len(ends(marks)) > done, what="it ends")
            until(lambda: all_succeeded(8), what="all ran")
            assert running.process.poll() is None
        running_now: list[int] = []
        for line in lines(marks):
            word, number, _ = line.split()
            if word == "begin":
                running_now.append(int(number))
            else:
                running_now.remove(int(number))
            assert len(running_now) <= 3
            assert sum(number % 2 for number in running_now) <= 1

    def test_in_one_process_the_command_ends_with_code_0(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.append_pid.later_many((str(marks),) for _ in range(3))
        with worker(tmp_path, "--max-jobs", "1", "--processes", "0") as running:
            assert running.wait() == 0, running.output
        assert len(lines(marks)) == 1


def ends(marks: Path) -> list[str]:
    return [line for line in lines(marks) if line.startswith("end")]


def open_runs(marks: Path) -> list[int]:
    """Give the numbers of the jobs that have begun and not ended, in the order of their beginnings."""
    running: list[int] = []
    for line in lines(marks):
        word, number, _ = line.split()
        if word == "begin":
            running.append(int(number))
        else:
            running.remove(int(number))
    return running


class TestMaxMemory:
    def test_o15_a_limit_below_the_idle_size_gives_one_warning_and_all_jobs_run(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.append_pid.later_many((str(marks),) for _ in range(20))
        arguments = ("--max-memory", "5", "--max-jobs", "8", "-c", "1", "--drain")
        with worker(tmp_path, *arguments) as running:
            assert running.wait() == 0, running.output
            warned = re.findall(r"--max-memory 5: a worker process takes \d+ MB before its first job", running.output)
        assert len(warned) == 1
        assert all_succeeded(20)
        assert len(set(lines(marks))) <= 4

    def test_a_process_that_has_grown_is_replaced(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.keep_memory.later(str(marks), 300 * 1024 * 1024)
        with workers(tmp_path, "--max-memory", "300") as [running]:
            until(lambda: begun(running.output) == 2, what="it is replaced")
            assert re.search(r"claims nothing more and is replaced: it takes \d+ MB", running.output)
            jobs.append_pid.later(str(marks))
            until(lambda: all_succeeded(2), what="the new one works")
            assert "died" not in running.output
        assert len(set(lines(marks))) == 2


class TestMaxRuntime:
    def test_a_process_is_replaced_after_its_time_between_jobs(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.pass_file.later(str(marks), "x", str(gate))
        with workers(tmp_path, "--max-runtime", "1", "-c", "1") as [running]:
            until(lambda: "is replaced: it has worked for" in running.output, what="its time is over")
            assert begun(running.output) == 1
            gate.touch()
            until(lambda: begun(running.output) >= 2, what="it is replaced")
        job.refresh_from_db()
        assert (job.state, job.attempts, len(lines(marks))) == ("SUCCESSFUL", 1, 2)

    def test_a_stop_goes_before_leaving(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.pass_file.later(str(marks), "x", str(gate))
        with workers(tmp_path, "--max-runtime", "1", "-c", "1", "--grace", "0.2") as [running]:
            until(lambda: "is replaced: it has worked for" in running.output, what="its time is over")
            running.send(signal.SIGTERM)
            assert running.wait() == 0
            assert f"1 jobs were released and will run again: #{job.pk} tests.yard.pass_file" in running.output
            assert ": 0 succeeded, 0 failed, 1 released" in running.output
        job.refresh_from_db()
        assert (job.state, job.attempts) == ("READY", 0)


class TestIdleTimeout:
    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_the_command_ends_when_there_was_nothing_to_do(self, tmp_path: Path, processes: str) -> None:
        marks = tmp_path / "marks"
        jobs.append.later(str(marks), "x")
        with worker(tmp_path, "--idle-timeout", "1", "--processes", processes) as running:
            assert running.wait() == 0, running.output
            assert "nothing to do for 1 s: stopping" in running.output
        assert lines(marks) == ["x"]

    def test_a_running_job_is_something_to_do(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.append_and_linger.later(str(marks), "x", 3.0)
        with worker(tmp_path, "--idle-timeout", "0.5") as running:
            assert running.wait() == 0, running.output
        job.refresh_from_db()
        assert (job.state, lines(marks)) == ("SUCCESSFUL", ["begin x", "end x"])


class TestExitCodes:
    @pytest.mark.parametrize("processes", ["0", "1"])
    def test_a_job_that_failed_while_draining_is_code_4_when_asked_for(self, tmp_path: Path, processes: str) -> None:
        arguments = ("--drain", "--processes", processes)
        jobs.explode.later()
        with worker(tmp_path, *arguments, "--fail-on-error") as running:
            assert running.wait() == 4, running.output
            assert ": 0 succeeded, 1 failed, 0 released" in running.output
        jobs.explode.later()
        with worker(tmp_path, *arguments, name="lenient") as running:
            assert running.wait() == 0, running.output
        with worker(tmp_path, *arguments, "--fail-on-error", name="nothing") as running:
            assert running.wait() == 0, running.output

    def test_a_job_that_failed_by_killing_its_process_counts_too(self, tmp_path: Path) -> None:
        jobs.exit_process.using(max_attempts=1).later(str(tmp_path / "marks"), 0)
        with worker(tmp_path, "--drain", "--fail-on-error") as running:
            assert running.wait() == 4, running.output


def test_processes_that_would_serve_nothing_are_not_started(tmp_path: Path) -> None:
    with workers(tmp_path, "-q", "mail:2", "--processes", "4", "-c", "4") as [running]:
        until(lambda: begun(running.output) == 2, what="two work")
        assert "--processes 4: slots and caps suffice for 2 at once, so no more are started" in running.output
