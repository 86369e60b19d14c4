"""A real worker beside a test."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from django.db import connections
from django.test import LiveServerTestCase, TestCase, TransactionTestCase

from django_jobs.models import Job
from django_jobs.testing import LiveWorker, jobs_mode, live_worker, run_jobs
from tests.declaring import declared
from tests.shop.jobs import broken, greet, greeted

ROOT = Path(__file__).parents[2]


def threads() -> list[str]:
    """Name the threads of ours that are alive."""
    return [thread.name for thread in threading.enumerate() if "django_jobs" in thread.name]


def sessions() -> int:
    """Count the other sessions that the server has for this database; 0 where there is no server."""
    connection = connections["default"]
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        [count] = cursor.fetchone()
    return int(count)


class TestBesideRealTransactions(TransactionTestCase):
    def setUp(self) -> None:
        greeted.clear()

    def test_it_runs_what_is_committed_until_the_block_ends(self) -> None:
        with live_worker() as worker:
            greet.later("Ada")
            greet.later_many([("Bo",), ("Cy",)])
            worker.wait()
            assert sorted(greeted) == ["Ada", "Bo", "Cy"]
            assert not Job.objects.exists()
        greet.later("Di")
        assert threads() == []
        assert Job.objects.get().state == "READY"

    def test_nothing_of_it_stays_connected(self) -> None:
        before = sessions()
        with live_worker(concurrency=3) as worker:
            greet.later_many([(str(number),) for number in range(20)])
            worker.wait()
        # The server ends a session a moment after its client has left.
        give_up = time.monotonic() + 30
        while sessions() > before and time.monotonic() < give_up:
            pass
        assert sessions() == before

    def test_jobs_run_in_threads_that_do_not_share_the_connection_of_the_test(self) -> None:
        mine, theirs = connections["default"], []

        def note() -> None:
            theirs.append((threading.current_thread(), connections["default"]))

        with declared(note) as performer, live_worker() as worker:
            performer.later()
            worker.wait()
        [(thread, connection)] = theirs
        assert thread is not threading.current_thread()
        assert connection is not mine

    def test_async_jobs_and_jobs_that_jobs_queue_are_run(self) -> None:
        async def greet_later(name: str) -> None:
            await greet.alater(name)

        with declared(greet_later) as performer, live_worker() as worker:
            performer.later("Ada")
            worker.wait()
        assert greeted == ["Ada"]

    def test_it_may_serve_some_queues_alone(self) -> None:
        greet.later("Ada")
        greet.using(queue="mail").later("Bo")
        greet.using(queue="bulk").later("Cy")
        with live_worker(["mail"]) as worker:
            worker.wait()
        assert greeted == ["Bo"]
        with live_worker({"bulk": 1}) as worker:
            worker.wait()
        assert greeted == ["Bo", "Cy"]

    def test_a_failed_attempt_stays_in_the_row(self) -> None:
        broken.later()
        with live_worker() as worker:
            worker.wait()
        assert Job.objects.get().errors[0]["reason"] == "it broke"

    def test_running_jobs_are_waited_for_at_the_end(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            go_on.wait(30)
            greeted.append("worked")

        with declared(work) as performer:
            with live_worker() as worker:
                performer.later()
                assert begun.wait(30)
                with pytest.raises(
                    TimeoutError, match=r"after 0 s there .* running: tests\.nowhere\.work #\d+ \(RUNNING\)"
                ):
                    worker.wait(timeout=0)
                go_on.set()
            assert greeted == ["worked"]
            assert not Job.objects.exclude(state="SUCCESSFUL").exists()

    def test_a_job_that_goes_on_and_on_is_told(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            while not go_on.is_set():
                try:
                    go_on.wait(30)
                except BaseException:
                    continue

        workers: list[LiveWorker] = []

        def begin() -> None:
            with declared(work) as performer, live_worker(grace=0) as worker:
                workers.append(worker)
                performer.later()
                assert begun.wait(30)

        with pytest.raises(RuntimeError, match="didn't come to its end within 0 s"):
            begin()
        go_on.set()
        crew = workers[0]._process._crew
        assert crew.wait(30)
        crew.stop()

    def test_an_error_of_the_test_is_its_own(self) -> None:
        with pytest.raises(LookupError), live_worker():
            raise LookupError
        assert threads() == []

    def test_time_travel_beside_it_is_refused(self) -> None:
        with live_worker(), pytest.raises(RuntimeError, match="stops the clock of this whole process"):
            run_jobs(until="1d")

    def test_a_mode_in_which_it_has_nothing_to_run_is_refused(self) -> None:
        with jobs_mode("inline"), pytest.raises(RuntimeError, match=r"jobs_mode\('inline'\) would have nothing to run"):
            live_worker().__enter__()
        with jobs_mode("database"), live_worker():
            pass

    def test_what_cannot_be_meant_is_refused(self) -> None:
        wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"queues": "mail"}, TypeError, r"queues='mail': give a list, as in \['mail'\]"),
            ({"queues": ["two words"]}, ValueError, "queues='two words': give 1 to 100 characters"),
            ({"concurrency": 0}, ValueError, "concurrency 0: give a whole number, 1 or more"),
        ]
        for options, error, message in wrong:
            with pytest.raises(error, match=message):
                live_worker(**options).__enter__()


class TestBesideALiveServer(LiveServerTestCase):
    def test_it_runs(self) -> None:
        greeted.clear()
        with live_worker() as worker:
            greet.later("Ada")
            worker.wait()
        assert greeted == ["Ada"]


class TestInATransaction(TestCase):
    def test_it_says_that_it_would_see_nothing(self) -> None:
        with pytest.raises(RuntimeError, match=r"use TransactionTestCase, .*, or run_jobs\(\) instead"):
            live_worker().__enter__()


def test_a_database_in_memory_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "memory_settings.py").write_text(
        dedent("""
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        INSTALLED_APPS = ["django_jobs"]
        """)
    )
    (tmp_path / "test_memory.py").write_text(
        dedent("""
        import unittest
        from django.test import LiveServerTestCase, TestCase
        from django_jobs import job
        from django_jobs.testing import JobsMixin, live_worker

        @job
        def add(a, b):
            return a + b

        class TestMemory(LiveServerTestCase):
            def test_refused(self):
                with self.assertRaisesRegex(RuntimeError, r'DATABASES\\[.default.\\]\\["TEST"\\] = {"NAME": BASE_DIR'):
                    live_worker().__enter__()

        class TestRunning(JobsMixin, TestCase):
            def test_run(self):
                add.later(1, 2)
                self.assertEqual(self.run_jobs().jobs[0].result, 3)

        class TestCommitted(JobsMixin, LiveServerTestCase):
            def test_run(self):
                add.later(1, 2)
                self.assertEqual(self.run_jobs().jobs[0].result, 3)
        """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "django", "test", "--settings", "memory_settings"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr
