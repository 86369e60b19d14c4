"""The jobs that are measured. Each notes its number and does next to nothing."""

from __future__ import annotations

import time

from django_jobs import job
from tests.benchmarks import notes


@job
def noop(number: int) -> None:
    notes.own().begin(number)


@job
def lasting(number: int, seconds: float) -> None:
    """Take its time, waiting."""
    notes.own().begin(number)
    time.sleep(seconds)
    notes.own().end(number)
