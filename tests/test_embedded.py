"""`embedded`: what may be asked of it, and when its worker begins, ends and begins again, in this process.

Real servers are in tests/system/test_embedded.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_started
from django.db import close_old_connections
from django.test import Client, override_settings
from django.test.client import ClientHandler

from django_jobs import embedded
from django_jobs.embedded import _Order, _Worker
from django_jobs.models import Job, Worker
from tests.system.processes import until
from tests.yard import jobs

ROOT = Path(__file__).parents[1]


@pytest.fixture
def started() -> Iterator[None]:
    """Have been called in this process, and not at the end of the test."""
    assert embedded._order is None
    embedded.start(queues=["mail"], concurrency=1)
    yield
    request_started.disconnect(dispatch_uid="django_jobs.embedded")
    embedded._order = None


@pytest.fixture
def worker() -> Iterator[_Worker]:
    made = _Worker(_Order(queues=None, concurrency=2))
    yield made
    for gate in list(jobs.gates.values()):
        gate.set()
    assert made.end()
    jobs.forget()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("django_jobs")]


class TestStart:
    def test_the_same_again_changes_nothing(self, started: None) -> None:
        embedded.start({"mail": None}, 1)

    def test_something_else_is_refused(self, started: None) -> None:
        with pytest.raises(RuntimeError) as raised:
            embedded.start(concurrency=4)
        assert str(raised.value) == (
            "embedded.start(queues=None, concurrency=4) was called before with queues={'mail': None}, concurrency=1; "
            "call it once, or with the same arguments"
        )

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"queues": "mail"}, TypeError, "queues='mail': give a list, as in ['mail']"),
            ({"queues": []}, ValueError, "queues=[]: would serve nothing; leave it out to serve all"),
            ({"queues": ["a b"]}, ValueError, "queues='a b': give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
            (
                {"queues": {"mail": 0}},
                ValueError,
                "queues: 'mail' has the cap 0; give a whole number of 1 or more, or None for no cap",
            ),
            ({"concurrency": 0}, ValueError, "concurrency 0: give a whole number, 1 or more"),
            ({"concurrency": True}, ValueError, "concurrency True: give a whole number, 1 or more"),
        ],
    )
    def test_what_can_not_be_meant_is_refused_with_the_remedy(
        self, arguments: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error) as raised:
            embedded.start(**arguments)
        assert str(raised.value) == message
        assert embedded._order is None


class TestWhereNoneBegins:
    def test_beside_a_test_client(self, started: None) -> None:
        assert Client().get("/web/health/").content.decode().endswith(" none")

    @pytest.mark.parametrize("sender", [WSGIHandler, ClientHandler, None])
    def test_while_a_test_runner_is_at_work_whoever_serves(self, started: None, sender: object) -> None:
        # Those of another test may be about to end.
        before = set(threading.enumerate())
        # Django's own receiver looks at connections that tests before this one left open, and here nobody may.
        request_started.disconnect(close_old_connections)
        try:
            request_started.send(sender=sender)
        finally:
            request_started.connect(close_old_connections)
        assert embedded._worker is None
        assert set(threading.enumerate()) <= before

    @pytest.mark.parametrize("sender", [ClientHandler, None, "a command"])
    def test_for_what_is_no_server_s_request(self, sender: object) -> None:
        assert not embedded._serves(sender)
        assert embedded._serves(WSGIHandler)

    @override_settings(DJANGO_JOBS={"MODE": "inline"})
    def test_where_jobs_run_inline(self, worker: _Worker, odd: list[str]) -> None:
        worker.begin()
        until(lambda: worker.health() == "none", what="it has seen that")
        assert odd == ["MODE is 'inline': jobs run where they are queued, and no worker runs beside the server"]

    def test_in_a_process_that_has_no_settings_when_it_is_imported(self) -> None:
        program = "from django_jobs import embedded; embedded.start(); print(embedded.health(), embedded.stop())"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout == "none True\n"

    def test_from_a_request_that_comes_after_it_was_stopped(
        self, started: None, monkeypatch: pytest.MonkeyPatch, odd: list[str]
    ) -> None:
        monkeypatch.setattr(embedded, "_is_testing", lambda: False)
        monkeypatch.setattr(embedded, "_is_stopped", False)
        monkeypatch.setattr(embedded, "_try_at", 0.0)
        begun: list[_Worker] = []
        monkeypatch.setattr(_Worker, "begin", begun.append)
        assert embedded.stop()
        embedded._on_request(sender=WSGIHandler)
        assert (embedded.health(), begun, odd) == ("none", [], [])


@pytest.mark.django_db(transaction=True)
class TestTheWorker:
    def test_it_runs_jobs_and_has_a_row_until_it_ends(self, worker: _Worker) -> None:
        job = jobs.note.later("hello")
        worker.begin()
        until(lambda: Job.objects.get(pk=job.pk).state == "SUCCESSFUL", what="the job ends")
        until(lambda: worker.health() == "ok", what="it is well")
        row = Worker.objects.get()
        assert (row.queues, row.slots, row.pid) == ([], 2, os.getpid())
        assert row.identity.startswith(f"embedded@{row.host}:{row.pid}:")
        assert worker.end()
        assert worker.health() == "none"
        assert not Worker.objects.exists()
        until(lambda: threads() == [], what="its threads end")

    def test_one_of_whose_threads_has_died_is_told_of_and_started_again(self, worker: _Worker, odd: list[str]) -> None:
        worker.begin()
        until(lambda: worker.health() == "ok", what="it is well")
        broken = worker._process
        assert broken is not None
        broken._break()
        until(lambda: "ended by itself, with code 1; trying again in 1 s" in " ".join(odd), what="it is told")
        job = jobs.note.later("hello")
        until(lambda: Job.objects.get(pk=job.pk).state == "SUCCESSFUL", what="another one runs the job")
        assert worker._process is not broken

    def test_wrong_settings_are_told_of_and_waited_for(self, worker: _Worker, odd: list[str]) -> None:
        with override_settings(DJANGO_JOBS={"LEASE": "soon"}):
            worker.begin()
            until(lambda: odd, what="it is told")
        assert odd[0].startswith("no worker runs beside the server: DJANGO_JOBS['LEASE']")
        assert odd[0].endswith("; trying again in 1 s")
        until(lambda: worker.health() == "ok", what="it is well")

    def test_one_that_waits_to_try_again_ends_at_once(self, worker: _Worker, odd: list[str]) -> None:
        with override_settings(DJANGO_JOBS={"DATABASE": "nowhere"}):
            worker.begin()
            until(lambda: odd, what="it is told")
            assert worker.end()
        assert worker._is_over.is_set()
        [line] = odd
        assert line.startswith("no worker runs beside the server: the database 'nowhere' can't be used: ")
        assert line.endswith(" doesn't exist.; trying again in 1 s")

    def test_who_asks_twice_hurries_nobody(self, worker: _Worker) -> None:
        job = jobs.pass_gate.later("held")
        worker.begin()
        assert jobs.entered["held"].wait(30)
        ends: list[bool] = []
        both = [threading.Thread(target=lambda: ends.append(worker.end())) for _ in range(2)]
        for thread in both:
            thread.start()
        until(lambda: worker.health() == "stopping", what="it stops")
        jobs.gates["held"].set()
        for thread in both:
            thread.join(30)
        assert ends == [True, True]
        assert Job.objects.get(pk=job.pk).state == "SUCCESSFUL"


def test_who_asks_when_it_is_over_hears_too_whether_all_is_written() -> None:
    worker = _Worker(_Order(queues=None, concurrency=1))
    worker._is_over.set()
    assert worker.end()
    worker._code = 1
    assert not worker.end()


def test_the_word_that_a_server_shuts_down_is_answered_when_the_worker_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "_is_stopped", False)
    sent: list[object] = []
    words = iter(["lifespan.startup", "lifespan.shutdown"])

    async def application(scope: Any, receive: Any, send: Any) -> None:
        sent.append(scope["type"])

    async def receive() -> dict[str, Any]:
        return {"type": next(words)}

    async def send(message: Any) -> None:
        sent.append((message["type"], embedded._is_stopped))

    wrapped = embedded.lifespan(application)
    asyncio.run(wrapped({"type": "http"}, receive, send))
    asyncio.run(wrapped({"type": "lifespan"}, receive, send))
    assert sent == ["http", ("lifespan.startup.complete", False), ("lifespan.shutdown.complete", True)]
