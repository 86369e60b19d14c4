"""How far a body is, in its row: written under the claim's token, while the row is held."""

from __future__ import annotations

import pytest
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.outcomes import Released, Succeeded
from django_jobs.progress import Progress
from django_jobs.records import Lease
from django_jobs.stores.base import Store
from tests.factories import claim_one, locked, queue_job, queue_jobs, read, run_job, take
from tests.stores.outcomes import settle
from tests.stores.refusing import refuse_progress

pytestmark = pytest.mark.django_db


def test_it_stands_in_the_row_and_the_newest_value_alone(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    assert read(claim.id).progress is None
    assert store.report(connection, {claim.lease: Progress(3, 10, "reading")}) == {claim.lease}
    assert read(claim.id).progress == {"done": 3, "total": 10, "message": "reading"}
    assert store.report(connection, {claim.lease: Progress(4.5)}) == {claim.lease}
    assert read(claim.id).progress == {"done": 4.5, "total": None, "message": ""}


def test_many_are_written_by_one_statement_each_its_own(store: Store, connection: BaseDatabaseWrapper) -> None:
    queue_jobs(3)
    first, second, third = take().claims
    written = store.report(connection, {first.lease: Progress(1), third.lease: Progress(3)})
    assert written == {first.lease, third.lease}
    found = [read(claim.id).progress for claim in (first, second, third)]
    assert found == [{"done": 1, "total": None, "message": ""}, None, {"done": 3, "total": None, "message": ""}]


@pytest.mark.parametrize("number", [0, 0.1, 1e-7, 1e15, 0.30000000000000004, 9007199254740991])
def test_numbers_come_back_as_they_were(store: Store, connection: BaseDatabaseWrapper, number: float) -> None:
    claim = run_job()
    store.report(connection, {claim.lease: Progress(number, number)})
    assert read(claim.id).progress == {"done": number, "total": number, "message": ""}


def test_what_a_database_cannot_store_in_a_text_is_replaced(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    store.report(connection, {claim.lease: Progress(1, message='\0 \ud800 "Grüße" \\ 50 % 🍵')})
    assert read(claim.id).progress == {"done": 1, "total": None, "message": '\ufffd ? "Grüße" \\ 50 % 🍵'}


def test_a_claim_that_was_taken_away_writes_nothing(store: Store, connection: BaseDatabaseWrapper) -> None:
    old = run_job()
    settle(store, connection, old, Released(started=True))
    new = claim_one()
    assert new.id == old.id
    assert store.report(connection, {old.lease: Progress(1), Lease(10**9, old.token): Progress(2)}) == set()
    assert read(new.id).progress is None


@pytest.mark.parametrize("outcome", [Succeeded(), Released(started=True)])
def test_when_the_end_is_written_nothing_more_is(
    store: Store, connection: BaseDatabaseWrapper, outcome: Succeeded | Released
) -> None:
    claim = run_job()
    settle(store, connection, claim, outcome)
    assert read(claim.id).token == claim.token
    assert store.report(connection, {claim.lease: Progress(1)}) == set()
    assert read(claim.id).progress is None


def test_a_body_that_is_to_stop_may_still_say_how_far_it_is(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    Job.objects.filter(pk=claim.id).cancel()
    assert store.report(connection, {claim.lease: Progress(1)}) == {claim.lease}
    assert read(claim.id).progress == {"done": 1, "total": None, "message": ""}


def test_what_another_attempt_has_reached_stays_until_the_next_one_says_something(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    claim = run_job()
    store.report(connection, {claim.lease: Progress(5, 10)})
    settle(store, connection, claim, Released(started=True))
    again = claim_one()
    assert read(again.id).progress == {"done": 5, "total": 10, "message": ""}


def test_nothing_else_of_the_row_changes(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    before = Job.objects.filter(pk=claim.id).values().get()
    store.report(connection, {claim.lease: Progress(1)})
    after = Job.objects.filter(pk=claim.id).values().get()
    assert {key for key in before if before[key] != after[key]} == {"progress"}


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_locks_is_passed_over(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    queue_jobs(2)
    held, free = take().claims
    with locked(held.id):
        assert store.report(connection, {held.lease: Progress(1), free.lease: Progress(2)}) == {free.lease}
    assert read(held.id).progress is None


@pytest.fixture
def refusing(connection: BaseDatabaseWrapper) -> None:
    """Have a trigger of somebody's refuse every progress."""
    refuse_progress(connection)


@pytest.mark.usefixtures("refusing")
def test_an_error_breaks_no_transaction_of_the_caller(connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    with pytest.raises(DatabaseError, match="no progress here"):
        lifecycle.report(connection, {claim.lease: Progress(1)})
    assert queue_job() > claim.id
