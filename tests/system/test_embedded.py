"""`embedded.start()` in real servers: where its worker begins, what it runs, and how it ends with the server."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.models import Job
from tests.system.fresh_app import FreshApp
from tests.system.processes import children_of, lines, until, worker
from tests.system.sites import SERVERS, UVICORN, Server, each_server, served
from tests.system.test_connections import MARK, Census, sessions, sockets_of
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

OWN = 7
"""Connections of a worker itself, without its slots: the formula of docs/connections.md."""


def state_of(job: int) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=job)


def ended(job: int) -> bool:
    return Job.objects.filter(pk=job, state__in=("SUCCESSFUL", "FAILED", "CANCELLED"), worker=None).exists()


@each_server()
class TestInEachServer:
    def test_it_begins_with_the_first_request_and_runs_what_requests_queue(
        self, tmp_path: Path, server: Server
    ) -> None:
        marks = tmp_path / "marks"
        before = jobs.append.later(str(marks), "before")
        with served(tmp_path, server) as site:
            found = [site.up() for _ in range(10)]
            assert [each["threads"] for each in found] == [[]] * 10
            moment = clock.now()
            job = site.queue("tests.yard.append", str(marks), "queued by a request")
            until(lambda: ended(job) and ended(before.pk), what="both jobs end")
        before.refresh_from_db()
        assert before.started_at is not None
        assert before.started_at > moment
        assert sorted(lines(marks)) == ["before", "queued by a request"]

    def test_when_the_server_is_stopped_a_running_job_ends_and_so_does_the_server(
        self, tmp_path: Path, server: Server
    ) -> None:
        marks = tmp_path / "marks"
        with served(tmp_path, server) as site:
            job = site.queue("tests.yard.append_and_linger", str(marks), "x", 1.5)
            until(lambda: lines(marks), what="the job begins")
            site.send(server.stop)
            assert site.wait() == server.exit_code, site.output
            assert "Traceback" not in site.output
        assert lines(marks) == ["begin x", "end x"]
        assert state_of(job) == "SUCCESSFUL"

    def test_a_job_longer_than_the_grace_is_given_back_uncounted(self, tmp_path: Path, server: Server) -> None:
        marks = tmp_path / "marks"
        with served(tmp_path, server, jobs={"GRACE": "0.3s"}) as site:
            job = Job.objects.get(pk=site.queue("tests.yard.wait_for_file", str(marks), str(tmp_path / "never")))
            until(lambda: lines(marks), what="the job begins")
            site.send(server.stop)
            assert site.wait() == server.exit_code, site.output
        job.refresh_from_db()
        assert (job.state, job.attempts, job.worker) == ("READY", 0, None)

    def test_a_body_that_does_not_stop_is_left_to_its_lease_and_holds_nobody_up(
        self, tmp_path: Path, server: Server
    ) -> None:
        marks = tmp_path / "marks"
        with served(tmp_path, server, jobs={"GRACE": "0.3s"}) as site:
            job = site.queue("tests.yard.append_and_linger", str(marks), "x", 600.0)
            until(lambda: lines(marks), what="the job begins")
            begun = time.monotonic()
            site.send(server.stop)
            assert site.wait() == server.exit_code, site.output
            # The body has ten minutes to go; the bound is generous for a busy machine.
            assert time.monotonic() - begun < 30
        assert state_of(job) == "RUNNING"


def test_the_job_of_a_server_that_was_killed_runs_again_in_the_next(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    lease = {"LEASE": "2s"}
    with served(tmp_path, SERVERS["gunicorn"], jobs=lease) as site:
        job = site.queue("tests.yard.wait_for_file", str(marks), str(gate))
        until(lambda: lines(marks), what="the job begins")
        site.kill()
    gate.touch()
    with served(tmp_path, SERVERS["gunicorn"], jobs=lease, name="next") as site:
        site.works()
        until(lambda: ended(job), what="the job ends")
    assert lines(marks) == ["begin", "begin", "end"]
    assert state_of(job) == "SUCCESSFUL"


def test_the_workers_of_two_processes_run_each_job_once(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with served(tmp_path, SERVERS["gunicorn --preload"]) as site:
        at_work: set[int] = set()
        until(lambda: at_work.add(site.works()) or len(at_work) == 2, what="both processes have a worker")
        jobs.append.later_many((str(marks), f"{n}") for n in range(1_000))
        until(lambda: not Job.objects.exclude(state="SUCCESSFUL").exists(), what="all jobs end")
        assert at_work == set(children_of(site.process.pid))
    assert sorted(map(int, lines(marks))) == list(range(1_000))
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}


def test_a_process_that_has_served_enough_requests_ends_after_its_job_and_the_next_works_on(tmp_path: Path) -> None:
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    server = Server(module="gunicorn", arguments=(*SERVERS["gunicorn gthread"].arguments, "--max-requests", "30"))
    with served(tmp_path, server) as site:
        first = site.queue("tests.yard.pass_file", str(marks), "x", str(gate))
        until(lambda: lines(marks), what="the job begins")
        until(lambda: "Autorestarting worker" in site.output or not site.up(), what="it has had enough")
        gate.touch()
        until(lambda: ended(first), what="the job ends")
        assert len(lines(marks)) == 2
        second = site.queue("tests.yard.append_pid", str(marks))
        until(lambda: ended(second), what="the next process works")
    begin, end, pid = lines(marks)
    assert begin.split()[2] == end.split()[2] != pid


def test_a_server_that_says_nothing_of_its_end_leaves_the_job_to_its_lease(tmp_path: Path) -> None:
    """uvicorn dies of the signal that stopped it; without `embedded.lifespan` nobody hears of that."""
    marks = tmp_path / "marks"
    server = Server(module="uvicorn", arguments=("tests.web.asgi:without_lifespan", *UVICORN, "--lifespan", "off"))
    with served(tmp_path, server) as site:
        job = site.queue("tests.yard.append_and_linger", str(marks), "x", 600.0)
        until(lambda: lines(marks), what="the job begins")
        site.send(signal.SIGTERM)
        assert site.wait() == -signal.SIGTERM
    assert state_of(job) == "RUNNING"


def test_tables_that_are_not_as_they_should_be_are_told_of_and_waited_for(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    rename = f'alter table "{Job._meta.db_table}" rename column'
    with served(tmp_path, SERVERS["gunicorn gthread"]) as site:
        _execute(f"{rename} fingerprint to footprint")
        try:
            _, word = site.health()
            until(lambda: "our statement CHANGE: " in site.output, what="it is told")
        finally:
            _execute(f"{rename} footprint to fingerprint")
        assert word == "starting"
        told = next(line for line in site.output.splitlines() if "our statement CHANGE: " in line)
        assert told.startswith("no worker runs beside the server: the database 'default' won't take our statement")
        assert told.endswith("; trying again in 1 s")
        job = jobs.append.later(str(marks), "x")
        until(lambda: ended(job.pk), what="it works at last, though no other request comes")


class TestReloading:
    """runserver as developers have it: a parent that starts the serving process anew when the code changes."""

    server = Server(module="django", arguments=("runserver", "127.0.0.1:{port}"))

    def test_the_new_process_has_a_worker_with_the_new_code_and_the_parent_none(
        self, tmp_path: Path, fresh_app: FreshApp
    ) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        with served(tmp_path, self.server) as site:
            old = site.works()
            first = fresh_app.say()
            until(lambda: ended(first.pk), what="the first edition ran")
            [child] = children_of(site.process.pid)
            assert old == child
            assert len(list(Path(f"/proc/{site.process.pid}/task").iterdir())) == 1
            running = jobs.pass_file.later(str(marks), "x", str(gate))
            until(lambda: lines(marks), what="a job begins")
            fresh_app.write("second")
            until(lambda: site.health() == (old, "stopping"), what="the change is seen")
            gate.touch()
            until(lambda: (found := site.is_up()) is not None and found["pid"] != old, what="another process serves")
            second = fresh_app.say()
            assert site.works() != old
            until(lambda: ended(second.pk), what="the second edition ran")
            until(lambda: ended(running.pk), what="the job ends")
        assert lines(marks) == [f"begin x {old}", f"end x {old}"]
        assert lines(fresh_app.marks) == ["first", "second"]


FORKING = """
import os
import sys
import threading
from pathlib import Path

import django
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_started
from django.db import connections

django.setup()
from django_jobs import embedded, signals
from tests.system.processes import lines, until
from tests.yard.jobs import append_pid

marks = Path(sys.argv[1])

def begin():
    request_started.send(sender=WSGIHandler)
    until(lambda: embedded.health() == "ok", what="a worker is well")

def work():
    # The other process may take it; so another is queued, until this one has had one.
    while str(os.getpid()) not in lines(marks):
        count = len(lines(marks))
        append_pid.later(str(marks))
        until(lambda: len(lines(marks)) > count, what="the job ran")

def say(*, message, **_):
    print(os.getpid(), message, flush=True)

embedded.start(concurrency=1)
begin()
work()
parents = embedded._worker._process
child = os.fork()
if not child:
    signals.odd.connect(say)
    assert embedded.health() == "none"
    begin()
    work()
    # Whatever of the parent's was locked as it forked is locked here for good.
    assert parents._crew._lock.acquire(timeout=10)
    telling = threading.Thread(target=signals.tell, args=(signals.jobs_reclaimed, None),
                               kwargs={"changes": [], "let_go": [], "because": "x"}, daemon=True)
    telling.start()
    telling.join(10)
    assert not telling.is_alive()
    threads = [thread.name for thread in threading.enumerate()]
    assert ("django_jobs watchdog" in threads) == (connections["default"].vendor == "postgresql")
    assert embedded.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
signals.odd.connect(say)
assert embedded.health() == "ok"
print("all is well")
"""


def test_a_process_that_was_forked_from_one_with_a_worker_begins_its_own_and_leaves_the_parent_s_alone(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    with worker(tmp_path, str(marks), command=("-W", "ignore::DeprecationWarning", "-c", FORKING)) as forking:
        assert forking.wait() == 0, forking.output
    assert "all is well" in forking.output
    assert "Traceback" not in forking.output
    for pid, count in Counter(lines(marks)).items():
        assert f"{pid} stopped after" in forking.output
        assert f": {count} succeeded, 0 failed" in next(
            line for line in forking.output.splitlines() if line.startswith(f"{pid} stopped after")
        )
    assert set(lines(marks)) > {str(forking.process.pid)}


@pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no sessions to be counted")
class TestConnections:
    @pytest.mark.parametrize("name", ["gunicorn", "gunicorn --preload", "uvicorn"])
    def test_they_stay_within_the_formula_are_shared_by_no_two_processes_and_none_is_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        changes = {"CONN_MAX_AGE": None, "OPTIONS": {"application_name": MARK}}
        monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": changes}))
        marks = tmp_path / "marks"
        server = SERVERS[name]
        with served(tmp_path, server) as site:
            processes = 1 if name == "uvicorn" else 2
            at_work: set[int] = set()
            until(lambda: at_work.add(site.works()) or len(at_work) == processes, what="all processes have a worker")
            jobs.count_users_and_append.later_many((str(marks),) for _ in range(200))
            census = Census()
            until(lambda: census.all_ended(200), what="all jobs end")
            # Requests of these tests ask the database nothing.
            assert census.most <= processes * (OWN + 2)
            opened = Counter(socket for pid in at_work for socket in sockets_of(pid))
            # They listen at the socket of their parent.
            shared = {socket for socket, count in opened.items() if count > 1} - sockets_of(site.process.pid)
            assert shared == set()
            site.send(server.stop)
            assert site.wait() == server.exit_code
        until(lambda: sessions() == 0, what="nothing is left open")
        assert len(lines(marks)) == 200


def _execute(statement: str) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statement)
