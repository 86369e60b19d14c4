"""Whether queued jobs wait or run at once, and that running at once refuses what a worker would (O34)."""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_jobs import Cancel, GiveUp, Retry, Snooze, current_attempt, enqueue, named
from django_jobs.exceptions import UnencodableValue
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer, modes
from django_jobs.testing import assert_enqueued, drain, jobs_mode, run_jobs
from tests.declaring import declared
from tests.shop.jobs import broken, greet, greeted

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nobody_greeted() -> None:
    greeted.clear()


# -- which mode


def test_jobs_wait_unless_somebody_says_otherwise() -> None:
    greet.later("Ada")
    assert greeted == []
    with jobs_mode("inline"):
        greet.later("Bo")
    greet.later("Cy")
    assert greeted == ["Bo"]


def test_modes_nest_and_the_innermost_counts() -> None:
    with jobs_mode("inline"):
        with jobs_mode("database"):
            greet.later("Ada")
            with jobs_mode("inline"):
                greet.later("Bo")
            greet.later("Cy")
        greet.later("Di")
    assert greeted == ["Bo", "Di"]
    assert run_jobs().succeeded == 2


def test_a_mode_ends_with_an_exception() -> None:
    with pytest.raises(LookupError), jobs_mode("inline"):
        raise LookupError
    assert modes.carried() is None


def test_one_mode_may_be_entered_within_itself() -> None:
    mode = jobs_mode("inline")
    with mode, mode:
        pass
    assert modes.carried() is None


def test_the_setting_says_it_for_the_project() -> None:
    with override_settings(DJANGO_JOBS={"MODE": "inline"}):
        greet.later("Ada")
        with jobs_mode("database"):
            greet.later("Bo")
    assert greeted == ["Ada"]


def test_another_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"jobs_mode\('eager'\): give 'inline' or 'database'"):
        jobs_mode("eager")  # type: ignore[arg-type]


@jobs_mode("inline")
def test_a_function_may_be_decorated() -> None:
    greet.later("Ada")
    assert greeted == ["Ada"]


def test_an_async_function_may_be_decorated_and_tasks_do_not_share_a_mode() -> None:
    @jobs_mode("inline")
    async def inline(other: asyncio.Event, mine: asyncio.Event) -> str | None:
        mine.set()
        await other.wait()
        return modes.carried()

    async def waiting(other: asyncio.Event, mine: asyncio.Event) -> str | None:
        await other.wait()
        found = modes.carried()
        mine.set()
        return found

    async def both() -> list[str | None]:
        first, second = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(inline(second, first), waiting(first, second)))

    assert asyncio.run(both()) == ["inline", None]


def test_threads_do_not_share_a_mode() -> None:
    found: list[str | None] = []
    with jobs_mode("inline"):
        thread = threading.Thread(target=lambda: found.append(modes.carried()))
        thread.start()
        thread.join()
    assert found == [None]


@jobs_mode("inline")
class TestATestCase(TestCase):
    def setUp(self) -> None:
        greet.later("set up")

    def test_all_of_it_is_in_the_mode(self) -> None:
        greet.later("Ada")
        assert greeted == ["set up", "Ada"]

    async def test_async_ones_too(self) -> None:
        await greet.alater("Ada")
        assert greeted == ["set up", "Ada"]


class Base:
    def test_inherited(self) -> None:
        greet.later("Ada")
        assert greeted == ["Ada"]


@jobs_mode("inline")
class TestAPlainClass(Base):
    def test_own(self) -> None:
        greet.later("Ada")
        assert greeted == ["Ada"]

    def helper(self) -> str | None:
        return modes.carried()


def test_other_methods_of_a_plain_class_are_left_alone() -> None:
    assert TestAPlainClass().helper() is None
    assert issubclass(TestATestCase, unittest.TestCase)


class TestAMethod(TestCase):
    @jobs_mode("inline")
    def test_a_method_may_be_decorated(self) -> None:
        greet.later("Ada")
        assert greeted == ["Ada"]

    def test_the_others_are_left_alone(self) -> None:
        greet.later("Ada")
        assert greeted == []


# -- how it runs


def test_the_job_comes_back_as_it_ended() -> None:
    def double(number: int) -> int:
        return 2 * number

    with declared(double) as performer, jobs_mode("inline"):
        kept = performer.later(4)
        gone = performer.using(keep=0).later(5)
    assert (kept.state, kept.result, kept.attempts) == ("SUCCESSFUL", 8, 1)
    assert (gone.state, gone.result, gone.attempts) == ("SUCCESSFUL", 10, 1)
    assert list(Job.objects.all()) == [kept]


def test_jobs_of_bulk_calls_run_in_their_order() -> None:
    with jobs_mode("inline"):
        queued = greet.later_many([("Ada",), ("Bo",)])
        enqueue([greet.prepare("Cy"), greet.prepare("Di")])
        assert greet.later_many([]) == []
    assert greeted == ["Ada", "Bo", "Cy", "Di"]
    assert len(queued) == 2


def test_jobs_that_jobs_queue_run_at_once_too_sync_and_async() -> None:
    async def greet_twice(name: str) -> None:
        await greet.alater(name)
        await greet.alater(f"{name} again")

    def begin(name: str) -> None:
        twice.later(name)
        greeted.append("begun")

    with declared(greet_twice) as twice, declared(begin) as performer, jobs_mode("inline"):
        performer.later("Ada")
    assert greeted == ["Ada", "Ada again", "begun"]


def test_jobs_that_run_jobs_runs_go_on_in_the_mode_of_the_test() -> None:
    def begin() -> None:
        greet.later("Ada")
        greeted.append("begun")

    with declared(begin) as performer:
        performer.later()
        with jobs_mode("inline"):
            assert len(run_jobs().jobs) == 1
    assert greeted == ["Ada", "begun"]


def test_a_key_that_a_waiting_job_holds_keeps_others_from_being_queued() -> None:
    holder = greet.using(unique="greeting").later("Ada")
    with jobs_mode("inline"):
        assert greet.using(unique="greeting").later("Bo") == holder
        [first, second] = greet.using(unique="greeting").later_many([("Cy",), ("Di",)])
    assert (first.id, first.duplicate, second.id, second.duplicate) == (holder.pk, True, holder.pk, True)
    assert greeted == []
    run_jobs()
    with jobs_mode("inline"):
        greet.using(unique="greeting").later("Bo")
    assert greeted == ["Ada", "Bo"]


def test_the_job_that_follows_a_failure_is_queued() -> None:
    def fail() -> None:
        raise LookupError

    def follow(failed_id: int) -> None: ...

    with (
        declared(follow) as following,
        declared(fail, max_attempts=1, on_failure=following) as performer,
        jobs_mode("inline"),
    ):
        with pytest.raises(LookupError):
            performer.later()
        assert_enqueued(following, Job.objects.get(state="FAILED").pk)
        assert drain().succeeded == 1


def test_delay_and_moment_are_ignored() -> None:
    with jobs_mode("inline"):
        greet.after(days=1).later("Ada")
    assert greeted == ["Ada"]


def test_what_a_job_did_is_rolled_back_with_its_caller() -> None:
    def make() -> None:
        Group.objects.create(name="made")

    with declared(make) as performer, declared(make, name="atomic", atomic=True) as atomic, jobs_mode("inline"):
        with transaction.atomic():
            performer.later()
            assert Group.objects.exists()
            transaction.set_rollback(True)
        assert not Group.objects.exists()
        atomic.later()
        assert Group.objects.exists()


def test_an_error_is_raised_when_all_had_their_turn() -> None:
    with jobs_mode("inline"), pytest.raises(RuntimeError, match="it broke"):
        enqueue([broken.prepare(), greet.prepare("Ada")])
    assert greeted == ["Ada"]
    job = Job.objects.get()
    assert (job.state, job.attempts, job.errors[0]["reason"]) == ("READY", 1, "it broke")


class TestOutsideOfATransaction(TransactionTestCase):
    @jobs_mode("inline")
    def test_a_job_runs_and_its_timeout_holds(self) -> None:
        greet.later("Ada")
        assert greeted == ["Ada"]
        until = threading.Event()

        def hang() -> None:
            while True:
                until.wait(0.01)

        with declared(hang, timeout=0.05, max_attempts=1) as performer, pytest.raises(BaseException) as raised:  # noqa: PT011
            performer.later()
        assert type(raised.value).__name__ == "JobTimeout"
        assert Job.objects.get().errors[0]["kind"] == "timeout"


# -- O34: what real mode refuses, and how it ends


def make_mutable(things: list[int]) -> list[int]:
    things.append(3)
    return things


def say(word: str) -> None:
    raise {"retry": Retry("wait", after=60), "snooze": Snooze(60), "cancel": Cancel("done"), "give_up": GiveUp("no")}[
        word
    ]


def ended(job_id: int) -> tuple[Any, ...]:
    job = Job.objects.get(pk=job_id)
    kinds = [(entry["kind"], entry["reason"], entry["exception"]) for entry in job.errors]
    waits = None if job.state != "READY" else (job.run_at - job.enqueued_at) >= timedelta(seconds=9)
    return job.state, job.attempts, job.result, kinds, waits, job.worker, job.fingerprint


def give(value: Any) -> Any:
    return type(value).__name__


def give_back(value: Any) -> Any:
    return value


def give_unstorable() -> object:
    return object()


def give_nan() -> float:
    return float("nan")


def fail(word: str) -> None:
    raise LookupError(word)


async def fail_async(word: str) -> None:
    raise LookupError(word)


SAME = [
    (give, ((1, (2,)),)),
    (give_back, ((1, {"a": {3}}),)),
    (give_back, (timedelta(seconds=5),)),
    (make_mutable, ([1, 2],)),
    (give_unstorable, ()),
    (give_nan, ()),
    (say, ("retry",)),
    (say, ("snooze",)),
    (say, ("cancel",)),
    (say, ("give_up",)),
    (fail, ("word",)),
    (fail_async, ("word",)),
]


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(("body", "args"), SAME)
def test_o34_a_job_ends_as_under_a_worker(body: Callable[..., Any], args: tuple[Any, ...], atomic: bool) -> None:
    if atomic and body is fail_async:
        return
    with declared(body, atomic=atomic, max_attempts=3, backoff=lambda _: 10) as performer:
        real = performer.later(*args)
        drain()
        with jobs_mode("inline"):
            [inline] = _quietly(performer, *args)
    assert ended(inline) == ended(real.pk)


def _quietly(performer: AnyPerformer, *args: Any) -> list[int]:
    before = set(Job.objects.values_list("pk", flat=True))
    with suppress(LookupError, GiveUp, TypeError, ValueError):  # That they are raised is the difference.
        performer.later(*args)
    return [pk for pk in Job.objects.values_list("pk", flat=True) if pk not in before]


def test_o34_arguments_of_the_caller_are_not_those_of_the_job() -> None:
    mine = [1, 2]
    with declared(make_mutable) as performer, jobs_mode("inline"):
        assert performer.later(mine).result == [1, 2, 3]
    assert mine == [1, 2]


def test_o34_what_cannot_be_queued_is_refused() -> None:
    with jobs_mode("inline"):
        with pytest.raises(UnencodableValue):
            greet.later(object())  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            greet.later()  # type: ignore[call-arg]
    assert not Job.objects.exists()


def test_o34_a_model_instance_is_fetched_fresh() -> None:
    group = Group.objects.create(name="old")

    def name_of(group: Group) -> str:
        return group.name

    group.name = "changed, and not saved"
    with declared(name_of) as performer, jobs_mode("inline"):
        assert performer.later(group).result == "old"
        Group.objects.all().delete()
        group._state.adding = False
        with pytest.raises(GiveUp, match="no longer exists"):
            performer.later(group)


def test_o34_a_job_finds_its_attempt() -> None:
    def tell() -> list[object]:
        attempt = current_attempt()
        assert attempt is not None
        return [attempt.number, attempt.job_id, attempt.meta["why"]]

    with declared(tell) as performer, jobs_mode("inline"):
        job = performer.using(meta={"why": "import"}).later()
    assert job.result == [1, job.pk, "import"]
    assert current_attempt() is None


def test_o34_a_job_that_is_cancelled_while_it_runs_is_cancelled() -> None:
    def cancel_itself() -> None:
        attempt = current_attempt()
        assert attempt is not None
        Job.objects.get(pk=attempt.job_id).cancel("enough")

    with declared(cancel_itself) as performer, jobs_mode("inline"):
        job = performer.later()
    assert (job.state, job.worker) == ("CANCELLED", None)


def test_o34_a_name_that_nobody_has_fails() -> None:
    with jobs_mode("inline"), pytest.raises(Exception, match="no performer is named missing"):
        enqueue([named("missing")])
