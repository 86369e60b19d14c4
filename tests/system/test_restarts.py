"""The database server restarts, or has no place for us, while workers work: on a server of the test's own."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import Error, connections

from django_jobs.models import Job
from tests.system.processes import lines, until, workers
from tests.system.servers import ALIAS, OwnServer, own_server
from tests.yard import jobs

figures = logging.getLogger("tests.figures")
"""What is measured in passing; `--log-cli-level=INFO` shows it."""

pytestmark = pytest.mark.skipif(
    connections["default"].vendor == "sqlite", reason="SQLite has no server that could restart"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[OwnServer]:
    # The mark django_db knows only of databases that stand in the settings.
    with django_db_blocker.unblock(), own_server(monkeypatch) as server:
        yield server


def read(job: Job) -> Any:
    """Read a row back, over as many connections as that takes."""
    try:
        return Job.objects.using(ALIAS).get(pk=job.pk)
    except Error:
        connections[ALIAS].close()
        return None


def has_ended(job: Job) -> bool:
    row = read(job)
    return row is not None and row.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and row.worker is None


def execute(sql: str) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_o25_a_restart_loses_no_job_runs_none_twice_and_needs_no_restart_of_ours(
    server: OwnServer, tmp_path: Path, mode: str
) -> None:
    marks, gate, long_marks = tmp_path / "marks", tmp_path / "gate", tmp_path / "long"
    long_job = jobs.wait_for_file.later(str(long_marks), str(gate))
    with workers(tmp_path, "--processes", "2", "-c", "4") as [running]:
        until(lambda: lines(long_marks), what="a long job begins")
        jobs.append.later_many((str(marks), f"{n}") for n in range(1_000))
        until(lambda: len(lines(marks)) > 50, what="some ran")
        connections[ALIAS].close()
        server.restart(mode)
        back = time.monotonic()
        # All others may have run before the server went.
        jobs.append.later(str(marks), "again")
        until(lambda: "again" in lines(marks), what="they claim again")
        figures.info("%.3f s from the server's return to the next job", time.monotonic() - back)
        gate.touch()
        until(lambda: has_ended(long_job), what="the long job ends")
        until(lambda: Job.objects.using(ALIAS).filter(state="SUCCESSFUL").count() == 1_002, what="all end")
        assert "died" not in running.output
        assert running.output.count(" slots · ") == 2
    assert (read(long_job).attempts, lines(long_marks)) == (1, ["begin", "end"])
    assert set(Job.objects.using(ALIAS).values_list("attempts", flat=True)) == {1}
    assert Counter(lines(marks)) == Counter(["again", *(f"{n}" for n in range(1_000))])


def test_o25_after_a_server_that_was_away_for_long_idle_workers_are_back_at_once(
    server: OwnServer, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    first = jobs.append.later(str(marks), "first")
    with workers(tmp_path) as [running]:
        until(lambda: has_ended(first), what="the first job ends")
        connections[ALIAS].close()
        server.stop("fast")
        until(lambda: running.output.count("can't be used just now") >= 2, what="they notice")
        # Longer than it takes until the pauses are at their longest.
        until_passed(4.0)
        server.start()
        back = time.monotonic()
        second = jobs.append.later(str(marks), "second")
        until(lambda: has_ended(second), what="the second job ends")
        figures.info("%.3f s from the server's return to the next job", time.monotonic() - back)
        assert "died" not in running.output
    assert lines(marks) == ["first", "second"]


def test_o25_a_stop_is_bounded_though_the_database_is_away(server: OwnServer, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    job = jobs.append_and_linger.later(str(marks), "x", 1.0)
    with workers(tmp_path, "--grace", "2") as [running]:
        until(lambda: lines(marks), what="the job begins")
        connections[ALIAS].close()
        server.stop("immediate")
        running.process.terminate()
        # Its end can't be written.
        assert running.wait() == 3
    server.start()
    assert lines(marks) == ["begin x", "end x"]
    assert read(job).state == "RUNNING"


def test_o29_without_a_free_place_at_the_server_workers_wait_and_come_back(
    server: OwnServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    execute("create role app login")
    execute("grant all on all tables in schema public to app; grant all on all sequences in schema public to app")
    databases = os.environ["LIVE_DATABASES"].replace('"USER": "postgres"', '"USER": "app"')
    monkeypatch.setenv("LIVE_DATABASES", databases)
    with workers(tmp_path, "-c", "2") as [running]:
        execute("alter role app connection limit 0")
        execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'app'")
        job = jobs.append.later(str(marks), "x")
        until(lambda: "too many connections" in running.output, what="they are turned away")
        assert not has_ended(job)
        execute("alter role app connection limit -1")
        until(lambda: has_ended(job), what="the job ends")
        assert "died" not in running.output
    assert lines(marks) == ["x"]


def until_passed(seconds: float) -> None:
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, what="time passes")
