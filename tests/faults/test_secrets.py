"""O85: arguments reach no line of the log, no message of ours and no stored traceback."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from django_jobs import Attempt, Retry, Snooze, enqueue, named, work_one
from django_jobs.exceptions import DuplicateJob, JobsError, KeyContended
from django_jobs.models import Job
from tests.declaring import declared
from tests.performing import POLICY

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "s3cret"


def succeed(password: str) -> None: ...


def fail(password: str) -> None:
    raise LookupError("no such customer")


def ask_again(password: str) -> None:
    raise Retry


def put_off(password: str) -> None:
    raise Snooze(5)


def give_what_cannot_be_stored(password: str) -> object:
    return {"password": object()}


def take_too_long(password: str) -> None:
    for _ in range(2_000):
        threading.Event().wait(0.01)


def take_another(attempt: Attempt, *, other: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "state"),
    [
        (succeed, "SUCCESSFUL"),
        (fail, "FAILED"),
        (ask_again, "FAILED"),
        (put_off, "READY"),
        (give_what_cannot_be_stored, "FAILED"),
        (take_too_long, "FAILED"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_o85_however_a_job_ends_its_arguments_are_told_to_nobody(
    caplog: pytest.LogCaptureFixture, function: Any, state: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with declared(function, **{**POLICY, "max_attempts": 1}, timeout=0.2) as performer:
        job = performer.later(SECRET)
        work_one()
    job.refresh_from_db()
    assert job.state == state
    assert_told_to_nobody(caplog, job)


def test_o85_nor_are_arguments_that_do_not_fit_or_that_nobody_knows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with declared(take_another, name="shop.take", **POLICY, takes_attempt=True):
        enqueue([named("shop.take", SECRET, password=SECRET), named("shop.nobody", SECRET)])
        work_one()
        work_one()
    for job in Job.objects.all():
        assert job.errors
        assert_told_to_nobody(caplog, job)


def assert_told_to_nobody(caplog: pytest.LogCaptureFixture, job: Job) -> None:
    assert f"#{job.pk}" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in str([vars(record) for record in caplog.records])
    assert SECRET not in json.dumps(job.errors)
    assert SECRET not in f"{job} {job!r}"


def test_o85_a_duplicate_is_refused_without_its_arguments() -> None:
    with declared(succeed, name="shop.act", unique=True, on_duplicate="raise") as performer:
        holder = performer.later(SECRET)
        with pytest.raises(DuplicateJob) as caught:
            performer.later(SECRET)
    assert str(caught.value) == f"job {holder.pk} holds the key of this job of shop.act, so it was not queued"
    assert caught.value.key == f'shop.act/{{"password":"{SECRET}"}}'


@pytest.mark.parametrize("key", [f"shop.act/{SECRET}", f"shop.act#{SECRET}"])
def test_o85_neither_error_about_a_key_shows_more_than_the_name_before_it(key: str) -> None:
    errors: list[JobsError] = [DuplicateJob(key, holder_id=5), KeyContended(key, tries=3)]
    for error in errors:
        assert "shop.act" in str(error)
        assert SECRET not in str(error)
