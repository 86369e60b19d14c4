"""Many writers on one SQLite file, and one that locks it for longer than anybody's busy timeout."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError, connections, transaction

from django_jobs.models import Job
from tests.factories import another_connection
from tests.system.processes import lines, until, workers
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="only SQLite locks the whole file"),
]

BUSY_TIMEOUT = 0.2

EACH = 100


def queue_beside_other_work(marks: Path, writer: int) -> None:
    """Queue jobs as requests do, each in a transaction that reads and writes before; try again where that fails."""
    queued = 0
    try:
        while queued < EACH:
            # A read that turns into a write is refused while somebody else writes: the error is the caller's to see.
            with suppress(OperationalError), transaction.atomic():
                get_user_model().objects.count()
                get_user_model().objects.create(username=f"{writer}-{queued}")
                jobs.append.later(str(marks), f"{writer}-{queued}")
            queued = get_user_model().objects.filter(username__startswith=f"{writer}-").count()
    finally:
        connections.close_all()


def test_o33_under_many_writers_and_a_long_lock_workers_see_no_error_and_lose_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVE_OPTIONS", json.dumps({"timeout": BUSY_TIMEOUT}))
    marks, waiting, gate = tmp_path / "marks", tmp_path / "waiting", tmp_path / "gate"
    jobs.wait_for_file.using(priority=1).later(str(waiting), str(gate))
    with workers(tmp_path, "--processes", "4", "-c", "8") as [running]:
        until(lambda: lines(waiting), what="a job runs")
        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(queue_beside_other_work, marks, number) for number in range(3)]
            until(lambda: len(lines(marks)) > EACH, what="a part has run")
            with another_connection() as other, other.cursor() as cursor:
                cursor.execute("begin immediate")
                gate.touch()
                until(lambda: len(lines(waiting)) == 2, what="a body ends whose end can't be written")
                locked_at = time.monotonic()
                until(lambda: time.monotonic() > locked_at + 10 * BUSY_TIMEOUT, what="every busy timeout is over")
                cursor.execute("commit")
            for writer in writers:
                writer.result()
        until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 3 * EACH + 1, what="all jobs end")
        assert "locked" not in running.output
        assert "failed" not in running.output
    assert Counter(lines(marks)) == {f"{writer}-{number}": 1 for writer in range(3) for number in range(EACH)}
    assert set(Job.objects.values_list("state", "attempts")) == {("SUCCESSFUL", 1)}
