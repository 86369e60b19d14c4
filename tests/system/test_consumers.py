"""Consumers of the low level in processes of their own, with no supervisor, and beside one."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from django_jobs import lowlevel
from django_jobs.models import Job
from tests.factories import read
from tests.system.processes import lines, until, worker
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = """
import sys
import django

django.setup()
from django_jobs import lowlevel

what, path = sys.argv[1:]
with open(path, "a", buffering=1) as marks:
    if what == "hold":
        marks.write(f"{lowlevel.take('mail', '2s').id}\\n")
        sys.stdin.read()
    while (claim := lowlevel.take("mail")) is not None:
        marks.write(f"{claim.payload}\\n")
        assert lowlevel.ack(claim)
"""

CONSUMER = ("-c", SCRIPT)


def test_what_a_killed_consumer_had_comes_back_by_the_take_after_its_lease(tmp_path: Path) -> None:
    row_id = lowlevel.push("mail", 1)
    marks = tmp_path / "marks"
    # -1 is a pipe, which nobody closes before the kill.
    with worker(tmp_path, "hold", str(marks), command=CONSUMER, stdin=-1) as consumer:
        until(lambda: lines(marks) == [str(row_id)], what="the consumer has the row")
        until_lease = read(row_id).lease_expires_at
        consumer.send(signal.SIGKILL)
        consumer.wait()
        assert consumer.process.stdin is not None
        consumer.process.stdin.close()
    claim = until(lambda: lowlevel.take("mail"), what="the row comes back")
    assert (claim.id, claim.attempts) == (row_id, 2)
    assert until_lease is not None
    started_at = read(row_id).started_at
    assert started_at is not None
    assert started_at >= until_lease


def test_consumers_in_several_processes_do_each_rows_work_once(tmp_path: Path) -> None:
    for number in range(300):
        lowlevel.push("mail", number)
    marks = tmp_path / "marks"
    with ExitStack() as stack:
        running = [
            stack.enter_context(worker(tmp_path, "drain", str(marks), command=CONSUMER, name=f"consumer-{number}"))
            for number in range(3)
        ]
        assert [(one.wait(), one.output) for one in running] == [(0, "")] * 3
    assert sorted(map(int, lines(marks))) == list(range(300))
    assert lowlevel.stats() == {}


def test_runjobs_drains_its_jobs_and_leaves_the_rows_beside_them(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    taken_id, waiting_id = lowlevel.push("mail", 1), lowlevel.push("mail", 2)
    assert lowlevel.take("mail", lease=1) is not None
    jobs.append.using(queue="mail").later(str(marks), "done")
    with worker(tmp_path, "--drain", jobs={"LEASE": "1s"}) as command:
        assert command.wait() == 0, command.output
    assert lines(marks) == ["done"]
    assert Job.objects.exclude(name="").get().state == "SUCCESSFUL"
    assert (read(taken_id).state, read(waiting_id).state) == ("RUNNING", "READY")
