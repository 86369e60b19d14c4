"""Real connections in real threads, where the race itself is the subject."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle, transitions
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Succeeded
from django_jobs.records import Places
from django_jobs.stores.base import Store
from django_jobs.transitions import Place
from tests.factories import (
    another_connection,
    failure,
    locked,
    new_job,
    place_of,
    queue_job,
    request,
    run_job,
    take,
    turn_round,
)
from tests.racing import at_once, waits

pytestmark = pytest.mark.django_db(transaction=True)

BY_HAND: dict[str, dict[str, Any]] = {
    "cancel": {"reason": ""},
    "retry": {},
    "reschedule": {"places": Places(priority=2)},
    "delete": {},
}
"""The verbs of people, and what they are told beside the ids."""


def claim_all(number: int) -> list[int]:
    """Claim in batches of seven until nothing is left."""
    mine: list[int] = []
    while claims := take(worker=f"worker-{number}", limit=7).claims:
        mine += [claim.id for claim in claims]
    return mine


def test_o05_workers_that_claim_at_once_never_take_the_same_job() -> None:
    queued = lifecycle.enqueue_many([new_job(queue=f"q{n % 3}", priority=n % 2) for n in range(300)], using="default")
    claimed = at_once(6, claim_all)
    taken = [job_id for mine in claimed for job_id in mine]
    # Where others hold rows a claim may come back empty before all is taken; what is left is taken by the next one.
    taken += claim_all(9)
    assert sorted(taken) == [one.id for one in queued]


def test_the_row_agrees_with_the_worker_that_was_told() -> None:
    lifecycle.enqueue_many([new_job() for _ in range(100)], using="default")
    claimed = at_once(4, claim_all)
    for number, mine in enumerate(claimed):
        assert set(Job.objects.filter(pk__in=mine).values_list("worker", flat=True)) <= {f"worker-{number}"}


def test_of_two_ends_under_one_token_one_is_written(store: Store) -> None:
    claims = [run_job() for _ in range(20)]

    def end(number: int) -> int:
        outcome = (Succeeded(), Failed(failure=failure()))[number % 2]
        changes = [[transitions.settle(claim, outcome)] for claim in claims]
        return sum(len(store.settle(connections["default"], change)) for change in changes)

    written = at_once(2, end)
    # A locked row is passed over, so that both may come away empty-handed; never may both have written.
    assert sum(written) == Job.objects.filter(state__in=("SUCCESSFUL", "FAILED")).count()
    assert sum(written) <= 20


def test_cancel_and_claim_at_once_leave_each_job_in_one_place(store: Store) -> None:
    queued = lifecycle.enqueue_many([new_job() for _ in range(60)], using="default")
    ids = [one.id for one in queued]

    def work(number: int) -> list[int]:
        if number:
            return claim_all(number)
        return sorted(store.cancel(connections["default"], ids, reason=""))

    cancelled, *claimed = at_once(3, work)
    claimed_ids = {job_id for mine in claimed for job_id in mine}
    assert cancelled == ids
    held = set(Job.objects.filter(state="CANCELLED", worker__isnull=False).values_list("pk", flat=True))
    assert held == claimed_ids


def test_ids_drawn_at_once_are_never_given_twice() -> None:
    def insert(number: int) -> list[int]:
        return [one.id for _ in range(5) for one in lifecycle.enqueue_many([new_job()] * 10, using="default")]

    ids = [job_id for mine in at_once(4, insert) for job_id in mine]
    assert len(set(ids)) == 200
    assert Job.objects.count() == 200


def test_verbs_of_people_wait_for_a_locked_row(store: Store, connection: BaseDatabaseWrapper, row_locks: None) -> None:
    job_id = queue_job()
    with locked(job_id), connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '20ms'")
        for verb, options in BY_HAND.items():
            with pytest.raises(OperationalError, match="lock timeout"):
                getattr(store, verb)(connection, [job_id], **options)
    assert store.cancel(connection, [job_id], reason="") == {job_id}
    assert place_of(job_id) is Place.CANCELLED


@pytest.mark.parametrize("verb", BY_HAND)
def test_verbs_of_people_judge_a_row_that_they_waited_for_as_it_is_then(
    store: Store, row_locks: None, verb: str
) -> None:
    job_id = queue_job()

    def work() -> set[int]:
        try:
            return getattr(store, verb)(connections["default"], [job_id], **BY_HAND[verb])
        finally:
            connections.close_all()

    with another_connection() as other, ThreadPoolExecutor(1) as pool:
        other.set_autocommit(False)
        [claim] = store.claim(other, request(), 7).claims
        if verb == "cancel":
            store.settle(other, [transitions.settle(claim, Succeeded())])
        moved = pool.submit(work)
        with connections["default"].cursor() as cursor:
            assert waits(moved, cursor)
        other.commit()
        assert moved.result(timeout=30) == set()
    assert place_of(job_id) is (Place.SUCCESSFUL if verb == "cancel" else Place.RUNNING)


def test_delete_waits_for_who_is_about_to_refer_to_a_row_before_it_takes_a_later_one(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    first, second = queue_job(), queue_job()

    def work() -> set[int]:
        try:
            return store.delete(connections["default"], [first, second])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with locked(first, "key share"), another_connection() as third, third.cursor() as cursor:
            gone = pool.submit(work)
            assert waits(gone, cursor)
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = %s for update nowait', [second])
            assert cursor.fetchall() == [(second,)]
        assert gone.result(timeout=30) == {first, second}


@pytest.mark.parametrize("verb", BY_HAND)
def test_verbs_of_people_lock_rows_in_the_order_of_their_ids(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, verb: str
) -> None:
    """So that no two of them can wait for each other."""
    ids = [one.id for one in lifecycle.enqueue_many([new_job() for _ in range(6)], using="default")]
    turn_round(ids)
    first, *others = ids

    def work() -> set[int]:
        try:
            with connections["default"].cursor() as cursor:
                # This plan would go by the ids whether it is asked to or not.
                cursor.execute("set enable_mergejoin = off")
            return getattr(store, verb)(connections["default"], list(reversed(ids)), **BY_HAND[verb])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with locked(first), another_connection() as third, third.cursor() as cursor:
            moved = pool.submit(work)
            assert waits(moved, cursor)
            # It waits for the first one and has none of the others yet.
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = any(%s) for update nowait', [others])
            assert len(cursor.fetchall()) == len(others)
        assert moved.result(timeout=30) == set(ids)
