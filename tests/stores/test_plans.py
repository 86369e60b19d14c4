"""What a statement costs must not depend on rows that it isn't about; the databases' own plans say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.records import ClaimRequest
from django_jobs.stores.base import Store
from tests.factories import NOON, new_job, request, seconds

pytestmark = pytest.mark.django_db


@pytest.fixture
def fixtures(request: pytest.FixtureRequest) -> pytest.FixtureRequest:
    return request


@pytest.fixture
def full_table(connection: BaseDatabaseWrapper) -> None:
    """Fill the table with 2,000 finished rows, 2,000 of a higher priority that aren't due, and 30 that are."""
    if connection.vendor == "postgresql":
        # What other tests left behind, though it is dead, makes the table look larger.
        with connection.cursor() as cursor:
            cursor.execute(f'truncate "{Job._meta.db_table}" cascade')
    finished = lifecycle.enqueue_many([new_job(queue=f"q{n % 3}") for n in range(2_000)], using="default")
    ids = [queued.id for queued in finished]
    Job.objects.filter(pk__in=ids).update(state="SUCCESSFUL", finished_at=NOON, prune_at=NOON + timedelta(days=9_000))
    future = [new_job(queue=f"q{n % 3}", priority=50, delay=timedelta(days=1)) for n in range(2_000)]
    lifecycle.enqueue_many(future, using="default")
    lifecycle.enqueue_many([new_job(queue=f"q{n % 3}") for n in range(30)], using="default")


@pytest.fixture
def analyzed(connection: BaseDatabaseWrapper, full_table: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f'analyze "{Job._meta.db_table}"')


def plan_of(connection: BaseDatabaseWrapper, call: Callable[[], Any]) -> list[str]:
    """Have a call run its statements, and give the lines of their plans."""
    statements: list[tuple[str, Any]] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        call()
    assert statements
    explain = "explain query plan" if connection.vendor == "sqlite" else "explain"
    lines: list[str] = []
    for sql, params in statements:
        with connection.cursor() as cursor:
            cursor.execute(f"{explain} {sql}", params)
            lines += [str(row[-1]) for row in cursor.fetchall()]
    return lines


def scans(lines: list[str]) -> list[str]:
    """Find the lines that read the whole table of jobs, by either database's words."""
    return [line for line in lines if "Seq Scan on django_jobs_job" in line or line in ("SCAN job", "SCAN ready")]


REQUESTS = [
    request(limit=10),
    request(limit=1, empty_handed=False),
    request(limit=10, queues=("q0", "q1", "q2")),
    request(limit=10, queues=("q0", "q1"), rooms={"q0": 4}),
    request(limit=10, names=("shop.greet",)),
]


every_request = pytest.mark.parametrize("asked", REQUESTS, ids=["all", "one", "named queues", "caps", "names"])


def check_claim(store: Store, connection: BaseDatabaseWrapper, asked: ClaimRequest) -> None:
    lines = plan_of(connection, lambda: store.claim(connection, asked, 1))
    assert scans(lines) == []
    # PostgreSQL doesn't show the probes of a recursive term: one for the queues where all are served, one for their
    # priorities, one for the rows.
    probes = [line for line in lines if "django_jobs_claim" in line]
    assert len(probes) >= (3 if asked.queues is None else 2)


@every_request
def test_claim_finds_queues_priorities_and_rows_by_its_index(
    store: Store, connection: BaseDatabaseWrapper, analyzed: None, asked: ClaimRequest
) -> None:
    check_claim(store, connection, asked)


@every_request
def test_claim_needs_no_fresh_statistics(
    store: Store, connection: BaseDatabaseWrapper, full_table: None, asked: ClaimRequest
) -> None:
    check_claim(store, connection, asked)


@every_request
@pytest.mark.parametrize("statistics", ["full_table", "analyzed"])
def test_the_next_due_rows_are_found_by_the_same_index(
    fixtures: pytest.FixtureRequest, store: Store, connection: BaseDatabaseWrapper, asked: ClaimRequest, statistics: str
) -> None:
    fixtures.getfixturevalue(statistics)
    lines = plan_of(connection, lambda: store.next_due(connection, asked))
    assert scans(lines) == []
    assert len([line for line in lines if "django_jobs_claim" in line]) >= (4 if asked.queues is None else 3)


@every_request
@pytest.mark.parametrize("statistics", ["full_table", "analyzed"])
def test_no_walk_looks_dear_enough_to_be_compiled_first(
    fixtures: pytest.FixtureRequest, store: Store, connection: BaseDatabaseWrapper, asked: ClaimRequest, statistics: str
) -> None:
    """PostgreSQL compiles what it believes to cost 100,000 (`jit_above_cost`), for 40 ms instead of 0.1.

    Workers forbid that where the session is theirs alone; a pooler's is not.
    """
    if connection.vendor == "sqlite":
        pytest.skip("SQLite compiles nothing")
    fixtures.getfixturevalue(statistics)
    for call in (lambda: store.claim(connection, asked, 1), lambda: store.next_due(connection, asked)):
        top = plan_of(connection, call)[0]
        [cost] = re.findall(r"cost=[\d.]+\.\.([\d.]+) ", top)
        assert float(cost) < 100_000, top


def test_expire_finds_rows_by_its_index(store: Store, connection: BaseDatabaseWrapper, analyzed: None) -> None:
    lines = plan_of(connection, lambda: store.expire(connection, limit=100))
    assert scans(lines) == []
    assert any("django_jobs_expiry" in line for line in lines)


def test_prune_finds_rows_by_its_index(store: Store, connection: BaseDatabaseWrapper, analyzed: None) -> None:
    lines = plan_of(connection, lambda: store.prune(connection, limit=100))
    assert scans(lines) == []
    assert any("django_jobs_prune" in line for line in lines)


def test_lapsed_rows_are_found_among_the_held_ones(
    store: Store, connection: BaseDatabaseWrapper, analyzed: None
) -> None:
    store.claim(connection, request(limit=5), 1)
    lines = plan_of(connection, lambda: store.lapsed(connection, limit=100))
    assert scans(lines) == []
    assert any("django_jobs_held" in line for line in lines)


@pytest.mark.parametrize("verb", ["lock_holders", "find_holders", "expire_holders", "replace"])
@pytest.mark.parametrize("kind", ["unique", "waiting"])
def test_holders_are_found_by_the_index_of_their_keys(
    store: Store, connection: BaseDatabaseWrapper, analyzed: None, verb: str, kind: str
) -> None:
    asked: Any = [new_job()._replace(**{f"{kind}_key": "k"})] if verb == "replace" else ["k"]
    lines = plan_of(connection, lambda: getattr(store, verb)(connection, asked, waiting=kind == "waiting"))
    assert scans(lines) == []
    assert any(f"django_jobs_{kind}" in line for line in lines)


@pytest.mark.parametrize("verb", ["find_busy", "free"])
def test_those_that_hold_a_unique_key_and_do_not_wait_are_found_by_the_same_index(
    store: Store, connection: BaseDatabaseWrapper, analyzed: None, verb: str
) -> None:
    lines = plan_of(connection, lambda: getattr(store, verb)(connection, ["k"]))
    assert scans(lines) == []
    assert any("django_jobs_unique" in line for line in lines)


def test_a_batch_of_ends_is_found_by_id(store: Store, connection: BaseDatabaseWrapper, analyzed: None) -> None:
    claim = store.claim(connection, request(limit=1), 1).claims[0]
    lines = plan_of(connection, lambda: store.renew(connection, [claim.lease], lease=seconds(60)))
    assert scans(lines) == []
