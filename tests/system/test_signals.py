"""Which process sends which signal: an app of the test's own notes each with the process that it was sent in."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from django_jobs import enqueue, named
from django_jobs.models import Job
from tests.factories import NOON, queue_job, write
from tests.system.processes import lines, until, worker, workers_of

pytestmark = pytest.mark.django_db(transaction=True)

APP = """
import os
import signal

from django_jobs import job, signals
from tests.yard.jobs import append_line


def noting(word):
    return lambda *, sender, **_: append_line({marks!r}, f"{{word}} {{sender}} {{os.getpid()}}")


for word in (
    "job_enqueued", "job_started", "job_finished", "job_lost", "jobs_reclaimed", "jobs_expired", "jobs_pruned",
    "worker_started", "worker_stopped",
):
    getattr(signals, word).connect(noting(word), weak=False)


@job("told.say")
def say(): ...


@job("told.die")
def die():
    os.kill(os.getpid(), signal.SIGKILL)


@job("told.hear")
def hear(job_id): ...


for word in ("job_started", "job_finished"):
    getattr(signals, word).connect(noting(f"{{word}} of one"), sender=say.name[:5] + "say", weak=False)
"""


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    marks = tmp_path / "marks"
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "__init__.py").touch()
    (tmp_path / "told" / "jobs.py").write_text(APP.format(marks=str(marks)))
    monkeypatch.setenv("LIVE_APPS", '["told"]')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    return marks


def states(names: list[str]) -> list[str]:
    return [Job.objects.get(name=name).state if Job.objects.filter(name=name) else "" for name in names]


def test_the_process_that_ran_a_body_tells_of_it_and_the_supervisor_of_what_it_did(tmp_path: Path, marks: Path) -> None:
    old = queue_job(keep=1.0)
    write(old, state="SUCCESSFUL", finished_at=NOON, prune_at=NOON)
    enqueue([named("told.say")])
    with worker(tmp_path, "--processes", "1", "-c", "1") as running:
        until(lambda: states(["told.say"]) == ["SUCCESSFUL"], what="it runs")
        [pid] = workers_of(running.process.pid)
        until(lambda: not Job.objects.filter(pk=old).exists(), what="the old one is pruned")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    assert sorted(lines(marks)) == sorted(
        [
            f"worker_started None {pid}",
            f"job_started told.say {pid}",
            f"job_started of one told.say {pid}",
            f"job_finished told.say {pid}",
            f"job_finished of one told.say {pid}",
            f"worker_stopped None {pid}",
            f"jobs_pruned None {running.process.pid}",
        ]
    )


def test_an_end_that_a_supervisor_writes_is_told_as_reclaimed_and_queues_what_hears_of_it(
    tmp_path: Path, marks: Path
) -> None:
    queue_job(name="told.die", args="[]", max_attempts=1, max_crashes=1, on_failure="told.hear")
    with worker(tmp_path, "--processes", "1", "-c", "1") as running:
        until(lambda: states(["told.die", "told.hear"]) == ["FAILED", "SUCCESSFUL"], what="its failure is heard of")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    told = [line.rpartition(" ") for line in lines(marks)]
    words = [word for word, _, _ in told]
    assert words.count("job_started told.die") == 1
    assert "job_finished told.die" not in words
    in_supervisor = [word for word, _, pid in told if int(pid) == running.process.pid]
    assert sorted(in_supervisor) == ["job_enqueued told.hear", "jobs_reclaimed None"]
    assert words.count("job_finished told.hear") == 1
