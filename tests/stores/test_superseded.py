"""What gives way to another job, row by row: only under its claim, and only while the other waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.clock import FrozenClock
from django_jobs.outcomes import Snoozed
from django_jobs.records import Claim, Lease
from django_jobs.stores.base import Store
from django_jobs.transitions import Change, Place
from tests.factories import NOON, locked, place_of, queue_job, queue_jobs, read, run_job, seconds, take

pytestmark = pytest.mark.django_db

Verb = Callable[[Sequence[Change]], set[Lease]]


@pytest.fixture(params=["settle", "reclaim"])
def ends(request: pytest.FixtureRequest, store: Store, connection: BaseDatabaseWrapper) -> Verb:
    """Write ends as workers do, or as a reclaim does, for which the lease has to be over."""
    return partial(getattr(store, request.param), connection)


def gives_way(claim: Claim, rival: int) -> Change:
    """Have a job that would run again in five seconds give way to another."""
    return transitions.supersede(transitions.settle(claim, Snoozed(delay=seconds(5))), rival)


def test_it_is_cancelled_with_what_its_run_came_to(ends: Verb, frozen: FrozenClock) -> None:
    claim, rival = run_job(keep_failed=600.0), queue_job()
    frozen.advance(seconds(60))
    assert ends([gives_way(claim, rival)._replace(attempts=7, max_attempts=9, crashes=2)]) == {claim.lease}
    row = read(claim.id)
    assert (row.state, row.attempts, row.max_attempts, row.crashes) == ("CANCELLED", 7, 9, 2)
    assert (row.finished_at, row.prune_at) == (NOON + seconds(60), NOON + seconds(660))
    assert (row.token, row.worker, row.lease_expires_at, row.deadline_at) == (claim.token, None, None, None)
    assert row.errors == [
        {
            "attempt": 1,
            "started_at": "2026-03-01T12:00:00.000000Z",
            "at": "2026-03-01T12:01:00.000000Z",
            "worker": "worker-1",
            "kind": "superseded",
            "exception": "",
            "reason": f"superseded by #{rival}",
            "traceback": "",
        }
    ]
    assert place_of(rival) is Place.READY


def test_of_several_rows_claimed_at_once_only_those_named_give_way(ends: Verb, frozen: FrozenClock) -> None:
    queue_jobs(2)
    first, second = sorted(take().claims, key=lambda claim: claim.id)
    rival = queue_job()
    frozen.advance(seconds(60))
    assert ends([gives_way(second, rival)]) == {second.lease}
    assert [place_of(first.id), place_of(second.id)] == [Place.RUNNING, Place.CANCELLED]


def test_nothing_gives_way_under_another_token(ends: Verb, frozen: FrozenClock) -> None:
    claim, rival = run_job(), queue_job()
    frozen.advance(seconds(60))
    lease = Lease(id=claim.id, token=claim.token + 1)
    assert ends([gives_way(claim, rival)._replace(lease=lease)]) == set()
    assert place_of(claim.id) is Place.RUNNING


def test_a_row_cancelled_meanwhile_stays_held_whatever_was_claimed_with_it(
    store: Store, connection: BaseDatabaseWrapper, ends: Verb, frozen: FrozenClock
) -> None:
    queue_jobs(2)
    first, second = sorted(take().claims, key=lambda claim: claim.id)
    rival = queue_job()
    store.cancel(connection, [first.id], reason="")
    frozen.advance(seconds(60))
    assert ends([gives_way(first, rival)]) == set()
    assert [place_of(first.id), place_of(second.id)] == [Place.STOPPING, Place.RUNNING]


def test_nothing_gives_way_to_what_does_not_wait(ends: Verb, frozen: FrozenClock) -> None:
    claim, rival = run_job(), run_job()
    queue_job()
    frozen.advance(seconds(60))
    assert ends([gives_way(claim, rival.id), gives_way(claim, 10**12)]) == set()
    assert [place_of(claim.id), place_of(rival.id)] == [Place.RUNNING, Place.RUNNING]


@pytest.mark.parametrize(("beyond", "place"), [(0, Place.CANCELLED), (1, Place.RUNNING)])
def test_nothing_gives_way_to_what_runs_later_than_it_would(
    ends: Verb, frozen: FrozenClock, beyond: int, place: Place
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    rival = queue_job(delay=timedelta(seconds=5, microseconds=beyond))
    ends([gives_way(claim, rival)])
    assert place_of(claim.id) is place


# -- taken back


def test_nothing_is_taken_back_to_give_way_before_its_lease_is_over(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim, rival = run_job(), queue_job()
    frozen.advance(timedelta(seconds=59, microseconds=999_999))
    assert store.reclaim(connection, [gives_way(claim, rival)]) == set()
    frozen.advance(timedelta(microseconds=1))
    assert store.reclaim(connection, [gives_way(claim, rival)]) == {claim.lease}


def test_what_a_broken_supervisor_renews_for_ever_gives_way_at_its_deadline(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim, rival = run_job(timeout=300.0), queue_job()
    frozen.advance(timedelta(seconds=364, microseconds=999_999))
    store.renew(connection, [claim.lease], lease=seconds(60))
    assert store.reclaim(connection, [gives_way(claim, rival)]) == set()
    frozen.advance(timedelta(microseconds=1))
    assert store.reclaim(connection, [gives_way(claim, rival)]) == {claim.lease}


# -- locks


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who", ["itself", "its rival"])
def test_where_somebody_locks_a_row_it_goes_later_and_its_neighbours_go_now(
    ends: Verb, frozen: FrozenClock, row_locks: None, who: str
) -> None:
    first, second = run_job(), run_job()
    rivals = queue_jobs(2)
    frozen.advance(seconds(60))
    changes = [gives_way(first, rivals[0]), gives_way(second, rivals[1])]
    with locked(first.id if who == "itself" else rivals[0]):
        assert ends(changes) == {second.lease}
    assert ends(changes) == {first.lease}
