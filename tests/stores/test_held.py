from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Outcome
from django_jobs.records import HeldRow, Lease
from django_jobs.states import State
from django_jobs.stores.base import Store
from django_jobs.transitions import Place
from tests.factories import locked, place_of, queue_job, queue_jobs, read, run_job, seconds, take, turn_round
from tests.stores.outcomes import every_outcome, settle

pytestmark = pytest.mark.django_db


# -- renew


def test_a_held_row_is_renewed_from_now(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(15))
    assert store.renew(connection, [claim.lease], lease=seconds(60)) == {claim.lease: State.RUNNING}
    assert read(claim.id).lease_expires_at == datetime(2026, 3, 1, 12, 1, 15, tzinfo=UTC)


def test_a_lease_that_is_over_but_not_taken_away_is_renewed(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(timedelta(hours=1))
    assert store.renew(connection, [claim.lease], lease=seconds(60)) == {claim.lease: State.RUNNING}


def test_only_the_leases_named_are_renewed(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    mine, other = run_job(), run_job()
    frozen.advance(seconds(15))
    store.renew(connection, [mine.lease], lease=seconds(60))
    assert read(other.id).lease_expires_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


def test_of_several_rows_claimed_at_once_only_those_named_are_renewed_and_let_go(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_jobs(2)
    mine, other = take().claims
    assert mine.token == other.token
    before = Job.objects.filter(pk=other.id).values().get()
    frozen.advance(seconds(15))
    assert store.renew(connection, [mine.lease], lease=seconds(60)) == {mine.lease: State.RUNNING}
    assert Job.objects.filter(pk=other.id).values().get() == before
    store.cancel(connection, [mine.id, other.id], reason="")
    before = Job.objects.filter(pk=other.id).values().get()
    assert store.let_go(connection, [mine.lease]) == {mine.lease}
    assert Job.objects.filter(pk=other.id).values().get() == before


def test_another_token_renews_nothing(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(15))
    stale = Lease(id=claim.id, token=claim.token - 1)
    assert store.renew(connection, [stale], lease=seconds(60)) == {}
    assert read(claim.id).lease_expires_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


@every_outcome
def test_a_row_that_is_no_longer_held_is_not_renewed(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome
) -> None:
    claim = run_job()
    settle(store, connection, claim, outcome)
    assert store.renew(connection, [claim.lease], lease=seconds(60)) == {}
    assert read(claim.id).lease_expires_at is None


def test_a_row_cancelled_while_held_is_renewed_and_told_as_cancelled(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(seconds(15))
    assert store.renew(connection, [claim.lease], lease=seconds(60)) == {claim.lease: State.CANCELLED}
    assert read(claim.id).lease_expires_at == datetime(2026, 3, 1, 12, 1, 15, tzinfo=UTC)


def test_renewing_nothing_is_nothing(store: Store, connection: BaseDatabaseWrapper) -> None:
    run_job()
    assert store.renew(connection, [], lease=seconds(60)) == {}


# -- let go


def test_a_cancelled_row_is_let_go_under_its_token(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    assert store.let_go(connection, [claim.lease]) == {claim.lease}
    row = read(claim.id)
    assert (row.state, row.worker, row.lease_expires_at, row.deadline_at) == ("CANCELLED", None, None, None)
    assert row.last_worker == "worker-1"


def test_another_token_lets_nothing_go(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    assert store.let_go(connection, [Lease(id=claim.id, token=claim.token - 1)]) == set()
    assert place_of(claim.id) is Place.STOPPING


def test_a_running_row_is_not_let_go(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    assert store.let_go(connection, [claim.lease]) == set()
    assert place_of(claim.id) is Place.RUNNING


def test_a_row_is_let_go_once(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    store.let_go(connection, [claim.lease])
    assert store.let_go(connection, [claim.lease]) == set()


# -- peek


def test_peek_tells_who_holds_a_row(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    assert store.peek(connection, [claim.id]) == {
        claim.id: HeldRow(
            id=claim.id,
            token=claim.token,
            state=State.RUNNING,
            worker="worker-1",
            name="shop.greet",
            queue="aside",
            attempts=1,
            max_attempts=3,
            crashes=0,
            max_crashes=3,
            alone=False,
            restart=True,
        )
    }


def test_peek_passes_over_rows_never_claimed_and_ids_that_are_gone(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    waiting, claim, _other = queue_job(), run_job(), run_job()
    assert list(store.peek(connection, [waiting, claim.id, claim.id + 1_000])) == [claim.id]


def test_what_a_worker_holds_is_told_in_the_order_of_ids(store: Store, connection: BaseDatabaseWrapper) -> None:
    claims = [run_job() for _ in range(8)]
    queue_job()
    take(worker="worker-2")
    turn_round([claim.id for claim in claims])
    assert [row.id for row in store.held_by(connection, "worker-1")] == [claim.id for claim in claims]


# -- row locks


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_not_waited_for_by_renew(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    first, second = run_job(), run_job()
    with locked(first.id):
        assert store.renew(connection, [first.lease, second.lease], lease=seconds(60)) == {second.lease: State.RUNNING}


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_not_waited_for_by_let_go(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    first, second = run_job(), run_job()
    store.cancel(connection, [first.id, second.id], reason="")
    with locked(first.id):
        assert store.let_go(connection, [first.lease, second.lease]) == {second.lease}
