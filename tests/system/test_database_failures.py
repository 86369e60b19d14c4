"""The database restarts, hangs up, falls silent, only reads, or loses answers: nothing is lost, nothing runs twice."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs.models import Job
from tests.factories import another_connection
from tests.system.processes import lines, until, workers
from tests.system.proxy import Proxy, proxied, through
from tests.yard import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no server that could fail"),
]

TABLE = Job._meta.db_table

LEASE = {"LEASE": "8s"}
"""A keeper's statement has a second for its answer then, and a crew's two."""

CLAIM = "case when taken.expired then"
"""Stands in the statement that claims, and in no other."""


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


def execute(sql: str, *values: object) -> list[tuple[Any, ...]]:
    with connections["default"].cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def terminate(condition: str = "true") -> int:
    """End sessions of this database, but never the test's own, and say how many."""
    others = "datname = current_database() and pid <> pg_backend_pid()"
    found = execute(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where {others} and {condition}")
    return len(found)


def waits_for_lock() -> int:
    [(count,)] = execute(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return int(count)


@contextmanager
def locked_table(mode: str) -> Iterator[None]:
    """Have another session hold the table."""
    with another_connection() as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f'lock table "{TABLE}" in {mode} mode')
        yield
        other.rollback()


@contextmanager
def locked_row(job: Job) -> Iterator[None]:
    """Have another session hold the row of a job."""
    with another_connection() as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f'select 1 from "{TABLE}" where id = %s for update', [job.pk])
        yield
        other.rollback()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Have processes that the test starts reach the database through a proxy."""
    with proxied() as proxy:
        monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": through(proxy)}))
        yield proxy


class TestKilledSessions:
    """O25: sessions end while nothing happens, in a claim, in a job, and as its end is written."""

    def test_o25a_idle(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        first = jobs.append.later(str(marks), "first")
        with workers(tmp_path) as [running]:
            until(lambda: ended(first), what="the first job ends")
            assert terminate() > 0
            second = jobs.append.later(str(marks), "second")
            until(lambda: ended(second), what="the second job ends")
            assert "died" not in running.output
            assert running.output.count(" slots · ") == 1
        assert lines(marks) == ["first", "second"]

    def test_o25b_in_a_claim(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        with workers(tmp_path, "--poll-interval", "0.1"):
            with locked_table("access exclusive"):
                until(waits_for_lock, what="a claim waits")
                assert terminate("wait_event_type = 'Lock'") > 0
            job = jobs.append.later(str(marks), "x")
            until(lambda: ended(job), what="the job ends")
        assert (job.attempts, lines(marks)) == (1, ["x"])

    def test_o25c_in_a_job(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.wait_for_file.later(str(marks), str(gate))
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            assert terminate() > 0
            gate.touch()
            until(lambda: ended(job), what="the job ends")
            assert "died" not in running.output
        assert (job.state, job.attempts, job.errors) == ("SUCCESSFUL", 1, [])
        assert lines(marks) == ["begin", "end"]

    def test_o25d_as_its_end_is_written(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.wait_for_file.later(str(marks), str(gate))
        with workers(tmp_path, "--poll-interval", "1h"):
            until(lambda: lines(marks), what="the job begins")
            with locked_table("exclusive"):
                gate.touch()
                settling = "wait_event_type = 'Lock' and query like '%%SUCCESSFUL%%'"
                until(lambda: terminate(settling), what="its end waits to be written")
            until(lambda: ended(job), what="the job ends")
        assert (job.state, job.attempts, job.errors) == ("SUCCESSFUL", 1, [])
        assert lines(marks) == ["begin", "end"]

    def test_o25_at_random_under_load(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        jobs.append.later_many((str(marks), f"{n}") for n in range(600))
        over = threading.Event()

        def kill_now_and_then() -> None:
            with another_connection() as other, other.cursor() as cursor:
                while not over.wait(0.15):
                    cursor.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                        "and application_name = 'worker under test' order by random() limit 1"
                    )

        options = {"OPTIONS": {"application_name": "worker under test"}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LIVE_DATABASES", json.dumps({"default": options}))
            killer = threading.Thread(target=kill_now_and_then)
            with workers(tmp_path, "-c", "4", count=2) as running:
                killer.start()
                try:
                    until(lambda: Job.objects.filter(state="SUCCESSFUL").count() == 600, what="all jobs end")
                finally:
                    over.set()
                    killer.join()
                assert not any("died" in each.output for each in running)
        assert set(Job.objects.values_list("attempts", flat=True)) == {1}
        assert Counter(lines(marks)) == Counter(f"{n}" for n in range(600))


class TestLostAnswers:
    def test_o25_what_a_claim_took_whose_answer_was_lost_runs_once_and_uncounted(
        self, tmp_path: Path, proxy: Proxy
    ) -> None:
        marks = tmp_path / "marks"
        with workers(tmp_path, "-c", "4") as [running]:
            trap = proxy.lose_answer(CLAIM)
            with transaction.atomic():
                queued = [jobs.append.later(str(marks), f"{n}") for n in range(3)]
            until(lambda: all(ended(job) for job in queued), what="the jobs end")
            assert "the database can't be used just now" in running.output
        assert trap.sprung.is_set()
        assert {(job.state, job.attempts, len(job.errors)) for job in queued} == {("SUCCESSFUL", 1, 0)}
        assert sorted(lines(marks)) == ["0", "1", "2"]

    def test_o25_an_end_whose_answer_was_lost_is_recognised_as_written(self, tmp_path: Path, proxy: Proxy) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.wait_for_file.later(str(marks), str(gate))
        with workers(tmp_path) as [running]:
            until(lambda: lines(marks), what="the job begins")
            trap = proxy.lose_answer("set state = 'SUCCESSFUL'")
            gate.touch()
            until(trap.sprung.is_set, what="its end is written")
            until(lambda: f"✔ {job.name} #{job.pk}" in running.output, what="it is told to have succeeded")
            assert "taken away" not in running.output
        assert ended(job)
        assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])

    def test_a_claim_that_gets_no_answer_at_all_is_given_up_and_its_jobs_run_once(
        self, tmp_path: Path, proxy: Proxy
    ) -> None:
        """As from a server that is stopped, or over a network that swallows packets."""
        marks = tmp_path / "marks"
        with workers(tmp_path, "-c", "4", jobs=LEASE) as [running]:
            trap = proxy.silence(CLAIM)
            with transaction.atomic():
                queued = [jobs.append.later(str(marks), f"{n}") for n in range(3)]
            until(lambda: all(ended(job) for job in queued), what="the jobs end")
            assert "the database gave no answer for 2 s" in running.output
        assert trap.sprung.is_set()
        assert {(job.state, job.attempts, len(job.errors)) for job in queued} == {("SUCCESSFUL", 1, 0)}
        assert sorted(lines(marks)) == ["0", "1", "2"]

    def test_a_renewal_that_gets_no_answer_is_tried_again_within_the_lease(self, tmp_path: Path, proxy: Proxy) -> None:
        marks = tmp_path / "marks"
        job = jobs.append_and_linger.later(str(marks), "x", 14.0)
        with workers(tmp_path, count=2, jobs=LEASE) as running:
            until(lambda: lines(marks), what="the job begins")
            trap = proxy.silence("set lease_expires_at = ")
            until(lambda: ended(job), what="the job ends")
            assert any("the database gave no answer for 1 s" in each.output for each in running)
        assert trap.sprung.is_set()
        assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin x", "end x"])


class TestAway:
    def test_o26_while_the_server_refuses_nobody_spins_and_then_everybody_comes_back(
        self, tmp_path: Path, proxy: Proxy
    ) -> None:
        marks = tmp_path / "marks"
        first = jobs.append.later(str(marks), "first")
        with workers(tmp_path, "--poll-interval", "1h") as [running]:
            until(lambda: ended(first), what="the first job ends")
            proxy.refuse()
            before = proxy.accepted
            until(lambda: proxy.accepted >= before + 10, what="they try again")
            said = Counter(re.findall(r"(\w+): the database can't be used just now", running.output))
            assert said
            assert set(said.values()) == {1}, running.output
            second = jobs.append.later(str(marks), "second")
            proxy.admit()
            until(lambda: ended(second), what="the second job ends")
            assert "the database is back" in running.output
        assert lines(marks) == ["first", "second"]

    def test_a_server_that_only_reads_is_left_until_it_writes_again(self, tmp_path: Path) -> None:
        """As after a failover, when the address still leads to a standby."""
        marks = tmp_path / "marks"
        name = connections["default"].settings_dict["NAME"]
        first = jobs.append.later(str(marks), "first")
        with workers(tmp_path) as [running]:
            until(lambda: ended(first), what="the first job ends")
            execute(f'alter database "{name}" set default_transaction_read_only = on')
            try:
                terminate()
                second = jobs.append.later(str(marks), "second")
                until(lambda: "read-only transaction" in running.output, what="it meets a server that only reads")
            finally:
                execute(f'alter database "{name}" reset default_transaction_read_only')
            until(lambda: ended(second), what="the second job ends")
            assert "died" not in running.output
        assert (second.attempts, lines(marks)) == (1, ["first", "second"])


class TestLockedRows:
    def test_a_row_that_somebody_locks_for_longer_than_its_lease_starves_nobody(self, tmp_path: Path) -> None:
        marks = {name: tmp_path / name for name in ("locked", "neighbour", "other")}
        gate = tmp_path / "gate"
        stuck, neighbour = (jobs.wait_for_file.later(str(marks[name]), str(gate)) for name in ("locked", "neighbour"))
        with workers(tmp_path, "-c", "4", count=2, jobs={"LEASE": "4s"}) as running:
            until(lambda: lines(marks["locked"]) and lines(marks["neighbour"]), what="both begin")
            with locked_row(stuck):
                other_job = jobs.append.later(str(marks["other"]), "x")
                until(lambda: ended(other_job), what="others run meanwhile")
                until(lambda: is_over_for(stuck, seconds=4), what="the locked row's lease is over for long")
                assert renewed(neighbour)
            until(lambda: renewed(stuck), what="the free row is renewed")
            gate.touch()
            until(lambda: ended(stuck) and ended(neighbour), what="both end")
            assert not any("reclaimed" in each.output for each in running)
        for job, name in ((stuck, "locked"), (neighbour, "neighbour")):
            assert (job.state, job.attempts, job.errors, lines(marks[name])) == ("SUCCESSFUL", 1, [], ["begin", "end"])

    def test_an_end_whose_row_is_locked_is_written_when_it_is_free_and_others_before(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        stuck = jobs.wait_for_file.later(str(marks), str(gate))
        with workers(tmp_path, "-c", "2"):
            until(lambda: lines(marks), what="the job begins")
            with locked_row(stuck):
                gate.touch()
                until(lambda: len(lines(marks)) == 2, what="its body ends")
                others = [jobs.append.later(str(tmp_path / "others"), f"{n}") for n in range(20)]
                until(lambda: all(ended(job) for job in others), what="others run and are written meanwhile")
                stuck.refresh_from_db()
                assert stuck.state == "RUNNING"
            until(lambda: ended(stuck), what="its end is written")
        assert (stuck.state, stuck.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])


def is_over_for(job: Job, *, seconds: float) -> bool:
    sql = f"""select lease_expires_at + interval '1 s' * %s < clock_timestamp() from "{TABLE}" where id = %s"""
    [(is_over,)] = execute(sql, seconds, job.pk)
    return bool(is_over)


def renewed(job: Job) -> bool:
    [(lives,)] = execute(f'select lease_expires_at > clock_timestamp() from "{TABLE}" where id = %s', job.pk)
    return bool(lives)
