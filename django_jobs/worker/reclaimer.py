"""Drive: take back what lapsed, but only where the clocks and the server can be trusted to judge others by time.

A lease may be over though its keeper lives: while somebody locked the row, while the server was restarting, or since
the database's clock was set. So a row is taken back at the second look that finds it lapsed and free, and after a
restart, or when the database's clock and ours have drifted apart, everybody has a quarter of a lease to renew first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django_jobs import clock, lifecycle, signals
from django_jobs.conf import settings
from django_jobs.records import Lease, Pulse

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

INTERVAL = 2.5
"""Seconds between two looks at the most; a keeper renews what somebody locked within a fraction of that."""


class Reclaimer:
    """Remembers the last look: what was lapsed then, how the clocks stood, and which server that was."""

    def __init__(self) -> None:
        self._seen: set[Lease] = set()
        self._pulse: Pulse | None = None
        self._began = self._ended = 0.0
        self._not_before = 0.0

    def look(self, connection: BaseDatabaseWrapper) -> int:
        """Take back what was lapsed and free at the last look, too, and say how many jobs that were."""
        lapsed = lifecycle.lapsed(connection)
        if (lapsed or self._pulse is None) and (doubt := self._doubt(connection)):
            quarter = settings().lease.total_seconds() / 4
            self._not_before = clock.monotonic() + quarter
            message = f"{doubt}: nothing is reclaimed for {quarter:g} s, so that those who live can renew"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
        if clock.monotonic() < self._not_before:
            lapsed = set()
        again, self._seen = lapsed & self._seen, lapsed
        return lifecycle.reclaim(connection, only=again) if again else 0

    def _doubt(self, connection: BaseDatabaseWrapper) -> str:
        """Compare server and clocks with those of the last time, and say what is wrong; '' for nothing."""
        began = clock.monotonic()
        pulse, before = lifecycle.pulse(connection), self._pulse
        ended = clock.monotonic()
        # The server read its clock at some moment between these two.
        least, most = began - self._ended, ended - self._began
        self._pulse, self._began, self._ended = pulse, began, ended
        if before is None:
            return ""
        if pulse.server_start != before.server_start:
            return "the database server was restarted, or is another one"
        passed, bearable = (pulse.now - before.now).total_seconds(), settings().lease.total_seconds() / 8
        if least - bearable <= passed <= most + bearable:
            return ""
        return f"the database's clock went {passed:.1f} s while {most:.1f} s passed here"
