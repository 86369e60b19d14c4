"""How far a body is, where it runs in the caller's thread: in its transaction, within which alone its row is seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from django_jobs import Attempt, clock, current_attempt, work_one
from django_jobs.models import Job
from django_jobs.testing import drain, jobs_mode, perform, run_jobs
from tests.declaring import declared
from tests.factories import read, seconds
from tests.stores.refusing import refuse_progress

pytestmark = pytest.mark.django_db

Said = tuple[object, object, object]


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """Give the names of the statements that run."""
    names: list[str] = []
    with override_settings(DJANGO_JOBS={"OBSERVE": lambda name, *_: names.append(name)}):
        yield names


def said(job_id: int) -> Said | None:
    found = read(job_id).progress
    return None if found is None else (found["done"], found["total"], found["message"])


def test_it_is_seen_within_the_transaction_of_the_test(ran: list[str]) -> None:
    seen: list[Said | None] = []

    def body(attempt: Attempt) -> None:
        for done in (1, 2, 3):
            attempt.progress(done, 3)
            seen.append(said(attempt.job_id))

    with declared(body, takes_attempt=True) as performer:
        job = performer.later()
        assert run_jobs().succeeded == 1
    # The first value is written at once, and what comes soon after it waits for the end.
    assert seen == [(1, 3, ""), (1, 3, ""), (1, 3, "")]
    assert said(job.pk) == (3, 3, "")
    assert [name for name in ran if name in ("REPORT", "SUCCEED")] == ["REPORT", "REPORT", "SUCCEED"]


def test_it_is_written_twice_a_second(frozen: clock.FrozenClock) -> None:
    seen: list[Said | None] = []

    def body(attempt: Attempt) -> None:
        for done in range(5):
            attempt.progress(done)
            seen.append(said(attempt.job_id))
            frozen.advance(seconds(0.25))

    with declared(body, takes_attempt=True) as performer:
        performer.later()
        run_jobs()
    assert seen == [(0, None, ""), (0, None, ""), (2, None, ""), (2, None, ""), (4, None, "")]


def test_a_job_that_says_nothing_has_none(ran: list[str]) -> None:
    def body() -> None:
        assert current_attempt() is not None

    with declared(body) as performer:
        job = performer.later()
        work_one()
    assert (said(job.pk), "REPORT" in ran) == (None, False)


def test_inline_it_stands_in_the_job_that_comes_back() -> None:
    def body(attempt: Attempt) -> None:
        attempt.progress(1, 2, "halfway")

    with declared(body, takes_attempt=True) as performer, jobs_mode("inline"):
        job: Job = performer.later()
    assert job.progress == {"done": 1, "total": 2, "message": "halfway"}


def test_an_async_body_and_threads_are_heard_at_the_end() -> None:
    async def body(attempt: Attempt) -> None:
        attempt.progress(1, 2)
        thread = threading.Thread(target=attempt.progress, args=(2, 2, "from a thread"))
        thread.start()
        thread.join()

    with declared(body, takes_attempt=True) as performer:
        job = performer.later()
        assert run_jobs().succeeded == 1
    assert said(job.pk) == (2, 2, "from a thread")


def test_what_the_body_has_rolled_back_is_written_again_at_the_end() -> None:
    seen: list[Said | None] = []

    def body(attempt: Attempt) -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            attempt.progress(1, 2)
            raise ZeroDivisionError
        seen.append(said(attempt.job_id))

    with declared(body, takes_attempt=True) as performer:
        job = performer.later()
        run_jobs()
    assert seen == [None]
    assert said(job.pk) == (1, 2, "")


@pytest.mark.parametrize(("fails", "state"), [(False, "SUCCESSFUL"), (True, "FAILED")])
def test_an_atomic_job_keeps_its_last_value_however_it_ends(fails: bool, state: str) -> None:
    def body(attempt: Attempt) -> None:
        attempt.progress(1, 2)
        attempt.progress(2, 2)
        if fails:
            raise RuntimeError("after that")

    with declared(body, takes_attempt=True, atomic=True, max_attempts=1) as performer:
        job = performer.later()
        drain()
    assert (read(job.pk).state, said(job.pk)) == (state, (2, 2, ""))


def test_in_a_transaction_that_is_broken_it_waits_for_the_end_and_nobody_is_warned(odd: list[str]) -> None:
    def body(attempt: Attempt) -> None:
        with suppress(DatabaseError), transaction.atomic():
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("select no_such_column")
            transaction.set_rollback(True)
            attempt.progress(1, 2)

    with declared(body, takes_attempt=True) as performer:
        job = performer.later()
        assert run_jobs().succeeded == 1
    assert (said(job.pk), odd) == ((1, 2, ""), [])


def test_progress_that_a_database_refuses_breaks_no_job() -> None:
    def body(attempt: Attempt) -> None:
        attempt.progress(1, 2)

    refuse_progress(connection)
    with declared(body, takes_attempt=True) as performer:
        job = performer.later()
        assert run_jobs().succeeded == 1
    assert (read(job.pk).state, said(job.pk)) == ("SUCCESSFUL", None)


def test_a_wrong_value_is_the_bodys_own_error() -> None:
    def body(attempt: Attempt) -> None:
        attempt.progress(-1)

    with declared(body, takes_attempt=True, max_attempts=1) as performer:
        job = performer.later()
        assert drain().failed == 1
    assert read(job.pk).errors[0]["reason"].startswith("progress(done=-1): give a number from 0 to")


def test_without_a_row_it_is_checked_and_kept_by_the_attempt() -> None:
    def body(attempt: Attempt) -> list[object]:
        before = attempt.reported
        attempt.progress(1, 2, "halfway")
        return [before, *(attempt.reported or ())]

    with declared(body, takes_attempt=True) as performer:
        assert perform(performer) == [None, 1, 2, "halfway"]
