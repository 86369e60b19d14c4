"""Jobs lost, stuck, or run twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from tests.declaring import declared

LEASE = timedelta(seconds=60)


@pytest.mark.django_db
def test_o03_a_job_due_far_ahead_is_not_claimed_before_and_runs_once(frozen: FrozenClock) -> None:
    runs: list[timedelta] = []
    start = frozen.instant

    def body() -> None:
        runs.append(frozen.instant - start)

    with declared(body) as performer:
        job = performer.at(start + 3 * LEASE).later()
        # Each turn is a worker of its own, as after a restart.
        for _ in range(12):
            for _ in range(4):
                work_one()
            frozen.advance(LEASE / 2)
    assert runs == [3 * LEASE]
    row = Job.objects.get(pk=job.pk)
    assert (row.state, row.attempts) == ("SUCCESSFUL", 1)


@pytest.mark.django_db
def test_o03_a_job_due_far_ahead_is_not_claimed_a_moment_too_early(frozen: FrozenClock) -> None:
    with declared(do_nothing) as performer:
        performer.after(3 * LEASE).later()
        frozen.advance(3 * LEASE - timedelta(microseconds=1))
        assert work_one() is None
        frozen.advance(timedelta(microseconds=1))
        assert work_one() is not None


def do_nothing() -> None:
    pass
