"""What the databases make of instants and durations: exact to the microsecond, and alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.stores import store_for
from tests.factories import new_job

moments = st.datetimes(datetime(1990, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC))
delays = st.timedeltas(timedelta(0), timedelta(days=4_000))
few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.django_db
@few
@given(now=moments, delay=delays, expires=delays)
def test_delays_add_up_exactly(now: datetime, delay: timedelta, expires: timedelta) -> None:
    with clock.freeze(now):
        inserted = store_for("default").insert(connections["default"], new_job(delay=delay, expires=expires))
    assert (inserted.enqueued_at, inserted.run_at, inserted.expires_at) == (now, now + delay, now + delay + expires)
    found = Job.objects.values_list("enqueued_at", "run_at", "expires_at").get(pk=inserted.id)
    assert found == (now, now + delay, now + delay + expires)


@pytest.mark.django_db
@few
@given(run_at=moments, expires=delays)
def test_expiry_adds_up_from_a_given_moment(run_at: datetime, expires: timedelta) -> None:
    [job_id] = store_for("default").insert_many(connections["default"], [new_job(run_at=run_at, expires=expires)])
    assert Job.objects.values_list("run_at", "expires_at").get(pk=job_id) == (run_at, run_at + expires)


@pytest.mark.django_db
def test_without_a_frozen_clock_the_database_tells_the_time() -> None:
    before = clock.now() - timedelta(seconds=60)
    inserted = store_for("default").insert(connections["default"], new_job())
    assert before < inserted.enqueued_at < before + timedelta(seconds=120)
    assert inserted.run_at == inserted.enqueued_at
