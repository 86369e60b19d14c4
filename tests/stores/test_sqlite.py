"""What SQLite's dialect promises beyond the contract: patience with a locked file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job
from django_jobs.records import Lease
from django_jobs.stores import sqlite
from django_jobs.stores.base import Store
from tests.factories import another_connection, new_job, place_of, run_job, seconds

pytestmark = pytest.mark.django_db(transaction=True)

Value = TypeVar("Value")


@pytest.fixture(autouse=True)
def impatient(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Switch the busy timeout off, so that only our own patience is left."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite locks the whole file")
    with connection.cursor() as cursor:
        cursor.execute("pragma busy_timeout = 0")
    yield
    connection.close()


@pytest.fixture
def writer() -> Iterator[BaseDatabaseWrapper]:
    """Give another connection that has a write transaction open."""
    with another_connection() as other:
        with other.cursor() as cursor:
            cursor.execute("begin immediate")
        yield other


def release(writer: BaseDatabaseWrapper) -> None:
    with writer.cursor() as cursor:
        cursor.execute("commit")


def test_a_statement_is_tried_again_until_the_file_is_free(
    store: Store, connection: BaseDatabaseWrapper, writer: BaseDatabaseWrapper
) -> None:
    job_id = tried_until_released(writer, lambda mine: store.insert(mine, new_job()).id, busy_timeout=0)
    assert place_of(job_id).value == "READY"


def test_a_renewal_is_tried_more_often_than_sqlite_does_itself(
    store: Store, connection: BaseDatabaseWrapper, writer: BaseDatabaseWrapper
) -> None:
    release(writer)
    claim = run_job()
    with writer.cursor() as cursor:
        cursor.execute("begin immediate")

    def renew(mine: BaseDatabaseWrapper) -> tuple[list[Lease], int]:
        renewed = store.renew(mine, [claim.lease], lease=seconds(60))
        return list(renewed), busy_timeout(mine)

    # One that left the waiting to SQLite would come to its second try after ten minutes.
    assert tried_until_released(writer, renew, busy_timeout=600_000) == ([claim.lease], 600_000)


def test_within_a_callers_transaction_a_renewal_waits_as_the_caller_wants(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    claim = run_job()
    seen: list[int] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(context["connection"].connection.execute("pragma busy_timeout").fetchone()[0])
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("pragma busy_timeout = 3000")
    with transaction.atomic(), connection.execute_wrapper(look):
        store.renew(connection, [claim.lease], lease=seconds(60))
    assert set(seen) == {3000}


def busy_timeout(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute("pragma busy_timeout")
        return int(cursor.fetchone()[0])


def tried_until_released(
    writer: BaseDatabaseWrapper, verb: Callable[[BaseDatabaseWrapper], Value], *, busy_timeout: int
) -> Value:
    """Call a verb in another thread, release the file once three writes were tried, and give its answer."""
    tried = threading.Semaphore(0)

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        finally:
            if not sql.startswith("pragma"):
                tried.release()

    def call() -> Value:
        mine = connections["default"]
        try:
            with mine.cursor() as cursor:
                cursor.execute(f"pragma busy_timeout = {busy_timeout}")
            with mine.execute_wrapper(count):
                return verb(mine)
        finally:
            mine.close()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call)
        for _ in range(3):
            assert tried.acquire(timeout=30)
        assert not answer.done()
        release(writer)
        return answer.result(timeout=30)


def test_within_a_callers_transaction_the_error_is_theirs_to_see(
    store: Store, connection: BaseDatabaseWrapper, writer: BaseDatabaseWrapper
) -> None:
    tried: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        tried.append(sql)
        return execute(sql, params, many, context)

    with (
        pytest.raises(OperationalError, match="locked"),
        transaction.atomic(),
        connection.execute_wrapper(count),
    ):
        store.insert(connection, new_job())
    assert len(tried) == 1
    release(writer)
    assert Job.objects.count() == 0


def test_within_a_transaction_that_is_managed_by_hand_too(
    store: Store, connection: BaseDatabaseWrapper, writer: BaseDatabaseWrapper
) -> None:
    tried: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        tried.append(sql)
        return execute(sql, params, many, context)

    connection.set_autocommit(False)
    with pytest.raises(OperationalError, match="locked"), connection.execute_wrapper(count):
        store.insert(connection, new_job())
    connection.rollback()
    connection.set_autocommit(True)
    assert len(tried) == 1
    release(writer)


def test_patience_has_a_bound(
    store: Store, connection: BaseDatabaseWrapper, writer: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOCKED_BOUND", 0.0)
    with pytest.raises(OperationalError, match="locked"):
        store.insert(connection, new_job())


def test_another_error_is_not_tried_again(store: Store, connection: BaseDatabaseWrapper) -> None:
    with pytest.raises(OperationalError, match="no such table"):
        store.run(connection, "select 1 from nowhere", {})
