"""One performer, run without a row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import translation

from django_jobs import Attempt, GiveUp, Retry, current_attempt
from django_jobs.exceptions import JobTimeout, UnencodableValue
from django_jobs.models import Job
from django_jobs.testing import JobsMixin, aperform, jobs_mode, perform
from tests.declaring import declared
from tests.shop.jobs import greet, greeted

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nobody_greeted() -> None:
    greeted.clear()


def test_it_gives_what_the_body_returned_and_makes_no_row() -> None:
    def double(number: int) -> int:
        return 2 * number

    async def treble(number: int) -> int:
        return 3 * number

    with declared(double) as sync, declared(treble) as asynchronous:
        assert perform(sync, 2) == 4
        assert perform(asynchronous, number=2) == 6
        assert perform(greet, "Ada") is None
    assert greeted == ["Ada"]
    assert not Job.objects.exists()


def test_arguments_and_result_go_the_way_of_stored_ones() -> None:
    group = Group.objects.create(name="old")
    group.name = "changed, and not saved"

    def give(group: Group, moment: datetime) -> dict[str, Any]:
        assert group.name == "old"
        return {"group": group, "moment": moment, "pair": (1, 2)}

    moment = datetime(2026, 3, 1, tzinfo=UTC)
    with declared(give) as performer:
        result = perform(performer, group, moment)
    assert result == {"group": group, "moment": moment, "pair": (1, 2)}
    assert result["group"] is not group


def test_what_cannot_be_stored_is_refused() -> None:
    def give_back(value: object) -> object:
        return value

    def give_object() -> object:
        return object()

    with declared(give_back) as performer, declared(give_object) as hostile:
        with pytest.raises(UnencodableValue, match=r"args\[0\]"):
            perform(performer, object())
        with pytest.raises(UnencodableValue, match="result"):
            perform(hostile)
        with pytest.raises(TypeError, match="missing a required argument: 'value'"):
            perform(performer)


def test_a_model_instance_that_is_gone_gives_up() -> None:
    def take(group: Group) -> None: ...

    group = Group.objects.create(name="a")
    pk = group.pk
    group.delete()
    group.pk, group._state.adding = pk, False
    with declared(take) as performer, pytest.raises(GiveUp, match="no longer exists"):
        perform(performer, group)


def test_the_body_finds_a_real_attempt() -> None:
    seen: list[Attempt] = []

    def look(attempt: Attempt, word: str) -> None:
        assert current_attempt() is attempt
        seen.append(attempt)

    with declared(look, takes_attempt=True, queue="mail", timeout=30, max_attempts=7) as performer:
        perform(performer, "word")
        perform(performer, "word", attempt=3, max_attempts=3, meta={"why": "import"})
    first, second = seen
    assert (first.number, first.max_attempts, first.is_last, first.queue, first.name) == (
        1, 7, False, "mail", "tests.nowhere.look",
    )  # fmt: skip
    assert (second.number, second.max_attempts, second.is_last, second.meta["why"]) == (3, 3, True, "import")
    assert (second.job_id, second.errors, second.tick, second.cancelled) == (0, [], None, False)
    assert second.deadline is not None
    assert (second.deadline - second.run_at).total_seconds() == 30
    assert current_attempt() is None


def test_a_job_is_performed_in_the_language_of_its_caller_and_leaves_none_behind() -> None:
    def look() -> str:
        found = translation.get_language()
        translation.activate("fr")
        return str(found)

    with declared(look) as performer, translation.override("de"):
        assert perform(performer) == "de"
        assert translation.get_language() == "de"


@pytest.mark.parametrize("error", [LookupError("why"), SystemExit(3), Retry("wait"), JobTimeout()])
def test_what_the_body_raised_is_raised_as_it_is(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def afail() -> None:
        raise error

    for body in (fail, afail):
        with declared(body) as performer, pytest.raises(type(error)) as raised:
            perform(performer)
        assert raised.value is error
        assert raised.traceback[-1].name == body.__name__
        error.__traceback__ = None


def test_a_control_word_that_is_returned_is_raised() -> None:
    def say() -> Retry:
        return Retry("wait")

    with declared(say) as performer, pytest.raises(Retry, match="wait"):
        perform(performer)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"attempt": 0}, "attempt 0: give a whole number, 1 or more"), ({"max_attempts": 0}, "max_attempts=0")],
)
def test_numbers_that_no_attempt_has_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        perform(greet, "Ada", **options)


def test_what_is_no_performer_is_refused() -> None:
    with pytest.raises(TypeError, match="takes what @job made, and not <function"):
        perform(lambda: None)  # type: ignore[call-overload]


def test_jobs_that_it_queues_are_rows_or_run_at_once_as_the_mode_says() -> None:
    def begin() -> None:
        greet.later("Ada")

    with declared(begin) as performer:
        perform(performer)
        assert (greeted, Job.objects.count()) == ([], 1)
        with jobs_mode("inline"):
            perform(performer)
        assert (greeted, Job.objects.count()) == (["Ada"], 1)


# -- atomic ones


def make(name: str, error: Exception | None = None) -> str:
    Group.objects.create(name=name)
    if name == "fails":
        raise LookupError(name)
    if name == "swallows":
        transaction.set_rollback(True)
    return name


def check_atomic() -> None:
    with declared(make, atomic=True) as performer:
        assert perform(performer, "stays") == "stays"
        with pytest.raises(LookupError):
            perform(performer, "fails")
        with pytest.raises(transaction.TransactionManagementError, match="marked for rollback"):
            perform(performer, "swallows")
    assert list(Group.objects.values_list("name", flat=True)) == ["stays"]


class TestInATransaction(JobsMixin, TestCase):
    def test_what_an_atomic_one_did_stays_with_a_success_alone(self) -> None:
        check_atomic()
        assert connection.in_atomic_block

    def test_what_another_one_broke_is_put_right(self) -> None:
        def break_it() -> None:
            Group.objects.create(name="twice")
            Group.objects.create(name="twice")

        with declared(break_it) as performer, pytest.raises(Exception, match=r"(?i)unique"):
            self.perform(performer)
        assert Group.objects.count() == 0

    async def test_it_may_be_awaited(self) -> None:
        async def count() -> int:
            await Group.objects.acreate(name="made")
            return await Group.objects.acount()

        with declared(count) as performer:
            assert await aperform(performer) == 1
            with pytest.raises(SynchronousOnlyOperation, match="await aperform"):
                perform(performer)
        assert await self.aperform(greet, "Ada") is None


class TestOutsideOfATransaction(TransactionTestCase):
    def test_what_an_atomic_one_did_stays_with_a_success_alone(self) -> None:
        check_atomic()
