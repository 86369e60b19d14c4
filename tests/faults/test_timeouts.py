"""Jobs that take longer than they may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from django_jobs import backoff
from django_jobs.models import Job
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared

FAR_TOO_LONG = 30.0

runs: list[float] = []


def too_long() -> None:
    runs.append(time.monotonic())
    while time.monotonic() < runs[-1] + FAR_TOO_LONG:
        time.sleep(0.01)


async def too_long_async() -> None:
    runs.append(time.monotonic())
    await asyncio.sleep(FAR_TOO_LONG)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("body", [too_long, too_long_async])
def test_o19_a_job_that_always_takes_too_long_has_its_attempts_and_then_fails(body: Callable[[], Any]) -> None:
    runs.clear()
    with declared(body, max_attempts=2, timeout=0.2, backoff=backoff.fixed(0)) as performer:
        job = performer.later()
        assert Process(Plan(alias="default", concurrency=1, drain=True)).run() == 0
        # Nothing is left that another worker would take up.
        assert Process(Plan(alias="default", concurrency=1, drain=True)).run() == 0
    row = Job.objects.get(pk=job.pk)
    assert (len(runs), row.state, row.attempts, row.crashes) == (2, "FAILED", 2, 0)
    assert [(entry["attempt"], entry["kind"]) for entry in row.errors] == [(1, "timeout"), (2, "timeout")]
