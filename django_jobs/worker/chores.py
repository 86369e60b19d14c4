"""Drive: what any worker does for all: reclaim, expire, prune. A table of duties and intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs import clock, lifecycle
from django_jobs.conf import settings
from django_jobs.worker.link import Link
from django_jobs.worker.reclaimer import INTERVAL, Reclaimer

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Something to be done every `interval` seconds. It says how much it found to do.

    A duty that judges others by time holds off for `hold` seconds after the start and after an error: leases that
    lapsed while the database was away belong to workers that are about to renew them.
    """

    name: str
    interval: float
    do: Callable[[BaseDatabaseWrapper], int]
    hold: float = 0.0


def duties() -> tuple[Duty, ...]:
    """Give the duties of a worker; reclaim looks at least once in a quarter of a lease."""
    quarter = settings().lease.total_seconds() / 4
    return (
        Duty(name="reclaim", interval=min(INTERVAL, quarter), do=Reclaimer().look, hold=quarter),
        Duty(name="expire", interval=20.0, do=lifecycle.expire),
        Duty(name="prune", interval=3600.0, do=lifecycle.prune),
        Duty(name="sweep", interval=600.0, do=lifecycle.sweep),
    )


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
            self._due[duty.name] = clock.monotonic() + duty.interval
            try:
                with self._link.connected() as connection:
                    duty.do(connection)
            except Exception as error:  # noqa: BLE001 - told below, when the others are done
                errors.append(error)
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
