"""Run a function of a test as a job: declared, queued as a row, worked once, read back."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_jobs import backoff, codec, work_one
from django_jobs.models import Job
from django_jobs.outcomes import Outcome
from tests.declaring import declared

POLICY: dict[str, Any] = {"max_attempts": 3, "backoff": backoff.fixed(10)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run came to, and its row thereafter."""

    outcome: Outcome
    job: Job

    @property
    def error(self) -> dict[str, Any]:
        """The newest entry of the row's errors."""
        entry: dict[str, Any] = self.job.errors[-1]
        return entry

    @property
    def reason(self) -> str:
        return str(self.error["reason"])

    @property
    def result(self) -> object:
        return codec.decode(json.dumps(self.job.result))


def perform(function: Callable[..., Any], *args: Any, policy: dict[str, Any] | None = None, **kwargs: Any) -> Run:
    """Declare the function, queue one job for it with these arguments, and work on it."""
    with declared(function, **{**POLICY, **(policy or {})}) as performer:
        return work(performer.later(*args, **kwargs))


def work(job: Job) -> Run:
    """Work once, on this job."""
    outcome = work_one(job.queue)
    assert outcome is not None
    return Run(outcome=outcome, job=Job.objects.get(pk=job.pk))


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an async function that does the same."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper
