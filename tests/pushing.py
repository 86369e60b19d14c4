"""Short ways to rows of the low level, on the connection of the test."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_jobs import lifecycle
from django_jobs.records import TakenRow
from django_jobs.stores import pushed, store_for
from tests.factories import new_job, seconds


def push_row(queue: str = "mail", **changes: Any) -> int:
    """Push a row and give its id."""
    job = new_job(**{"name": "", "queue": queue, "keep": None, "keep_failed": None, "timeout": None, **changes})
    return lifecycle.push(job, using="default")


def take_row(queue: str = "mail", *, lease: float = 60, token: int = 7) -> TakenRow | None:
    """Take a row as the store does, without bringing any back."""
    return pushed.take(
        store_for("default"),
        connections["default"],
        queue,
        token=token,
        lease=seconds(lease),
        consumer="web1:41",
    )


def taken_row(queue: str = "mail", *, lease: float = 60, token: int = 7, **changes: Any) -> TakenRow:
    """Push a row and take it."""
    row_id = push_row(queue, **changes)
    row = take_row(queue, lease=lease, token=token)
    assert row is not None
    assert row.lease.id == row_id
    return row
