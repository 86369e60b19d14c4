from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_jobs import lifecycle, signals
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Retried, Succeeded
from django_jobs.records import Places
from django_jobs.transitions import Place
from tests.factories import (
    NOON,
    another_connection,
    failure,
    new_job,
    place_of,
    queue_job,
    run_job,
    seconds,
    write,
)
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db


# -- enqueue


def test_after_the_commit_each_job_is_told(heard: list[Heard], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        one = lifecycle.enqueue(new_job(name="shop.greet", queue="mail"), using="default")
        [two] = lifecycle.enqueue_many([new_job(name="shop.bill")], using="default")
        assert heard == []
    assert heard == [
        Heard("job_enqueued", "shop.greet", {"job_id": one.id, "name": "shop.greet", "queue": "mail"}),
        Heard("job_enqueued", "shop.bill", {"job_id": two.id, "name": "shop.bill", "queue": "default"}),
    ]


def test_who_listens_to_one_name_only_is_told(django_capture_on_commit_callbacks: Any) -> None:
    name, told = "shop.greet", []

    def listen(*, job_id: int, **_: Any) -> None:
        told.append(job_id)

    signals.job_enqueued.connect(listen, sender=name)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            inserted = lifecycle.enqueue(new_job(name=name), using="default")
            lifecycle.enqueue(new_job(name="shop.bill"), using="default")
    finally:
        signals.job_enqueued.disconnect(listen, sender=name)
    assert told == [inserted.id]


def test_what_a_savepoint_takes_back_is_not_told(heard: list[Heard], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        kept = lifecycle.enqueue(new_job(), using="default")
        with transaction.atomic():
            lifecycle.enqueue(new_job(), using="default")
            transaction.set_rollback(True)
    assert [one.said["job_id"] for one in heard] == [kept.id]
    assert list(Job.objects.values_list("pk", flat=True)) == [kept.id]


def test_a_receiver_that_raises_harms_nobody(
    django_capture_on_commit_callbacks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**said: Any) -> None:
        raise ZeroDivisionError

    signals.job_enqueued.connect(broken)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            queue_id = lifecycle.enqueue(new_job(), using="default").id
    finally:
        signals.job_enqueued.disconnect(broken)
    assert place_of(queue_id) is Place.READY


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_the_row_is_there_at_once_and_told(heard: list[Heard]) -> None:
    inserted = lifecycle.enqueue(new_job(), using="default")
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute(f'select count(*) from "{Job._meta.db_table}" where id = %s', [inserted.id])
        assert cursor.fetchone() == (1,)
    assert words(heard) == ["job_enqueued"]


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_leaves_no_row_and_tells_nothing(heard: list[Heard]) -> None:
    with transaction.atomic():
        lifecycle.enqueue(new_job(), using="default")
        transaction.set_rollback(True)
    assert Job.objects.count() == 0
    assert heard == []


@pytest.mark.django_db(transaction=True)
def test_a_job_queued_in_a_commit_hook_is_queued() -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: lifecycle.enqueue(new_job(queue="hooked"), using="default"))
    assert Job.objects.filter(queue="hooked").count() == 1


@pytest.mark.django_db(transaction=True)
def test_under_manual_transactions_the_row_is_queued_and_nobody_is_told(heard: list[Heard]) -> None:
    transaction.set_autocommit(False)
    try:
        inserted = lifecycle.enqueue(new_job(), using="default")
        lifecycle.enqueue_many([new_job()], using="default")
        lifecycle.retry([inserted.id])
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert Job.objects.count() == 2
    assert heard == []


# -- a connection that breaks right after the commit


@pytest.mark.django_db(transaction=True)
def test_o70_a_caller_whose_connection_breaks_right_after_the_commit_has_queued_and_gets_no_error() -> None:
    with transaction.atomic():
        transaction.on_commit(break_connection)
        inserted = lifecycle.enqueue(new_job(), using="default")
        [queued] = lifecycle.enqueue_many([new_job()], using="default")
    connection().close()
    assert {place_of(inserted.id), place_of(queued.id)} == {Place.READY}


@pytest.mark.django_db(transaction=True)
def test_a_caller_whose_connection_breaks_right_after_a_retry_by_hand_gets_no_error() -> None:
    job_id = run_job().id
    lifecycle.cancel([job_id])
    write(job_id, worker=None)
    with transaction.atomic():
        transaction.on_commit(break_connection)
        assert lifecycle.retry([job_id]) == [job_id]
    connection().close()
    assert place_of(job_id) is Place.READY


def break_connection() -> None:
    """Break the connection as a server does that goes away: Django doesn't know of it."""
    connection().connection.close()


# -- waking


@pytest.fixture
def ear(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Listen on a second connection; calling it gives what was notified since."""
    request.getfixturevalue("transactional_db")
    if connection().vendor != "postgresql":
        pytest.skip("only PostgreSQL notifies; workers on SQLite watch the file")
    with another_connection() as other:
        with other.cursor() as cursor:
            cursor.execute("listen django_jobs")

        def payloads() -> list[str]:
            end = uuid.uuid4().hex
            with other.cursor() as cursor:
                cursor.execute("select pg_notify('django_jobs', %s)", [end])
            heard: list[str] = []
            for notification in other.connection.notifies(timeout=30):
                if notification.payload == end:
                    return heard
                heard.append(notification.payload)
            raise AssertionError(f"never heard {end}")

        yield payloads


@pytest.fixture
def queue() -> str:
    """Give a queue that nobody was woken for."""
    return f"queue-{uuid.uuid4().hex}"


@pytest.mark.django_db(transaction=True)
def test_what_comes_back_from_a_dead_worker_wakes_the_others(ear: Any, queue: str) -> None:
    claim = run_job(queue=queue)
    lifecycle.bury(connection(), "worker-1", running=[claim.lease], failure=failure(kind="crash"))
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_what_is_reclaimed_wakes_workers(ear: Any, queue: str, frozen: FrozenClock) -> None:
    run_job(queue=queue)
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_a_commit_wakes_each_queue_once(ear: Any, queue: str, frozen: FrozenClock) -> None:
    with transaction.atomic():
        lifecycle.enqueue_many([new_job(queue=f"{queue}-{n % 2}") for n in range(50)], using="default")
        lifecycle.enqueue_many([new_job(queue=f"{queue}-1"), new_job(queue=f"{queue}-2")], using="default")
        assert ear() == []
    assert sorted(ear()) == [f"{queue}-0", f"{queue}-1", f"{queue}-2"]


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_the_queue_is_woken_at_once(ear: Any, queue: str) -> None:
    lifecycle.enqueue(new_job(queue=queue), using="default")
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_a_rollback_wakes_nobody(ear: Any, queue: str) -> None:
    with transaction.atomic():
        lifecycle.enqueue(new_job(queue=queue), using="default")
        transaction.set_rollback(True)
    assert ear() == []


@pytest.mark.django_db(transaction=True)
def test_a_queue_is_not_woken_twice_within_10_ms(ear: Any, queue: str, frozen: FrozenClock) -> None:
    lifecycle.enqueue(new_job(queue=queue), using="default")
    frozen.advance(timedelta(milliseconds=9))
    lifecycle.enqueue(new_job(queue=queue), using="default")
    lifecycle.enqueue(new_job(queue=f"{queue}-other"), using="default")
    assert ear() == [queue, f"{queue}-other"]
    frozen.advance(timedelta(milliseconds=1))
    lifecycle.enqueue(new_job(queue=queue), using="default")
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_no_notification_is_sent_within_a_transaction(ear: Any, queue: str) -> None:
    inside: list[bool] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pg_notify" in sql:
            inside.append(context["connection"].in_atomic_block)
        return execute(sql, params, many, context)

    with connection().execute_wrapper(listen), transaction.atomic():
        lifecycle.enqueue(new_job(queue=queue), using="default")
    assert inside == [False]


@pytest.mark.django_db(transaction=True)
def test_a_retry_by_hand_wakes_the_queue_of_a_job_that_never_ran(ear: Any, queue: str) -> None:
    job_id = queue_job(queue=queue, delay=timedelta(days=1))
    lifecycle.retry([job_id])
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_a_retry_by_hand_wakes_after_its_commit(ear: Any, queue: str) -> None:
    claim = run_job(queue=queue)
    settle(claim, Failed(failure=failure()))
    with transaction.atomic():
        lifecycle.retry([claim.id])
        assert ear() == []
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_a_reschedule_wakes_the_queue_that_the_job_waits_under_now(ear: Any, queue: str) -> None:
    job_id = queue_job(delay=timedelta(days=1))
    with transaction.atomic():
        lifecycle.reschedule([job_id], Places(queue=queue, run_at=NOON))
        assert ear() == []
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_o23_a_release_wakes_the_queue_for_other_workers(ear: Any, queue: str) -> None:
    claim = run_job(queue=queue)
    assert lifecycle.release(connection(), [claim]) == []
    assert ear() == [queue]


@pytest.mark.django_db(transaction=True)
def test_other_ends_wake_nobody(ear: Any, queue: str) -> None:
    settle(run_job(queue=queue), Succeeded())
    settle(run_job(queue=queue), Retried(failure=failure(), delay=timedelta(0)))
    assert ear() == []
