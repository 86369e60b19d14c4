"""One body in a seat: wherever an interruption strikes, the run comes to something, and the thread lives on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import runner, work_one
from django_jobs.exceptions import JobTimeout
from django_jobs.models import Job
from django_jobs.outcomes import Ending, Retried, Succeeded
from django_jobs.records import Claim
from django_jobs.worker.body import run_in
from django_jobs.worker.seat import ThreadSeat
from tests.factories import claim_one
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def strikes_on_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each body interrupted when it has returned and its surroundings are tidied."""
    run: Callable[..., Ending] = runner.run

    def ran(claim: Claim, seat: Any, **options: Any) -> Ending:
        ending = run(claim, seat, **options)
        seat.interrupt(claim.lease, JobTimeout)
        return ending

    monkeypatch.setattr(runner, "run", ran)


def test_a_body_that_is_left_alone_gives_what_it_came_to() -> None:
    jobs.note.later(1)
    assert run_in(ThreadSeat(), claim_one()) == (Succeeded(), None)


def test_an_interruption_on_the_way_out_is_told_and_goes_no_further(strikes_on_the_way_out: None) -> None:
    jobs.note.later(1)
    ending, interruption = run_in(ThreadSeat(), claim_one())
    assert interruption is JobTimeout
    assert isinstance(ending, Retried)


def test_work_one_records_a_timeout_that_strikes_on_the_way_out(strikes_on_the_way_out: None) -> None:
    jobs.note.later(1)
    assert isinstance(work_one(), Retried)
    job = Job.objects.get()
    assert (job.state, job.errors[0]["kind"]) == ("READY", "timeout")
