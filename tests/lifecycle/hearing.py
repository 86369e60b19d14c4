"""What the tests of lifecycle share: signals as values, and short ways to settle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.outcomes import Outcome, Succeeded
from django_jobs.records import Claim
from tests.factories import run_job


@dataclass
class Heard:
    """A signal that was sent."""

    signal: str
    sender: object
    said: dict[str, Any]


def words(heard: list[Heard]) -> list[str]:
    """Give the names of the signals alone."""
    return [one.signal for one in heard]


def connection() -> BaseDatabaseWrapper:
    """Give the connection of the test."""
    return connections["default"]


def settle(claim: Claim, outcome: Outcome) -> list[tuple[Claim, Outcome]]:
    """Settle one run."""
    return lifecycle.settle(connection(), [(claim, outcome)])


def ended(count: int) -> list[int]:
    """Give the ids of so many jobs that have succeeded."""
    claims = [run_job(keep=1.0) for _ in range(count)]
    lifecycle.settle(connection(), [(claim, Succeeded()) for claim in claims])
    return [claim.id for claim in claims]
