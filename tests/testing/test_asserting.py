"""What tests say of queued jobs, and what they are told where it isn't so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.test import TestCase

from django_jobs import enqueue, named
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer
from django_jobs.testing import (
    JobsMixin,
    assert_enqueued,
    assert_not_enqueued,
    assert_num_enqueued,
    drain,
    enqueued_jobs,
    jobs_mode,
    run_jobs,
)
from tests.declaring import declared
from tests.factories import NOON
from tests.shop.jobs import broken, greet

pytestmark = pytest.mark.django_db


def send(user_id: object, greeting: str = "hello", *extra: object, **more: object) -> None: ...


@pytest.fixture
def sending() -> Any:
    with declared(send, keep="1d") as performer:
        yield performer


def told(check: Callable[[], object]) -> list[str]:
    """Give the lines of the failure."""
    with pytest.raises(AssertionError) as raised:
        check()
    return str(raised.value).splitlines()


# -- arguments


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((42,), {}),
        ((), {"user_id": 42}),
        ((42, "hello"), {}),
        ((42,), {"greeting": "hello"}),
        ((), {"greeting": "hello"}),
        ((ANY,), {"greeting": ANY}),
    ],
)
def test_arguments_are_matched_by_parameter_and_those_not_given_are_any(
    sending: AnyPerformer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    job = sending.later(user_id=42)
    assert assert_enqueued(sending, *args, **kwargs) == [job]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((41,), {}), (("42",), {}), ((42, "ciao"), {}), ((42,), {"why": ANY}), ((42, "hello", 1), {})],
)
def test_other_arguments_do_not_match(sending: AnyPerformer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    sending.later(42)
    assert_not_enqueued(sending, *args, **kwargs)
    with pytest.raises(AssertionError):
        assert_enqueued(sending, *args, **kwargs)


def test_further_arguments_are_matched_by_their_place_and_name(sending: AnyPerformer) -> None:
    sending.later(42, "hello", 1, 2, why="import", who="Ada")
    assert_enqueued(sending, 42, "hello", 1, 2)
    assert_enqueued(sending, why="import")
    assert_not_enqueued(sending, 42, "hello", 1)
    assert_not_enqueued(sending, why="sync")


@pytest.mark.parametrize(
    "value", [(1, (2,)), {"a": Decimal("1.10")}, datetime(2026, 3, 1, tzinfo=UTC), {3, 4}, b"x", None]
)
def test_values_of_all_kinds_are_what_they_were(sending: AnyPerformer, value: object) -> None:
    sending.later(value)
    assert_enqueued(sending, value)
    assert_not_enqueued(sending, [value])


def test_a_model_instance_is_matched_by_its_key_also_when_its_row_is_gone(sending: AnyPerformer) -> None:
    group, other = Group.objects.create(name="a"), Group.objects.create(name="b")
    sending.later(group)
    assert_enqueued(sending, group)
    assert_not_enqueued(sending, other)
    same = Group(pk=group.pk)
    same._state.adding = False
    group.delete()
    assert_enqueued(sending, same)
    assert_not_enqueued(sending, Group())


def test_a_job_that_lives_elsewhere_is_named() -> None:
    enqueue([named("other.service", 1, 2, who="Ada")])
    assert_enqueued("other.service")
    assert_enqueued("other.service", 1, who="Ada")
    assert_not_enqueued("other.service", 2)
    assert_not_enqueued("other.service", 1, 2, 3)
    assert_not_enqueued("other.service", whom=ANY)


def test_a_call_that_no_job_can_be_queued_with_is_a_mistake_of_the_test() -> None:
    with pytest.raises(TypeError, match=r"no job can be queued like this: tests\.shop\.greet\(name: .*'nam'"):
        assert_not_enqueued(greet, nam="Ada")
    with pytest.raises(TypeError, match="name the job first"):
        assert_not_enqueued(None, "Ada")


def test_rows_whose_arguments_fit_no_more_are_shown_as_they_are(sending: AnyPerformer) -> None:
    enqueue([named(sending.name, who="Ada")])
    assert_enqueued(sending)
    assert told(lambda: assert_enqueued(sending, 42)) == [
        "Not enqueued: tests.nowhere.send(user_id=42)",
        "Same job, other arguments: tests.nowhere.send(who='Ada')",
        "Enqueued at all: tests.nowhere.send(who='Ada')",
    ]


# -- everything else that may be said


def test_queue_priority_and_times_are_matched(frozen: FrozenClock) -> None:
    greet.using(queue="mail", priority=7).after(minutes=10).later(name="Ada")
    at = NOON + timedelta(minutes=10)
    assert_enqueued(greet, "Ada", queue="mail", priority=7, run_at=at, delay="10m")
    assert_enqueued(greet, run_at=at + timedelta(seconds=1), delay=599)
    for said in ({"queue": "default"}, {"priority": 0}, {"run_at": at + timedelta(seconds=1.1)}, {"delay": 601.1}):
        options: dict[str, Any] = said
        assert_not_enqueued(greet, **options)


def test_a_function_may_say_which_jobs_are_meant() -> None:
    job = greet.using(meta={"why": "import"}).later(name="Ada")
    greet.later(name="Bo")
    assert enqueued_jobs(greet, match=lambda one: one.meta.get("why") == "import") == [job]


def test_jobs_may_be_counted() -> None:
    greet.later_many([("Ada",), ("Bo",), ("Ada",)])
    assert len(assert_enqueued(greet, "Ada", count=2)) == 2
    assert_num_enqueued(3)
    assert_num_enqueued(1, greet, "Bo")
    assert_num_enqueued(0, broken)
    assert_enqueued(greet, "Cy", count=0)
    assert told(lambda: assert_num_enqueued(2)) == [
        "Enqueued 3 times, not 2 times: any job",
        "These are: tests.shop.greet(name='Ada'), tests.shop.greet(name='Bo'), tests.shop.greet(name='Ada')",
        "Enqueued at all: tests.shop.greet(name='Ada'), tests.shop.greet(name='Bo'), tests.shop.greet(name='Ada')",
    ]
    assert told(lambda: assert_enqueued(greet, "Cy", count=1))[0] == (
        "Enqueued not at all, not once: tests.shop.greet(name='Cy')"
    )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"run_at": datetime(2026, 3, 1)}, "this datetime is naive; give an aware one"),
        ({"delay": "soon"}, "delay: 'soon' is not a duration"),
        ({"count": -1}, "count -1: give a whole number, 0 or more"),
        ({"count": True}, "count True: give a whole number, 0 or more"),
    ],
)
def test_what_cannot_be_meant_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assert_enqueued(greet, **said)


def test_what_waits_no_longer_is_not_enqueued() -> None:
    greet.using(keep="1d").later(name="Ada")
    run_jobs()
    assert_not_enqueued()
    assert enqueued_jobs() == []
    assert told(lambda: assert_enqueued(greet)) == [
        "Not enqueued: tests.shop.greet()",
        "Same job, but it waits no longer: tests.shop.greet(name='Ada') (SUCCESSFUL)",
        "Nothing is enqueued.",
    ]


# -- what is near


def test_the_same_job_with_other_arguments_is_told(sending: AnyPerformer) -> None:
    sending.later(41)
    sending.later(43, "ciao")
    assert told(lambda: assert_enqueued(sending, 42)) == [
        "Not enqueued: tests.nowhere.send(user_id=42)",
        "Same job, other arguments: tests.nowhere.send(user_id=41), tests.nowhere.send(user_id=43, greeting='ciao')",
        "Enqueued at all: tests.nowhere.send(user_id=41), tests.nowhere.send(user_id=43, greeting='ciao')",
    ]


def test_the_same_job_and_arguments_otherwise_queued_are_told(frozen: FrozenClock) -> None:
    greet.using(queue="bulk", priority=-5).after(minutes=1).later(name="Ada")

    def never(job: Job) -> bool:
        return False

    options = "queue='mail', priority=0, run_at=2026-03-01T12:00:00+00:00, delay='10m', match=never"
    differences = (
        "queue bulk, not mail; priority -5, not 0; run_at 2026-03-01T12:01:00+00:00, not 2026-03-01T12:00:00+00:00; "
        "delay 0:01:00, not 0:10:00; refused by match="
    )
    found = told(lambda: assert_enqueued(greet, "Ada", queue="mail", priority=0, run_at=NOON, delay="10m", match=never))
    assert found == [
        f"Not enqueued: tests.shop.greet(name='Ada') with {options}",
        f"Same job and arguments, but: tests.shop.greet(name='Ada') ({differences})",
        "Enqueued at all: tests.shop.greet(name='Ada')",
    ]


def test_a_long_list_and_long_arguments_are_cut() -> None:
    greet.later_many([("x" * 1_000,) for _ in range(7)])
    [_, near, at_all] = told(lambda: assert_enqueued(greet, "Ada"))
    assert near.endswith("…), and 2 more")
    assert at_all.endswith("…), and 2 more")
    assert len(near) < 1_300


def test_what_should_not_be_there_is_told() -> None:
    greet.later(name="Ada")
    assert told(lambda: assert_not_enqueued(greet)) == ["Enqueued, and should not be: tests.shop.greet(name='Ada')"]
    assert told(assert_not_enqueued) == ["Enqueued, and should not be: tests.shop.greet(name='Ada')"]


# -- blocks


def test_in_a_block_only_jobs_that_are_queued_in_it_count() -> None:
    greet.later(name="Ada")
    with assert_enqueued(greet, "Bo", count=1) as found, assert_not_enqueued(greet, "Ada"), assert_num_enqueued(2):
        second = greet.later(name="Bo")
        broken.later()
    assert found == [second]
    with pytest.raises(AssertionError, match=r"Not enqueued: .*\nNothing is enqueued\."), assert_enqueued(greet):
        pass


def test_in_a_block_jobs_that_have_run_meanwhile_count_also_those_that_are_not_kept() -> None:
    with assert_enqueued(greet, "Ada") as gone, assert_enqueued(greet, "Bo") as kept:
        greet.later(name="Ada")
        greet.using(keep="1d").later(name="Bo")
        run_jobs()
    assert [job.state for job in [*gone, *kept]] == ["SUCCESSFUL", "SUCCESSFUL"]
    with jobs_mode("inline"), assert_enqueued(greet, count=2):
        greet.later(name="Ada")
        greet.later(name="Bo")


def test_what_was_queued_before_a_block_and_runs_in_it_does_not_count() -> None:
    greet.later(name="Ada")
    with assert_not_enqueued(greet):
        drain()


def test_what_is_rolled_back_in_a_block_does_not_count() -> None:
    with assert_not_enqueued(), transaction.atomic():
        greet.later(name="Ada")
        transaction.set_rollback(True)


def test_a_block_that_is_not_known_as_one_is_checked_at_its_beginning_and_at_its_end() -> None:
    with pytest.raises(AssertionError, match=r"^Not enqueued"), (found := assert_enqueued(greet)):
        greet.later(name="Ada")
    greet.later(name="Bo")
    with pytest.raises(AssertionError, match=r"^Not enqueued"), (found := assert_enqueued(greet)):
        pass
    with (found := assert_enqueued(greet)):
        greet.later(name="Cy")
    assert [job.kwargs for job in found] == [{"name": "Cy"}]


def test_a_block_lets_exceptions_pass() -> None:
    with pytest.raises(LookupError), assert_enqueued(greet):
        raise LookupError


class TestAMixin(JobsMixin, TestCase):
    def test_it_has_all_of_this_as_methods(self) -> None:
        with self.assertEnqueued(greet, "Ada", queue="default"):
            greet.later(name="Ada")
        self.assertEnqueued(greet, name="Ada", delay=0)
        self.assertNotEnqueued(broken)
        self.assertNumEnqueued(1)
        with self.assertNotEnqueued(greet), self.assertNumEnqueued(0):
            assert len(self.enqueued_jobs(greet)) == 1
        assert self.run_jobs().succeeded == 1
        assert self.drain() == self.run_jobs()

    async def test_async_tests_have_forms_of_their_own(self) -> None:
        async with self.assertEnqueued(greet, "Ada") as found, self.assertNotEnqueued(broken):
            job = await greet.alater(name="Ada")
        assert found == [job]
        assert await self.aassertEnqueued(greet, "Ada") == [job]
        await self.aassertNotEnqueued(broken)
        await self.aassertNumEnqueued(1)
        assert await self.aenqueued_jobs() == [job]
        with pytest.raises(AssertionError, match="Nothing is enqueued"):
            async with self.assertEnqueued(greet):
                pass
        with pytest.raises(AssertionError, match="Not enqueued"):
            await self.aassertEnqueued(broken)

    async def test_a_form_that_would_block_names_the_one_that_does_not(self) -> None:
        with pytest.raises(SynchronousOnlyOperation, match=r"write: await aassert_enqueued\(…\)"):
            self.assertEnqueued(greet)
        with pytest.raises(SynchronousOnlyOperation, match="write `async with`"), self.assertEnqueued(greet):
            pass

    def test_a_failure_is_one_of_the_test(self) -> None:
        with pytest.raises(self.failureException, match="Nothing is enqueued"):
            self.assertEnqueued(greet)
