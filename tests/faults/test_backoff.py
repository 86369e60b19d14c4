"""O67: whatever the backoff and however many attempts were made, the failure is recorded, with a date that can be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import backoff, lifecycle, named, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Failure
from tests.declaring import declared
from tests.factories import NOON, claim_one, read, seconds, write
from tests.lifecycle.hearing import connection

pytestmark = pytest.mark.django_db

YEAR = timedelta(days=365)


def doubles_for_ever(attempt: int) -> float:
    return 2.0**attempt


def grows_for_ever(attempt: int) -> int:
    return 10**attempt


WAITS = [
    backoff.exponential(),
    backoff.exponential("36525d", factor=1e308, cap="36525d", jitter=1),
    backoff.polynomial(1e308, cap="36525d", jitter=1),
    backoff.linear("36525d", cap="36525d"),
    doubles_for_ever,
    grows_for_ever,
]


def has_waited_long(job: Job) -> None:
    write(job.pk, attempts=4_000, max_attempts=5_000)


def check(job: Job, kind: str) -> None:
    row = read(job.pk)
    assert (row.state, row.attempts) == ("READY", 4_001)
    assert [entry["kind"] for entry in row.errors] == [kind]
    assert NOON < row.run_at <= NOON + YEAR


@pytest.mark.parametrize("waits", WAITS, ids=lambda waits: getattr(waits, "__name__", repr(waits)))
def test_o67_attempt_4001_of_5000_is_recorded_and_another_waits_a_year_at_the_most(
    frozen: FrozenClock, waits: Any
) -> None:
    def fail() -> None:
        raise ValueError("no")

    with declared(fail, backoff=waits) as performer:
        job = performer.later()
        has_waited_long(job)
        work_one()
    check(job, "error")


def test_o67_so_is_one_of_a_name_that_nobody_has(frozen: FrozenClock, settings: Any) -> None:
    settings.DJANGO_JOBS = {"BACKOFF": backoff.exponential("36525d", factor=1e308, cap="36525d")}
    job = Job.objects.get(pk=lifecycle.enqueue(named("other.service"), using="default").id)
    has_waited_long(job)
    work_one()
    check(job, "unknown")


def test_o67_so_is_one_whose_body_had_to_be_killed(frozen: FrozenClock, settings: Any) -> None:
    settings.DJANGO_JOBS = {"BACKOFF": backoff.exponential("36525d", factor=1e308, cap="36525d")}
    job = Job.objects.get(pk=lifecycle.enqueue(named("other.service"), using="default").id)
    has_waited_long(job)
    claim = claim_one()
    died = Failure(kind="crash", reason="killed by signal 9")
    lifecycle.bury(connection(), "worker-1", running=set(), timed_out={claim.lease}, failure=died)
    check(job, "timeout")


def test_o67_so_is_one_whose_process_has_died_thousands_of_times(frozen: FrozenClock) -> None:
    job = Job.objects.get(pk=lifecycle.enqueue(named("other.service"), using="default").id)
    has_waited_long(job)
    write(job.pk, crashes=4_000, max_crashes=5_000)
    frozen.advance(seconds(1))
    claim = claim_one()
    died = Failure(kind="crash", reason="killed by signal 9")
    lifecycle.bury(connection(), "worker-1", running={claim.lease}, failure=died)
    check(job, "crash")
    assert read(job.pk).run_at == NOON + seconds(3_601)
