"""Drive: see when jobs fall due, and wake the crews: one look for all workers of a command, however many there are.

Crews hear of new jobs through the listener. The lookout wakes them for what was queued for later, for what nobody told
of, and for everything where the database isn't heard.
"""

from __future__ import annotations

from collections.abc import Callable

from django_jobs import clock, lifecycle
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan

POLL, POLL_WHILE_HEARING = 1.0, 5.0
"""Seconds between two looks for jobs that nobody told of."""

SOONEST = 0.1
"""Seconds between two looks at the least."""


class Lookout:
    """Looks again and again whether any job of the plan's queues is due; calls `wake` when one is."""

    def __init__(self, *, link: Link, plan: Plan, wake: Callable[[], None]) -> None:
        self._link = link
        self._plan = plan
        self._wake = wake
        self._is_hearing = False
        self._looked_at = -SOONEST
        self._patience = SOONEST

    def hear(self, *, is_hearing: bool) -> None:
        """Say whether new jobs are told of, so that looks may be rarer."""
        self._is_hearing = is_hearing

    def tick(self) -> float:
        """Look once, and give the seconds until the next look."""
        now = clock.monotonic()
        if now < self._looked_at + SOONEST:
            return self._looked_at + SOONEST - now
        with self._link.connected() as connection:
            due = lifecycle.next_due(connection, self._plan.request(limit=1, in_hand={}, last_queue=""))
        # Only now: a round that asks nothing would pass for one that the database answered.
        self._looked_at = now
        delay = self._interval if due.later is None else min(self._interval, max(SOONEST, due.later))
        if not due.now:
            self._patience = SOONEST
            return delay
        self._wake()
        # What stays due is locked, or waits for room: look whether it went, and ever more seldom.
        self._patience = min(self._patience * 2, self._interval)
        return min(self._patience, delay)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    @property
    def _interval(self) -> float:
        if self._plan.poll is not None:
            return self._plan.poll
        return POLL_WHILE_HEARING if self._is_hearing else POLL
