"""A caller waits for a job's end; the looks come ever more seldom, and each end is an answer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event, Thread
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, connections, transaction

from django_jobs import lifecycle, work_one
from django_jobs.exceptions import (
    InstanceGone,
    UndecodableValue,
    WaitCancelled,
    WaitEnded,
    WaitFailed,
    WaitGone,
)
from django_jobs.models import Job
from django_jobs.models.waiting import FIRST_PAUSE, LONGEST_PAUSE, _Wait
from tests.declaring import declared
from tests.factories import queue_job, read, run_job, write

committed = pytest.mark.django_db(transaction=True)
"""What waits, and what it waits for, are on two connections."""


def give(value: Any) -> Any:
    return value


def fail() -> None:
    raise ValueError("no such customer")


def wait_in_two_ways(job: Job, timeout: Any) -> list[Callable[[], Any]]:
    """Give both forms as plain calls."""

    async def await_it() -> Any:
        return await job.await_result(timeout)

    return [lambda: job.wait_result(timeout), async_to_sync(await_it)]


@contextmanager
def meanwhile(do: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread, on its connection, when the block has looked in vain and waits."""
    failures: list[BaseException] = []
    waits = Event()
    pause = _Wait.pause

    def noted(wait: _Wait) -> float:
        waits.set()
        return pause(wait)

    def work() -> None:
        try:
            assert waits.wait(30)
            do()
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    thread = Thread(target=work)
    thread.start()
    try:
        with mock.patch.object(_Wait, "pause", noted):
            yield
    finally:
        thread.join(30)
    assert failures == []


# -- the result


@pytest.mark.parametrize(
    "value",
    [None, 0, "", {"total": Decimal("1.10")}, (1, {2}), datetime(2026, 3, 1, 12, tzinfo=UTC), [1e300], -0.0],
    ids=repr,
)
@pytest.mark.django_db
def test_the_result_comes_back_as_it_was_returned(value: Any) -> None:
    with declared(give) as performer:
        job = performer.later(value)
        work_one()
    for wait in wait_in_two_ways(job, 0):
        result = wait()
        assert (result, type(result), repr(result)) == (value, type(value), repr(value))


@pytest.mark.django_db
def test_a_model_instance_is_fetched_fresh() -> None:
    group = Group.objects.create(name="buyers")
    with declared(give) as performer:
        job = performer.later(group)
        work_one()
    Group.objects.update(name="sellers")
    assert job.wait_result(0).name == "sellers"
    Group.objects.all().delete()
    with pytest.raises(InstanceGone, match=rf"the auth.Group {group.pk} no longer exists"):
        job.wait_result(0)


@pytest.mark.django_db
def test_a_result_that_this_code_cannot_read_is_told_with_its_path() -> None:
    job = read(run_job().id)
    write(job.pk, state="SUCCESSFUL", worker=None, finished_at=job.started_at, result=[{"$decimal": "x"}])
    with pytest.raises(UndecodableValue, match=r"result\[0\]"):
        job.wait_result(0)


@pytest.mark.django_db
def test_the_instance_is_as_its_row_afterwards() -> None:
    with declared(give) as performer:
        job = performer.later(5)
        work_one()
    assert job.state == "READY"
    job.wait_result(0)
    assert (job.state, job.result, job.attempts) == ("SUCCESSFUL", 5, 1)


@committed
@pytest.mark.parametrize("form", [0, 1], ids=["sync", "async"])
def test_it_waits_until_a_worker_elsewhere_has_run_the_job(form: int) -> None:
    with declared(give) as performer:
        job = performer.later("done")
        with meanwhile(work_one):
            assert wait_in_two_ways(job, 30)[form]() == "done"


@committed
@pytest.mark.parametrize("form", [0, 1], ids=["sync", "async"])
def test_none_waits_for_as_long_as_it_takes(form: int) -> None:
    with declared(give) as performer:
        job = performer.later("done")
        with meanwhile(work_one):
            assert wait_in_two_ways(job, None)[form]() == "done"


@committed
def test_the_event_loop_is_free_while_async_code_waits() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async def both() -> None:
        job = await sync_to_async(queued)()
        counting = asyncio.create_task(count())
        with pytest.raises(TimeoutError):
            await job.await_result(0.3)
        counting.cancel()

    def queued() -> Job:
        return read(queue_job())

    async_to_sync(both)()
    assert turns > 20


# -- other ends


@pytest.mark.django_db
def test_a_job_that_has_failed_says_why() -> None:
    with declared(fail, max_attempts=1) as performer:
        job = performer.later()
        work_one()
    for wait in wait_in_two_ways(job, 0):
        with pytest.raises(WaitFailed, match=rf"^job {job.pk} has failed: no such customer$") as raised:
            wait()
        assert (raised.value.job_id, raised.value.error["kind"]) == (job.pk, "error")
        assert raised.value.error["exception"] == "builtins.ValueError"


@pytest.mark.django_db
def test_a_job_that_will_be_tried_again_has_not_ended() -> None:
    with declared(fail, max_attempts=2) as performer:
        job = performer.later()
        work_one()
    with pytest.raises(TimeoutError, match=rf"^job {job.pk} has not come to its end within 0 s; it is READY still$"):
        job.wait_result(0)


@pytest.mark.django_db
def test_a_cancelled_job_says_why_also_while_its_body_stops() -> None:
    waiting, running = read(queue_job()), read(run_job().id)
    for job in (waiting, running):
        lifecycle.cancel([job.pk], reason="the customer left")
        with pytest.raises(WaitCancelled, match=rf"^job {job.pk} was cancelled: the customer left$") as raised:
            job.wait_result(0)
        assert (raised.value.job_id, raised.value.error["kind"]) == (job.pk, "cancelled")


@pytest.mark.django_db
def test_an_end_without_a_reason_is_told_without_one() -> None:
    job = read(queue_job())
    lifecycle.cancel([job.pk])
    with pytest.raises(WaitCancelled, match=rf"^job {job.pk} was cancelled$"):
        job.wait_result(0)
    write(job.pk, state="FAILED", errors=[])
    with pytest.raises(WaitFailed, match=rf"^job {job.pk} has failed$") as raised:
        job.wait_result(0)
    assert raised.value.error == {}


@committed
def test_a_job_that_is_deleted_meanwhile_is_gone() -> None:
    job = read(queue_job())
    with meanwhile(lambda: lifecycle.delete([job.pk])), pytest.raises(WaitGone, match="is no longer here") as raised:
        job.wait_result(30)
    assert raised.value.job_id == job.pk
    assert isinstance(raised.value, WaitEnded)


@pytest.mark.django_db
def test_a_job_whose_keeping_is_0_goes_with_its_result_and_the_error_says_so() -> None:
    with declared(give, keep=0) as performer:
        job = performer.later(5)
        work_one()
    with pytest.raises(WaitGone, match="with keep=0 a job and its result go as it succeeds"):
        job.wait_result(0)


@pytest.mark.django_db
def test_one_that_is_retried_between_the_look_and_the_reading_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with declared(fail, max_attempts=1) as performer:
        job = performer.later()
        work_one()
    refresh = Job.refresh_from_db

    def retried_first(self: Job, **options: Any) -> None:
        lifecycle.retry([self.pk])
        refresh(self, **options)

    monkeypatch.setattr(Job, "refresh_from_db", retried_first)
    with pytest.raises(TimeoutError):
        job.wait_result(0)


@pytest.mark.django_db
def test_one_that_is_deleted_between_the_look_and_the_reading_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with declared(give) as performer:
        job = performer.later(1)
        work_one()
    refresh = Job.refresh_from_db

    def deleted_first(self: Job, **options: Any) -> None:
        lifecycle.delete([self.pk])
        refresh(self, **options)

    monkeypatch.setattr(Job, "refresh_from_db", deleted_first)
    with pytest.raises(WaitGone):
        job.wait_result(0)


# -- how long, and where not


@pytest.mark.django_db
@pytest.mark.parametrize("timeout", ["soon", -1, float("nan"), True, b"5"], ids=repr)
def test_a_wrong_timeout_is_refused_by_name(timeout: Any) -> None:
    job = read(queue_job())
    for wait in wait_in_two_ways(job, timeout):
        with pytest.raises((TypeError, ValueError), match=r"^timeout"):
            wait()


@pytest.mark.django_db
def test_the_timeout_may_be_any_duration() -> None:
    job = read(queue_job())
    with pytest.raises(TimeoutError, match=r"within 0\.03 s"):
        job.wait_result("30 ms")


@pytest.mark.django_db
def test_pauses_grow_from_20_ms_to_a_second_and_end_with_the_time() -> None:
    job = read(queue_job())
    wait = _Wait(job, None, using="default")
    pauses = [wait.pause() for _ in range(20)]
    assert (pauses[0], pauses[-1], FIRST_PAUSE, LONGEST_PAUSE) == (0.02, 1.0, 0.02, 1.0)
    assert pauses == sorted(pauses)
    assert sum(pause < 1.0 for pause in pauses) == 10
    short = _Wait(job, 0.005, using="default")
    assert 0.0 <= short.pause() <= 0.005


@pytest.mark.django_db
def test_a_look_is_one_statement(django_assert_num_queries: Any) -> None:
    job = read(queue_job())
    with django_assert_num_queries(1), pytest.raises(TimeoutError):
        job.wait_result(0)


@committed
def test_within_a_transaction_it_is_refused_at_once() -> None:
    job = read(queue_job())
    for wait in wait_in_two_ways(job, 0):
        with transaction.atomic(), pytest.raises(RuntimeError, match="wait after the atomic"):
            wait()


@committed
def test_within_a_transaction_by_hand_it_is_refused_too() -> None:
    job = read(queue_job())
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match="wait after the atomic"):
            job.wait_result(0)
    finally:
        connection.rollback()
        transaction.set_autocommit(True)


@pytest.mark.django_db(databases=["default", "other"])
def test_a_transaction_on_another_database_is_no_hindrance() -> None:
    with declared(give) as performer:
        job = performer.later(5)
        work_one()
    with transaction.atomic(using="other"):
        assert job.wait_result(0) == 5


@pytest.mark.django_db
def test_a_savepoint_within_a_tests_transaction_is_a_transaction() -> None:
    job = read(queue_job())
    with transaction.atomic(), pytest.raises(RuntimeError, match="wait after the atomic"):
        job.wait_result(0)


@pytest.mark.django_db
def test_in_a_tests_transaction_where_the_end_cannot_come_nobody_waits_for_ever() -> None:
    job = read(queue_job())
    with pytest.raises(RuntimeError, match=r"call run_jobs\(\) first, or give a timeout"):
        job.wait_result(None)


@pytest.mark.django_db
def test_in_a_running_event_loop_the_async_form_is_named() -> None:
    job = read(queue_job())

    async def wrong() -> None:
        job.wait_result(0)

    with pytest.raises(SynchronousOnlyOperation, match=r"job\.await_result"):
        async_to_sync(wrong)()


def test_a_job_without_an_id_is_not_queued_yet() -> None:
    with pytest.raises(RuntimeError, match="isn't queued yet"):
        Job().wait_result(0)
