"""A supervisor with worker processes: bodies that don't stop, processes that die, and who is blamed for it."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.models import Job
from django_jobs.worker.pace import MOST_AHEAD
from tests.system.processes import LONGER, PATIENT, lines, until, worker, workers
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


def kinds(job: Job) -> list[str]:
    return [error["kind"] for error in job.errors]


def worker_pid(output: str, number: int = -1) -> int:
    """Read the process id of a worker from the line in which it says that it works."""
    found: list[str] = re.findall(r"worker [^:\s]+:(\d+):\w+ · \d+ slots", output)
    return int(found[number])


def worker_pids(output: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"worker [^:\s]+:(\d+):\w+ · \d+ slots", output)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


QUICK = {"LEASE": "4s"}

SOON = {"BACKOFF": "tests.yard.backoffs.soon", "TIMEOUT_GRACE": "1s"}


class TestTimeouts:
    """O16-O19: a timeout stops the body, is counted, and ends after the last attempt."""

    def failed_by_timeout(self, job: Job) -> None:
        assert (job.state, job.attempts, kinds(job)) == ("FAILED", 2, ["timeout", "timeout"])

    def test_python_code_is_interrupted_and_cleans_up(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.spin.later(str(marks))
        with workers(tmp_path, jobs=SOON) as [running]:
            until(lambda: ended(job), what="the job fails")
            assert "died" not in running.output
        self.failed_by_timeout(job)
        assert job.errors[0]["reason"] == "timed out after 1 s"
        assert lines(marks) == ["begin", "end", "begin", "end"]

    def test_an_async_body_is_interrupted_and_cleans_up(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.spin_async.later(str(marks))
        with workers(tmp_path, jobs=SOON):
            until(lambda: ended(job), what="the job fails")
        self.failed_by_timeout(job)
        assert lines(marks) == ["begin", "end", "begin", "end"]

    def test_o17_a_body_that_swallows_it_and_returns_is_timed_out_all_the_same(self, tmp_path: Path) -> None:
        job = jobs.swallow_once.later(str(tmp_path / "marks"))
        with workers(tmp_path, jobs=SOON):
            until(lambda: ended(job), what="the job fails")
        self.failed_by_timeout(job)

    def test_o17_a_body_that_swallows_it_and_goes_on_is_killed(self, tmp_path: Path) -> None:
        job = jobs.swallow.later(str(tmp_path / "marks"))
        with workers(tmp_path, jobs=SOON):
            until(lambda: ended(job), what="the job fails")
        self.failed_by_timeout(job)

    def test_o16_a_body_in_a_call_that_does_not_return_is_killed(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.sleep_in_c.later(str(marks), 600.0)
        after = jobs.append.using(priority=-1).later(str(marks), "after")
        with workers(tmp_path, "-c", "1", jobs=SOON):
            until(lambda: ended(job), what="the job fails")
            until(lambda: ended(after), what="the next one runs")
        self.failed_by_timeout(job)
        assert sorted(lines(marks)) == ["after", "begin", "begin"]

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no query that sleeps")
    def test_o16_a_query_is_cancelled(self, tmp_path: Path) -> None:
        job = jobs.sleep_in_database.later(str(tmp_path / "marks"))
        with workers(tmp_path, jobs=SOON) as [running]:
            until(lambda: ended(job), what="the job fails")
            assert "died" not in running.output
        self.failed_by_timeout(job)

    def test_o18_what_a_killed_job_started_ends_with_it(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.run_subprocess.later(str(marks), 600.0)
        with workers(tmp_path, jobs=SOON):
            until(lambda: ended(job), what="the job fails")
            pids = [int(line.split()[1]) for line in lines(marks)]
            assert len(pids) == 2
            until(lambda: not any(is_alive(pid) for pid in pids), what="nothing is left of them")

    def test_o18_nothing_is_left_of_the_processes_of_fifty_jobs(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        started = [
            jobs.run_subprocess.using(max_attempts=1, timeout=2).later(str(marks), 600.0)
            if number % 2
            else jobs.leave_orphan.later(str(marks))
            for number in range(50)
        ]
        with workers(tmp_path, "--processes", "2", "-c", "10", jobs=SOON) as [running]:
            until(lambda: all(ended(job) for job in started), what="all jobs end")
            pids = [int(line.split()[-1]) for line in lines(marks)]
            assert len(set(pids)) >= 50
            running.send(signal.SIGTERM)
            assert running.wait() == 0
            # A zombie would still be found.
            assert not any(is_alive(pid) for pid in pids)
        assert {job.state for job in started} == {"SUCCESSFUL", "FAILED"}

    def test_neighbours_of_a_killed_body_run_again_uncounted(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        stuck = jobs.sleep_in_c.later(str(tmp_path / "stuck"), 600.0)
        neighbour = jobs.append_and_linger.later(str(marks), "x", 3.0)
        with workers(tmp_path, "-c", "2", jobs=SOON):
            until(lambda: ended(neighbour), what="the neighbour succeeds")
            until(lambda: ended(stuck), what="the stuck one fails")
        assert (neighbour.state, neighbour.attempts, neighbour.crashes, kinds(neighbour)) == ("SUCCESSFUL", 1, 0, [])


class TestDeaths:
    def test_o14_a_killed_worker_is_replaced_and_its_job_runs_again_at_once(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.append_and_linger.later(str(marks), "x", 1.5)
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            os.kill(worker_pid(running.output), signal.SIGKILL)
            until(lambda: ended(job), what="the job ends")
        assert (job.state, job.attempts, job.crashes, kinds(job)) == ("SUCCESSFUL", 2, 1, ["crash"])
        assert job.errors[0]["reason"].endswith("died while this ran: signal SIGKILL")
        assert lines(marks) == ["begin x", "begin x", "end x"]

    def test_o14_the_sibling_of_a_killed_worker_and_its_job_are_left_alone(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        started = [jobs.pass_file.later(str(marks), f"{n}", str(gate)) for n in range(2)]
        with workers(tmp_path, "--processes", "2", "-c", "2") as [running]:
            until(lambda: len(lines(marks)) == 2, what="both jobs begin")
            killed, sibling = (int(line.split()[2]) for line in lines(marks))
            if killed == sibling:
                # One worker had taken both before the other was there.
                sibling = next(pid for pid in worker_pids(running.output) if pid != killed)
            os.kill(killed, signal.SIGKILL)
            until(lambda: running.output.count(" slots · ") == 3, what="it is replaced")
            assert is_alive(sibling)
            gate.touch()
            until(lambda: all(ended(job) for job in started), what="both jobs end")
            running.send(signal.SIGTERM)
            assert running.wait() == 0
        assert {job.state for job in started} == {"SUCCESSFUL"}
        assert not any(line.split()[2] == str(killed) for line in lines(marks) if line.startswith("end"))

    def test_o11_a_job_that_kills_its_process_is_found_and_its_neighbours_live(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        poison = jobs.kill_process.later(str(tmp_path / "poison"), int(signal.SIGSEGV))
        neighbours = [jobs.append_and_linger.later(str(marks), f"{n}", 0.3) for n in range(6)]
        with workers(tmp_path, "-c", "4"):
            until(lambda: ended(poison), what="the poison job fails")
            until(lambda: all(ended(job) for job in neighbours), what="the neighbours succeed")
        assert poison.state == "FAILED"
        assert len(lines(tmp_path / "poison")) <= poison.max_crashes
        assert "signal SIGSEGV" in poison.errors[-1]["reason"]
        assert {(job.state, job.attempts) for job in neighbours} == {("SUCCESSFUL", 1)}

    def test_o11_leaving_by_os_exit_is_a_death_too(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.exit_process.using(max_attempts=2).later(str(marks), 0)
        with workers(tmp_path, "-c", "1"):
            until(lambda: ended(job), what="the job fails")
        assert (job.state, len(lines(marks))) == ("FAILED", 2)
        assert job.errors[-1]["reason"].endswith("died while this ran: exit code 0")

    def test_a_job_that_must_not_start_twice_fails_as_interrupted(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.never_again.later(str(marks), int(signal.SIGKILL))
        with workers(tmp_path):
            until(lambda: ended(job), what="the job fails")
        assert (job.state, kinds(job), lines(marks)) == ("FAILED", ["interrupted"], ["begin"])

    def test_o04_what_a_dead_worker_had_not_started_comes_back_uncounted(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.append.later_many((str(marks), f"{n}") for n in range(200))
        with workers(tmp_path, "-c", "4") as [running]:
            until(lambda: len(lines(marks)) > 20, what="some ran")
            os.kill(worker_pid(running.output), signal.SIGKILL)
            until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 200, what="all run")
        counted = Counter(lines(marks))
        assert set(counted) == {f"{n}" for n in range(200)}
        # Only what had ended and wasn't written yet may run twice: at the most the jobs of one claim.
        assert sum(counted.values()) - 200 <= 4 + MOST_AHEAD

    def test_o01_when_the_supervisor_dies_its_workers_stop_and_another_runs_the_job(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.spin.using(timeout=None).later(str(marks))
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            pid = worker_pid(running.output)
            os.kill(running.process.pid, signal.SIGKILL)
            running.wait()
            until(lambda: not is_alive(pid), what="the worker stops, too")
        job.refresh_from_db()
        assert (job.state, job.attempts) == ("READY", 0)
        assert lines(marks) == ["begin", "end"]

    def test_o01_when_the_supervisor_dies_a_body_that_holds_the_interpreter_ends_before_its_lease(
        self, tmp_path: Path
    ) -> None:
        marks = tmp_path / "marks"
        job = jobs.hold_interpreter_alone_at_first.later(str(marks), 600.0)
        with workers(tmp_path, jobs=QUICK) as [running]:
            until(lambda: lines(marks), what="the job begins")
            pid = worker_pid(running.output)
            (tmp_path / "other").mkdir()
            with workers(tmp_path / "other", jobs=QUICK):
                os.kill(running.process.pid, signal.SIGKILL)
                running.wait()
                until(lambda: ended(job), what="another runs the job")
            assert not is_alive(pid)
        assert (job.state, job.crashes) == ("SUCCESSFUL", 1)
        assert lines(marks) == ["begin", "begin", "end"]


class TestHeld:
    def test_a_running_job_is_cancelled_within_seconds_and_let_go(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.spin.using(timeout=None).later(str(marks))
        with workers(tmp_path):
            until(lambda: lines(marks), what="the job begins")
            job.cancel("no longer wanted")
            assert (job.state, job.worker is None) == ("CANCELLED", False)
            until(lambda: ended(job), what="its body has stopped")
        assert lines(marks) == ["begin", "end"]
        assert [error["reason"] for error in job.errors] == ["no longer wanted"]

    def test_o09_a_call_that_holds_the_interpreter_past_its_lease_runs_once(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.hold_interpreter.later(str(marks), LONGER)
        with workers(tmp_path, count=2, jobs=PATIENT):
            until(lambda: ended(job), what="the job ends")
        assert (job.state, job.attempts) == ("SUCCESSFUL", 1)
        assert lines(marks) == ["begin", "end True"]

    def test_o21_a_signal_to_the_whole_group_lets_jobs_finish(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.append_and_linger.later(str(marks), "x", 1.0)
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            running.send(signal.SIGTERM)
            os.kill(worker_pid(running.output), signal.SIGTERM)
            assert running.wait() == 0
        job.refresh_from_db()
        assert (job.state, lines(marks)) == ("SUCCESSFUL", ["begin x", "end x"])

    def test_o21_a_job_ends_its_own_children_as_any_program_does(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.end_forked_child.later(str(marks))
        with workers(tmp_path):
            until(lambda: ended(job), what="the job ends")
        assert (job.state, lines(marks)) == ("SUCCESSFUL", [str(-signal.SIGTERM)])


class TestReplacing:
    def test_on_hangup_workers_are_replaced_one_by_one_and_jobs_finish(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.append_and_linger.later(str(marks), "x", 1.0)
        with workers(tmp_path, "--processes", "2", "-c", "2") as [running]:
            until(lambda: running.output.count(" slots · ") == 2 and lines(marks), what="both work, and the job begins")
            before = [worker_pid(running.output, number) for number in (0, 1)]
            running.send(signal.SIGHUP)
            until(lambda: running.output.count(" slots · ") == 4, what="both are replaced")
            until(lambda: not any(is_alive(pid) for pid in before), what="the old ones are gone")
            after = jobs.append.later(str(marks), "after")
            until(lambda: ended(after), what="the new ones work")
            assert "died" not in running.output
        job.refresh_from_db()
        assert (job.state, job.attempts) == ("SUCCESSFUL", 1)
        assert lines(marks) == ["begin x", "end x", "after"]

    def test_workers_that_cannot_live_end_the_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LIVE_BROKEN_WORKER", "1")
        with worker(tmp_path) as running:
            assert running.wait() == 1
            assert "5 workers in a row died at once, so this can't work" in running.output


class TestWaking:
    @pytest.mark.parametrize("processes", ["0", "1"])
    def test_a_new_job_wakes_an_idle_worker_that_polls_once_an_hour(self, tmp_path: Path, processes: str) -> None:
        marks = tmp_path / "marks"
        first = jobs.append.later(str(marks), "first")
        with workers(tmp_path, "--processes", processes, "--poll-interval", "1h"):
            until(lambda: ended(first), what="the first job ends")
            second = jobs.append.later(str(marks), "second")
            until(lambda: ended(second), what="the second job ends")
        assert lines(marks) == ["first", "second"]

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no connections that can be cut")
    def test_o26_after_its_connection_was_cut_it_listens_again(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        with workers(tmp_path, "--poll-interval", "1h"):
            with connections["default"].cursor() as cursor:
                cursor.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()"
                )
            job = jobs.append.later(str(marks), "x")
            until(lambda: ended(job), what="the job ends")
        assert lines(marks) == ["x"]

    def test_a_job_that_falls_due_is_run_though_nobody_tells_of_it(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        job = jobs.append.after(seconds=2).later(str(marks), "x")
        with workers(tmp_path):
            until(lambda: ended(job), what="the job ends")
        assert job.started_at is not None
        assert job.started_at >= job.run_at
