"""Drive: what any worker does for all: reclaim, expire, prune, fire. A table of duties and intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs import clock, lifecycle, schedules, signals
from django_jobs.conf import settings
from django_jobs.worker.link import Link
from django_jobs.worker.reclaimer import INTERVAL, Reclaimer

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


TOLD_AT_ONCE = 100_000
"""After so many pruned jobs that is told, though there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something to be done every `interval` seconds. It says how much it found to do.

    Where it can say when it has something to do next, `pause` gives the seconds until then, in place of the interval.
    Where it finds `full`, there may be more: it comes again when the others have had their turn. A duty that judges
    others by time holds off for `hold` seconds after the start and after an error: leases that lapsed while the
    database was away belong to workers that are about to renew them.
    """

    name: str
    interval: float
    do: Callable[[BaseDatabaseWrapper], int]
    full: int | None = None
    hold: float = 0.0
    pause: Callable[[], float] | None = None


def duties() -> tuple[Duty, ...]:
    """Give the duties of a worker; reclaim looks at least once in a quarter of a lease."""
    quarter = settings().lease.total_seconds() / 4
    firing = Firing()
    return (
        Duty(name="reclaim", interval=min(INTERVAL, quarter), do=Reclaimer().look, hold=quarter),
        Duty(name="fire", interval=schedules.LONGEST_SLEEP, do=firing.look, pause=firing.pause),
        Duty(name="expire", interval=20.0, do=lifecycle.expire, full=lifecycle.CHUNK),
        Duty(name="prune", interval=3600.0, do=Pruner().go_on, full=lifecycle.CHUNK),
        Duty(name="sweep", interval=600.0, do=lifecycle.sweep),
    )


SOON = 1.0
"""Seconds after which a duty comes again that failed, and would have said itself when."""

DECLARE_INTERVAL, CHECK_INTERVAL = 30.0, 60.0
"""Seconds after which a release that waits for another one to go looks again whether it has, and after which one that
counts looks whether it still does: another may have come since, and have been taken back."""


class Firing:
    """Fires what is due, and has the rows be as this process' code says as soon as that counts."""

    def __init__(self) -> None:
        self._code = schedules.code_set()
        self._is_declared = False
        self._declare_at = 0.0
        self._pause = 0.0

    def look(self, connection: BaseDatabaseWrapper) -> int:
        """Queue the jobs of ticks that are due, and say how many."""
        if clock.monotonic() >= self._declare_at:
            did_count = self._is_declared
            if not (did_count and schedules.counts(connection, self._code)):
                self._is_declared = schedules.declare(connection, self._code)
            if did_count and not self._is_declared and self._code.schedules:
                self._tell_of_another()
            self._declare_at = clock.monotonic() + (CHECK_INTERVAL if self._is_declared else DECLARE_INTERVAL)
        fired, self._pause = schedules.fire_due(connection)
        return fired

    def _tell_of_another(self) -> None:
        """Say that what this code declares is no longer what counts: in a deploy that is as it should be."""
        message = (
            f"another release of {self._code.owner or 'this project'} declares other schedules, and these count now; "
            "where it is another project, give each a name by the setting DJANGO_JOBS['OWNER']"
        )
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)

    def pause(self) -> float:
        """Give the seconds until the next tick, and not too many: a schedule may be added."""
        return self._pause


class Pruner:
    """Deletes a round at a time: no backlog keeps anybody from anything, and each can be left at any time."""

    def __init__(self) -> None:
        self._after: int | None = None
        self._untold = 0

    def go_on(self, connection: BaseDatabaseWrapper) -> int:
        """Delete one round, and say how many jobs it found. Tells of many rounds at once."""
        pruned = lifecycle.prune_round(connection, after=self._after)
        is_over = pruned.found < lifecycle.CHUNK
        self._after = None if is_over else pruned.after
        self._untold += pruned.gone
        if is_over or self._untold >= TOLD_AT_ONCE:
            lifecycle.tell_of_pruned(self._untold)
            self._untold = 0
        return pruned.found


class Chores:
    """Does each duty when its time has come; one that fails doesn't keep the others from theirs."""

    def __init__(self, *, link: Link, duties: tuple[Duty, ...]) -> None:
        self._link = link
        self._duties = duties
        self._due = {duty.name: clock.monotonic() + duty.hold for duty in duties}
        self._is_shaken = False

    def tick(self) -> float:
        """Do what is due, and give the seconds until the next duty. Raises a duty's error after all had a go."""
        if self._is_shaken:
            # A round in which nothing is due would pass for one that the database answered.
            with self._link.connected() as connection:
                lifecycle.pulse(connection)
            self._is_shaken = False
        errors: list[Exception] = []
        for duty in self._duties:
            if clock.monotonic() < self._due[duty.name]:
                continue
            began = clock.monotonic()
            self._due[duty.name] = began + duty.interval
            try:
                with self._link.connected() as connection:
                    found = duty.do(connection)
            except Exception as error:  # noqa: BLE001 - told below, when the others are done
                errors.append(error)
                if duty.pause is not None:
                    # Nobody knows how soon there would have been something to do.
                    self._due[duty.name] = clock.monotonic() + SOON
                continue
            if duty.pause is not None:
                self._due[duty.name] = clock.monotonic() + duty.pause()
            if duty.full is not None and found >= duty.full:
                # Meanwhile the database is left to the others for as long as this took.
                now = clock.monotonic()
                self._due[duty.name] = now + (now - began)
        if errors:
            self._is_shaken = True
            self._hold_off()
            raise errors[0]
        return max(0.0, min(self._due.values()) - clock.monotonic())

    def _hold_off(self) -> None:
        for duty in self._duties:
            self._due[duty.name] = max(self._due[duty.name], clock.monotonic() + duty.hold)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
