"""Every outcome, and the short way to settle with one."""

from __future__ import annotations

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim
from django_jobs.stores.base import Store
from tests.factories import failure, seconds

OUTCOMES: list[Outcome] = [
    Succeeded(),
    Failed(failure=failure()),
    Retried(failure=failure(), delay=seconds(30)),
    Snoozed(delay=seconds(30)),
    Cancelled(reason="sold out"),
    GaveUp(failure=failure()),
    Released(started=True),
]

every_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)


def settle(store: Store, connection: BaseDatabaseWrapper, claim: Claim, outcome: Outcome) -> bool:
    written = store.settle(connection, [transitions.settle(claim, outcome)])
    assert written <= {claim.lease}
    return bool(written)
