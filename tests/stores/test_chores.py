from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.records import Lease
from django_jobs.stores.base import Store
from django_jobs.transitions import Change, Place
from tests.factories import (
    NOON,
    claim_one,
    failure,
    locked,
    place_of,
    queue_job,
    queue_jobs,
    read,
    run_job,
    seconds,
    take,
    turn_round,
    write,
)

pytestmark = pytest.mark.django_db


def lapsed_ids(store: Store, connection: BaseDatabaseWrapper, *, limit: int = 100) -> list[int]:
    return [row.id for row in store.lapsed(connection, limit=limit)]


def decided(store: Store, connection: BaseDatabaseWrapper) -> list[Change]:
    """Decide on all rows whose lease is over."""
    lapse = failure(kind="lapse", reason="the lease ran out", exception="")
    return [transitions.reclaim(row, failure=lapse) for row in store.lapsed(connection, limit=100)]


# -- which leases are over


def test_a_lease_is_over_at_its_very_instant(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(timedelta(seconds=59, microseconds=999_999))
    assert lapsed_ids(store, connection) == []
    frozen.advance(timedelta(microseconds=1))
    assert lapsed_ids(store, connection) == [claim.id]


def test_a_renewed_lease_is_not_over(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(59))
    store.renew(connection, [claim.lease], lease=seconds(60))
    frozen.advance(seconds(59))
    assert lapsed_ids(store, connection) == []


def test_a_deadline_ends_what_a_broken_supervisor_renews_for_ever(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(timeout=300.0)
    frozen.advance(timedelta(seconds=364, microseconds=999_999))
    store.renew(connection, [claim.lease], lease=seconds(60))
    assert lapsed_ids(store, connection) == []
    frozen.advance(timedelta(microseconds=1))
    assert lapsed_ids(store, connection) == [claim.id]
    assert store.reclaim(connection, decided(store, connection)) == {claim.lease}


def test_a_job_without_timeout_may_be_renewed_for_ever(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(timeout=None)
    frozen.advance(timedelta(days=300))
    store.renew(connection, [claim.lease], lease=seconds(60))
    assert lapsed_ids(store, connection) == []


def test_only_held_rows_have_a_lease_to_be_over(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_job()
    store.settle(connection, [transitions.settle(run_job(), Succeeded())])
    running, cancelled = run_job(), run_job()
    store.cancel(connection, [cancelled.id], reason="")
    frozen.advance(timedelta(days=1))
    assert lapsed_ids(store, connection) == [running.id, cancelled.id]


def test_rows_of_the_low_level_are_left_to_their_consumer(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    write(run_job().id, name="")
    frozen.advance(timedelta(days=1))
    assert lapsed_ids(store, connection) == []


def held_by(worker: str) -> int:
    queue_job()
    return claim_one(worker=worker).id


def test_no_more_are_found_than_asked_for_and_those_of_one_worker_together(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    ids = [held_by(f"worker-{2 - n % 2}") for n in range(8)]
    turn_round(ids)
    frozen.advance(timedelta(days=1))
    assert lapsed_ids(store, connection, limit=6) == [*ids[1::2], *ids[0:4:2]]


# -- reclaim


def test_a_lapsed_row_comes_back_with_an_entry(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    assert store.reclaim(connection, decided(store, connection)) == {claim.lease}
    row = read(claim.id)
    assert (row.state, row.attempts, row.crashes, row.worker, row.lease_expires_at) == ("READY", 1, 1, None, None)
    assert (row.run_at, row.deadline_at) == (datetime(2026, 3, 1, 12, 1, tzinfo=UTC), None)
    assert (row.finished_at, row.prune_at) == (None, None)
    assert row.errors == [
        {
            "attempt": 1,
            "started_at": "2026-03-01T12:00:00.000000Z",
            "at": "2026-03-01T12:01:00.000000Z",
            "worker": "worker-1",
            "kind": "lapse",
            "exception": "",
            "reason": "the lease ran out",
            "traceback": "",
        }
    ]


def test_a_row_whose_attempts_are_used_up_fails(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(max_attempts=1, keep_failed=60.0)
    frozen.advance(seconds(60))
    store.reclaim(connection, decided(store, connection))
    row = read(claim.id)
    assert (row.state, row.crashes) == ("FAILED", 1)
    assert (row.finished_at, row.prune_at) == (NOON + seconds(60), NOON + seconds(120))


def test_a_row_renewed_between_reading_and_writing_is_not_touched(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    changes = decided(store, connection)
    store.renew(connection, [claim.lease], lease=seconds(60))
    assert store.reclaim(connection, changes) == set()
    assert place_of(claim.id) is Place.RUNNING


def test_a_row_renewed_meanwhile_is_not_touched_for_the_sake_of_one_claimed_with_it(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_jobs(2)
    renewed, _lapsed = take().claims
    frozen.advance(seconds(60))
    [change] = [change for change in decided(store, connection) if change.lease == renewed.lease]
    store.renew(connection, [renewed.lease], lease=seconds(60))
    assert store.reclaim(connection, [change]) == set()
    assert place_of(renewed.id) is Place.RUNNING


def test_a_row_claimed_again_between_reading_and_writing_is_not_touched(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    run_job()
    frozen.advance(seconds(60))
    changes = decided(store, connection)
    store.reclaim(connection, changes)
    again = claim_one(worker="worker-2", queues=("aside",))
    frozen.advance(seconds(60))
    assert store.reclaim(connection, changes) == set()
    row = read(again.id)
    assert (row.state, row.token, row.worker) == ("RUNNING", again.token, "worker-2")


def test_a_row_settled_between_reading_and_writing_is_not_touched(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    changes = decided(store, connection)
    store.settle(connection, [transitions.settle(claim, Succeeded())])
    assert store.reclaim(connection, changes) == set()
    assert place_of(claim.id) is Place.SUCCESSFUL


def test_a_row_cancelled_between_reading_and_writing_is_not_touched(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    changes = decided(store, connection)
    store.cancel(connection, [claim.id], reason="")
    assert store.reclaim(connection, changes) == set()
    assert place_of(claim.id) is Place.STOPPING


def test_a_zombie_settles_nothing_after_reclaim(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    zombie = run_job()
    frozen.advance(seconds(60))
    store.reclaim(connection, decided(store, connection))
    assert store.settle(connection, [transitions.settle(zombie, Succeeded())]) == set()
    assert store.renew(connection, [zombie.lease], lease=seconds(60)) == {}
    assert place_of(zombie.id) is Place.READY


def test_of_several_rows_claimed_at_once_only_those_named_are_taken_back(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_jobs(2)
    mine, other = take().claims
    assert mine.token == other.token
    frozen.advance(seconds(60))
    before = Job.objects.filter(pk=other.id).values().get()
    [change] = [change for change in decided(store, connection) if change.lease == mine.lease]
    assert store.reclaim(connection, [change]) == {mine.lease}
    assert Job.objects.filter(pk=other.id).values().get() == before


def test_of_several_cancelled_rows_only_those_named_are_let_go(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_jobs(2)
    mine, other = take().claims
    store.cancel(connection, [mine.id, other.id], reason="")
    frozen.advance(seconds(60))
    assert store.let_go_lapsed(connection, [mine.lease]) == {mine.lease}
    assert place_of(other.id) is Place.STOPPING


def test_a_cancelled_row_whose_lease_is_over_is_let_go(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(seconds(60))
    assert store.let_go_lapsed(connection, [claim.lease]) == {claim.lease}
    row = read(claim.id)
    assert (row.state, row.worker, row.lease_expires_at, row.deadline_at) == ("CANCELLED", None, None, None)


def test_a_cancelled_row_whose_deadline_is_over_is_let_go_though_its_lease_is_renewed(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(timeout=300.0)
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(timedelta(seconds=364, microseconds=999_999))
    store.renew(connection, [claim.lease], lease=seconds(60))
    assert store.let_go_lapsed(connection, [claim.lease]) == set()
    frozen.advance(timedelta(microseconds=1))
    assert store.let_go_lapsed(connection, [claim.lease]) == {claim.lease}


def test_a_running_row_whose_lease_is_over_is_not_let_go(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(60))
    assert store.let_go_lapsed(connection, [claim.lease]) == set()
    assert place_of(claim.id) is Place.RUNNING


def test_a_cancelled_row_whose_lease_holds_is_not_let_go_by_chores(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(seconds(59))
    assert store.let_go_lapsed(connection, [claim.lease]) == set()
    assert place_of(claim.id) is Place.STOPPING


def test_letting_go_after_a_lapse_names_the_token(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(seconds(60))
    assert store.let_go_lapsed(connection, [Lease(id=claim.id, token=claim.token - 1)]) == set()


# -- expire


def test_rows_past_their_time_are_cancelled(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    first, second = queue_job(expires=seconds(10), keep_failed=60.0), queue_job(expires=seconds(10))
    frozen.advance(seconds(10))
    assert store.expire(connection, limit=100) == {first, second}
    row = read(first)
    assert (row.state, row.finished_at, row.prune_at) == ("CANCELLED", NOON + seconds(10), NOON + seconds(70))
    assert [(entry["kind"], entry["reason"], entry["attempt"]) for entry in row.errors] == [
        ("expired", "expired before it could start", 0)
    ]


def test_rows_before_their_time_and_without_one_stay(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_job(expires=seconds(11))
    queue_job()
    frozen.advance(seconds(10))
    assert store.expire(connection, limit=100) == set()


def test_a_running_row_does_not_expire(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job(expires=seconds(10))
    frozen.advance(seconds(10))
    assert store.expire(connection, limit=100) == set()
    assert place_of(claim.id) is Place.RUNNING


def test_a_row_that_waits_for_another_attempt_expires(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(expires=seconds(10))
    store.settle(connection, [transitions.release(claim, started=False)])
    frozen.advance(seconds(10))
    assert store.expire(connection, limit=100) == {claim.id}


def test_no_more_expire_than_asked_for_and_the_longest_expired_first(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    ids = [queue_job(expires=seconds(8 - n)) for n in range(8)]
    drop_index(connection, "django_jobs_expiry")
    frozen.advance(seconds(8))
    assert store.expire(connection, limit=4) == set(ids[4:])


def drop_index(connection: BaseDatabaseWrapper, name: str) -> None:
    """Have no order come by chance, of the index that is used."""
    with connection.cursor() as cursor:
        cursor.execute(f"drop index {name}")


# -- prune


def finished(state: str, **columns: object) -> int:
    job_id = queue_job()
    write(job_id, **{"state": state, "finished_at": NOON, "prune_at": NOON, **columns})
    return job_id


@pytest.mark.parametrize("state", ["SUCCESSFUL", "FAILED", "CANCELLED"])
def test_a_finished_row_goes_at_the_end_of_its_keeping(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, state: str
) -> None:
    job_id = finished(state, prune_at=NOON + seconds(60))
    frozen.advance(timedelta(seconds=59, microseconds=999_999))
    assert store.prune(connection, limit=100) == 0
    frozen.advance(timedelta(microseconds=1))
    assert store.prune(connection, limit=100) == 1
    assert place_of(job_id) is Place.ABSENT


def test_what_is_kept_for_ever_is_not_pruned(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    finished("FAILED", prune_at=None)
    frozen.advance(timedelta(days=36_000))
    assert store.prune(connection, limit=100) == 0


def test_a_held_row_is_not_pruned(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job(keep_failed=0.0)
    store.cancel(connection, [claim.id], reason="")
    frozen.advance(timedelta(days=1))
    assert store.prune(connection, limit=100) == 0
    store.let_go(connection, [claim.lease])
    assert store.prune(connection, limit=100) == 1


def test_waiting_and_running_rows_are_never_pruned_whatever_their_date(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    write(queue_job(), prune_at=NOON - timedelta(days=9))
    write(run_job().id, prune_at=NOON - timedelta(days=9))
    assert store.prune(connection, limit=100) == 0


def test_a_key_that_still_holds_keeps_its_row(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    finished("SUCCESSFUL", unique_key="k", unique_until=NOON + seconds(60))
    assert store.prune(connection, limit=100) == 0
    frozen.advance(seconds(60))
    assert store.prune(connection, limit=100) == 1


def test_no_more_are_pruned_than_asked_for_and_the_longest_kept_first(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    ids = [finished("FAILED", prune_at=NOON - seconds(n)) for n in range(8)]
    drop_index(connection, "django_jobs_prune")
    assert store.prune(connection, limit=4) == 4
    assert sorted(Job.objects.values_list("pk", flat=True)) == ids[:4]


@pytest.fixture
def rows_of_every_kind(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> list[int]:
    """Give the ids, ascending, of rows that may go at NOON, among others that may not."""
    later, moment = NOON + seconds(60), timedelta(microseconds=1)
    may_go = [
        finished("SUCCESSFUL"),
        finished("FAILED", prune_at=NOON - seconds(1)),
        finished("CANCELLED", prune_at=NOON - seconds(2)),
        finished("SUCCESSFUL", unique_key="a", unique_until=NOON),
    ]
    finished("FAILED", prune_at=NOON + moment)
    finished("FAILED", prune_at=None)
    finished("SUCCESSFUL", unique_key="b", unique_until=NOON + moment)
    finished("CANCELLED", worker="worker-1", token=1, lease_expires_at=later)
    write(queue_job(), prune_at=NOON)
    write(run_job().id, prune_at=NOON)
    turn_round(may_go)
    return may_go


def test_prune_takes_all_rows_that_may_go_and_no_other(
    store: Store, connection: BaseDatabaseWrapper, rows_of_every_kind: list[int]
) -> None:
    count = Job.objects.count()
    assert store.prune(connection, limit=100) == len(rows_of_every_kind)
    assert not Job.objects.filter(pk__in=rows_of_every_kind).exists()
    assert Job.objects.count() == count - len(rows_of_every_kind)


def test_prune_of_one_row_takes_it_where_it_may_go_and_no_other(
    store: Store, connection: BaseDatabaseWrapper, rows_of_every_kind: list[int]
) -> None:
    ids = list(Job.objects.order_by("pk").values_list("pk", flat=True))
    gone = [job_id for job_id in ids if store.prune(connection, limit=1, only=job_id)]
    assert gone == rows_of_every_kind
    assert list(Job.objects.order_by("pk").values_list("pk", flat=True)) == sorted(set(ids) - set(gone))


def test_what_may_be_pruned_is_listed_in_the_order_of_ids_beyond_one_of_them(
    store: Store, connection: BaseDatabaseWrapper, rows_of_every_kind: list[int]
) -> None:
    first, *others = rows_of_every_kind
    assert store.prunable(connection, after=0, limit=100) == rows_of_every_kind
    assert store.prunable(connection, after=first, limit=100) == others
    assert store.prunable(connection, after=0, limit=2) == rows_of_every_kind[:2]


# -- row locks


@pytest.mark.django_db(transaction=True)
def test_reclaim_passes_over_a_locked_row(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, frozen: FrozenClock
) -> None:
    first, second = run_job(), run_job()
    frozen.advance(seconds(60))
    changes = decided(store, connection)
    with locked(first.id):
        assert store.reclaim(connection, changes) == {second.lease}


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_not_among_the_lapsed(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, frozen: FrozenClock
) -> None:
    """Its holder may be about to write its end, or another to renew its lease."""
    first, second = run_job(), run_job()
    frozen.advance(seconds(60))
    with locked(first.id):
        assert lapsed_ids(store, connection) == [second.id]


@pytest.mark.django_db(transaction=True)
def test_letting_go_after_a_lapse_passes_over_a_locked_row(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, frozen: FrozenClock
) -> None:
    first, second = run_job(), run_job()
    store.cancel(connection, [first.id, second.id], reason="")
    frozen.advance(seconds(60))
    with locked(first.id):
        assert store.let_go_lapsed(connection, [first.lease, second.lease]) == {second.lease}


@pytest.mark.django_db(transaction=True)
def test_expire_passes_over_a_locked_row(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, frozen: FrozenClock
) -> None:
    ids = queue_jobs(3, expires=seconds(1))
    frozen.advance(seconds(1))
    with locked(ids[0]):
        assert store.expire(connection, limit=1) == {ids[1]}


@pytest.mark.django_db(transaction=True)
def test_prune_passes_over_a_locked_row(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, frozen: FrozenClock
) -> None:
    ids = [finished("FAILED") for _ in range(3)]
    with locked(ids[0]):
        assert store.prune(connection, limit=2) == 2
    assert list(Job.objects.values_list("pk", flat=True)) == [ids[0]]


@pytest.mark.django_db(transaction=True)
def test_prune_passes_over_a_row_that_somebody_is_about_to_refer_to(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    first, second = finished("FAILED"), finished("FAILED")
    with locked(first, "key share"):
        assert store.prune(connection, limit=1, only=first) == 0
        assert store.prune(connection, limit=100) == 1
    assert (place_of(first), place_of(second)) == (Place.FAILED, Place.ABSENT)
