from __future__ import annotations

import pytest
from django.test import override_settings

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.states import State
from tests.factories import (
    NOON,
    queue_job,
    queue_jobs,
    read,
    run_job,
    seconds,
    take,
)
from tests.lifecycle.hearing import Heard, connection

pytestmark = pytest.mark.django_db


# -- claim


def test_expired_jobs_met_by_a_claim_are_told(heard: list[Heard], frozen: FrozenClock) -> None:
    ids = queue_jobs(2, expires=seconds(1))
    frozen.advance(seconds(1))
    take()
    assert heard == [Heard("jobs_expired", None, {"ids": tuple(ids)})]


def test_a_claim_without_expired_jobs_tells_nothing(heard: list[Heard]) -> None:
    queue_job()
    take()
    assert heard == []


# -- renew


@override_settings(DJANGO_JOBS={"LEASE": "2m"})
def test_a_lease_is_renewed_by_the_setting(frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(30))
    assert lifecycle.renew(connection(), [claim.lease]) == {claim.lease: State.RUNNING}
    assert read(claim.id).lease_expires_at == NOON + seconds(150)
