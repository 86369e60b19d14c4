"""O33: an SQLite file as Django makes it by default, with more writers than it bears."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connections, transaction
from django.test import override_settings

from django_jobs.models import Job
from tests.system.processes import lines, until, workers
from tests.yard import jobs

pytestmark = pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="only SQLite locks whole files")

ALIAS = "own"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[Path]:
    """Make a file without any OPTIONS; jobs that the test queues, and the workers that it starts, are there."""
    path = tmp_path / "own.sqlite3"
    # The timeout is Django's and Python's own.
    entry = {"NAME": str(path), "OPTIONS": {"init_command": "", "timeout": 5.0}}
    monkeypatch.setitem(connections.settings, ALIAS, {**connections.settings["default"], **entry})
    monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": entry}))
    monkeypatch.setenv("LIVE_DATABASE", str(path))
    with django_db_blocker.unblock(), override_settings(DJANGO_JOBS={"DATABASE": ALIAS}):
        try:
            call_command("migrate", "django_jobs", database=ALIAS, verbosity=0)
            yield path
        finally:
            connections[ALIAS].close()
            del connections[ALIAS]


def ended(count: int) -> bool:
    return Job.objects.using(ALIAS).filter(state="SUCCESSFUL").count() == count


def test_o33_four_workers_and_a_process_that_queues_in_transactions(file: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    committed: list[str] = []
    with workers(tmp_path, "--processes", "2", "-c", "4", count=2) as running:
        for number in range(200):
            # The caller's own error is theirs to see.
            with suppress(OperationalError):
                with transaction.atomic(using=ALIAS):
                    jobs.append.later(str(marks), f"{number}")
                committed.append(f"{number}")
        until(lambda: ended(len(committed)), what="all that was queued ends")
        assert not any("died" in each.output for each in running)
    assert committed
    assert Counter(lines(marks)) == Counter(committed)
    assert set(Job.objects.using(ALIAS).values_list("attempts", flat=True)) == {1}


def test_o33_an_end_outlasts_a_writer_that_holds_the_file_for_ten_seconds(file: Path, tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    queued = [jobs.wait_for_file.later(str(marks), str(gate)) for _ in range(3)]
    with workers(tmp_path, "--processes", "2", "-c", "4") as [running]:
        until(lambda: lines(marks) == ["begin"] * 3, what="they begin")
        with closing(sqlite3.connect(file, isolation_level=None)) as writer:
            writer.execute("begin immediate")
            held_since = time.monotonic()
            gate.touch()
            until(lambda: len(lines(marks)) == 6, what="their bodies end")
            until(lambda: time.monotonic() - held_since > 10, what="ten seconds pass")
            writer.execute("rollback")
        until(lambda: ended(3), what="their ends are written")
        assert "died" not in running.output
    assert Counter(lines(marks)) == {"begin": 3, "end": 3}
    rows = Job.objects.using(ALIAS).filter(pk__in=[job.pk for job in queued])
    assert {(row.state, row.attempts, len(row.errors)) for row in rows} == {("SUCCESSFUL", 1, 0)}
