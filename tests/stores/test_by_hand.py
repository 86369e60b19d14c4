from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.clock import FrozenClock
from django_jobs.outcomes import Cancelled, Failed, Retried, Succeeded
from django_jobs.states import State
from django_jobs.stores.base import Store
from django_jobs.transitions import Place
from tests.factories import NOON, claim_one, failure, place_of, queue_job, queue_jobs, read, run_job, seconds, write

pytestmark = pytest.mark.django_db


# -- cancel


def test_a_waiting_row_is_cancelled(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job_id = queue_job(keep_failed=60.0)
    frozen.advance(seconds(5))
    assert store.cancel(connection, [job_id], reason="not needed") == {job_id}
    row = read(job_id)
    assert (row.state, row.finished_at, row.prune_at) == ("CANCELLED", NOON + seconds(5), NOON + seconds(65))
    assert row.errors == [
        {
            "attempt": 0,
            "started_at": None,
            "at": "2026-03-01T12:00:05.000000Z",
            "worker": None,
            "kind": "cancelled",
            "exception": "",
            "reason": "not needed",
            "traceback": "",
        }
    ]


def test_a_running_row_is_cancelled_at_once_and_stays_held(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    claim = run_job()
    frozen.advance(seconds(5))
    assert store.cancel(connection, [claim.id], reason="") == {claim.id}
    row = read(claim.id)
    assert (row.state, row.finished_at, row.worker, row.token) == (
        "CANCELLED",
        NOON + seconds(5),
        "worker-1",
        claim.token,
    )
    assert row.lease_expires_at == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
    assert row.deadline_at == datetime(2026, 3, 1, 12, 6, 5, tzinfo=UTC)
    assert [(entry["attempt"], entry["worker"]) for entry in row.errors] == [(1, "worker-1")]


def test_a_finished_row_stays_as_it_is(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    claims = [run_job(), run_job(), run_job()]
    outcomes = [Succeeded(), Failed(failure=failure()), Cancelled()]
    store.settle(connection, [transitions.settle(*run) for run in zip(claims, outcomes, strict=True)])
    frozen.advance(seconds(5))
    assert store.cancel(connection, [claim.id for claim in claims], reason="") == set()
    assert [read(claim.id).finished_at for claim in claims] == [NOON, NOON, NOON]


def test_a_row_is_cancelled_once(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="first")
    assert store.cancel(connection, [claim.id], reason="second") == set()
    assert [entry["reason"] for entry in read(claim.id).errors] == ["first"]


def test_a_reason_is_cleaned(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = queue_job()
    store.cancel(connection, [job_id], reason="a\0b\ud800")
    assert read(job_id).errors[0]["reason"] == "a\ufffdb?"


def test_of_several_rows_those_that_moved_are_told(store: Store, connection: BaseDatabaseWrapper) -> None:
    waiting, running, gone = queue_job(), run_job().id, 10**12
    assert store.cancel(connection, [running, gone, waiting], reason="") == {waiting, running}


# -- retry


def failed_job(store: Store, connection: BaseDatabaseWrapper, **changes: object) -> int:
    claim = run_job(**changes)
    store.settle(connection, [transitions.settle(claim, Failed(failure=failure(fingerprint="a1b2")))])
    return claim.id


def test_a_failed_row_is_ready_now(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job_id = failed_job(store, connection, expires=timedelta(hours=1))
    write(job_id, crashes=2, alone=True)
    frozen.advance(timedelta(days=3))
    assert store.retry(connection, [job_id]) == {job_id}
    row = read(job_id)
    assert (row.state, row.run_at) == ("READY", datetime(2026, 3, 4, 12, tzinfo=UTC))
    assert (row.finished_at, row.prune_at, row.expires_at, row.first_started_at) == (None, None, None, None)
    assert (row.crashes, row.alone) == (0, False)


def test_a_retry_keeps_the_errors(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = failed_job(store, connection)
    store.retry(connection, [job_id])
    assert [entry["reason"] for entry in read(job_id).errors] == ["no such customer"]


@pytest.mark.parametrize(("attempts", "max_attempts", "expected"), [(3, 3, 4), (1, 3, 3), (2, 3, 3), (9, 3, 10)])
def test_a_retry_leaves_at_least_one_attempt(
    store: Store, connection: BaseDatabaseWrapper, attempts: int, max_attempts: int, expected: int
) -> None:
    job_id = failed_job(store, connection)
    write(job_id, attempts=attempts, max_attempts=max_attempts)
    store.retry(connection, [job_id])
    row = read(job_id)
    assert (row.attempts, row.max_attempts) == (attempts, expected)


def test_a_retried_row_can_be_claimed_and_ended(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = failed_job(store, connection, max_attempts=1)
    store.retry(connection, [job_id])
    claim = claim_one()
    store.settle(connection, [transitions.settle(claim, Succeeded())])
    assert (claim.id, claim.attempt, place_of(job_id)) == (job_id, 2, Place.SUCCESSFUL)


def test_patience_begins_anew_after_a_retry(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job_id = failed_job(store, connection, max_attempts=1)
    frozen.advance(timedelta(hours=5))
    store.retry(connection, [job_id])
    claim = claim_one()
    assert claim.first_started_at == NOON + timedelta(hours=5)


def test_a_row_that_waits_for_later_may_run_now(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job(delay=timedelta(days=9))
    assert store.retry(connection, [job_id]) == {job_id}
    assert read(job_id).run_at == NOON


def test_a_cancelled_row_is_ready_again(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = queue_job()
    store.cancel(connection, [job_id], reason="")
    assert store.retry(connection, [job_id]) == {job_id}
    assert place_of(job_id) is Place.READY


def test_running_stopping_and_succeeded_rows_are_not_retried(store: Store, connection: BaseDatabaseWrapper) -> None:
    running, stopping, succeeded = run_job(), run_job(), run_job()
    store.cancel(connection, [stopping.id], reason="")
    store.settle(connection, [transitions.settle(succeeded, Succeeded())])
    assert store.retry(connection, [running.id, stopping.id, succeeded.id]) == set()
    places = [place_of(claim.id) for claim in (running, stopping, succeeded)]
    assert places == [Place.RUNNING, Place.STOPPING, Place.SUCCESSFUL]


def test_a_cancelled_row_that_was_let_go_is_retried(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.cancel(connection, [claim.id], reason="")
    store.let_go(connection, [claim.lease])
    assert store.retry(connection, [claim.id]) == {claim.id}


# -- delete


def test_rows_that_nobody_holds_are_deleted(store: Store, connection: BaseDatabaseWrapper) -> None:
    waiting, failed = queue_job(), failed_job(store, connection)
    assert store.delete(connection, [waiting, failed]) == {waiting, failed}
    assert [place_of(waiting), place_of(failed)] == [Place.ABSENT, Place.ABSENT]


def test_held_rows_are_not_deleted(store: Store, connection: BaseDatabaseWrapper) -> None:
    running, stopping, waiting = run_job(), run_job(), queue_job()
    store.cancel(connection, [stopping.id], reason="")
    assert store.delete(connection, [running.id, stopping.id, waiting]) == {waiting}
    assert [place_of(running.id), place_of(stopping.id)] == [Place.RUNNING, Place.STOPPING]


def test_deleting_what_is_gone_is_nothing(store: Store, connection: BaseDatabaseWrapper) -> None:
    assert store.delete(connection, [1_000_000]) == set()


# -- states


def test_states_tell_who_is_held(store: Store, connection: BaseDatabaseWrapper) -> None:
    [waiting] = queue_jobs(1)
    running, stopping = run_job().id, run_job().id
    queue_job()
    store.cancel(connection, [stopping], reason="")
    assert store.states(connection, [waiting, running, stopping, 10**12]) == {
        waiting: (State.READY, False),
        running: (State.RUNNING, True),
        stopping: (State.CANCELLED, True),
    }


def test_queues_of_rows_are_told_once_each(store: Store, connection: BaseDatabaseWrapper) -> None:
    ids = [*queue_jobs(2, queue="mail"), queue_job(queue="bulk")]
    queue_job(queue="other")
    assert store.queues(connection, [*ids, 10**12]) == {"mail", "bulk"}


def test_a_list_of_errors_that_is_full_keeps_the_first_entry_at_a_cancel(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job(max_attempts=50)
    for _ in range(21):
        claim = claim_one()
        store.settle(connection, [transitions.settle(claim, Retried(failure=failure(), delay=seconds(0)))])
    store.cancel(connection, [job_id], reason="")
    errors = read(job_id).errors
    assert [(entry["kind"], entry["attempt"]) for entry in (errors[0], errors[-1])] == [("error", 1), ("cancelled", 21)]
    assert len(errors) == 20
