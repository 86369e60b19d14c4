"""Which (queue, priority) pairs a claim looks at: those that have waiting rows, once each, and in order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.records import ClaimRequest
from tests.factories import NOON, queue_job, queue_jobs, request, take, turn_round, write

pytestmark = pytest.mark.django_db

NAMES = ("a", "b", "c", "d", "e", "f", "g")

PAIRS = [("a", -4), ("a", 0), ("a", 5), ("b", 3), ("f", 2), ("g", 1)]


def claim(asked: ClaimRequest) -> Any:
    return lifecycle.claim(connections["default"], asked)


def next_due(asked: ClaimRequest) -> Any:
    return lifecycle.next_due(connections["default"], asked)


every_walk = pytest.mark.parametrize("verb", [claim, next_due])
every_reach = pytest.mark.parametrize("queues", [None, NAMES], ids=["every queue", "named queues"])


class Stopped(Exception):
    """What keeps a statement from being run."""


def walked(connection: BaseDatabaseWrapper, call: Callable[[], Any], question: str) -> list[tuple[Any, ...]]:
    """Ask the walk of the statement that a call is about to run a question, in the place of what it walks for.

    A question about `picked` is asked of what a claim picks by its walk.
    """

    def stop(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise Stopped(sql, params)

    with connection.execute_wrapper(stop), pytest.raises(Stopped) as stopped:
        call()
    sql, params = stopped.value.args
    end = ",\ncounted as" if "picked" in question else ",\npicked as"
    walk = sql.partition(end)[0].partition("\nselect\n  max(")[0]
    with connection.cursor() as cursor:
        cursor.execute(f"{walk}\n{question}", params)
        return cursor.fetchall()


@pytest.fixture
def rows() -> None:
    """Give queues a, b, f and g waiting rows, and none to c (finished), d (pushed by the low level) and e (empty)."""
    for queue, priority in [("g", 1), ("a", -4), ("f", 2), ("b", 3), ("a", 0), ("a", 5), ("a", 0), ("a", 5), ("b", 3)]:
        queue_job(queue=queue, priority=priority)
    for queue, priority in [("c", 1), ("b", 9), ("a", 9), ("a", 2)]:
        write(queue_job(queue=queue, priority=priority), state="SUCCESSFUL", finished_at=NOON)
    for queue, priority in [("d", 2), ("b", 8), ("a", 3)]:
        write(queue_job(queue=queue, priority=priority), name="")


@every_walk
@every_reach
def test_a_walk_visits_each_pair_that_has_waiting_rows_once_and_no_other(
    connection: BaseDatabaseWrapper, rows: None, verb: Callable[[ClaimRequest], Any], queues: tuple[str, ...] | None
) -> None:
    pairs = walked(connection, lambda: verb(request(queues=queues)), "select queue, priority from open")
    assert sorted(pairs) == PAIRS


@every_walk
def test_every_queue_is_one_that_has_waiting_rows(
    connection: BaseDatabaseWrapper, rows: None, verb: Callable[[ClaimRequest], Any]
) -> None:
    queues = walked(connection, lambda: verb(request(queues=None)), "select queue from served")
    assert sorted(queues) == [("a",), ("b",), ("f",), ("g",)]


@every_walk
@every_reach
def test_a_walk_does_not_rest_on_the_order_of_its_index(
    connection: BaseDatabaseWrapper, rows: None, verb: Callable[[ClaimRequest], Any], queues: tuple[str, ...] | None
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("drop index django_jobs_claim")
    pairs = walked(connection, lambda: verb(request(queues=queues)), "select queue, priority from open")
    assert sorted(pairs) == PAIRS


def test_a_claim_does_not_rest_on_the_order_of_its_index(connection: BaseDatabaseWrapper) -> None:
    ids = [queue_job(queue=queue, priority=priority) for queue, priority in [("b", 0), ("a", 5), ("b", 5), ("a", 0)]]
    for job_id, minute in zip(ids, (3, 1, 2, 4), strict=True):
        write(job_id, run_at=NOON.replace(minute=minute, year=2025))
    with connection.cursor() as cursor:
        cursor.execute("drop index django_jobs_claim")
    order = [claim.id for _ in ids for claim in take(limit=1).claims]
    assert order == [ids[1], ids[2], ids[3], ids[0]]


def test_the_walk_of_a_claim_begins_after_the_last_queue_and_goes_round(connection: BaseDatabaseWrapper) -> None:
    for queue, priority in [("c", 0), ("a", 0), ("b", 0), ("b", 7), ("a", 7)]:
        queue_job(queue=queue, priority=priority)
    pairs = walked(connection, lambda: claim(request(last_queue="a")), "select queue, priority from open")
    assert pairs == [("b", 7), ("a", 7), ("b", 0), ("c", 0), ("a", 0)]


@every_walk
def test_a_walk_leaves_out_what_is_paused_and_only_that(
    connection: BaseDatabaseWrapper, rows: None, verb: Callable[[ClaimRequest], Any]
) -> None:
    Queue.objects.create(name="a", paused_at=NOON)
    Queue.objects.create(name="b")
    Queue.objects.create(name="e", paused_at=NOON)
    assert walked(connection, lambda: verb(request()), "select queue, priority from open") == PAIRS[3:]


def test_a_claim_picks_no_more_of_each_pair_than_it_is_asked_for(connection: BaseDatabaseWrapper) -> None:
    for queue in ("a", "b", "b", "b", "a", "a"):
        queue_job(queue=queue)
    question = "select queue, count(*) from picked group by queue order by queue"
    assert walked(connection, lambda: claim(request(limit=2, rooms={"a": 3})), question) == [("a", 2), ("b", 2)]


def test_a_claim_locks_no_more_rows_than_it_is_asked_for_and_of_a_capped_queue_no_more_than_its_room(
    connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    for queue in ("a", "b", "b", "b", "a", "a"):
        queue_job(queue=queue)
    question = "select queue, count(*) from picked group by queue order by queue"
    assert walked(connection, lambda: claim(request(limit=4)), question) == [("a", 3), ("b", 1)]
    assert walked(connection, lambda: claim(request(limit=4, rooms={"a": 1})), question) == [("a", 1), ("b", 3)]


def test_of_jobs_due_at_one_moment_the_lower_id_goes_first(connection: BaseDatabaseWrapper) -> None:
    ids = queue_jobs(8)
    Job.objects.update(run_at=NOON)
    turn_round(ids)
    with connection.cursor() as cursor:
        cursor.execute("drop index django_jobs_claim")
    assert [claim.id for claim in take(limit=4).claims] == ids[:4]


def test_the_next_job_is_the_soonest_of_its_pair_and_no_finished_or_pushed_one(frozen: FrozenClock) -> None:
    for minutes in (9, 5, 7):
        queue_job(delay=timedelta(minutes=minutes))
    write(queue_job(), state="SUCCESSFUL", finished_at=NOON)
    write(queue_job(), name="")
    assert next_due(request()).later == pytest.approx(300.0, abs=0.001)


def test_jobs_of_the_lowest_priority_fall_due_like_others(frozen: FrozenClock) -> None:
    queue_job(priority=-100, delay=timedelta(minutes=5))
    assert next_due(request()).later == pytest.approx(300.0, abs=0.001)
    queue_job(priority=-100)
    assert next_due(request()).now
