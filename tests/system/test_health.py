"""What a running command shows of itself: rows of its workers, a heartbeat file, a port for probes."""

from __future__ import annotations

import os
import re
import signal
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from django.db import connections

from django_jobs.models import Job, Worker
from tests.system.processes import LONGER, PATIENCE, PATIENT, lines, until, worker, workers
from tests.system.processes import Worker as Running
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

both_forms = pytest.mark.parametrize("processes", ["0", "2"])


def ask(running: Running, path: str) -> tuple[int, str]:
    """Ask the command at the address that it said."""
    host, port = re.findall(r"probes on http://([\d.]+):(\d+): ", running.output)[0]
    with closing(HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode().strip()


def identities() -> set[str]:
    return set(Worker.objects.values_list("identity", flat=True))


def said_identities(running: Running) -> list[str]:
    return re.findall(r"worker (\S+) · \d+ slots", running.output)


def ended(job: Job) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") and job.worker is None


class TestWorkerRows:
    @both_forms
    def test_workers_have_rows_while_they_live(self, tmp_path: Path, processes: str) -> None:
        with workers(tmp_path, "--processes", processes, "-c", "2", "-q", "default") as [running]:
            count = max(1, int(processes))
            until(lambda: len(identities()) == count, what="each worker has a row")
            until(lambda: identities() == set(said_identities(running)), what="they are those that said so")
            for row in Worker.objects.all():
                assert (row.host, row.queues, row.slots) == (socket.gethostname(), ["default"], 2 // count)
                assert f":{row.pid}:" in row.identity
            running.send(signal.SIGTERM)
            assert running.wait() == 0
        assert identities() == set()

    def test_the_row_of_a_worker_that_dies_goes_and_its_successor_has_one(self, tmp_path: Path) -> None:
        with workers(tmp_path) as [running]:
            until(lambda: len(identities()) == 1, what="the worker has a row")
            [before] = identities()
            os.kill(int(before.split(":")[1]), signal.SIGKILL)
            until(lambda: len(identities()) == 1 and before not in identities(), what="the rows are right")
            until(lambda: identities() == {said_identities(running)[-1]}, what="it is the successor's")

    def test_o01b_a_row_that_somebody_deletes_under_a_running_job_changes_nothing(self, tmp_path: Path) -> None:
        marks, gate = tmp_path / "marks", tmp_path / "gate"
        job = jobs.wait_for_file.later(str(marks), str(gate))
        with workers(tmp_path, count=2):
            until(lambda: lines(marks), what="the job begins")
            until(lambda: len(identities()) == 2, what="both have rows")
            Worker.objects.all().delete()
            until(lambda: len(identities()) == 2, what="both have rows again")
            gate.touch()
            until(lambda: ended(job), what="the job ends")
        assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])

    def test_a_claim_shows_in_the_row(self, tmp_path: Path) -> None:
        with workers(tmp_path):
            until(lambda: Worker.objects.filter(claimed_at__isnull=False).exists(), what="a beat tells of a claim")


class TestProbes:
    @both_forms
    def test_a_command_that_works_answers_that_all_is_well(self, tmp_path: Path, processes: str) -> None:
        marks = tmp_path / "marks"
        arguments = ("--processes", processes, "-c", "2", "--probe-port", "0")
        with workers(tmp_path, *arguments, jobs={"TIMEOUT": None}) as [running]:
            until(lambda: "probes on" in running.output, what="it says where it can be asked")
            until(lambda: ask(running, "/started") == (200, "ok"), what="it has started")
            until(lambda: ask(running, "/ready") == (200, "ok"), what="it is ready")
            assert ask(running, "/live") == (200, "ok")
            assert ask(running, "/elsewhere") == (404, "unknown")
            job = jobs.append_and_linger.later(str(marks), "x", 600.0)
            until(lambda: lines(marks), what="a job runs")
            assert ask(running, "/ready") == (200, "ok")
            running.send(signal.SIGTERM)
            until(lambda: ask(running, "/ready") == (503, "stopping"), what="it stops")
            assert ask(running, "/live") == (200, "ok")
            running.send(signal.SIGTERM)
            # Without a supervisor nobody stops the body, and the job is left to its lease.
            assert running.wait() == (0 if processes == "2" else 3)
            with pytest.raises(ConnectionError):
                ask(running, "/live")
        job.refresh_from_db()
        assert job.state == ("READY" if processes == "2" else "RUNNING")

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no connections that can be cut")
    @both_forms
    def test_o07_an_idle_command_whose_connections_were_all_cut_claims_again(
        self, tmp_path: Path, processes: str
    ) -> None:
        marks = tmp_path / "marks"
        arguments = ("--processes", processes, "-c", "2", "--probe-port", "0")
        with workers(tmp_path, *arguments) as [running]:
            until(lambda: "probes on" in running.output, what="it says where it can be asked")
            until(lambda: ask(running, "/ready") == (200, "ok"), what="it is ready")
            with connections["default"].cursor() as cursor:
                cursor.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()"
                )
            job = jobs.append.later(str(marks), "x")
            until(lambda: ended(job), what="the job runs")
            assert ask(running, "/live") == (200, "ok")
            assert ask(running, "/ready") == (200, "ok")


class TestHeartbeatFile:
    @both_forms
    def test_it_is_touched_while_the_command_works_and_gone_when_it_has_ended(
        self, tmp_path: Path, processes: str
    ) -> None:
        path = tmp_path / "heartbeat"
        with workers(tmp_path, "--processes", processes, "--heartbeat-file", str(path)) as [running]:
            os.utime(path, (0, 0))
            until(lambda: path.stat().st_mtime, what="it is touched")
            running.send(signal.SIGTERM)
            assert running.wait() == 0
        assert not path.exists()


class TestStart:
    def test_a_port_that_is_taken_is_refused(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            with worker(tmp_path, "--probe-port", port) as refused:
                assert refused.wait() == 1
        assert lines(refused.log) == [
            f"CommandError: --probe-port {port}: 127.0.0.1 can't be listened on there: Address already in use"
        ]

    def test_a_heartbeat_file_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere" / "heartbeat"
        with worker(tmp_path, "--heartbeat-file", str(path)) as refused:
            assert refused.wait() == 1
        assert lines(refused.log) == [
            f"CommandError: --heartbeat-file {path}: can't be written: No such file or directory"
        ]

    def test_it_warns_in_one_line_of_jobs_whose_queue_it_does_not_serve(self, tmp_path: Path) -> None:
        with worker(tmp_path, "--drain", "-q", "mail", jobs={"DEFAULT_QUEUE": "misc"}) as draining:
            assert draining.wait() == 0
        [line] = [line for line in lines(draining.log) if "doesn't serve" in line]
        assert "jobs wait under queues that this command doesn't serve: " in line
        assert re.search(r"misc \(.*tests\.yard\.append, .*\)", line)

    def test_it_warns_of_jobs_whose_queue_the_settings_do_not_allow(self, tmp_path: Path) -> None:
        with worker(tmp_path, "--drain", jobs={"QUEUES": ["mail"]}) as draining:
            assert draining.wait() == 0
        [line] = [line for line in lines(draining.log) if "jobs wait" in line]
        assert "jobs wait under queues that DJANGO_JOBS['QUEUES'] doesn't have: default (" in line

    def test_one_that_serves_all_queues_warns_of_nothing(self, tmp_path: Path) -> None:
        with worker(tmp_path, "--drain") as draining:
            assert draining.wait() == 0
        assert "jobs wait" not in draining.output


def test_o09_an_async_job_that_blocks_its_loop_past_its_lease_runs_once(tmp_path: Path) -> None:
    """Its lease is renewed elsewhere. (What holds the whole interpreter: see the tests of the supervisor.)"""
    marks = tmp_path / "marks"
    job = jobs.block_loop.later(str(marks), LONGER)
    with workers(tmp_path, count=2, jobs=PATIENT):
        until(lambda: ended(job), what="the job ends")
    assert (job.state, job.attempts, lines(marks)) == ("SUCCESSFUL", 1, ["begin", "end"])
