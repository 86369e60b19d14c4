"""O24: workers are replaced when the code changes; the supervisor itself lives through whatever is written there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.fresh_app import FreshApp
from tests.system.processes import lines, rests_on_no_database, until, worker, workers
from tests.system.test_supervisor import ended, worker_pid
from tests.yard import jobs

pytestmark = [pytest.mark.django_db(transaction=True), rests_on_no_database]


def test_o24_new_code_is_used_after_running_jobs_have_ended(tmp_path: Path, fresh_app: FreshApp) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    with workers(tmp_path, "--reload", "-c", "2") as [running]:
        first = fresh_app.say()
        until(lambda: ended(first), what="the first edition ran")
        job = jobs.pass_file.later(str(marks), "x", str(gate))
        until(lambda: lines(marks), what="a job begins")
        fresh_app.write("second")
        until(lambda: "jobs.py has changed: replacing the workers" in running.output, what="the change is seen")
        # The one that follows works with the new code beside the job that still runs.
        until(lambda: running.output.count(" slots · ") == 2, what="another worker begins")
        second = fresh_app.say()
        until(lambda: ended(second), what="the second edition ran")
        gate.touch()
        until(lambda: ended(job), what="the job ends")
        assert "died" not in running.output
    assert (job.state, job.attempts, len(lines(marks))) == ("SUCCESSFUL", 1, 2)
    assert lines(fresh_app.marks) == ["first", "second"]


def test_o24_a_job_longer_than_the_grace_is_given_back(tmp_path: Path, fresh_app: FreshApp) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    job = jobs.pass_file.later(str(marks), "x", str(gate))
    with workers(tmp_path, "--reload", "-c", "1", "--grace", "0.5"):
        until(lambda: lines(marks), what="the job begins")
        fresh_app.write("second")
        until(lambda: len(lines(marks)) == 2, what="it begins again in a new worker")
        gate.touch()
        until(lambda: ended(job), what="the job ends")
    assert (job.state, job.attempts, job.crashes) == ("SUCCESSFUL", 1, 0)


def test_o24_code_with_an_error_in_it_is_waited_for(tmp_path: Path, fresh_app: FreshApp) -> None:
    with workers(tmp_path, "--reload") as [running]:
        old = worker_pid(running.output)
        fresh_app.write_nonsense()
        # More deaths than a command without reloading would stand.
        until(lambda: running.output.count("died: exit code 1") >= 6, what="workers die of it")
        assert "SyntaxError" in running.output
        assert running.process.poll() is None
        fresh_app.write("mended")
        job = fresh_app.say()
        until(lambda: ended(job), what="the job ran")
        assert worker_pid(running.output) != old
    assert lines(fresh_app.marks) == ["mended"]


def test_without_reloading_a_change_is_not_looked_for(tmp_path: Path, fresh_app: FreshApp) -> None:
    with workers(tmp_path, "--no-reload") as [running]:
        first = fresh_app.say()
        until(lambda: ended(first), what="the first edition ran")
        fresh_app.write("second")
        # The supervisor looks every second where it looks at all: this job takes two.
        job = jobs.append_and_linger.later(str(tmp_path / "marks"), "x", 2.0)
        until(lambda: ended(job), what="the job ended")
        second = fresh_app.say()
        until(lambda: ended(second), what="the first edition ran again")
        assert "has changed" not in running.output
    assert lines(fresh_app.marks) == ["first", "first"]


def test_one_process_can_not_be_replaced(tmp_path: Path) -> None:
    with worker(tmp_path, "--processes", "0", "--reload") as running:
        assert running.wait() == 1
        assert "--reload replaces worker processes, and --processes 0 has none" in running.output


@pytest.mark.parametrize("processes", [0, 1])
def test_o24_the_command_works_in_a_thread_that_is_not_the_main_one(tmp_path: Path, processes: int) -> None:
    marks = tmp_path / "marks"
    jobs.append.later(str(marks), "x")
    script = tmp_path / "in_thread.py"
    script.write_text(
        "import threading, django\n"
        "from django.core.management import call_command\n"
        "django.setup()\n"
        f"work = lambda: call_command('runjobs', drain=True, processes={processes})\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    with worker(tmp_path, command=[str(script)]) as running:
        assert running.wait() == 0, running.output
        assert "main thread" not in running.output
    assert lines(marks) == ["x"]
