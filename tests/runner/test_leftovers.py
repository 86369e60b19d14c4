"""Transactions that a body leaves open or broken: its end is recorded, and the next job finds clean ground."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import TestCase

from tests.performing import perform
from tests.runner.conftest import Options


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def in_a_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an async function that calls the sync one where it may use the database."""

    async def wrapper() -> Any:
        return await sync_to_async(function)()

    return wrapper


def fill_and_break() -> None:
    Group.objects.create(name="twin")
    Group.objects.create(name="twin")


def leave_autocommit_off() -> None:
    transaction.set_autocommit(False)
    Group.objects.create(name="lost")


def begin_by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute("begin")
    Group.objects.create(name="lost")


def begin_by_hand_and_break() -> None:
    begin_by_hand()
    fill_and_break()


def leave_atomic_open() -> None:
    transaction.atomic().__enter__()
    Group.objects.create(name="lost")


def leave_two_atomics_open() -> None:
    leave_atomic_open()
    transaction.atomic().__enter__()


def leave_atomic_open_and_break() -> None:
    leave_atomic_open()
    fill_and_break()


def swallow_in_an_open_atomic() -> None:
    leave_atomic_open()
    with suppress(IntegrityError):
        fill_and_break()


def close_within_atomic() -> None:
    leave_atomic_open()
    connection.close()


def leave_another_database_open() -> None:
    transaction.atomic(using="other").__enter__()
    Group.objects.using("other").create(name="lost")


def on_clean_ground() -> list[object]:
    """Refused within a transaction, and by a connection that is broken."""
    with transaction.atomic(durable=True):
        Group.objects.create(name="kept")
    return [connection.get_autocommit(), Group.objects.count(), Group.objects.using("other").count()]


LEFT_OPEN = [
    leave_autocommit_off, begin_by_hand, begin_by_hand_and_break, leave_atomic_open, leave_two_atomics_open,
    leave_atomic_open_and_break, swallow_in_an_open_atomic, close_within_atomic, leave_another_database_open,
]  # fmt: skip


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("body", LEFT_OPEN)
def test_o72_a_transaction_left_open_is_rolled_back_and_the_next_job_finds_clean_ground(
    options: Options, body: Callable[[], None]
) -> None:
    state = "READY" if "break" in body.__name__ else "SUCCESSFUL"
    for age in (0, None):
        options(CONN_MAX_AGE=age)
        for form in (as_it_is, in_a_thread):
            assert perform(form(body)).job.state == state
            assert perform(on_clean_ground).result == [True, 1, 0]
            Group.objects.all().delete()


@pytest.mark.django_db(transaction=True)
def test_what_is_lost_with_an_open_transaction_is_told(odd: list[str]) -> None:
    job = perform(leave_atomic_open).job
    [line] = odd
    assert line.startswith(f"tests.nowhere.leave_atomic_open #{job.pk} left a transaction open on default; what it did")


# -- the same within the transaction of a test


def swallow() -> None:
    with suppress(IntegrityError):
        fill_and_break()


def swallow_in_atomic() -> None:
    with transaction.atomic():
        swallow()


def ask_after_swallowing() -> None:
    with transaction.atomic():
        swallow()
        Group.objects.count()


def mark_for_rollback() -> None:
    leave_atomic_open()
    transaction.set_rollback(True)


def break_in_atomic() -> None:
    with transaction.atomic():
        fill_and_break()


@pytest.mark.django_db
@pytest.mark.parametrize("form", [as_it_is, in_a_thread], ids=["sync", "async"])
@pytest.mark.parametrize(
    "body",
    [
        leave_atomic_open, leave_two_atomics_open, leave_atomic_open_and_break, swallow_in_an_open_atomic, swallow,
        swallow_in_atomic, ask_after_swallowing, mark_for_rollback, break_in_atomic, fill_and_break,
    ],
)  # fmt: skip
def test_o72_the_transaction_of_a_test_survives_what_a_job_breaks(form: Any, body: Callable[[], None]) -> None:
    Group.objects.create(name="before")
    depth = len(connection.savepoint_ids), len(connection.atomic_blocks)
    run = perform(form(body))
    assert run.job.state in {"READY", "SUCCESSFUL"}
    assert (len(connection.savepoint_ids), len(connection.atomic_blocks)) == depth
    assert not connection.needs_rollback
    assert not Group.objects.filter(name="lost").exists()
    assert Group.objects.filter(name="before").exists()
    with transaction.atomic():
        Group.objects.create(name="after")
    assert perform(use_database).result == len(Group.objects.all())


def use_database() -> int:
    return Group.objects.count()


@pytest.mark.django_db
def test_what_a_failed_job_had_written_stays_in_the_transaction_of_a_test_as_it_would_elsewhere() -> None:
    def body() -> None:
        Group.objects.create(name="written")
        raise LookupError

    assert perform(body).job.state == "READY"
    assert Group.objects.get().name == "written"


@pytest.mark.django_db
def test_commit_hooks_of_rolled_back_work_are_forgotten(django_capture_on_commit_callbacks: Any) -> None:
    called: list[str] = []

    def body() -> None:
        transaction.atomic().__enter__()
        transaction.on_commit(lambda: called.append("lost"))

    with django_capture_on_commit_callbacks(execute=True):
        transaction.on_commit(lambda: called.append("kept"))
        perform(body)
    assert called == ["kept"]


def keep_durably() -> int:
    with transaction.atomic(durable=True):
        Group.objects.create(name="kept")
    return Group.objects.count()


class TestInADjangoTestCase(TestCase):
    def test_a_job_may_ask_for_a_durable_transaction(self) -> None:
        assert perform(keep_durably).result == 1
