"""The database connections around a body: checked before it, closed and put right behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import runner, work_one
from django_jobs.models import Job
from django_jobs.outcomes import GaveUp, Outcome, Retried, Succeeded
from django_jobs.records import Claim
from tests.declaring import declared
from tests.factories import another_connection, claim_one
from tests.performing import POLICY, perform
from tests.runner.conftest import Options

committing = pytest.mark.django_db(transaction=True)


@pytest.fixture
def slot() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Give a thread of its own, as a worker has, to call functions in one after the other."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield lambda function: executor.submit(function).result(timeout=20)
        executor.submit(connections.close_all).result(timeout=20)


def use_database() -> None:
    Group.objects.count()


@contextmanager
def claimed(function: Callable[..., Any], *, count: int = 1) -> Iterator[list[Claim]]:
    """Declare a performer for the function, and claim so many jobs of it."""
    with declared(function, **POLICY) as performer:
        performer.later_many([()] * count)
        yield [claim_one() for _ in range(count)]


# -- before and after, as around a request


@committing
@pytest.mark.parametrize(("age", "is_kept"), [(0, False), (None, True), (600, True)])
def test_a_connection_stays_open_between_jobs_for_as_long_as_conn_max_age_says(
    options: Options, slot: Any, age: int | None, is_kept: bool
) -> None:
    options(CONN_MAX_AGE=age)
    used: list[Any] = []

    def body() -> None:
        use_database()
        used.append(connection.connection)

    with claimed(body, count=2) as claims:
        for claim in claims:
            assert slot(lambda claim=claim: runner.run(claim)) == Succeeded()
            assert slot(lambda: connection.connection is not None) is is_kept
    assert (used[0] is used[1]) is is_kept


@committing
def test_o28_a_connection_that_was_cut_while_idle_is_replaced_before_the_next_job(
    options: Options, slot: Any, needs_postgresql: None
) -> None:
    options(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
    pids: list[int] = []

    def body() -> None:
        use_database()
        pids.append(connection.connection.info.backend_pid)

    with claimed(body, count=2) as [first, second]:
        assert slot(lambda: runner.run(first)) == Succeeded()
        terminate(pids[0])
        assert slot(lambda: runner.run(second)) == Succeeded()
    assert pids[0] != pids[1]


@committing
def test_o28_a_turn_goes_on_after_its_connection_was_cut_while_idle(options: Options, needs_postgresql: None) -> None:
    options(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True)
    with declared(use_database, **POLICY) as performer:
        performer.later_many([(), ()])
        assert work_one() == Succeeded()
        terminate(connection.connection.info.backend_pid)
        assert work_one() == Succeeded()


@committing
def test_a_connection_that_is_cut_under_a_job_fails_that_job_and_is_replaced(
    options: Options, slot: Any, needs_postgresql: None
) -> None:
    options(CONN_MAX_AGE=None)

    def cut() -> None:
        use_database()
        terminate(connection.connection.info.backend_pid)
        use_database()

    with claimed(cut) as [first]:
        outcome = slot(lambda: runner.run(first))
    assert isinstance(outcome, Retried)
    assert outcome.failure.exception == "django.db.utils.OperationalError"
    with claimed(use_database) as [second]:
        assert slot(lambda: runner.run(second)) == Succeeded()


@committing
def test_a_connection_that_a_job_destroys_costs_it_nothing_and_is_replaced(options: Options, slot: Any) -> None:
    options(CONN_MAX_AGE=None)

    def destroy() -> str:
        use_database()
        connection.connection.close()
        return "done"

    with claimed(destroy) as [first]:
        assert slot(lambda: runner.run(first)) == Succeeded(result='"done"')
    with claimed(use_database) as [second]:
        assert slot(lambda: runner.run(second)) == Succeeded()


@pytest.fixture
def needs_postgresql() -> None:
    if connections["default"].vendor != "postgresql":
        pytest.skip("SQLite has no connections that a server could cut")


def terminate(pid: int) -> None:
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 5000)", [pid])
        assert cursor.fetchone() == (True,)


@committing
def test_o87_every_job_begins_with_an_empty_query_log(options: Options, slot: Any) -> None:
    options(CONN_MAX_AGE=None)
    lengths: list[int] = []

    def body() -> None:
        for _ in range(10):
            use_database()
        lengths.append(len(connection.queries_log))

    with override_settings(DEBUG=True), claimed(body, count=200) as claims:
        for claim in claims:
            slot(lambda claim=claim: runner.run(claim))
        assert slot(lambda: len(connection.queries_log)) < 20
    assert set(lengths[1:]) == {10}


@committing
def test_o87_the_query_log_stays_empty_where_connections_are_closed_between_jobs(options: Options, slot: Any) -> None:
    options(CONN_MAX_AGE=0)
    with override_settings(DEBUG=True), claimed(use_database, count=20) as claims:
        for claim in claims:
            slot(lambda claim=claim: runner.run(claim))
        assert slot(lambda: len(connection.queries_log)) < 20


@committing
def test_o72_the_next_job_of_a_workers_thread_begins_a_transaction_of_its_own(options: Options, slot: Any) -> None:
    options(CONN_MAX_AGE=None)

    def leave_open() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="lost")

    def begin() -> int:
        with transaction.atomic(durable=True):
            Group.objects.create(name="kept")
        return Group.objects.count()

    with claimed(leave_open) as [first]:
        assert slot(lambda: runner.run(first)) == Succeeded()
    with claimed(begin) as [second]:
        assert slot(lambda: runner.run(second)) == Succeeded(result="1")


# -- within a caller's transaction


@pytest.mark.django_db
def test_o32_the_connection_of_a_test_is_never_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "close_at", 0.0)
    monkeypatch.setattr(connections["default"], "errors_occurred", True)
    Group.objects.create(name="before")
    before = connection.connection
    assert perform(use_database).job.state == "SUCCESSFUL"
    assert connection.connection is before
    assert connection.in_atomic_block
    assert Group.objects.get().name == "before"


@pytest.mark.django_db
def test_queries_of_jobs_can_be_counted() -> None:
    with declared(use_database, **POLICY) as performer:
        performer.later()
        with CaptureQueriesContext(connection) as captured:
            work_one()
    assert [sum(word in query["sql"] for query in captured) for word in ("recursive", "auth_group")] == [1, 1]


@committing
def test_queries_of_jobs_can_be_counted_outside_of_a_transaction() -> None:
    with declared(use_database, **POLICY) as performer:
        performer.later()
        with CaptureQueriesContext(connection) as captured:
            work_one()
    assert [sum(word in query["sql"] for query in captured) for word in ("recursive", "auth_group")] == [1, 1]


@committing
def test_a_caller_with_autocommit_off_keeps_its_transaction() -> None:
    with declared(use_database, **POLICY) as performer:
        job = performer.later()
        transaction.set_autocommit(False)
        try:
            Group.objects.create(name="mine")
            assert work_one() == Succeeded()
            assert Group.objects.count() == 1
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)
    assert Group.objects.count() == 0
    assert Job.objects.get(pk=job.pk).state == "READY"


# -- async performers on a worker's loop


def in_a_loop(claim: Claim) -> Outcome:
    async def main() -> Outcome:
        return await asyncio.get_running_loop().create_task(runner.arun(claim), context=Context())

    return asyncio.run(main())


@committing
def test_the_connections_of_an_async_job_are_closed_with_its_thread(slot: Any) -> None:
    used: list[Any] = []

    async def body() -> int:
        await sync_to_async(lambda: used.append(connections["default"]))()
        return await Group.objects.acount()

    with claimed(body) as [claim]:
        assert slot(lambda: in_a_loop(claim)) == Succeeded(result="0")
    assert used[0].connection is None


@committing
def test_the_connections_of_an_async_job_that_never_began_are_closed_too(slot: Any) -> None:
    opened: list[Any] = []

    async def body(group: Group) -> None:
        raise AssertionError

    with declared(body, **POLICY) as performer:
        group = Group.objects.create(name="gone")
        performer.later(group)
        group.delete()
        claim = claim_one()
        connection_created.connect(receiver := lambda *, connection, **_: opened.append(connection))
        try:
            assert isinstance(slot(lambda: in_a_loop(claim)), GaveUp)
        finally:
            connection_created.disconnect(receiver)
    assert [wrapper.connection for wrapper in opened] == [None]


@committing
@pytest.mark.parametrize("is_awaited", [True, False])
def test_an_async_job_that_cancels_its_own_task_does_not_reach_the_workers(slot: Any, is_awaited: bool) -> None:
    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if is_awaited:
            await asyncio.sleep(60)

    with claimed(body) as [claim]:
        outcome = slot(lambda: in_a_loop(claim))
    assert isinstance(outcome, Retried)
    assert outcome.failure.exception == "asyncio.exceptions.CancelledError"


@committing
def test_an_async_job_leaves_no_transaction_behind(slot: Any) -> None:
    def leave() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="lost")

    async def body() -> None:
        await sync_to_async(leave)()

    with claimed(body) as [claim]:
        assert slot(lambda: in_a_loop(claim)) == Succeeded()
    assert Group.objects.count() == 0


@committing
def test_an_async_job_whose_name_is_unknown_or_whose_arguments_misfit_ends_too(slot: Any) -> None:
    async def body(a: int) -> None:
        raise AssertionError

    with declared(body, **POLICY) as performer:
        performer.later(1)
        claim = claim_one()
    assert slot(lambda: in_a_loop(claim)).failure.kind == "unknown"

    async def other(a: int, b: int) -> None:
        raise AssertionError

    with declared(other, name=claim.name):
        assert slot(lambda: in_a_loop(claim)).failure.kind == "misfit"
