"""Front door: schedules in the virtual time of tests. Fires as a worker's chore does, on the test's own connection."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import connections

from django_jobs import reports, schedules
from django_jobs.conf import settings

if TYPE_CHECKING:
    from django_jobs.models import Schedule
    from django_jobs.records import ScheduleRow


class Ticking:
    """The schedules of the code and of rows, or only those for performers of these names and for this queue."""

    def __init__(self, *, names: Collection[str] | None, queue: str | None) -> None:
        self._names = names
        self._queue = queue

    def begin(self) -> None:
        """Have the rows be as the code says."""
        code = schedules.code_set()
        if code.schedules:
            schedules.declare(connections[settings().database], code)

    def fire(self) -> int:
        """Queue the jobs of ticks that are due by the clock as it stands, and say how many."""
        count = 0
        # Each look is at so many schedules at the most.
        while found := schedules.fire_due(connections[settings().database], only=self._is_meant)[0]:
            count += found
        return count

    def next_after(self, now: datetime, end: datetime) -> datetime | None:
        """Give the next tick after a moment and up to another. What is new, or was enabled, is among them."""
        self.fire()
        model: type[Schedule] = apps.get_model("django_jobs", "Schedule")
        later = model.objects.using(settings().database).filter(enabled=True, removed=False)
        later = later.filter(next_at__gt=now, next_at__lte=end).order_by("next_at")
        return next((row.next_at for row in later.iterator() if self._is_meant(row)), None)

    def _is_meant(self, row: ScheduleRow | Schedule) -> bool:
        if self._names is not None and row.performer not in self._names:
            return False
        return self._queue is None or reports.queue_of(row.queue, row.performer) == self._queue
