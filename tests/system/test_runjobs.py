"""`manage.py runjobs` as a real process: signals, exit codes, several workers on one database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.models import Job
from tests.system.processes import LONGER, PATIENT, Worker, lines, until, worker, workers, workers_of
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)


def state_of(job: Job) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=job.pk)


def test_a_stop_signal_lets_running_jobs_finish_and_exits_0(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 1.0)
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    assert lines(marks) == ["begin x", "end x"]
    assert state_of(job) == "SUCCESSFUL"


def test_o23_after_the_stop_signal_nothing_more_is_claimed(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    gate = tmp_path / "gate"
    jobs.wait_for_file.using(priority=1).later(str(marks), str(gate))
    jobs.append.later_many((str(marks), f"{n}") for n in range(1_000))
    with workers(tmp_path, "--concurrency", "1") as [running]:
        until(lambda: lines(marks), what="the first job begins")
        running.send(signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="the worker heard the signal")
        gate.touch()
        assert running.wait() == 0
    # With one slot the signal was heard while the first job ran, so no other job may start.
    assert lines(marks) == ["begin", "end"]
    assert Counter(Job.objects.values_list("state", "attempts")) == {("SUCCESSFUL", 1): 1, ("READY", 0): 1_000}


def test_o22_a_second_signal_stops_at_once_and_gives_the_job_back(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 600.0)
    with workers(tmp_path) as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGINT)
        until(lambda: "finishing 1 running jobs" in running.output, what="the worker heard the first signal")
        begun = time.monotonic()
        running.send(signal.SIGINT)
        assert running.wait() == 0
        # The job has ten minutes to go; the bound is generous for a busy machine.
        assert time.monotonic() - begun < 30
        assert "Traceback" not in running.output
    job.refresh_from_db()
    assert (job.state, job.attempts, job.worker) == ("READY", 0, None)


def test_in_one_process_a_second_signal_leaves_the_job_to_its_lease_and_says_so(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 600.0)
    with workers(tmp_path, "--processes", "0") as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGINT)
        until(lambda: "finishing 1 running jobs" in running.output, what="the worker heard the first signal")
        running.send(signal.SIGINT)
        assert running.wait() == 3
        assert "stopped while jobs still ran" in running.output
    assert state_of(job) == "RUNNING"


def test_a_job_longer_than_the_grace_is_given_back_uncounted(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 600.0)
    with workers(tmp_path, "--grace", "0.2") as [running]:
        until(lambda: lines(marks), what="the job begins")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("READY", 0)


def test_drain_ends_when_nothing_is_due(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    jobs.append.later(str(marks), "now")
    jobs.append.after(hours=1).later(str(marks), "later")
    with worker(tmp_path, "--drain") as draining:
        assert draining.wait() == 0, draining.output
    assert lines(marks) == ["now"]


def test_it_serves_the_queues_it_is_told_to(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    for queue in ("a", "b", "c"):
        jobs.append.using(queue=queue).later(str(marks), queue)
    with worker(tmp_path, "--drain", "-q", "a,b:4") as draining:
        assert draining.wait() == 0, draining.output
    assert sorted(lines(marks)) == ["a", "b"]


def test_jobs_see_the_environment_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    marks = tmp_path / "marks"
    jobs.append_variable.later(str(marks), "PYTHONPATH")
    with worker(tmp_path, "--drain") as draining:
        assert draining.wait() == 0, draining.output
    assert lines(marks) == ["'/nowhere'"]


def test_o05_eight_processes_run_each_of_2000_jobs_once(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    jobs.append.later_many((str(marks), f"{n}") for n in range(2_000))
    started = [Worker(tmp_path, "--drain", "-c", "2", name=f"worker-{n}") for n in range(8)]
    try:
        assert [each.wait() for each in started] == [0] * 8
    finally:
        for each in started:
            each.end()
    assert sorted(map(int, lines(marks))) == list(range(2_000))
    assert set(Job.objects.values_list("state", "attempts")) == {("SUCCESSFUL", 1)}


def test_o02_a_job_longer_than_its_lease_runs_once(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", LONGER)
    with workers(tmp_path, count=2, jobs=PATIENT):
        until(lambda: state_of(job) == "SUCCESSFUL", what="the job ends")
    assert lines(marks) == ["begin x", "end x"]


def test_o01_a_killed_supervisor_loses_no_job(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 2.0)
    with workers(tmp_path, jobs={"LEASE": "2s"}) as [running]:
        until(lambda: lines(marks), what="the job begins")
        os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
        with workers(tmp_path, jobs={"LEASE": "2s"}):
            until(lambda: state_of(job) == "SUCCESSFUL", what="another worker ends the job")
    assert [line for line in lines(marks) if line == "end x"] == ["end x"]


def test_o03_a_job_due_far_beyond_the_lease_runs_once_and_not_before(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append.at(clock.now() + timedelta(seconds=6)).later(str(marks), "x")
    with workers(tmp_path, count=4, jobs={"LEASE": "2s"}):
        until(lambda: state_of(job) == "SUCCESSFUL", what="the job ends")
    job.refresh_from_db()
    assert lines(marks) == ["x"]
    assert job.attempts == 1
    assert job.started_at is not None
    assert job.started_at >= job.run_at


def test_middleware_is_around_the_bodies_in_a_worker_process(tmp_path: Path) -> None:
    plain, asynchronous = jobs.append.later(str(tmp_path / "marks"), "x"), jobs.count_users.later()
    atomic = jobs.write_atomically.later("x")
    queued = [job.pk for job in (plain, asynchronous, atomic)]
    with workers(tmp_path, "--processes", "1", jobs={"MIDDLEWARE": ["tests.runner.around.tells_where"]}) as [running]:
        until(lambda: Job.objects.filter(pk__in=queued, state="SUCCESSFUL").count() == 3, what="they run")
        [pid] = workers_of(running.process.pid)
        results = [Job.objects.get(pk=job_id).result for job_id in queued]
    assert results == [[pid, None], [pid, 0], [pid, None]]


class TestRefusedAtStart:
    """One line each, exit code 1."""

    def start(self, *arguments: str, **environment: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "django", "runjobs", *arguments],
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stderr.strip()

    def test_a_cap_below_one(self) -> None:
        code, said = self.start("-q", "mail:0")
        assert code == 1
        assert said == "CommandError: mail:0: a cap below 1 would run nothing; leave the queue out, or pause it"

    def test_a_concurrency_below_one(self) -> None:
        code, said = self.start("-c", "0")
        assert code == 1
        assert said == "CommandError: --concurrency 0: give 1 or more"

    def test_a_database_without_our_tables(self, tmp_path: Path) -> None:
        code, said = self.start(DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
        assert code == 1
        assert said.startswith("CommandError: tables are missing or behind; run: python manage.py migrate django_jobs")
        assert "\n" not in said

    def test_a_database_out_of_reach(self, tmp_path: Path) -> None:
        code, said = self.start(DATABASE_URL="postgres://nobody@127.0.0.1:1/none")
        assert code == 1
        assert said.startswith("CommandError: the database 'default' can't be used: ")
        assert "Traceback" not in said

    def test_a_database_that_won_t_take_a_statement_of_ours(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])
        rename = f'alter table "{Job._meta.db_table}" rename column'
        with connections["default"].cursor() as cursor:
            cursor.execute(f"{rename} fingerprint to footprint")
        try:
            code, said = self.start(LIVE_DATABASE=name)
        finally:
            with connections["default"].cursor() as cursor:
                cursor.execute(f"{rename} footprint to fingerprint")
        assert code == 1
        assert said.startswith("CommandError: the database 'default' won't take our statement CHANGE: ")
        assert "fingerprint" in said
        assert "\n" not in said

    def test_a_way_to_listen_that_is_not_there(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])
        code, said = self.start("--skip-checks", LIVE_DATABASE=name, LIVE_JOBS='{"LISTEN_DATABASE": "direct"}')
        assert code == 1
        assert said == "CommandError: DJANGO_JOBS['LISTEN_DATABASE'] is 'direct', which DATABASES doesn't have"

    def test_a_middleware_that_cannot_be_built(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])
        code, said = self.start(
            "--skip-checks", LIVE_DATABASE=name, LIVE_JOBS='{"MIDDLEWARE": ["tests.runner.around.fails"]}'
        )
        assert code == 1
        assert said == (
            "CommandError: DJANGO_JOBS['MIDDLEWARE'][0] is 'tests.runner.around.fails'; "
            "it failed: LookupError: no server was named"
        )

    def test_a_middleware_that_cannot_be_built_as_the_checks_tell_it(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])
        code, said = self.start(LIVE_DATABASE=name, LIVE_JOBS='{"MIDDLEWARE": ["no.timing"]}')
        assert code == 1
        assert "(django_jobs.E007) DJANGO_JOBS['MIDDLEWARE'][0] is 'no.timing'" in said
        assert "Traceback" not in said

    def test_a_wrong_setting(self) -> None:
        name = str(connections["default"].settings_dict["NAME"])
        code, said = self.start(LIVE_DATABASE=name, LIVE_JOBS='{"LEASE": "soon"}')
        assert code == 1
        assert "DJANGO_JOBS['LEASE']" in said
        assert "'soon'" in said
        assert "Traceback" not in said
