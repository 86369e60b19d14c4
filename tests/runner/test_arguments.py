"""From the stored arguments to the call: what comes back, what no longer fits, what can't be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from django_jobs import work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Failed, GaveUp, Retried, Succeeded
from tests.declaring import declared
from tests.performing import POLICY, Run, perform, work
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db


class Size(Enum):
    SMALL = "s"


def returned(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return (*args, kwargs)


# -- arguments as they were given


def test_arguments_come_as_they_were_given(form: Form) -> None:
    run = perform(form(returned), 1, (2, 3), size=Size.SMALL, at=datetime(2026, 3, 1, tzinfo=UTC))
    assert run.result == (1, (2, 3), {"size": Size.SMALL, "at": datetime(2026, 3, 1, tzinfo=UTC)})


def test_a_keyword_stays_a_keyword() -> None:
    def plain(user_id: int) -> None:
        raise AssertionError

    def wrapper(*args: Any, **kwargs: Any) -> list[Any]:
        return [args, kwargs]

    wrapper.__wrapped__ = plain  # type: ignore[attr-defined]
    assert perform(wrapper, user_id=5).result == [(), {"user_id": 5}]


def test_the_callers_objects_are_not_the_jobs() -> None:
    given = {"lines": [1, 2]}

    def body(order: dict[str, list[int]]) -> dict[str, list[int]]:
        order["lines"].append(3)
        return order

    assert perform(body, given).result == {"lines": [1, 2, 3]}
    assert given == {"lines": [1, 2]}


# -- the signature has changed since


def requeued(before: Callable[..., Any], after: Callable[..., Any], *args: Any, **kwargs: Any) -> Run:
    """Queue for a performer of one release, run with that of the next."""
    with declared(before, name="shop.send", **POLICY) as performer:
        job = performer.later(*args, **kwargs)
    with declared(after, name="shop.send", **POLICY):
        return work(job)


def two(a: int, b: int) -> list[int]:
    return [a, b]


def one(a: int) -> list[int]:
    return [a]


def three(a: int, b: int, c: int) -> list[int]:
    return [a, b, c]


def three_with_a_default(a: int, b: int, c: int = 5) -> list[int]:
    return [a, b, c]


def other_names(x: int, y: int) -> list[int]:
    return [x, y]


@pytest.mark.parametrize(
    ("after", "kwargs", "problem"),
    [
        (one, {}, "shop.send(a: int) -> list[int]: too many positional arguments"),
        (three, {}, "shop.send(a: int, b: int, c: int) -> list[int]: missing a required argument: 'c'"),
        (other_names, {"b": 2}, "shop.send(x: int, y: int) -> list[int]: missing a required argument: 'y'"),
    ],
)
def test_o47_arguments_that_no_longer_fit_fail_the_job_at_once(
    form: Form, after: Callable[..., Any], kwargs: dict[str, Any], problem: str
) -> None:
    run = requeued(two, form(after), *((1,) if kwargs else (1, 2)), **kwargs)
    assert isinstance(run.outcome, Failed)
    assert (run.job.state, run.job.attempts, run.error["kind"]) == ("FAILED", 1, "misfit")
    # Annotations may be written as text.
    assert run.reason.replace("'", "") == f"the stored arguments no longer fit {problem}".replace("'", "")


def test_o47_extra_defaults_work_without_ado(form: Form) -> None:
    assert requeued(two, form(three_with_a_default), 1, 2).result == [1, 2, 5]


def test_o47_a_retry_by_hand_works_once_the_function_fits_again(frozen: FrozenClock) -> None:
    job = requeued(two, one, 1, 2).job
    job.retry()
    with declared(two, name="shop.send", **POLICY):
        run = work(job)
    assert (run.job.state, run.job.attempts, run.result) == ("SUCCESSFUL", 2, [1, 2])


def test_a_type_error_of_the_body_itself_is_an_ordinary_failed_attempt(form: Form) -> None:
    def body(a: int) -> int:
        return one(a, a)  # type: ignore[call-arg, return-value]

    run = perform(form(body), 1)
    assert isinstance(run.outcome, Retried)
    assert run.error["kind"] == "error"


# -- rows that no code of ours wrote


def overwritten(column: str, text: str) -> Run:
    """Queue a job, write JSON text into a column with plain SQL, and run it."""
    with declared(returned, **POLICY) as performer:
        job = performer.later(1)
        cast = "::jsonb" if connection.vendor == "postgresql" else ""
        with connection.cursor() as cursor:
            cursor.execute(f"update django_jobs_job set {column} = %s{cast} where id = %s", [text, job.pk])
        return work(job)


@pytest.mark.parametrize(
    ("column", "text", "place"),
    [
        ("args", '{"a": 1}', "args"),
        ("args", "5", "args"),
        ("args", '"text"', "args"),
        ("args", "null", "args"),
        ("args", "true", "args"),
        ("kwargs", "[1]", "kwargs"),
        ("kwargs", "null", "kwargs"),
        ("args", '[1, {"$novelty": "x"}]', "args[1]"),
        ("args", '[{"$uuid": "nonsense"}]', "args[0]"),
        ("args", '[{"$uuid": 5}]', "args[0]"),
        ("args", '[{"$tuple": {}}]', "args[0]"),
        ("args", '[{"$enum": "tests.runner.test_arguments:Size.LARGE"}]', "args[0]"),
        ("args", '[{"$enum": "tests.runner.test_arguments:Colour.RED"}]', "args[0]"),
        ("args", '[{"$enum": "tests.no.such.module:Size.SMALL"}]', "args[0]"),
        ("args", '[{"$enum": "os:path.SMALL"}]', "args[0]"),
        ("kwargs", '{"order": {"lines": [{"$dataclass": ["builtins:dict", {}]}]}}', "kwargs.order.lines[0]"),
        ("args", '[{"$model": {"label": "auth.Group"}}]', "args[0]"),
        ("args", "[" * 300 + "]" * 300, "args"),
        ("meta", '{"$novelty": 5}', "meta"),
    ],
)  # fmt: skip
def test_o46_what_cannot_be_read_fails_its_job_at_once_and_the_next_one_runs(
    column: str, text: str, place: str
) -> None:
    run = overwritten(column, text)
    assert isinstance(run.outcome, Failed)
    assert (run.job.state, run.job.attempts, run.error["kind"]) == ("FAILED", 1, "misfit")
    assert run.reason.startswith(f"the stored arguments can't be read by this code: {place}")
    assert isinstance(perform(returned).outcome, Succeeded)


def test_o46_a_queue_that_nobody_could_name_is_worked_all_the_same() -> None:
    with declared(returned, **POLICY) as performer:
        job = performer.later(1)
        Job.objects.filter(pk=job.pk).update(queue="no such queue: é\n")
        assert work_one() == Succeeded(result='{"$tuple":[1,{}]}')


@pytest.mark.parametrize("text", ["[]", "5", '"text"', "null"])
def test_meta_that_is_no_object_is_taken_as_none(text: str) -> None:
    assert overwritten("meta", text).job.state == "SUCCESSFUL"


def test_a_module_that_leaves_the_process_when_imported_fails_that_job_alone() -> None:
    run = overwritten("args", '[{"$enum": "tests.runner.exits_when_imported:Size.SMALL"}]')
    assert (run.job.state, run.error["exception"]) == ("READY", "builtins.SystemExit")
    assert isinstance(perform(returned).outcome, Succeeded)


# -- model instances


def name_of(group: Group) -> str:
    return group.name


def test_a_model_instance_is_fetched_fresh(form: Form) -> None:
    group = Group.objects.create(name="buyers")
    with declared(form(name_of), **POLICY) as performer:
        job = performer.later(group)
        Group.objects.update(name="customers")
        assert work(job).result == "customers"


def test_a_model_instance_that_is_gone_makes_the_job_give_up(form: Form) -> None:
    group = Group.objects.create(name="buyers")
    with declared(form(name_of), **POLICY) as performer:
        job = performer.later(group)
        Group.objects.all().delete()
        run = work(job)
    assert isinstance(run.outcome, GaveUp)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "gave_up")
    assert run.reason == "the auth.Group that this job was queued for no longer exists"


def test_a_key_of_any_kind_finds_its_row() -> None:
    session = Session.objects.create(session_key="a-text-key", expire_date=timezone.now())

    def body(found: dict[str, Session]) -> str:
        return found["session"].session_key

    assert perform(body, {"session": session}).result == "a-text-key"


@pytest.mark.django_db(databases=["default", "other"])
def test_a_model_instance_of_another_database_comes_from_there(form: Form) -> None:
    Group.objects.create(name="buyers here")
    group = Group.objects.using("other").create(name="buyers there")

    def body(group: Group) -> list[str | None]:
        return [group.name, group._state.db]

    assert perform(form(body), group).result == ["buyers there", "other"]


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ({"label": "shop.Gone", "pk": 1, "alias": "default"}, "shop.Gone: no such model is here"),
        ({"label": "nonsense", "pk": 1, "alias": "default"}, "nonsense: no such model is here"),
        ({"label": "auth.Group", "pk": 1, "alias": "gone"}, "auth.Group: no database gone is here"),
        ({"label": "auth.Group", "pk": "text", "alias": "default"}, "auth.Group: it takes no such key"),
        ({"label": "auth.Group", "pk": [1], "alias": "default"}, "auth.Group: it takes no such key"),
    ],
)
def test_a_model_or_database_that_is_gone_is_a_misfit(reference: dict[str, Any], problem: str) -> None:
    run = overwritten("args", json.dumps([{"$model": reference}]))
    assert (run.job.state, run.error["kind"]) == ("FAILED", "misfit")
    assert run.reason == f"the stored arguments can't be read by this code: {problem}"


def test_a_key_beyond_every_number_is_a_row_that_is_gone() -> None:
    run = overwritten("args", json.dumps([{"$model": {"label": "auth.Group", "pk": 10**40, "alias": "default"}}]))
    assert isinstance(run.outcome, GaveUp)


@contextmanager
def renamed(table: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"alter table {table} rename to mislaid")
        yield
        cursor.execute(f"alter table mislaid rename to {table}")


def test_a_database_error_while_fetching_is_an_ordinary_failed_attempt(form: Form, frozen: FrozenClock) -> None:
    group = Group.objects.create(name="buyers")
    with declared(form(name_of), **POLICY) as performer:
        job = performer.later(group)
        with renamed("auth_group"):
            run = work(job)
        assert isinstance(run.outcome, Retried)
        assert (run.job.state, run.job.attempts, run.error["kind"]) == ("READY", 1, "error")
        assert run.error["exception"] in {"django.db.utils.ProgrammingError", "django.db.utils.OperationalError"}
        frozen.advance(timedelta(seconds=10))
        assert work(job).result == "buyers"
