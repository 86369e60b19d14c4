"""Small helpers shared by the suites: values with sensible defaults, and short ways to a row and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.records import Claim, Claimed, ClaimRequest, Draft, Failure, NewJob
from django_jobs.stores import store_for
from django_jobs.transitions import Place

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""Where the fixture `frozen` stands."""

DAY = 86_400


def seconds(count: float) -> timedelta:
    """Give a duration."""
    return timedelta(seconds=count)


def new_job(**changes: Any) -> NewJob:
    """Give a job to be queued."""
    defaults: dict[str, Any] = {
        "name": "shop.greet",
        "queue": "default",
        "priority": 0,
        "max_attempts": 3,
        "max_crashes": 3,
        "restart": True,
        "timeout": 300.0,
        "keep": 1.0 * DAY,
        "keep_failed": 14.0 * DAY,
    }
    args, kwargs = changes.pop("args", "[1]"), changes.pop("kwargs", "{}")
    return NewJob(Draft(**{**defaults, **changes}), args, kwargs)


def request(**changes: Any) -> ClaimRequest:
    """Give what a worker asks for."""
    defaults: dict[str, Any] = {"worker": "worker-1", "limit": 10, "lease": seconds(60), "grace": seconds(5)}
    return ClaimRequest(**{**defaults, **changes})


def failure(**changes: Any) -> Failure:
    """Give why an attempt failed."""
    defaults: dict[str, Any] = {"kind": "error", "reason": "no such customer", "exception": "builtins.ValueError"}
    return Failure(**{**defaults, **changes})


def queue_job(**changes: Any) -> int:
    """Insert a job and give its id."""
    return store_for("default").insert(connections["default"], new_job(**changes)).id


def queue_jobs(count: int, **changes: Any) -> list[int]:
    """Insert equal jobs and give their ids."""
    return [queue_job(**changes) for _ in range(count)]


def take(**changes: Any) -> Claimed:
    """Claim by way of lifecycle."""
    return lifecycle.claim(connections["default"], request(**changes))


def claim_one(**changes: Any) -> Claim:
    """Claim exactly one job."""
    [claim] = take(**{"limit": 1, **changes}).claims
    return claim


def run_job(**changes: Any) -> Claim:
    """Insert a job in a queue of its own and claim it."""
    job_id = queue_job(**{"queue": "aside", **changes})
    claim = claim_one(queues=(changes.get("queue", "aside"),))
    assert claim.id == job_id
    return claim


def read(job_id: int) -> Job:
    """Read a row back."""
    return Job.objects.get(pk=job_id)


def place_of(job_id: int) -> Place:
    """Say where a job is."""
    row = Job.objects.filter(pk=job_id).values_list("state", "worker").first()
    if row is None:
        return Place.ABSENT
    state, worker = row
    return Place.STOPPING if state == "CANCELLED" and worker is not None else Place(state)


def write(job_id: int, **columns: Any) -> None:
    """Write columns of a row past every verb."""
    assert Job.objects.filter(pk=job_id).update(**columns) == 1


def turn_round(ids: list[int]) -> None:
    """Have rows lie in their table the other way round, where the database writes each change to a new place."""
    for job_id in reversed(ids):
        write(job_id, priority=1)


@contextmanager
def another_connection() -> Iterator[BaseDatabaseWrapper]:
    """Open a second connection to the database of the test."""
    other = connections["default"].copy()
    try:
        yield other
    finally:
        other.close()


@contextmanager
def locked(job_id: int, how: str = "update") -> Iterator[None]:
    """Hold a row's lock in somebody else's open transaction; what waits for it fails within half a second.

    With "key share" it is the lock of one who has just written a row that refers to the job.
    """
    with another_connection() as other, connections["default"].cursor() as mine:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = %s for {how}', [job_id])
        mine.execute("set lock_timeout = '500ms'")
        yield
        mine.execute("reset lock_timeout")
        other.rollback()
