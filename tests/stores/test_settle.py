from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Lease
from django_jobs.stores.base import Store
from tests.factories import (
    NOON,
    Place,
    failure,
    locked,
    place_of,
    queue_jobs,
    read,
    run_job,
    seconds,
    take,
)
from tests.stores.outcomes import OUTCOMES, every_outcome, settle

pytestmark = pytest.mark.django_db

# -- each end


def test_succeeded_is_kept_with_its_result(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job(keep=90.0)
    frozen.advance(seconds(7))
    assert settle(store, connection, claim, Succeeded(result='{"total":[1,2.5,null]}'))
    row = read(claim.id)
    assert (row.state, row.result, row.errors) == ("SUCCESSFUL", {"total": [1, 2.5, None]}, [])
    assert row.finished_at == datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
    assert row.prune_at == datetime(2026, 3, 1, 12, 1, 37, tzinfo=UTC)


def test_succeeded_without_result_stores_none(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    settle(store, connection, claim, Succeeded())
    assert Job.objects.filter(pk=claim.id, result__isnull=True).exists()


def test_failed_is_kept_for_its_own_time_with_the_failure(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(keep=1.0, keep_failed=3600.0)
    frozen.advance(seconds(7))
    broken = failure(reason="no such customer", traceback="Traceback: here", fingerprint="a1b2")
    assert settle(store, connection, claim, Failed(failure=broken))
    row = read(claim.id)
    assert (row.state, row.fingerprint, row.attempts) == ("FAILED", "a1b2", 1)
    assert row.finished_at == datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
    assert row.prune_at == datetime(2026, 3, 1, 13, 0, 7, tzinfo=UTC)
    assert row.errors == [
        {
            "attempt": 1,
            "started_at": "2026-03-01T12:00:00.000000Z",
            "at": "2026-03-01T12:00:07.000000Z",
            "worker": "worker-1",
            "kind": "error",
            "exception": "builtins.ValueError",
            "reason": "no such customer",
            "traceback": "Traceback: here",
        }
    ]


def test_gave_up_is_failed_whatever_attempts_are_left(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job(max_attempts=20)
    assert settle(store, connection, claim, GaveUp(failure=failure(kind="gave_up", reason="no such account")))
    row = read(claim.id)
    assert (row.state, row.errors[0]["kind"], row.errors[0]["reason"]) == ("FAILED", "gave_up", "no such account")


def test_retried_waits_for_its_delay_and_counts(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(1))
    assert settle(store, connection, claim, Retried(failure=failure(), delay=seconds(30.000001)))
    row = read(claim.id)
    assert (row.state, row.attempts, row.finished_at, row.prune_at) == ("READY", 1, None, None)
    assert row.run_at == datetime(2026, 3, 1, 12, 0, 31, 1, tzinfo=UTC)
    assert [entry["attempt"] for entry in row.errors] == [1]


def test_retried_on_the_last_attempt_is_failed(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job(max_attempts=1)
    settle(store, connection, claim, Retried(failure=failure(), delay=seconds(30)))
    assert place_of(claim.id) is Place.FAILED


def test_patience_is_written_to_the_row(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job(max_attempts=1)
    settle(store, connection, claim, Retried(failure=failure(kind="unknown"), delay=seconds(30), patient=True))
    row = read(claim.id)
    assert (row.state, row.attempts, row.max_attempts) == ("READY", 1, 2)


def test_snoozed_waits_uncounted_and_without_an_entry(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    assert settle(store, connection, claim, Snoozed(delay=timedelta(days=2), reason="shop is closed"))
    row = read(claim.id)
    assert (row.state, row.attempts, row.errors) == ("READY", 0, [])
    assert row.run_at == datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_cancelled_says_why(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job(keep_failed=60.0)
    assert settle(store, connection, claim, Cancelled(reason="sold out"))
    row = read(claim.id)
    assert (row.state, row.finished_at) == ("CANCELLED", NOON)
    assert row.prune_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
    assert [(entry["kind"], entry["reason"]) for entry in row.errors] == [("cancelled", "sold out")]


def test_released_comes_back_as_it_was(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(20))
    assert settle(store, connection, claim, Released(started=True))
    row = read(claim.id)
    assert (row.state, row.attempts, row.run_at, row.errors) == ("READY", 0, NOON, [])


def test_released_after_the_start_is_failed_where_a_second_start_is_forbidden(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    claim = run_job(restart=False)
    settle(store, connection, claim, Released(started=True))
    row = read(claim.id)
    assert (row.state, row.errors[0]["kind"]) == ("FAILED", "interrupted")


@every_outcome
def test_after_every_end_nobody_holds_the_row(store: Store, connection: BaseDatabaseWrapper, outcome: Outcome) -> None:
    claim = run_job()
    assert settle(store, connection, claim, outcome)
    row = read(claim.id)
    assert (row.worker, row.lease_expires_at, row.deadline_at) == (None, None, None)


@every_outcome
def test_after_every_end_the_token_and_the_last_worker_stay(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome
) -> None:
    claim = run_job()
    settle(store, connection, claim, outcome)
    row = read(claim.id)
    assert (row.token, row.last_worker) == (claim.token, "worker-1")


@pytest.mark.parametrize("result", [None, '"x"'])
def test_a_job_with_no_keeping_is_deleted_as_it_succeeds(
    store: Store, connection: BaseDatabaseWrapper, result: str | None
) -> None:
    claim = run_job(keep=0.0)
    assert settle(store, connection, claim, Succeeded(result=result))
    assert place_of(claim.id) is Place.ABSENT


def test_a_job_with_no_keeping_stays_when_it_fails(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job(keep=0.0)
    settle(store, connection, claim, Failed(failure=failure()))
    assert place_of(claim.id) is Place.FAILED


def test_a_failure_with_no_keeping_may_be_pruned_at_once(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job(keep_failed=0.0)
    settle(store, connection, claim, Failed(failure=failure()))
    assert read(claim.id).prune_at == NOON


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=failure()), Cancelled()])
def test_what_is_kept_for_ever_has_no_prune_date(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome
) -> None:
    claim = run_job(keep=None, keep_failed=None)
    settle(store, connection, claim, outcome)
    row = read(claim.id)
    assert (row.finished_at is not None, row.prune_at) == (True, None)


def test_a_success_keeps_the_entries_of_earlier_attempts(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    settle(store, connection, claim, Retried(failure=failure(), delay=seconds(0)))
    [again] = take(queues=("aside",)).claims
    settle(store, connection, again, Succeeded())
    assert [(entry["attempt"], entry["kind"]) for entry in read(claim.id).errors] == [(1, "error")]


# -- what is expected of the row


@every_outcome
def test_another_token_settles_nothing(store: Store, connection: BaseDatabaseWrapper, outcome: Outcome) -> None:
    claim = run_job()
    stranger = claim._replace(lease=Lease(claim.id, claim.token - 1))
    assert not settle(store, connection, stranger, outcome)
    assert place_of(claim.id) is Place.RUNNING


@every_outcome
@pytest.mark.parametrize("keep", [0.0, 60.0])
def test_of_several_rows_claimed_at_once_only_those_named_are_settled(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome, keep: float
) -> None:
    queue_jobs(2, keep=keep)
    mine, other = take().claims
    assert mine.token == other.token
    before = Job.objects.filter(pk=other.id).values().get()
    assert settle(store, connection, mine, outcome)
    assert Job.objects.filter(pk=other.id).values().get() == before


@every_outcome
@pytest.mark.parametrize("keep", [0.0, 60.0])
def test_a_row_cancelled_meanwhile_is_not_settled_for_the_sake_of_one_claimed_with_it(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome, keep: float
) -> None:
    queue_jobs(2, keep=keep)
    cancelled, running = take().claims
    store.cancel(connection, [cancelled.id], reason="by hand")
    assert not settle(store, connection, cancelled, outcome)
    assert (place_of(cancelled.id), place_of(running.id)) == (Place.STOPPING, Place.RUNNING)


@every_outcome
def test_a_second_settle_writes_nothing(store: Store, connection: BaseDatabaseWrapper, outcome: Outcome) -> None:
    claim = run_job()
    assert settle(store, connection, claim, outcome)
    before = Job.objects.filter(pk=claim.id).values().get()
    assert not settle(store, connection, claim, Succeeded())
    assert not settle(store, connection, claim, Failed(failure=failure()))
    assert Job.objects.filter(pk=claim.id).values().get() == before


@every_outcome
@pytest.mark.parametrize("keep", [0.0, 60.0])
def test_a_row_cancelled_meanwhile_stays_cancelled_and_held(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome, keep: float
) -> None:
    claim = run_job(keep=keep)
    store.cancel(connection, [claim.id], reason="by hand")
    assert not settle(store, connection, claim, outcome)
    assert place_of(claim.id) is Place.STOPPING


@every_outcome
def test_a_job_with_no_keeping_is_not_deleted_by_another_token(
    store: Store, connection: BaseDatabaseWrapper, outcome: Outcome
) -> None:
    claim = run_job(keep=0.0)
    assert not settle(store, connection, claim._replace(lease=Lease(claim.id, claim.token - 1)), outcome)
    assert place_of(claim.id) is Place.RUNNING


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=failure())])
def test_a_deleted_row_is_not_brought_back(store: Store, connection: BaseDatabaseWrapper, outcome: Outcome) -> None:
    claim = run_job()
    Job.objects.filter(pk=claim.id)._raw_delete("default")
    assert not settle(store, connection, claim, outcome)
    assert place_of(claim.id) is Place.ABSENT


def test_settling_looks_at_no_clock(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(timedelta(days=400))
    assert settle(store, connection, claim, Succeeded())


def test_settling_nothing_is_nothing(store: Store, connection: BaseDatabaseWrapper) -> None:
    assert store.settle(connection, []) == set()


def test_a_mixed_batch_is_written_whole(store: Store, connection: BaseDatabaseWrapper) -> None:
    queue_jobs(50, keep=0.0, max_attempts=1)
    claims = take(limit=50).claims
    runs = [(claim, OUTCOMES[place % 7]) for place, claim in enumerate(claims)]
    written = store.settle(connection, [transitions.settle(claim, outcome) for claim, outcome in runs])
    assert written == {claim.lease for claim in claims}
    counts = {place: [place_of(claim.id) for claim in claims].count(place) for place in Place}
    assert counts == {
        Place.ABSENT: 8,  # Succeeded, kept for no time
        Place.READY: 14,  # Snoozed, Released
        Place.RUNNING: 0,
        Place.STOPPING: 0,
        Place.SUCCESSFUL: 0,
        Place.FAILED: 21,  # Failed, Retried on the last attempt, GaveUp
        Place.CANCELLED: 7,
    }


def test_in_a_batch_each_row_answers_for_itself(store: Store, connection: BaseDatabaseWrapper) -> None:
    kept, lost, gone = run_job(), run_job(), run_job(keep=0.0)
    store.cancel(connection, [lost.id], reason="")
    written = store.settle(connection, [transitions.settle(claim, Succeeded()) for claim in (kept, lost, gone)])
    assert written == {kept.lease, gone.lease}


# -- results


@pytest.mark.parametrize("result", ["0", '"null"', "[]", "{}", "false", '"' + "x" * 100_000 + '"', '"\N{SNOWMAN}"'])
def test_results_come_back_as_they_were(store: Store, connection: BaseDatabaseWrapper, result: str) -> None:
    claim = run_job()
    settle(store, connection, claim, Succeeded(result=result))
    assert read(claim.id).result == json.loads(result)


# -- row locks


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=failure())], ids=["Succeeded", "Failed"])
@pytest.mark.parametrize("keep", [0.0, 60.0])
def test_a_locked_row_is_passed_over_and_its_neighbours_are_settled(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, outcome: Outcome, keep: float
) -> None:
    first, second = run_job(keep=keep), run_job(keep=keep)
    changes = [transitions.settle(claim, outcome) for claim in (first, second)]
    with locked(first.id):
        assert store.settle(connection, changes) == {second.lease}
    assert store.settle(connection, changes) == {first.lease}


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_is_about_to_refer_to_goes_later_and_its_neighbours_go_now(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    first, second = run_job(keep=0.0), run_job(keep=0.0)
    changes = [transitions.settle(claim, Succeeded()) for claim in (first, second)]
    with locked(first.id, "key share"):
        assert store.settle(connection, changes) == {second.lease}
    assert store.settle(connection, changes) == {first.lease}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=failure())], ids=["Succeeded", "Failed"])
def test_a_row_that_stays_is_settled_whoever_is_about_to_refer_to_it(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, outcome: Outcome
) -> None:
    claim = run_job(keep=60.0)
    with locked(claim.id, "key share"):
        assert settle(store, connection, claim, outcome)


@pytest.mark.parametrize("verb", ["settle", "reclaim"])
def test_an_end_in_a_callers_transaction_leaves_it_to_him_how_long_he_waits_for_locks(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, verb: str
) -> None:
    change = transitions.settle(run_job(), Failed(failure=failure()))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local lock_timeout = '7s'")
        getattr(store, verb)(connection, [change])
        cursor.execute("show lock_timeout")
        assert cursor.fetchall() == [("7s",)]
