"""run_jobs: what users' own tests run queued jobs with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone, translation

from django_jobs import Cancel, GiveUp, Retry, Snooze, backoff, clock, current_attempt, enqueue, named
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import RunFailed, UnknownPerformer
from django_jobs.models import Job, Queue
from django_jobs.testing import Drained, adrain, arun_jobs, assert_enqueued, drain, run_jobs
from tests.declaring import declared
from tests.factories import NOON
from tests.shop.jobs import broken, greet, greeted


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

    def test_time_may_pass(self) -> None:
        greet.after(hours=1).later(name="Ada")
        broken.later()
        done = drain(until="1d")
        assert (done.succeeded, done.retried, done.failed) == (1, 4, 1)
        assert clock.frozen_now() is None


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
    ran = [(job.args, job.state, job.result) for job in done.jobs]
    assert ran == [([number], "SUCCESSFUL", number) for number in (3, 2, 1, 0)]


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
        done = drain()
    assert (done.succeeded, done.retried, done.snoozed, done.cancelled, done.failed) == (1, 3, 1, 1, 2)
    assert [job.state for job in done.jobs] == [
        "SUCCESSFUL", "READY", "READY", "CANCELLED", "FAILED", "READY", "FAILED", "READY",
    ]  # fmt: skip


@pytest.mark.django_db
def test_what_is_cancelled_or_superseded_while_it_runs_is_counted_as_its_row_stands() -> None:
    def be_cancelled() -> None:
        attempt = current_attempt()
        assert attempt is not None
        Job.objects.get(pk=attempt.job_id).cancel("enough")

    def give_way() -> None:
        keyed.after(60).later()
        raise LookupError

    with declared(be_cancelled) as cancelled, declared(give_way, unique_while_waiting="k") as keyed:
        cancelled.later()
        keyed.later()
        done = drain()
    assert (done.succeeded, done.retried, done.cancelled) == (0, 0, 2)
    assert [(job.state, job.errors[-1]["kind"]) for job in done.jobs] == [
        ("CANCELLED", "cancelled"), ("CANCELLED", "superseded"),
    ]  # fmt: skip


@pytest.mark.django_db
def test_one_queue_alone_may_be_run() -> None:
    greet.using(queue="mail").later(name="Ada")
    greet.later(name="Bo")
    assert run_jobs(queue="mail").succeeded == 1
    assert greeted == ["Ada"]
    assert run_jobs(queue="default").succeeded == 1


@pytest.mark.django_db
def test_as_many_jobs_as_allowed_may_run() -> None:
    greet.later_many([(str(number),) for number in range(5)])
    assert run_jobs(max_jobs=5).succeeded == 5


@pytest.mark.django_db
def test_jobs_that_have_expired_are_not_run_nor_taken_for_more_to_run(frozen: FrozenClock) -> None:
    late = greet.using(expires="1m").later(name="Ada")
    frozen.advance(timedelta(minutes=1))
    greet.using(priority=1).later(name="Bo")
    done = run_jobs(max_jobs=1)
    assert (done.succeeded, done.cancelled, greeted) == (1, 0, ["Bo"])
    assert run_jobs() == Drained()
    late.refresh_from_db()
    assert (late.state, late.errors[-1]["kind"]) == ("CANCELLED", "expired")


@pytest.mark.django_db
def test_jobs_that_never_end_are_stopped() -> None:
    def again() -> None:
        performer.later()

    with declared(again) as performer:
        performer.later()
        with pytest.raises(RuntimeError) as raised:
            run_jobs(max_jobs=7)
    assert str(raised.value) == (
        "7 attempts were made, and more is due. Most often ran tests.nowhere.again (7 times); still due are "
        "tests.nowhere.again (1). Do these jobs queue each other, ask to come back at once, or come by a schedule? If "
        "so many are right, raise max_jobs"
    )


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


@pytest.mark.django_db
def test_a_job_without_keeping_is_given_as_it_would_have_stood() -> None:
    greet.later(name="Ada")
    [job] = run_jobs().jobs
    assert (job.state, job.name, job.kwargs, job.attempts) == ("SUCCESSFUL", "tests.shop.greet", {"name": "Ada"}, 1)
    assert job._state.adding
    assert not Job.objects.exists()


# -- which jobs


@pytest.mark.django_db
def test_some_jobs_alone_may_be_run() -> None:
    broken.later()
    greet.later(name="Ada")
    assert run_jobs(greet).succeeded == 1
    assert drain("tests.shop.broken", greet).retried == 1


@pytest.mark.django_db
def test_a_job_stored_under_an_alias_is_one_of_its_performer() -> None:
    def ship() -> None: ...

    with declared(ship, aliases=["shop.send"]) as performer:
        enqueue([named("shop.send")])
        assert run_jobs(performer).succeeded == 1


@pytest.mark.django_db
def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(
        UnknownPerformer, match=r"no performer is named tests\.shop\.great; did you mean tests\.shop\.gre"
    ):
        run_jobs("tests.shop.great")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"max_jobs": 0}, ValueError, "max_jobs 0: give a whole number, 1 or more"),
        (
            {"until": "soon"},
            ValueError,
            "until: 'soon' is not a duration; give seconds, a timedelta or text like \"5m\"",
        ),
        ({"until": datetime(2026, 3, 1)}, ValueError, "is naive; give an aware one, or a duration like '+1d'"),
        (
            {"until": NOON - timedelta(1)},
            ValueError,
            "that is before now, 2026-03-01T12:00:00+00:00; the clock only goes",
        ),
        ({"travel": print}, TypeError, "say with until= how far to go"),
    ],
)
@pytest.mark.django_db
def test_what_cannot_be_meant_is_refused(
    frozen: FrozenClock, wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        run_jobs(**wrong)
    assert message in str(raised.value)


@pytest.mark.django_db
def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(TypeError, match="5 is no job; give what @job made, or its stored name"):
        run_jobs(5)  # type: ignore[arg-type]


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(DJANGO_JOBS={"DATABASE": "other"})
def test_jobs_may_live_in_another_database() -> None:
    def make(name: str) -> str:
        Job.objects.using("other").get()
        return name

    with declared(make, atomic=True) as performer:
        with assert_enqueued(performer, "Ada"):
            performer.after(hours=1).later("Ada")
        assert [job.result for job in run_jobs(until="1h").jobs] == ["Ada"]
    assert not Job.objects.using("default").exists()


# -- what jobs raise


@pytest.mark.django_db
def test_the_first_exception_of_a_job_is_raised_as_it_is() -> None:
    error = LookupError("no such customer")

    def fail() -> None:
        raise error

    with declared(fail) as performer:
        performer.later()
        performer.later()
        with pytest.raises(LookupError) as raised:
            run_jobs()
    assert raised.value is error
    assert [entry.name for entry in raised.traceback][-1] == "fail"
    assert [entry.frame.f_globals["__name__"] for entry in raised.traceback] == [
        __name__,
        "django_jobs.testing.running",
        __name__,
    ]
    assert sorted(Job.objects.values_list("attempts", flat=True)) == [0, 1]


class Stop(SystemExit):
    """Ends a process."""


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [GiveUp, Stop, TypeError])
def test_whatever_fails_a_job_is_raised(kind: type[BaseException]) -> None:
    async def fail() -> None:
        raise kind("why")

    with declared(fail) as performer:
        performer.later()
        with pytest.raises(kind, match="why"):
            run_jobs()


@pytest.mark.django_db
@pytest.mark.parametrize("word", [Retry(), Snooze(5), Cancel()])
def test_a_word_that_a_job_says_is_no_error(word: Exception) -> None:
    def say() -> None:
        raise word

    with declared(say) as performer:
        performer.later()
        assert len(run_jobs().jobs) == 1


@pytest.mark.django_db
def test_another_attempt_that_is_asked_for_in_vain_is_an_error() -> None:
    def say() -> None:
        raise Retry("once more")

    with declared(say, max_attempts=1) as performer:
        performer.later()
        with pytest.raises(Retry, match="once more"):
            run_jobs()


@pytest.mark.django_db
def test_a_result_that_cannot_be_stored_is_raised_as_it_is_refused() -> None:
    with declared(lambda_for(object()), keep="1d") as performer:
        performer.later()
        with pytest.raises(TypeError, match="result"):
            run_jobs()
    assert Job.objects.get().state == "FAILED"


def lambda_for(value: object) -> Any:
    def give() -> object:
        return value

    return give


@pytest.mark.django_db
def test_a_failure_without_exception_is_told_by_its_reason() -> None:
    [queued] = enqueue([named("missing")])
    with pytest.raises(RunFailed, match=f"missing #{queued.id}: no performer is named missing"):
        run_jobs()


@pytest.mark.django_db
def test_errors_may_pass() -> None:
    broken.later()
    assert run_jobs(raise_errors=False).retried == 1


@pytest.mark.django_db
def test_failed_attempts_may_pass_as_long_as_another_follows() -> None:
    broken.later()
    with pytest.raises(RuntimeError, match="it broke"):
        run_jobs(until="1h", retries=True)
    job = Job.objects.get()
    assert (job.state, job.attempts) == ("FAILED", 5)


@pytest.mark.django_db
def test_the_keyboard_stops_a_test_that_drains() -> None:
    with declared(lambda_that_raises(KeyboardInterrupt())) as performer:
        performer.later()
        with pytest.raises(KeyboardInterrupt):
            drain()


def lambda_that_raises(error: BaseException) -> Any:
    def fail() -> None:
        raise error

    return fail


# -- virtual time


@pytest.mark.django_db
def test_a_day_may_pass_in_which_jobs_come_due_in_their_order() -> None:
    seen: list[tuple[str, datetime]] = []

    def note(word: str) -> None:
        seen.append((word, clock.now()))
        if word == "second":
            performer.after(hours=1).later("fourth")

    with declared(note) as performer, clock.freeze(NOON) as frozen:
        performer.after(hours=3).later("third")
        performer.at(NOON + timedelta(hours=2, seconds=0.25)).later("second")
        performer.later("first")
        performer.after(days=1).later("last")
        performer.after(days=1, seconds=1).later("too late")
        done = run_jobs(until="+1d")
        assert frozen.instant == NOON
        assert run_jobs(until="+1d") == Drained()
    hours = [(word, moment - NOON) for word, moment in seen]
    assert hours == [
        ("first", timedelta(0)),
        ("second", timedelta(hours=2, seconds=0.25)),
        ("third", timedelta(hours=3)),
        ("fourth", timedelta(hours=3, seconds=0.25)),
        ("last", timedelta(days=1)),
    ]
    assert [job.started_at for job in done.jobs] == [moment for _, moment in seen]


@pytest.mark.django_db
def test_retried_and_snoozed_jobs_come_again_while_time_passes() -> None:
    def fail_twice() -> None:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.number < 3:
            raise LookupError

    def snooze_once() -> None:
        attempt = current_attempt()
        assert attempt is not None
        if attempt.run_at == attempt.enqueued_at:
            raise Snooze("40m")

    with (
        declared(fail_twice, backoff=backoff.fixed("30m")) as failing,
        declared(snooze_once) as snoozing,
        clock.freeze(NOON),
    ):
        failing.later()
        snoozing.later()
        done = drain(until=timedelta(hours=1))
    assert (done.succeeded, done.retried, done.snoozed) == (2, 2, 1)
    minutes = [round((job.started_at - NOON).total_seconds() / 60) for job in done.jobs if job.started_at]
    assert minutes == [0, 0, 30, 40, 60]


@pytest.mark.django_db
@pytest.mark.parametrize(("expires", "attempts"), [("29m", 1), ("30m", 1), ("31m", 2)])
def test_a_job_that_is_to_come_again_after_its_expiry_expires_while_time_passes(expires: str, attempts: int) -> None:
    with declared(lambda_that_raises(LookupError()), backoff=backoff.fixed("30m")) as performer, clock.freeze(NOON):
        job = performer.using(expires=expires, max_attempts=9).later()
        done = drain(until="+2h")
    assert (done.retried, done.failed, done.cancelled, len(done.jobs)) == (attempts, 0, 0, attempts)
    job.refresh_from_db()
    assert (job.state, job.errors[-1]["kind"]) == ("CANCELLED", "expired")
    assert job.finished_at == NOON + timedelta(minutes=30 * attempts)


@pytest.mark.django_db
def test_a_burst_under_one_key_is_one_job_when_its_time_comes() -> None:
    with declared(lambda_that_raises(Cancel()), unique_while_waiting="k") as performer, clock.freeze(NOON):
        for _ in range(3):
            performer.after(seconds=5).later()
        done = run_jobs(until="+1m")
    assert (done.cancelled, len(done.jobs)) == (1, 1)


@pytest.mark.django_db
def test_without_a_frozen_clock_time_passes_from_the_moment_of_the_database() -> None:
    moments: list[datetime] = []

    def note() -> None:
        moments.append(clock.now())

    with declared(note) as performer:
        job = performer.after(hours=5).later()
        assert run_jobs() == Drained()
        assert run_jobs(until=datetime.now(UTC) + timedelta(hours=6)).succeeded == 1
    assert moments == [job.run_at]
    assert clock.frozen_now() is None


@pytest.mark.django_db
def test_the_clock_goes_on_after_an_error() -> None:
    broken.after(minutes=1).later()
    with pytest.raises(RuntimeError) as raised:
        run_jobs(until="1h")
    assert clock.frozen_now() is None
    assert raised.value.__traceback__ is not None


@pytest.mark.django_db
def test_the_clock_of_python_is_left_alone_unless_somebody_moves_it() -> None:
    class Moved:
        to: datetime | None = None

    @contextmanager
    def travel(moment: datetime) -> Iterator[None]:
        Moved.to = moment
        yield
        Moved.to = None

    seen: list[tuple[datetime, datetime | None]] = []

    def note() -> None:
        seen.append((timezone.now(), Moved.to))

    with declared(note) as performer:
        before = timezone.now()
        job = performer.after(hours=5).later()
        run_jobs(until="6h")
        again = performer.after(hours=5).later()
        run_jobs(until="6h", travel=travel)
    (real, nothing), (_, moved) = seen
    assert before <= real < before + timedelta(hours=1)
    assert nothing is None
    assert moved == again.run_at > job.run_at


@pytest.mark.django_db
def test_a_paused_queue_is_not_travelled_for() -> None:
    greet.using(queue="mail").after(hours=1).later(name="Ada")
    Queue.objects.create(name="mail", paused_at=NOON)
    assert run_jobs(until="1d") == Drained()


@pytest.mark.django_db
def test_a_job_that_asks_to_come_back_for_ever_is_stopped() -> None:
    with declared(lambda_that_raises(Snooze("1m"))) as performer:
        performer.later()
        with pytest.raises(RuntimeError, match=r"20 attempts were made, .* tests\.nowhere\.fail \(20 times\)"):
            run_jobs(until="1d", max_jobs=20)
    assert clock.frozen_now() is None


# -- on_commit


class TestCallbacksOfATest(TestCase):
    def test_callbacks_may_be_called_each_once(self) -> None:
        called: list[str] = []
        transaction.on_commit(lambda: called.append("of the test"))
        transaction.on_commit(lambda: greet.later(name="Ada"))
        with self.captureOnCommitCallbacks() as captured:
            assert run_jobs(on_commit=True).succeeded == 1
            transaction.on_commit(lambda: called.append("after"))
        assert called == ["of the test"]
        assert greeted == ["Ada"]
        assert run_jobs(on_commit=True) == Drained()
        assert called == ["of the test", "after"]
        assert len(captured) == 2  # The other one is of `later`.

    def test_callbacks_of_a_job_are_called_after_it(self) -> None:
        called: list[str] = []

        def note() -> None:
            transaction.on_commit(lambda: called.append("hook"))
            called.append("body")

        with declared(note) as plain, declared(note, name="atomic", atomic=True) as atomic:
            plain.later()
            run_jobs(on_commit=True)
            atomic.later()
            run_jobs(on_commit=True)
        assert called == ["body", "hook", "body", "hook"]

    def test_what_a_callback_raises_is_raised(self) -> None:
        transaction.on_commit(broken)
        with pytest.raises(RuntimeError, match="it broke"):
            run_jobs(on_commit=True)
        transaction.on_commit(broken, robust=True)
        assert run_jobs(on_commit=True) == Drained()


# -- async tests


class TestAsync(TestCase):
    async def test_jobs_are_run_from_an_async_test(self) -> None:
        async def greet_later(name: str) -> None:
            await greet.alater(name)

        with declared(greet_later) as performer:
            await performer.alater("Ada")
            assert (await arun_jobs()).succeeded == 2
        await greet.alater("Bo")
        assert (await adrain(queue="default")).succeeded == 1
        assert greeted == ["Ada", "Bo"]

    async def test_the_blocking_form_names_the_other(self) -> None:
        with pytest.raises(SynchronousOnlyOperation, match=r"write: await arun_jobs\(…\)"):
            run_jobs()
