"""A second run, and a death in the middle of one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission
from django.core import mail
from django.db import transaction
from django.db.models import Model
from django.test import TestCase, TransactionTestCase, override_settings

from django_jobs.models import Job
from django_jobs.testing import JobsMixin, assert_idempotent, crash_after, jobs_mode, run_jobs
from tests.declaring import declared
from tests.shop.jobs import broken, greet

pytestmark = pytest.mark.django_db


# -- twice


def make_once(name: str) -> None:
    Group.objects.get_or_create(name=name)


def make_more(name: str) -> None:
    Group.objects.create(name=f"{name} {Group.objects.count()}")


def test_a_job_that_does_its_work_once_is_idempotent() -> None:
    with declared(make_once) as performer:
        assert_idempotent(performer, "a")
    assert Group.objects.count() == 1


def test_a_job_that_makes_more_rows_each_time_is_not() -> None:
    with declared(make_more) as performer, pytest.raises(AssertionError) as raised:
        assert_idempotent(performer, name="a")
    assert str(raised.value) == ("tests.nowhere.make_more is not idempotent: its second run changed auth.Group: 1 -> 2")


def test_a_job_that_sends_a_mail_each_time_or_queues_a_job_is_not() -> None:
    def tell() -> None:
        mail.send_mail("news", "", None, ["a@b.example"])
        greet.later("Ada")

    with (
        declared(tell) as performer,
        pytest.raises(AssertionError, match=r"django_jobs\.Job: 1 -> 2, mail\.outbox: 1 -> 2"),
    ):
        assert_idempotent(performer)


def test_a_snapshot_may_be_given() -> None:
    def rename(name: str) -> None:
        group = Group.objects.get()
        group.name += "!"
        group.save()

    Group.objects.create(name="a")
    with declared(rename) as performer:
        assert_idempotent(performer, "a")
        with pytest.raises(AssertionError, match=r"changed the snapshot: \['a!!!'\] -> \['a!!!!'\]"):
            assert_idempotent(performer, "a", snapshot=lambda: list(Group.objects.values_list("name", flat=True)))
        with pytest.raises(AssertionError, match="changed name: 'a!!!!!' -> 'a!!!!!!'"):
            assert_idempotent(performer, "a", snapshot=lambda: Group.objects.values("name").get())


def test_what_the_body_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        assert_idempotent(broken)


class TestWithOneDatabaseOfTwo(TestCase):
    def test_models_that_the_test_may_not_read_are_left_out(self) -> None:
        class OnlyGroups:
            def db_for_read(self, model: type[Model], **_: object) -> str:
                return "other" if model is Permission else "default"

        with declared(make_once) as performer, override_settings(DATABASE_ROUTERS=[OnlyGroups()]):
            assert_idempotent(performer, "a")


# -- killed


def make_three() -> None:
    for name in ("a", "b", "c"):
        if not Group.objects.filter(name=name).exists():
            Group.objects.create(name=name)


def make_three_together() -> None:
    with transaction.atomic():
        make_three()


async def make_three_async() -> None:
    for name in ("a", "b", "c"):
        if not await Group.objects.filter(name=name).aexists():
            await Group.objects.acreate(name=name)


def names() -> list[str]:
    return list(Group.objects.order_by("name").values_list("name", flat=True))


def check_deaths() -> None:
    for body, atomic, after, left in [
        (make_three, False, 0, []),
        (make_three, False, 2, ["a"]),
        (make_three, False, 5, ["a", "b"]),
        (make_three, False, 6, ["a", "b", "c"]),
        (make_three_async, False, 3, ["a"]),
        (make_three_together, False, 4, []),
        (make_three, True, 4, []),
        (make_three, True, 6, []),
    ]:
        with declared(body, atomic=atomic) as performer:
            job = crash_after(performer, after)
            assert (job.state, job.attempts, job.crashes, job.worker) == ("READY", 1, 1, None)
            assert job.errors[0]["kind"] == "crash"
            assert job.errors[0]["reason"] == f"its worker was killed by the test, after {after} queries"
            assert names() == left
            assert run_jobs().succeeded == 1
            assert names() == ["a", "b", "c"]
        Group.objects.all().delete()


class TestInATransaction(JobsMixin, TestCase):
    def test_a_job_comes_back_from_a_death_in_the_middle(self) -> None:
        check_deaths()


class TestOutsideOfATransaction(TransactionTestCase):
    def test_a_job_comes_back_from_a_death_in_the_middle(self) -> None:
        check_deaths()


def test_in_inline_mode_a_job_dies_as_ever() -> None:
    with declared(make_three) as performer, jobs_mode("inline"):
        assert crash_after(performer, 2).state == "READY"
        assert names() == ["a"]


def test_a_job_that_waits_may_be_named() -> None:
    with declared(make_more) as performer:
        job = performer.after(hours=1).later("a")
        assert crash_after(job, 1) == job
        run_jobs(until="2h")
        with pytest.raises(ValueError, match=rf"{job.name} #\d+ doesn't wait to run, it is SUCCESSFUL"):
            crash_after(job, 1)


def test_a_dead_body_reaches_the_database_no_more() -> None:
    def clean_up() -> None:
        try:
            Group.objects.create(name="a")
        finally:
            Group.objects.create(name="cleaned up")

    with declared(clean_up) as performer:
        crash_after(performer, 0)
        assert names() == []


def test_a_job_that_must_not_start_twice_has_failed() -> None:
    with declared(make_three, restart=False) as performer:
        job = crash_after(performer, 2)
    assert (job.state, job.errors[0]["kind"]) == ("FAILED", "interrupted")


def test_a_body_that_is_through_before_is_told() -> None:
    with declared(make_more) as performer:
        with pytest.raises(AssertionError, match="make_more made 2 queries and was through, so it can't die after 3"):
            crash_after(performer, 3, "a")
        with pytest.raises(ValueError, match="n_queries -1: give a whole number, 0 or more"):
            crash_after(performer, -1, "a")


class TestQueriesOfOurs(TransactionTestCase):
    def test_they_are_not_counted(self) -> None:
        with declared(make_three, atomic=True) as performer, pytest.raises(AssertionError, match="made 6 queries"):
            crash_after(performer, 8)


def test_a_body_that_fails_before_raises() -> None:
    with pytest.raises(RuntimeError, match="it broke"):
        crash_after(broken, 1)
    assert Job.objects.get().state == "READY"
