"""Jobs in a database of their own: they are inserted when the transaction that they belong to has been committed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import override_settings

from django_jobs import enqueue, named
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import DuplicateJob, UnencodableValue
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer
from django_jobs.records import Queued
from tests.declaring import declared
from tests.factories import NOON, seconds

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("frozen"),
]


def send(*args: Any, **kwargs: Any) -> str:
    return "sent"


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(send, name="shop.send") as performer:
        yield performer


@pytest.fixture(params=["setting", "option"])
def waiting(request: pytest.FixtureRequest, performer: AnyPerformer) -> Iterator[Any]:
    """Give what queues jobs that wait for the commit of the other database, by the setting or by the option."""
    if request.param == "option":
        yield performer.using(after_commit="other")
        return
    with override_settings(DJANGO_JOBS={"AFTER_COMMIT": "other"}):
        yield performer


@contextmanager
def rolled_back(alias: str = "other") -> Iterator[None]:
    """Undo what is done meanwhile, be it within a wider transaction."""
    with transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)


# -- one job


def test_a_job_is_inserted_when_the_other_database_commits(waiting: Any, frozen: FrozenClock) -> None:
    with transaction.atomic(using="other"):
        job = waiting.after(10).later(5, to="ada")
        assert (job.pk, job._state.adding) == (None, True)
        assert (job.name, job.args, job.kwargs, job.state) == ("shop.send", [5], {"to": "ada"}, "READY")
        assert job.run_at == NOON + seconds(10)
        assert not Job.objects.exists()
        frozen.advance(seconds(60))
    row = Job.objects.get()
    assert (job.pk, job._state.adding, job._state.db) == (row.pk, False, "default")
    assert job.as_dict() == row.as_dict()
    # A delay counts from the insert.
    assert row.run_at == NOON + seconds(70)


def test_what_is_rolled_back_leaves_no_job(waiting: Any) -> None:
    with rolled_back():
        job = waiting.later(1)
    assert not Job.objects.exists()
    assert job.pk is None


def test_what_is_rolled_back_to_a_savepoint_leaves_no_job_and_the_rest_is_inserted(waiting: Any) -> None:
    with transaction.atomic(using="other"):
        waiting.later(1)
        with rolled_back():
            waiting.later(2)
    assert Job.objects.get().args == [1]


def test_where_no_transaction_is_open_a_job_is_inserted_at_once(waiting: Any) -> None:
    assert waiting.later(1).pk == Job.objects.get().pk
    # A transaction of the jobs' own database is what every job is part of.
    with rolled_back("default"):
        assert waiting.later(2).pk is not None
    assert Job.objects.get().args == [1]


def test_no_connection_is_opened_to_see_whether_there_is_a_transaction(waiting: Any) -> None:
    connections["other"].close()
    waiting.later(1)
    assert connections["other"].connection is None


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete", "reschedule"])
def test_what_is_not_inserted_yet_is_not_moved_by_hand_either(waiting: Any, verb: str) -> None:
    with transaction.atomic(using="other"):
        job = waiting.later(1)
        places = {"priority": 1} if verb == "reschedule" else {}
        with pytest.raises(RuntimeError, match="it has an id after the commit of the transaction"):
            getattr(job, verb)(**places)
    job.cancel()
    assert Job.objects.get().state == "CANCELLED"


def test_arguments_are_encoded_at_the_call(waiting: Any) -> None:
    given = [1]
    with transaction.atomic(using="other"):
        waiting.later(given)
        given.append(2)
        with pytest.raises(UnencodableValue):
            waiting.later(object())
    assert Job.objects.get().args == [[1]]


def test_an_insert_that_fails_is_raised_where_the_block_ends(waiting: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("disk full")

    with (
        pytest.raises(RuntimeError, match="disk full"),
        connections["default"].execute_wrapper(fail),
        transaction.atomic(using="other"),
    ):
        waiting.later(1)


def test_a_commit_that_django_does_not_see_is_refused(waiting: Any) -> None:
    connections["other"].set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match="manual transaction"):
            waiting.later(1)
    finally:
        connections["other"].rollback()
        connections["other"].set_autocommit(True)
    assert not Job.objects.exists()


def test_from_async_code(waiting: Any) -> None:
    with transaction.atomic(using="other"):
        job = async_to_sync(waiting.alater)(1)
        assert job.pk is None
    assert job.pk == Job.objects.get().pk


@pytest.mark.parametrize("alias", [None, "default"])
def test_the_option_goes_before_the_setting(performer: AnyPerformer, alias: str | None) -> None:
    with override_settings(DJANGO_JOBS={"AFTER_COMMIT": "other"}), transaction.atomic(using="other"):
        job = performer.using(after_commit=alias).later(1)
        assert Job.objects.get().pk == job.pk


def test_jobs_in_the_other_database_wait_for_the_default_one(performer: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"DATABASE": "other", "AFTER_COMMIT": "default"}):
        with transaction.atomic():
            job = performer.later(1)
        assert job._state.db == "other"
        assert Job.objects.using("other").get().pk == job.pk
        assert not Job.objects.using("default").exists()


# -- keys


def test_of_a_key_that_is_held_the_holder_is_given(performer: AnyPerformer) -> None:
    held = performer.using(unique="k").later(1)
    with transaction.atomic(using="other"):
        job = performer.using(unique="k", after_commit="other").later(2)
        assert job.pk is None
    assert (job.pk, job.args, job.duplicate) == (held.pk, [1], True)


def test_a_duplicate_that_is_an_error_is_one_where_the_block_ends(performer: AnyPerformer) -> None:
    performer.using(unique="k").later(1)
    with pytest.raises(DuplicateJob), transaction.atomic(using="other"):
        performer.using(unique="k", on_duplicate="raise", after_commit="other").later(2)


def test_a_key_that_is_held_for_a_while_counts_from_the_insert(performer: AnyPerformer, frozen: FrozenClock) -> None:
    with transaction.atomic(using="other"):
        job = performer.using(unique="k", unique_for=90, after_commit="other").later(1)
        frozen.advance(seconds(60))
    assert job.unique_until == Job.objects.get().unique_until == NOON + seconds(150)


# -- many


def test_many_are_inserted_by_the_commit_which_fills_the_list(waiting: Any) -> None:
    with transaction.atomic(using="other"):
        queued = waiting.later_many([(1,), (2,)])
        assert queued == []
        assert not Job.objects.exists()
    assert queued == [Queued(pk) for pk in Job.objects.order_by("pk").values_list("pk", flat=True)]
    assert [job.args for job in Job.objects.order_by("pk")] == [[1], [2]]


def test_jobs_of_several_kinds_wait_together(performer: AnyPerformer) -> None:
    with transaction.atomic(using="other"):
        queued = enqueue([performer.prepare(1), named("shop.gone", 2, options={"after_commit": "other"})])
        assert queued == []
    assert [job.name for job in Job.objects.order_by("pk")] == ["shop.send", "shop.gone"]
    assert len(queued) == 2


def test_jobs_that_wait_for_several_commits_are_refused(performer: AnyPerformer) -> None:
    one, other = (performer.using(after_commit=alias).prepare(1) for alias in ("default", "other"))
    with (
        override_settings(DJANGO_JOBS={"DATABASE": "third"}),
        transaction.atomic(using="default"),
        transaction.atomic(using="other"),
        pytest.raises(ValueError, match="commits of several databases, default and other"),
    ):
        enqueue([one, other])


# -- elsewhere


def test_inline_the_job_runs_when_the_commit_has_come(waiting: Any, settings: Any) -> None:
    settings.DJANGO_JOBS = {"MODE": "inline", "AFTER_COMMIT": "other"}
    with transaction.atomic(using="other"):
        job = waiting.later(1)
        assert (job.pk, job.state) == (None, "READY")
    assert (job.state, job.result) == ("SUCCESSFUL", "sent")


@pytest.mark.parametrize("value", ["nowhere", 5, ""])
def test_an_alias_that_there_is_not_is_refused(performer: AnyPerformer, value: Any) -> None:
    message = f"after_commit={value!r}: give an alias of DATABASES, which has default, other, or None"
    with pytest.raises(ValueError, match=re.escape(message)):
        performer.using(after_commit=value)
