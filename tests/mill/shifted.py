"""A host whose clock is wrong, for one process: what Python says of the time of day is so many seconds off.

Durations aren't: no system lets its monotonic clock be set.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, tzinfo

from django.utils import timezone

from django_jobs import clock


def shift(seconds: float) -> None:
    """Move the time of day, as our code, Django, logging and `time.time` see it."""
    delta = timedelta(seconds=seconds)

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + delta

    clock.datetime = timezone.datetime = Shifted  # type: ignore[attr-defined]
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1_000_000_000)
