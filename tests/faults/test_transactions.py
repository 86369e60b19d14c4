"""Jobs and the transactions around and within them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.test import TestCase

from django_jobs import Retry, work_one
from django_jobs.models import Job
from django_jobs.testing import run_jobs
from tests.declaring import declared
from tests.factories import another_connection
from tests.performing import POLICY, perform, work
from tests.shop import jobs


def rows_seen_elsewhere() -> tuple[int, int]:
    """Count jobs and groups as any other process sees them."""
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("select (select count(*) from django_jobs_job), (select count(*) from auth_group)")
        row: tuple[int, int] = cursor.fetchone()
        return row


# -- O69


def write_and_retry() -> None:
    with transaction.atomic():
        Group.objects.create(name="half-done")
        raise Retry("the shop is closed")


@transaction.atomic
def write_and_retry_in_a_wrapper() -> None:
    Group.objects.create(name="half-done")
    raise Retry("the shop is closed")


@pytest.mark.django_db
@pytest.mark.parametrize("body", [write_and_retry, write_and_retry_in_a_wrapper])
def test_o69_a_retry_asked_for_within_atomic_rolls_the_work_back_and_exists(body: Callable[[], None]) -> None:
    run = perform(body)
    assert (run.job.state, run.job.attempts, run.reason) == ("READY", 1, "the shop is closed")
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_o69_the_same_with_real_commits_and_half_of_the_work_committed() -> None:
    def body() -> None:
        Group.objects.create(name="done")
        try:
            with transaction.atomic():
                Group.objects.create(name="half-done")
                raise LookupError
        except LookupError as error:
            raise Retry("the rest is for later") from error

    run = perform(body)
    assert (run.job.state, run.reason) == ("READY", "the rest is for later")
    assert [group.name for group in Group.objects.all()] == ["done"]
    assert rows_seen_elsewhere() == (1, 1)
    assert perform(write_and_retry).job.state == "READY"
    assert rows_seen_elsewhere() == (2, 1)


# -- O70


@pytest.mark.django_db(transaction=True)
def test_o70_a_job_is_not_seen_before_the_commit_and_never_lost_after_it() -> None:
    with transaction.atomic():
        jobs.greet.later(name="Ada")
        assert rows_seen_elsewhere() == (0, 0)
        Group.objects.create(name="Ada")
    assert rows_seen_elsewhere() == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_o70_a_job_is_gone_with_a_rollback() -> None:
    with suppress(LookupError), transaction.atomic():
        jobs.greet.later(name="Ada")
        jobs.greet.later_many([("Bo",), ("Cy",)])
        raise LookupError
    assert rows_seen_elsewhere() == (0, 0)


@pytest.mark.django_db(transaction=True)
def test_o70_a_job_is_gone_with_the_savepoint_it_was_queued_in() -> None:
    with transaction.atomic():
        kept = jobs.greet.later(name="Ada")
        with suppress(LookupError), transaction.atomic():
            jobs.greet.later(name="Bo")
            raise LookupError
    assert list(Job.objects.values_list("pk", flat=True)) == [kept.pk]


@pytest.mark.django_db(transaction=True)
def test_o70_a_job_queued_by_a_job_is_gone_with_the_transaction_of_that_job() -> None:
    def body() -> None:
        jobs.greet.later(name="kept")
        with transaction.atomic():
            jobs.greet.later(name="lost")
            raise LookupError

    run = perform(body)
    assert run.job.state == "READY"
    assert [row.kwargs for row in Job.objects.named("tests.shop.greet")] == [{"name": "kept"}]


# -- O71


def open_account(name: str) -> None:
    Group.objects.create(name=name)
    jobs.greet.later(name=name)


async def count_groups() -> int:
    return await Group.objects.acount()


class TestO71NothingEverCommits(TestCase):
    def setUp(self) -> None:
        jobs.greeted.clear()

    def test_jobs_of_a_view_are_seen_and_run(self) -> None:
        self.client.post("/shop/sign-up/", {"name": "Ada"})
        assert run_jobs().succeeded == 1
        assert jobs.greeted == ["Ada"]

    def test_jobs_of_an_async_view_are_seen_and_run(self) -> None:
        async def post() -> None:
            await self.async_client.post("/shop/sign-up-async/", {"name": "Ada"})

        async_to_sync(post)()
        assert run_jobs().succeeded == 1
        assert jobs.greeted == ["Ada"]

    def test_jobs_queued_by_jobs_are_run_too(self) -> None:
        with declared(open_account) as performer:
            performer.later("Bo")
            assert run_jobs().succeeded == 2
        assert jobs.greeted == ["Bo"]
        assert Group.objects.get().name == "Bo"

    def test_what_a_job_writes_is_gone_with_the_test(self) -> None:
        assert not Job.objects.exists()
        assert not Group.objects.exists()

    def test_async_jobs_work_in_the_transaction_of_the_test(self) -> None:
        Group.objects.create(name="here")
        assert perform(count_groups).result == 1


# -- O72


def break_with_autocommit_off() -> None:
    transaction.set_autocommit(False)
    break_it()


def break_in_a_transaction_by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute("begin")
    break_it()


def swallow_within_atomic() -> None:
    with transaction.atomic():
        with suppress(IntegrityError):
            break_it()
        Group.objects.count()


def break_it() -> None:
    Group.objects.create(name="twin")
    Group.objects.create(name="twin")


def look_around() -> list[object]:
    with transaction.atomic(durable=True):
        return [connection.get_autocommit(), Group.objects.count()]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("max_age", [0, None])
def test_o72_a_failure_in_a_broken_transaction_is_recorded_and_the_next_job_finds_a_clean_connection(
    monkeypatch: pytest.MonkeyPatch, max_age: int | None
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", max_age)
    for body in (break_with_autocommit_off, break_in_a_transaction_by_hand):
        run = perform(body)
        assert (run.job.state, run.error["exception"]) == ("READY", "django.db.utils.IntegrityError")
        assert perform(look_around).result == [False, 0]


@pytest.mark.django_db(transaction=True)
def test_o72_an_error_swallowed_within_atomic_is_recorded_as_what_it_leads_to() -> None:
    run = perform(swallow_within_atomic)
    assert (run.job.state, run.error["exception"]) == ("READY", "django.db.transaction.TransactionManagementError")
    assert perform(look_around).result == [False, 0]


@pytest.mark.django_db
def test_o72_in_the_transaction_of_a_test_the_next_job_works() -> None:
    Group.objects.create(name="before")
    with declared(break_it, **POLICY) as performer:
        assert work(performer.later()).error["exception"] == "django.db.utils.IntegrityError"
    assert perform(swallow_within_atomic).job.attempts == 1
    assert Group.objects.filter(name="before").exists()
    assert work_one() is None
