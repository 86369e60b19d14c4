"""One process that works, with its threads; jobs wait at gates that the test opens."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_jobs import signals
from django_jobs.models import Job
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 20.0


def process(**changes: Any) -> Process:
    return Process(Plan(**{"alias": "default", "identity": "web1:5:ab", "concurrency": 2, "poll": 0.05, **changes}))


@pytest.fixture
def told() -> Any:
    lines: list[str] = []

    def hear(*, message: str, **_: Any) -> None:
        lines.append(message)

    signals.odd.connect(hear)
    yield lines
    signals.odd.disconnect(hear)


def test_after_its_jobs_it_ends_with_code_0_and_says_what_became_of_them(told: list[str]) -> None:
    for number in range(3):
        jobs.note.later(number)
    jobs.explode.later()
    assert process(max_jobs=1, concurrency=1).run() == 0
    assert told[0] == "worker web1:5:ab claims nothing more and ends: it has taken 1 jobs"
    assert told[-1].endswith(": 1 succeeded, 0 failed, 0 released")
    assert process(drain=True).run() == 0
    assert told[-1].endswith(": 2 succeeded, 1 failed, 0 released")


def test_a_failure_while_draining_is_code_4_where_that_was_asked_for() -> None:
    jobs.explode.later()
    assert process(drain=True, fail_on_error=True).run() == 4


def test_when_one_of_its_threads_has_ended_it_gives_back_what_runs_and_ends_with_code_1(told: list[str]) -> None:
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
