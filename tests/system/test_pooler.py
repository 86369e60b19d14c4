"""O27: behind a pooler in transaction mode everything works, but nothing is heard."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.models import Job
from django_jobs.stores import store_for
from tests.factories import new_job, seconds
from tests.system.poolers import through_pooler, transaction_pooler
from tests.system.processes import lines, until, workers
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="only PostgreSQL has poolers"),
]

DEAF = "LISTEN doesn't hear through this connection"


@pytest.fixture
def pooler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have processes that the test starts reach `default` through a pooler, and `direct` past it."""
    user = connections["default"].settings_dict["USER"] or "postgres"
    with transaction_pooler(user) as port:
        monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": through_pooler(port), "direct": {}}))
        yield


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


def test_o27_jobs_run_fail_are_retried_and_cancelled_and_workers_stop(pooler: None, tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    settings = {"BACKOFF": "tests.yard.backoffs.soon"}
    with workers(tmp_path, "--processes", "2", "-c", "8", jobs=settings) as [running]:
        many = [jobs.append.later(str(marks), f"{n}") for n in range(300)]
        asking = [jobs.count_users_and_append.later(str(tmp_path / "asked")) for _ in range(50)]
        failing = jobs.explode.using(max_attempts=3).later()
        spinning = jobs.spin.using(timeout=None).later(str(tmp_path / "spun"))
        until(lambda: all(ended(job) for job in many + asking), what="those that succeed end")
        until(lambda: ended(failing), what="the failing one fails")
        until(lambda: lines(tmp_path / "spun"), what="the spinning one begins")
        spinning.cancel("enough")
        until(lambda: ended(spinning), what="the cancelled one stops")
        until(lambda: DEAF in running.output, what="it is told that nothing is heard")
        failing.retry()
        waiting = jobs.wait_for_file.later(str(tmp_path / "waited"), str(gate))
        until(lambda: ended(failing), what="what was retried by hand fails again")
        until(lambda: lines(tmp_path / "waited"), what="a long one begins")
        running.send(signal.SIGTERM)
        until(lambda: "finishing 1 running jobs" in running.output, what="the signal is heard")
        gate.touch()
        assert running.wait() == 0
    assert running.output.count(DEAF) == 1
    assert "prepared statement" not in running.output
    assert "can't be used just now" not in running.output
    assert {(job.state, job.attempts) for job in many + asking} == {("SUCCESSFUL", 1)}
    assert (failing.state, failing.attempts) == ("FAILED", 4)
    assert (spinning.state, lines(tmp_path / "spun")) == ("CANCELLED", ["begin", "end"])
    assert ended(waiting)
    assert waiting.state == "SUCCESSFUL"
    assert sorted(lines(marks), key=int) == [f"{n}" for n in range(300)]


def test_o27_jobs_are_queued_one_by_one_and_many_at_once() -> None:
    with transaction_pooler(connections["default"].settings_dict["USER"] or "postgres") as port:
        pooled = connections["default"].copy()
        changes = through_pooler(port)
        options = {**pooled.settings_dict["OPTIONS"], **changes.pop("OPTIONS")}
        pooled.settings_dict = {**pooled.settings_dict, **changes, "OPTIONS": options}
        store = store_for("default")
        try:
            for number in range(20):
                one = store.insert(pooled, new_job(args=f"[{number}]"))
                later = store.insert(pooled, new_job(args=f"[{number}]", delay=seconds(1)))
                many = store.insert_many(pooled, [new_job(args=f"[{number}]"), new_job(args=f"[{number}]")])
                numbers = Job.objects.filter(pk__in=[one.id, later.id, *many]).values_list("args", flat=True)
                assert list(numbers) == [[number]] * 4
        finally:
            pooled.close()


def test_o27_a_direct_way_to_listen_lets_workers_be_woken(pooler: None, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    first = jobs.append.later(str(marks), "first")
    with workers(tmp_path, "--poll-interval", "1h", jobs={"LISTEN_DATABASE": "direct"}) as [running]:
        until(lambda: ended(first), what="the first job ends")
        second = jobs.append.later(str(marks), "second")
        until(lambda: ended(second), what="the second job ends")
        assert DEAF not in running.output
    assert lines(marks) == ["first", "second"]


def test_without_listening_workers_poll_and_nobody_is_warned(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with workers(tmp_path, "--poll-interval", "0.2", jobs={"LISTEN": False}) as [running]:
        job = jobs.append.later(str(marks), "x")
        until(lambda: ended(job), what="the job ends")
        assert DEAF not in running.output
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_stat_activity where query ilike 'listen%' and datname = current_database()"
            )
            assert cursor.fetchone() == (0,)
