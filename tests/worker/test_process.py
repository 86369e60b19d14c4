"""One process that works, with its threads; jobs wait at gates that the test opens."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.factories import seconds
from tests.system.processes import until
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 20.0


def process(**changes: Any) -> Process:
    return Process(Plan(**{"alias": "default", "identity": "web1:5:ab", "concurrency": 2, "poll": 0.05, **changes}))


def test_after_its_jobs_it_ends_with_code_0_and_says_what_became_of_them(odd: list[str]) -> None:
    for number in range(3):
        jobs.note.later(number)
    jobs.explode.later()
    assert process(max_jobs=1, concurrency=1).run() == 0
    assert odd[0] == "worker web1:5:ab claims nothing more and ends: it has taken 1 jobs"
    assert odd[-1].endswith(": 1 succeeded, 0 failed, 0 released")
    assert process(drain=True).run() == 0
    assert odd[-1].endswith(": 2 succeeded, 1 failed, 0 released")


def test_a_failure_while_draining_is_code_4_where_that_was_asked_for() -> None:
    jobs.explode.later()
    assert process(drain=True, fail_on_error=True).run() == 4


def test_when_one_of_its_threads_has_ended_it_gives_back_what_runs_and_ends_with_code_1(odd: list[str]) -> None:
    job = jobs.pass_gate.later("held")
    working = process()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(working.run()))
    thread.start()
    assert jobs.entered["held"].wait(PATIENCE)
    working._break()
    # The body waits in a lock, where an interruption doesn't reach it; it strikes when the gate is opened.
    jobs.gates["held"].set()
    thread.join(PATIENCE)
    assert codes == [1]
    assert Job.objects.get(pk=job.pk).state in ("READY", "SUCCESSFUL")


@override_settings(DJANGO_JOBS={"LEASE": "2s", "TIMEOUT_GRACE": 0})
def test_a_body_that_does_not_stop_is_left_to_its_lease() -> None:
    job = jobs.pass_gate.using(timeout=0.2).later("held")
    working = process(grace=0.0)
    thread = threading.Thread(target=working.run)
    thread.start()
    try:
        assert jobs.entered["held"].wait(PATIENCE)
        job.refresh_from_db()
        assert job.started_at is not None
        # Renewed every half a second it would be held for three by then.
        until(lambda: clock.now() >= job.started_at + seconds(1.5), what="it has been overdue for a while")
        job.refresh_from_db()
        assert job.lease_expires_at is not None
        assert job.lease_expires_at < job.started_at + seconds(2.6)
    finally:
        working.stop_now()
        jobs.gates["held"].set()
        thread.join(PATIENCE)
