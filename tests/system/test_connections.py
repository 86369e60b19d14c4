"""How many connections `runjobs` holds, what they are doing, and that each job finds a usable one."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_jobs.models import Job
from tests.factories import another_connection
from tests.system.processes import Worker, lines, until, workers
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no sessions to be counted"),
]

SUPERVISOR = 7
"""Connections of a supervisor: keeper, chores, undertaker, lookout, beat, and two for hearing."""

MARK = "worker under test"


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say how processes that the test starts reach the database, and by what name the server knows them."""

    def reach(options: dict[str, Any] | None = None, **entry: Any) -> None:
        changes = {**entry, "OPTIONS": {"application_name": MARK, **(options or {})}}
        monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": changes}))

    reach()
    return reach


def sessions(condition: str = "true") -> int:
    return len(session_ids(condition))


def session_ids(condition: str = "true") -> set[int]:
    with connections["default"].cursor() as cursor:
        mine = "datname = current_database() and application_name = %s"
        cursor.execute(f"select pid from pg_stat_activity where {mine} and {condition}", [MARK])
        return {pid for (pid,) in cursor.fetchall()}


MOMENT = 1.0
"""Seconds that the server may take to end a session that was closed; a busy machine needs them."""


class Census:
    """The most sessions that there were at once, and a moment later still."""

    def __init__(self) -> None:
        self.most = 0
        self._looks: list[tuple[float, set[int]]] = []
        self._ended_at = math.inf

    def look(self) -> None:
        now, ids = time.monotonic(), session_ids()
        self._looks.append((now, ids))
        before = [seen for at, seen in self._looks if at <= now - MOMENT]
        if before:
            self.most = max(self.most, len(ids & before[-1]))

    def all_ended(self, count: int) -> bool:
        """Look once more, and say whether all jobs ended so long ago that what is left open was counted, too."""
        self.look()
        if Job.objects.filter(state="SUCCESSFUL").count() == count:
            self._ended_at = min(self._ended_at, time.monotonic())
        return time.monotonic() > self._ended_at + 2 * MOMENT


@pytest.mark.parametrize(("processes", "own"), [("2", SUPERVISOR + 2), ("0", SUPERVISOR)])
def test_o29_connections_stay_within_the_formula_and_none_is_left(
    reached: Any, tmp_path: Path, processes: str, own: int
) -> None:
    """The formula of docs/connections.md: those of our own, and one for each slot whose job uses the database."""
    reached(CONN_MAX_AGE=None)
    marks = tmp_path / "marks"
    census = Census()
    with workers(tmp_path, "--processes", processes, "-c", "8"):
        jobs.count_users_and_append.later_many((str(marks),) for _ in range(500))
        until(lambda: census.all_ended(500), what="all jobs end")
        assert sessions() <= own + 8
    assert 0 < census.most <= own + 8
    assert len(lines(marks)) == 500
    until(lambda: sessions() == 0, what="nothing is left open")


def test_o29_threads_of_jobs_and_async_jobs_leave_none_open(reached: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with workers(tmp_path, "-c", "4"):
        jobs.count_users_in_threads.later_many((str(marks),) for _ in range(60))
        jobs.count_users.later_many(() for _ in range(60))
        until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 120, what="all jobs end")
        until(lambda: sessions() <= SUPERVISOR + 1 + 4, what="what jobs opened is closed")


def test_o29_djangos_pool_slows_jobs_and_wedges_nothing(reached: Any, tmp_path: Path) -> None:
    reached({"pool": {"min_size": 1, "max_size": 4}}, CONN_MAX_AGE=0)
    marks = tmp_path / "marks"
    census = Census()
    with workers(tmp_path, "-c", "8") as [running]:
        jobs.count_users_and_append.later_many((str(marks),) for _ in range(500))
        until(lambda: census.all_ended(500), what="all jobs end")
        assert "died" not in running.output
    # Ours are none of the pool's.
    assert 0 < census.most <= SUPERVISOR + 1 + 4
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    until(lambda: sessions() == 0, what="nothing is left open")


def test_o28_the_next_job_finds_a_usable_connection_after_its_thread_s_was_cut(reached: Any, tmp_path: Path) -> None:
    reached(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
    marks = tmp_path / "marks"
    first = jobs.count_users_and_append.using(max_attempts=1).later(str(marks))
    with workers(tmp_path, "-c", "1"):
        until(lambda: ended(first), what="the first job ends")
        with connections["default"].cursor() as cursor:
            cursor.execute("select pg_terminate_backend(%s, 5000)", [int(lines(marks)[0])])
        second = jobs.count_users_and_append.using(max_attempts=1).later(str(marks))
        until(lambda: ended(second), what="the second job ends")
        third = jobs.count_users_and_append.using(max_attempts=1).later(str(marks))
        until(lambda: ended(third), what="the third job ends")
    assert [job.state for job in (first, second, third)] == ["SUCCESSFUL"] * 3
    before, after, later = lines(marks)
    assert before != after == later


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows the sockets of processes")
def test_o30_what_the_parent_opened_before_is_not_shared(
    reached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVE_ASKS_EARLY", "1")
    marks = tmp_path / "marks"
    with workers(tmp_path, "--processes", "2", "-c", "4") as [running]:
        jobs.count_users_and_append.later_many((str(marks),) for _ in range(200))
        until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 200, what="all jobs end")
        opened = Counter(socket for pid in processes_of(running) for socket in sockets_of(pid))
    assert opened
    assert {socket: count for socket, count in opened.items() if count > 1} == {}
    assert len(lines(marks)) == 200


def processes_of(running: Worker) -> list[int]:
    """Give the process ids of a supervisor and its workers."""
    workers = [int(pid) for pid in re.findall(r"worker [^:\s]+:(\d+):\w+ · \d+ slots", running.output)]
    assert len(workers) == 2
    return [running.process.pid, *workers]


def sockets_of(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # Files are closed meanwhile.
        with suppress(FileNotFoundError):
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


def test_o31_no_transaction_is_open_while_a_job_runs(reached: Any, tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    name = connections["default"].settings_dict["NAME"]
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute(f"alter database \"{name}\" set idle_in_transaction_session_timeout = '300ms'")
        try:
            job = jobs.wait_for_file.later(str(marks), str(gate))
            with workers(tmp_path) as [running]:
                until(lambda: lines(marks), what="the job begins")
                looks = [sessions("state like 'idle in transaction%%'") for _ in range(100)]
                # Longer than the server would bear.
                cursor.execute("select pg_sleep(1)")
                gate.touch()
                until(lambda: ended(job), what="the job ends")
                assert "can't be used just now" not in running.output
        finally:
            cursor.execute(f'alter database "{name}" reset idle_in_transaction_session_timeout')
    assert set(looks) == {0}
    assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])
