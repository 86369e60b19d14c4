"""Jobs that would take their worker along."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest

from django_jobs.models import Job
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.performing import as_async, perform


class HomeMade(BaseException):
    pass


def leave() -> NoReturn:
    sys.exit()


def leave_with_0() -> NoReturn:
    sys.exit(0)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def end_a_generator() -> NoReturn:
    raise GeneratorExit


def raise_what_is_home_made() -> NoReturn:
    raise HomeMade


POISON = [leave, leave_with_0, interrupt, end_a_generator, raise_what_is_home_made]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("form", [lambda function: function, as_async], ids=["sync", "async"])
def test_o12_what_leaves_a_process_ends_its_job_alone_and_the_worker_keeps_its_slots(form: Any) -> None:
    with ExitStack() as stack:
        for body in POISON:
            stack.enter_context(declared(form(body), max_attempts=1)).later_many([()] * 3)
        stack.enter_context(declared(form(do_nothing))).later_many([()] * 10)
        assert Process(Plan(alias="default", concurrency=2, drain=True)).run() == 0
    ends = dict(Job.objects.counts()["default"])
    assert (ends["FAILED"], ends["SUCCESSFUL"]) == (15, 10)
    failed = {job.name.rpartition(".")[2]: job.errors[-1]["exception"] for job in Job.objects.failed()}
    assert failed == {
        "leave": "builtins.SystemExit",
        "leave_with_0": "builtins.SystemExit",
        "interrupt": "builtins.KeyboardInterrupt",
        "end_a_generator": "builtins.GeneratorExit",
        "raise_what_is_home_made": "tests.faults.test_poison.HomeMade",
    }


@pytest.mark.django_db(transaction=True)
def test_o12_an_exit_in_a_child_task_ends_its_job_alone() -> None:
    async def leave_in_a_task() -> None:
        await asyncio.create_task(as_async(leave)())

    with declared(leave_in_a_task, max_attempts=1) as poison, declared(as_async(do_nothing)) as good:
        poison.later()
        good.later_many([()] * 3)
        assert Process(Plan(alias="default", concurrency=2, drain=True)).run() == 0
    ends = dict(Job.objects.counts()["default"])
    assert (ends["FAILED"], ends["SUCCESSFUL"]) == (1, 3)


def do_nothing() -> None:
    pass


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


def run_out_of_memory() -> NoReturn:
    raise MemoryError


def raise_a_long_chain() -> NoReturn:
    error: Exception | None = None
    for number in range(10_000):
        following = ValueError(number)
        following.__cause__ = error
        error = following
    assert error is not None
    raise error


def raise_five_megabytes() -> NoReturn:
    raise ValueError("x" * 5_000_000)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "beginning"),
    [
        (recurse, "maximum recursion depth exceeded"),
        (run_out_of_memory, "MemoryError"),
        (raise_a_long_chain, "9999"),
        (raise_five_megabytes, "xxxxxxxxxx"),
    ],
)
def test_o13_what_breaks_a_formatter_is_stored_as_a_bounded_text(body: Callable[[], object], beginning: str) -> None:
    run = perform(body)
    assert (run.job.state, run.job.attempts) == ("READY", 1)
    assert run.reason.startswith(beginning)
    assert run.error["traceback"]
    assert len(repr(run.error)) < 4_000
    assert perform(do_nothing).job.state == "SUCCESSFUL"
