"""What becomes of the value that a performer returns."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.test import override_settings
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from django_jobs import codec, work_one
from django_jobs.outcomes import Failed, Succeeded
from tests.performing import Run, perform
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Parcel:
    size: Size
    weight: Decimal


def returned(value: object, form: Form) -> Run:
    def body() -> object:
        return value

    return perform(form(body))


@pytest.mark.parametrize(
    "value",
    [
        True, 0, -5, 2**40, 1.5, 1e300, -0.0, "", "Ada", "é🎈", [], [1, [2]], {}, {"a": {"b": None}}, {"$tuple": [1]},
        (1, 2), {1, 2}, frozenset({"a"}), b"\0bytes", Decimal("1.10"), UUID(int=5), date(2026, 3, 1),
        datetime(2026, 3, 1, 12), datetime(2026, 3, 1, 12, tzinfo=UTC), time(12, 30), timedelta(days=-1, seconds=1),
        datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))), Size.SMALL, Parcel(Size.LARGE, Decimal("0.50")),
        [{"parcels": (Parcel(Size.SMALL, Decimal(1)),)}],
    ],
    ids=repr,
)  # fmt: skip
def test_a_result_comes_back_as_what_it_was(form: Form, value: object) -> None:
    run = returned(value, form)
    assert run.job.state == "SUCCESSFUL"
    assert run.result == value
    assert type(run.result) is type(value)
    assert repr(run.result) == repr(value)


def test_a_moment_in_a_zone_keeps_its_zone(form: Form) -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris"))
    result: Any = returned(moment, form).result
    assert (result, result.tzinfo) == (moment, ZoneInfo("Europe/Paris"))


def test_none_is_no_result(form: Form) -> None:
    assert returned(None, form).outcome == Succeeded(result=None)


def test_a_model_instance_is_stored_as_its_key(form: Form) -> None:
    group = Group.objects.create(name="buyers")
    run = returned({"group": group}, form)
    assert run.job.state == "SUCCESSFUL"
    assert run.result == {"group": codec.ModelRef(label="auth.Group", pk=group.pk, alias="default")}


def test_a_lazy_model_instance_is_stored_as_its_key(form: Form) -> None:
    group = Group.objects.create(name="buyers")
    run = returned(SimpleLazyObject(lambda: group), form)
    assert run.result == codec.ModelRef(label="auth.Group", pk=group.pk, alias="default")


# -- what can't be stored: the work was done, so it isn't done again


def count_up() -> Iterator[int]:
    yield 1


def divide() -> float:
    return 1 / 0


@dataclass
class Broken:
    value: int

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise LookupError("it is gone")
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (count_up, "result: generator cannot be stored; pass plain values"),
        (Group.objects.all, "result: django.db.models.query.QuerySet cannot be stored"),
        (object, "result: object cannot be stored"),
        (lambda: Group(name="unsaved"), "result: this auth.Group is not in the database"),
        (lambda: {"rate": [1.0, float("nan")]}, "result.rate[1]: NaN cannot be stored"),
        (lambda: float("-inf"), "result: -Infinity cannot be stored"),
        (lambda: {1: "a"}, "result: a key of type int cannot be stored"),
        (lambda: "a\0b", "result: text with a NUL character cannot be stored"),
        (lambda: "\ud800", "result: text with a lone surrogate cannot be stored"),
        (lambda: gettext_lazy("Yes"), "result: django.utils.functional.lazy.<locals>.__proxy__ cannot be stored"),
        (lambda: Broken(1), "result.value: cannot be read (LookupError)"),
        (lambda: SimpleLazyObject(divide), "division by zero"),
        (lambda: ValueError("no"), "result: ValueError cannot be stored"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_the_job_at_once(
    form: Form, make: Callable[[], object], problem: str
) -> None:
    runs: list[int] = []

    def body() -> object:
        runs.append(1)
        return make()

    run = perform(form(body))
    assert isinstance(run.outcome, Failed)
    assert (run.job.state, run.job.attempts) == ("FAILED", 1)
    assert run.error["kind"] == "result"
    assert problem in run.reason
    assert run.job.result is None
    assert work_one() is None
    assert runs == [1]


def test_an_open_file_is_no_result(form: Form) -> None:
    with tempfile.TemporaryFile() as file:
        run = returned(file, form)
        assert not file.closed
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")


@override_settings(DJANGO_JOBS={"MAX_ARGS_BYTES": 1_000})
def test_a_result_above_the_limit_fails_the_job_with_the_limit_named(form: Form) -> None:
    run = returned("x" * 2_000, form)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")
    assert run.reason.startswith("result: 2,002 bytes encoded, and the limit is 1,000 (setting MAX_ARGS_BYTES)")


def test_a_huge_result_fails_the_job(form: Form) -> None:
    run = returned("x" * 200_000_000, form)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")
    assert len(run.reason) < 200


def test_a_coroutine_that_nobody_awaited_says_what_to_do() -> None:
    async def send() -> None:
        raise AssertionError

    def body() -> object:
        return send()

    with warnings.catch_warnings(record=True) as caught:
        run = perform(body)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")
    assert run.reason == "it returned a coroutine, whose body never ran; declare it with async def"
    assert caught == []
