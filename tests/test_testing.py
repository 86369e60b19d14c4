"""run_jobs: what users' own tests run queued jobs with."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone, translation

from django_jobs import Cancel, GiveUp, Retry, Snooze, current_attempt, enqueue, named
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.testing import Drained, run_jobs
from tests.declaring import declared
from tests.shop.jobs import greet, greeted


@pytest.fixture(autouse=True)
def nobody_greeted() -> None:
    greeted.clear()


class TestWithUnittest(TestCase):
    def test_due_jobs_are_run(self) -> None:
        greet.later(name="Ada")
        greet.later(name="Bo")
        greet.after(minutes=1).later(name="Cy")
        assert run_jobs().succeeded == 2
        assert greeted == ["Ada", "Bo"]

    def test_nothing_is_left_of_another_test(self) -> None:
        assert not Job.objects.exists()
        assert run_jobs() == Drained()

    def test_commit_hooks_of_the_test_are_left_alone(self) -> None:
        called: list[str] = []
        transaction.on_commit(lambda: called.append("hook"))
        greet.later(name="Ada")
        run_jobs()
        assert called == []
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: called.append("captured"))
        assert called == ["captured"]

    def test_queries_can_be_counted(self) -> None:
        with self.assertNumQueries(0):
            pass
        greet.later(name="Ada")
        with self.assertNumQueries(1):
            Group.objects.count()
        run_jobs()


class TestWithRealTransactions(TransactionTestCase):
    def test_due_jobs_are_run(self) -> None:
        with transaction.atomic():
            greet.later(name="Ada")
        assert run_jobs().succeeded == 1
        assert greeted == ["Ada"]
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("django_jobs")]


@pytest.mark.django_db
def test_jobs_that_jobs_queue_are_run_too() -> None:
    def count_down(number: int) -> int:
        if number:
            performer.later(number - 1)
        return number

    with declared(count_down) as performer:
        performer.later(3)
        done = run_jobs()
    assert done.succeeded == 4
    assert [(claim.args, outcome) for claim, outcome in done.runs] == [
        ("[3]", Succeeded(result="3")),
        ("[2]", Succeeded(result="2")),
        ("[1]", Succeeded(result="1")),
        ("[0]", Succeeded(result="0")),
    ]


@pytest.mark.django_db
def test_every_end_is_counted(frozen: FrozenClock) -> None:
    words = {"retry": Retry(), "snooze": Snooze(60), "cancel": Cancel(), "give_up": GiveUp(), "fail": LookupError()}

    def say(word: str) -> None:
        raise words[word]

    greet.later(name="Ada")
    with declared(say) as performer:
        performer.later_many([(word,) for word in words])
        performer.using(max_attempts=1).later("fail")
        enqueue([named("missing")])
        done = run_jobs()
    assert (done.succeeded, done.retried, done.snoozed, done.cancelled, done.failed) == (1, 3, 1, 1, 2)
    assert len(done.runs) == 8


@pytest.mark.django_db
def test_one_queue_alone_may_be_run() -> None:
    greet.using(queue="mail").later(name="Ada")
    greet.later(name="Bo")
    assert run_jobs("mail").succeeded == 1
    assert greeted == ["Ada"]
    assert run_jobs(queue="default").succeeded == 1


@pytest.mark.django_db
def test_as_many_jobs_as_allowed_may_run() -> None:
    greet.later_many([(str(number),) for number in range(5)])
    assert run_jobs(max_jobs=5).succeeded == 5


@pytest.mark.django_db
def test_jobs_that_never_end_are_stopped() -> None:
    def again() -> None:
        performer.later()

    with declared(again) as performer:
        performer.later()
        with pytest.raises(RuntimeError, match=r"more than 7 jobs ran, tests\.nowhere\.again the last"):
            run_jobs(max_jobs=7)


@pytest.mark.django_db
def test_a_job_that_comes_back_later_runs_when_the_clock_says_so(frozen: FrozenClock) -> None:
    numbers: list[int | None] = []

    def fail_once() -> None:
        attempt = current_attempt()
        assert attempt is not None
        numbers.append(attempt.number)
        if attempt.number == 1:
            raise Retry(after=60)

    with declared(fail_once) as performer:
        performer.later()
        assert run_jobs().retried == 1
        frozen.advance(timedelta(seconds=60))
        assert run_jobs().succeeded == 1
    assert numbers == [1, 2]


@pytest.mark.django_db
def test_a_job_leaves_nothing_behind_but_its_work() -> None:
    def disturb() -> None:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        transaction.atomic().__enter__()

    before = connection.connection
    with declared(disturb) as performer:
        performer.later()
        assert run_jobs().succeeded == 1
    assert connection.connection is before
    assert not connection.needs_rollback
    assert (translation.get_language(), timezone.get_current_timezone_name()) == ("en", "Europe/Paris")
    assert current_attempt() is None
