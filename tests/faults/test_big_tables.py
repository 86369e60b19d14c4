"""Claims among millions of rows that have ended, or are for later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job
from django_jobs.stores import store_for
from tests.factories import request
from tests.stores.filling import analyze, empty, fill
from tests.stores.plans import TABLE, Plan, done

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connection() -> Iterator[BaseDatabaseWrapper]:
    """Have nobody gather statistics or clean up meanwhile, as on a server that can't keep up."""
    connection = connections["default"]
    if connection.vendor == "sqlite":
        yield connection
        return
    with connection.cursor() as cursor:
        cursor.execute(f"alter table {TABLE} set (autovacuum_enabled = off)")
        yield connection
        cursor.execute(f"alter table {TABLE} reset (autovacuum_enabled)")


class Stopped(Exception):
    """What keeps a statement from being run."""


def claim_ten(connection: BaseDatabaseWrapper) -> Plan:
    """Claim ten jobs, and say how that was done."""

    def stop(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise Stopped(sql, params)

    with connection.execute_wrapper(stop), pytest.raises(Stopped) as stopped:
        store_for("default").claim(connection, request(limit=10), 1)
    sql, params = stopped.value.args
    return done(connection, (sql, params))


def claims_among(connection: BaseDatabaseWrapper, *, ended: int, later: int) -> list[Plan]:
    """Claim a hundred due jobs among others in a loop, and look once more, with statistics of an empty table."""
    empty(connection)
    if connection.vendor == "postgresql":
        # SQLite keeps its own for good.
        analyze(connection)
    fill(store_for("default"), connection, kept=ended, future=later, due=100)
    plans = [claim_ten(connection) for _ in range(11)]
    assert Job.objects.running().count() == 100
    return plans


# -- O79


def check(connection: BaseDatabaseWrapper, *, ended: int, later: int) -> None:
    few = claims_among(connection, ended=500, later=100)
    many = claims_among(connection, ended=ended, later=later)
    for plan in many:
        assert plan.scans == ()
        assert plan.indexes >= {"django_jobs_claim", "id"}
    # The trees of the indexes are a level or two higher.
    assert sum(plan.work for plan in many) <= 1.5 * sum(plan.work for plan in few) + 100
    # A look that finds nothing passes over what has just been claimed, and over nothing else.
    assert many[-1].work <= 1.5 * few[-1].work + 20


def test_o79_claims_take_no_more_work_among_many_rows_than_among_few(connection: BaseDatabaseWrapper) -> None:
    check(connection, ended=50_000, later=10_000)


@pytest.mark.soak
def test_o79_claims_take_no_more_work_among_six_million_rows_than_among_few(connection: BaseDatabaseWrapper) -> None:
    check(connection, ended=5_000_000, later=1_000_000)
