"""Queueing within the caller's transaction, and who is told of it when: real commits, seen from a second connection."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.test import AsyncClient, Client

from django_jobs import aenqueue, enqueue, signals, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from tests.factories import another_connection
from tests.performing import perform
from tests.shop.jobs import greet

pytestmark = pytest.mark.django_db(transaction=True)

Woken: TypeAlias = Callable[[], list[str]]


@pytest.fixture
def queue() -> str:
    """Give a queue that nobody was woken for: within 10 ms a process doesn't notify a queue twice."""
    return f"queue-{uuid.uuid4().hex}"


@pytest.fixture
def enqueued() -> Iterator[list[str]]:
    """List the queues that `job_enqueued` told of, job by job."""
    told: list[str] = []

    def note(*, queue: str, **_: Any) -> None:
        told.append(queue)

    signals.job_enqueued.connect(note)
    yield told
    signals.job_enqueued.disconnect(note)


@pytest.fixture
def woken(transactional_db: None, enqueued: list[str]) -> Iterator[Woken]:
    """Tell which queues were notified since it was last asked; SQLite notifies nobody, so there the signal tells."""
    if connection.vendor == "postgresql":
        with listening() as payloads:
            yield payloads
    else:

        def told() -> list[str]:
            queues = list(dict.fromkeys(enqueued))
            enqueued.clear()
            return queues

        yield told


@contextmanager
def listening() -> Iterator[Woken]:
    """Listen on a connection that is not Django's."""
    parameters = connections["default"].get_connection_params()
    known = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port") if key in parameters}
    with psycopg.connect(**known, autocommit=True) as listener:
        listener.execute("listen django_jobs")

        def payloads() -> list[str]:
            end = uuid.uuid4().hex
            listener.execute("select pg_notify('django_jobs', %s)", [end])
            heard: list[str] = []
            for notification in listener.notifies(timeout=30):
                if notification.payload == end:
                    return heard
                heard.append(notification.payload)
            raise AssertionError(f"never heard {end}")

        yield payloads


def jobs_seen_elsewhere() -> int:
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("select count(*) from django_jobs_job")
        count: int = cursor.fetchone()[0]
        return count


# -- commit and rollback


def test_without_a_transaction_the_job_is_there_and_told_at_once(queue: str, woken: Woken) -> None:
    greet.using(queue=queue).later(name="Ada")
    assert jobs_seen_elsewhere() == 1
    assert woken() == [queue]


def test_with_the_commit_the_job_is_there_and_told(queue: str, woken: Woken) -> None:
    with transaction.atomic():
        greet.using(queue=queue).later(name="Ada")
        assert jobs_seen_elsewhere() == 0
        assert woken() == []
    assert jobs_seen_elsewhere() == 1
    assert woken() == [queue]


def test_with_a_rollback_the_job_is_gone_and_nobody_is_told(queue: str, woken: Woken) -> None:
    with suppress(LookupError), transaction.atomic():
        greet.using(queue=queue).later(name="Ada")
        greet.using(queue=queue).later_many([("Bo",)])
        enqueue([greet.using(queue=queue).prepare(name="Cy")])
        raise LookupError
    assert Job.objects.count() == 0
    assert woken() == []


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along(queue: str, woken: Woken) -> None:
    with transaction.atomic(), suppress(LookupError), transaction.atomic():
        greet.using(queue=queue).later(name="Ada")
        raise LookupError
    assert Job.objects.count() == 0
    assert woken() == []


def test_a_job_queued_after_a_rolled_back_savepoint_wakes(queue: str, woken: Woken) -> None:
    with transaction.atomic():
        with suppress(LookupError), transaction.atomic():
            greet.using(queue=queue).later(name="Ada")
            raise LookupError
        greet.using(queue=queue).later(name="Bo")
    assert [job.kwargs for job in Job.objects.all()] == [{"name": "Bo"}]
    assert woken() == [queue]


def test_a_job_queued_before_a_rolled_back_savepoint_wakes(queue: str, woken: Woken) -> None:
    with transaction.atomic():
        greet.using(queue=queue).later(name="Bo")
        with suppress(LookupError), transaction.atomic():
            greet.using(queue=queue).later(name="Ada")
            raise LookupError
    assert woken() == [queue]


def test_many_calls_in_one_transaction_notify_each_queue_once(queue: str, woken: Woken, frozen: FrozenClock) -> None:
    with transaction.atomic():
        for number in range(20):
            greet.using(queue=f"{queue}-{number % 2}").later(name="Ada")
        greet.using(queue=f"{queue}-0").later_many([("Bo",)] * 20)
    assert sorted(woken()) == [f"{queue}-0", f"{queue}-1"]


def test_each_job_is_told_after_the_commit_and_not_after_a_rollback(enqueued: list[str]) -> None:
    with transaction.atomic():
        greet.using(queue="one").later(name="Ada")
        enqueue([greet.using(queue="two").prepare(name="Bo"), greet.using(queue="three").prepare(name="Cy")])
        with suppress(LookupError), transaction.atomic():
            greet.using(queue="lost").later(name="Di")
            raise LookupError
        assert enqueued == []
    assert enqueued == ["one", "two", "three"]


def test_after_a_rollback_the_connection_tells_of_later_jobs_only(enqueued: list[str]) -> None:
    with suppress(LookupError), transaction.atomic():
        greet.using(queue="lost").later(name="Ada")
        raise LookupError
    greet.using(queue="kept").later(name="Bo")
    assert enqueued == ["kept"]


# -- within jobs


def test_a_job_queued_by_a_job_that_rolls_back_is_gone(queue: str, woken: Woken) -> None:
    def body() -> None:
        with transaction.atomic():
            greet.using(queue=queue).later(name="Ada")
            raise LookupError

    assert perform(body).job.state == "READY"
    assert not Job.objects.named(greet.name).exists()
    assert queue not in woken()


def test_a_job_queued_by_a_job_that_fails_later_stays(queue: str, woken: Woken) -> None:
    def body() -> None:
        greet.using(queue=queue).later(name="Ada")
        raise LookupError

    assert perform(body).job.state == "READY"
    assert Job.objects.named(greet.name).count() == 1
    assert queue in woken()


def test_jobs_that_an_async_job_queues_are_there_and_told(queue: str, woken: Woken) -> None:
    async def body() -> None:
        await greet.using(queue=queue).alater(name="Ada")
        await aenqueue([greet.using(queue=queue).prepare(name="Bo")])

    assert perform(body).job.state == "SUCCESSFUL"
    assert Job.objects.named(greet.name).count() == 2
    assert queue in woken()


# -- commit hooks


def test_a_commit_hook_may_queue(queue: str, woken: Woken) -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: greet.using(queue=queue).later(name="Ada"))
        assert jobs_seen_elsewhere() == 0
    assert jobs_seen_elsewhere() == 1
    assert woken() == [queue]


def test_a_commit_hook_may_queue_in_a_transaction_of_its_own(queue: str, woken: Woken) -> None:
    def hook() -> None:
        with transaction.atomic():
            greet.using(queue=queue).later(name="Ada")

    with transaction.atomic():
        transaction.on_commit(hook)
    assert jobs_seen_elsewhere() == 1
    assert woken() == [queue]


def test_a_receiver_that_fails_keeps_no_other_commit_hook_from_running(enqueued: list[str]) -> None:
    def fail(**_: Any) -> None:
        raise LookupError

    called: list[str] = []
    signals.job_enqueued.connect(fail)
    try:
        with transaction.atomic():
            greet.later(name="Ada")
            transaction.on_commit(lambda: called.append("after"))
    finally:
        signals.job_enqueued.disconnect(fail)
    assert (enqueued, called) == (["default"], ["after"])


# -- transactions by hand


@contextmanager
def autocommit_off() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_with_autocommit_off_the_job_is_there_after_the_commit_and_nobody_is_told(queue: str, woken: Woken) -> None:
    with autocommit_off():
        greet.using(queue=queue).later(name="Ada")
        greet.using(queue=queue).later_many([("Bo",)])
        transaction.commit()
    assert jobs_seen_elsewhere() == 2
    assert woken() == []
    assert work_one(queue) is not None


def test_with_autocommit_off_a_rollback_takes_the_job_along(queue: str, woken: Woken) -> None:
    with autocommit_off():
        greet.using(queue=queue).later(name="Ada")
    assert jobs_seen_elsewhere() == 0
    assert woken() == []


# -- requests


@pytest.fixture(params=[False, True], ids=["", "ATOMIC_REQUESTS"])
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    is_atomic: bool = request.param
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", is_atomic)
    return is_atomic


def test_a_request_that_succeeds_leaves_its_job(client: Client, atomic_requests: bool, enqueued: list[str]) -> None:
    assert client.post("/shop/sign-up/", {"name": "Ada"}).status_code == 201
    assert jobs_seen_elsewhere() == 1
    assert enqueued == ["default"]


def test_a_request_that_fails_leaves_no_job_under_atomic_requests(
    client: Client, atomic_requests: bool, enqueued: list[str]
) -> None:
    client.raise_request_exception = False
    assert client.post("/shop/sign-up/", {"name": "Ada", "fail": "yes"}).status_code == 500
    left = 0 if atomic_requests else 1
    assert jobs_seen_elsewhere() == left
    assert Group.objects.count() == left
    assert enqueued == ["default"] * left


def test_an_async_view_queues_and_tells(enqueued: list[str]) -> None:
    response = async_to_sync(AsyncClient().post)("/shop/sign-up-async/", {"name": "Ada"})
    assert response.status_code == 201
    assert jobs_seen_elsewhere() == 1
    assert enqueued == ["default"]
    assert work_one() is not None


def test_an_async_caller_in_the_transaction_of_its_thread_follows_that_transaction(enqueued: list[str]) -> None:
    """An `atomic()` around sync code that calls async code that queues."""
    with suppress(LookupError), transaction.atomic():
        async_to_sync(greet.alater)(name="Ada")
        raise LookupError
    assert (jobs_seen_elsewhere(), enqueued) == (0, [])
    with transaction.atomic():
        async_to_sync(greet.alater)(name="Bo")
        assert enqueued == []
    assert (jobs_seen_elsewhere(), enqueued) == (1, ["default"])
