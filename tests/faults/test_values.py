"""Arguments, results, errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import override_settings
from django.utils.translation import gettext_lazy

from django_jobs import GiveUp, Retry, enqueue, job, named, work_one
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import UnencodableValue
from django_jobs.models import Job
from tests.declaring import declared
from tests.performing import POLICY, perform, work

pytestmark = pytest.mark.django_db


class Size(Enum):
    SMALL = "s"


def give_back(*args: Any, **kwargs: Any) -> list[Any]:
    return [args, kwargs]


def giving(make: Callable[[], object]) -> Callable[[], object]:
    """Make a function that may be declared."""

    def body() -> object:
        return make()

    return body


def refusal(*args: Any, **kwargs: Any) -> str:
    """Say why these arguments are refused, and see that nothing was queued."""
    with declared(give_back) as performer, pytest.raises(UnencodableValue) as refused:
        performer.later(*args, **kwargs)
    assert not Job.objects.exists()
    return str(refused.value)


# -- O35


@pytest.mark.parametrize(
    "value",
    [
        (1, 2), {1, 2}, frozenset({1}), UUID(int=5), Decimal("1.10"), datetime(2026, 3, 1, 12),
        datetime(2026, 3, 1, 12, tzinfo=UTC), date(2026, 3, 1), time(12), timedelta(seconds=-1), b"x", Size.SMALL,
        {"a": [(1, {"b": Decimal("0.10")})]}, 1e100, -0.0, None,
    ],
    ids=repr,
)  # fmt: skip
def test_o35_an_argument_comes_back_equal_and_of_the_same_type(value: object) -> None:
    [args, kwargs] = perform(give_back, value, named=value).result  # type: ignore[misc]
    assert (args, kwargs) == ((value,), {"named": value})
    assert repr((args, kwargs)) == repr(((value,), {"named": value}))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({1: "a"}, "args[0][2]: a key of type int cannot be stored"),
        (gettext_lazy("Yes"), "args[0][2]: django.utils.functional.lazy.<locals>.__proxy__ cannot be stored"),
        (Path("/tmp"), "args[0][2]: pathlib.PosixPath cannot be stored"),
        (object(), "args[0][2]: object cannot be stored"),
        (type("Text", (str,), {})("a"), "args[0][2]: tests.faults.test_values.Text is a subclass of str"),
    ],
)
def test_o35_an_impossible_argument_is_refused_when_queued_with_its_path(value: object, problem: str) -> None:
    assert problem.replace("pathlib._local", "pathlib") in refusal([1, 2, value]).replace("pathlib._local", "pathlib")


def test_o35_the_callers_objects_are_not_changed() -> None:
    order = {"lines": [(1, Decimal("1.10"))], "tags": {"a"}}
    perform(give_back, order, order=order)
    assert order == {"lines": [(1, Decimal("1.10"))], "tags": {"a"}}


# -- O36


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("Infinity")])
def test_o36_nan_and_infinity_are_refused_when_queued(number: object) -> None:
    assert "args[0]: " in refusal(number)
    assert "kwargs.order.lines[1].price: " in refusal(order={"lines": [{}, {"price": number}]})
    with declared(give_back) as performer, pytest.raises(UnencodableValue, match=r"meta\.rate: "):
        performer.using(meta={"rate": number}).later()
    assert not Job.objects.exists()


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), Decimal("NaN")])
def test_o36_nan_as_a_result_fails_the_job_with_the_reason(number: object) -> None:
    def body() -> object:
        return {"rates": [1, number]}

    run = perform(body)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")
    assert run.reason.startswith("result.rates[1]: ")


# -- O37


def test_o37_nul_is_refused_in_arguments_and_keys() -> None:
    assert "args[0]: text with a NUL character" in refusal("a\0b")
    assert "args[0]: a key that is text with a NUL character" in refusal({"a\0b": 1})
    assert "kwargs.a.b: text with a NUL character" in refusal(a={"b": "\0"})


def test_o37_bytes_may_hold_nul() -> None:
    assert perform(give_back, b"a\0b").result == [(b"a\0b",), {}]


@pytest.mark.parametrize("text", ["a\0b", "\0", "a\ud800b", "\ud800\0" * 5_000])
@pytest.mark.parametrize("error", [ValueError, GiveUp, Retry])
def test_o37_nul_in_a_text_of_an_exception_is_replaced_and_the_failure_stored(error: Any, text: str) -> None:
    def body() -> NoReturn:
        raise error(text)

    run = perform(body)
    assert run.job.attempts == 1
    assert run.reason[:3] == text[:3].replace("\0", "\N{REPLACEMENT CHARACTER}").replace("\ud800", "?")
    assert "\0" not in repr(run.job.errors)


def test_o37_nul_in_a_result_fails_the_job() -> None:
    run = perform(giving(lambda: "a\0b"))
    assert (run.job.state, run.error["kind"]) == ("FAILED", "result")
    assert run.reason.startswith("result: text with a NUL character")


def test_o37_nul_in_names_is_refused() -> None:
    with declared(give_back) as performer, pytest.raises(ValueError, match="queue"):
        performer.using(queue="a\0b")
    with pytest.raises(ValueError, match="name"):
        named("a\0b")
    with pytest.raises(ValueError, match="name"):
        job("a\0b")


# -- O38


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I won't")

    __repr__ = __str__


class StrGivesBytes(Exception):
    def __str__(self) -> Any:
        return b"bytes"  # noqa: PLE0307


class NeedsArguments(Exception):
    def __init__(self, order: int, *, line: int) -> None:
        super().__init__(order, line)


def local_class() -> Exception:
    class Local(Exception):
        pass

    return Local("lost")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (StrRaises, "StrRaises (its text can't be shown: RuntimeError)"),
        (StrGivesBytes, "StrGivesBytes (its text can't be shown: TypeError)"),
        (lambda: ValueError(StrRaises()), "ValueError (its text can't be shown: RuntimeError)"),
        (lambda: NeedsArguments(5, line=3), "(5, 3)"),
        (local_class, "lost"),
        (lambda: ValueError(threading.Lock()), "<unlocked _thread.lock"),
    ],
)
def test_o38_an_exception_that_cannot_be_shown_is_told_by_its_class(make: Any, reason: str) -> None:
    def body() -> NoReturn:
        raise make()

    run = perform(body)
    assert (run.job.state, run.job.attempts) == ("READY", 1)
    assert run.reason.startswith(reason)
    assert perform(give_back).job.state == "SUCCESSFUL"


def test_o38_an_exception_that_holds_a_socket_leaves_only_text() -> None:
    with closing(socket.socket()) as held:

        def body() -> NoReturn:
            raise OSError(held)

        assert "socket" in perform(body).reason


def test_o38_an_argument_that_cannot_be_shown_is_refused_by_its_class() -> None:
    class Unshowable:
        __repr__ = StrRaises.__str__

    assert "Unshowable cannot be stored" in refusal(Unshowable())


# -- O39


@pytest.mark.parametrize(
    "make",
    [
        lambda: (number for number in range(3)),
        Group.objects.all,
        lambda: "x" * 200_000,
        lambda: [b"x" * 200_000],
    ],
    ids=["generator", "queryset", "huge text", "huge bytes"],
)
@override_settings(DJANGO_JOBS={"MAX_ARGS_BYTES": 100_000})
def test_o39_a_result_that_cannot_be_stored_ends_the_job_and_it_ran_once(make: Callable[[], object]) -> None:
    runs: list[int] = []

    def body() -> object:
        runs.append(1)
        return make()

    run = perform(body)
    assert (run.job.state, run.error["kind"], run.job.result) == ("FAILED", "result", None)
    assert work_one() is None
    assert runs == [1]


def test_o39_an_open_file_ends_the_job(tmp_path: Path) -> None:
    with (tmp_path / "report").open("w") as file:
        assert perform(giving(lambda: file)).error["kind"] == "result"


# -- O40


def test_o40_long_names_are_refused_alike_on_every_database() -> None:
    rule = "give 1 to 100 characters"
    with pytest.raises(ValueError, match=f"name='x.*{rule}"):
        job("x" * 300)
    with pytest.raises(ValueError, match=f"name='x.*{rule}"), declared(give_back, module="x" * 300):
        raise AssertionError
    with declared(give_back) as performer, pytest.raises(ValueError, match=f"queue='x.*{rule}"):
        performer.using(queue="x" * 300)
    with pytest.raises(ValueError, match=f"name='x.*{rule}"):
        named("x" * 300)
    with pytest.raises(ValueError, match=f"queue='x.*{rule}"):
        named("shop.send", queue="x" * 300)


def test_o40_names_of_a_hundred_characters_are_stored() -> None:
    name, queue = "n" * 100, "q" * 100
    with declared(give_back, name=name) as performer:
        run = work(performer.using(queue=queue).later())
    assert (run.job.name, run.job.queue, run.job.state) == (name, queue, "SUCCESSFUL")


def test_o40_a_text_of_ten_megabytes_is_cut_with_a_mark() -> None:
    def body() -> NoReturn:
        raise ValueError("é" * 10_000_000)

    run = perform(body)
    assert "…" in run.reason
    assert len(run.reason.encode()) <= 1_000
    assert len(run.error["traceback"].encode()) <= 3_000
    with declared(give_back) as performer:
        waiting = performer.later()
        waiting.cancel("é" * 10_000_000)
    assert len(waiting.errors[-1]["reason"].encode()) <= 1_000


# -- O41


def test_o41_a_job_that_saves_its_instance_keeps_what_changed_meanwhile() -> None:
    group = Group.objects.create(name="old")

    def body(found: Group) -> str:
        found.save()
        return found.name

    with declared(body) as performer:
        queued = performer.later(group)
        Group.objects.update(name="new")
        assert work(queued).result == "new"
    assert Group.objects.get().name == "new"
    assert queued.args == [{"$model": {"label": "auth.Group", "pk": group.pk, "alias": "default"}}]


def test_o41_an_instance_that_is_gone_makes_the_job_give_up() -> None:
    group = Group.objects.create(name="old")
    with declared(give_back) as performer:
        queued = performer.later([group])
        Group.objects.all().delete()
        run = work(queued)
    assert (run.job.state, run.error["kind"]) == ("FAILED", "gave_up")


def test_o41_an_unsaved_instance_is_refused_when_queued() -> None:
    assert "args[0].customer: " in refusal({"customer": Group(name="new")})


# -- O43


@pytest.fixture
def ids_above_31_bits() -> None:
    first = 2**31 + 5
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("select setval(pg_get_serial_sequence('django_jobs_job', 'id'), %s, false)", [first])
        else:
            cursor.execute("delete from sqlite_sequence where name = 'django_jobs_job'")
            cursor.execute("insert into sqlite_sequence (name, seq) values ('django_jobs_job', %s)", [first - 1])


def test_o43_ids_above_31_bits_work_everywhere(ids_above_31_bits: None, frozen: FrozenClock) -> None:
    with declared(give_back, **POLICY, keep="1h") as performer:
        one, two = performer.later(1), performer.later(2)
        three, four = performer.later_many([(3,), (4,)])
        assert [one.pk, two.pk, three.id, four.id] == [2**31 + 5, 2**31 + 6, 2**31 + 7, 2**31 + 8]
        assert work(one).result == [(1,), {}]
        two.cancel()
        two.retry()
        assert work(two).result == [(2,), {}]
        Job.objects.get(pk=three.id).delete()
        [five] = enqueue([performer.prepare(5)])
    assert list(Job.objects.before(five.id).values_list("pk", flat=True)) == [four.id, two.pk, one.pk]
    frozen.advance(timedelta(hours=1))
    assert Job.objects.prune() == 2
    assert set(Job.objects.values_list("pk", flat=True)) == {four.id, five.id}


# -- O44


def test_o44_what_a_worker_could_not_import_is_refused_when_declared() -> None:
    def nested() -> None:
        pass

    class Shop:
        def method(self) -> None:
            pass

    def in_main() -> None:
        pass

    in_main.__module__, in_main.__qualname__ = "__main__", "in_main"
    for function, words in (
        (lambda: None, "lambda"), (nested, "function within a function"), (Shop.method, "method"),
        (Shop().method, "method"), (in_main, "__main__"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=words):
            job(function)


def test_o44_an_import_that_fails_at_run_time_fails_that_job_alone() -> None:
    def body() -> None:
        from tests.faults import raises_when_imported  # noqa: F401

    run = perform(body)
    assert (run.job.state, run.error["exception"], run.reason) == (
        "READY",
        "builtins.ZeroDivisionError",
        "division by zero",
    )
    assert perform(give_back).job.state == "SUCCESSFUL"
