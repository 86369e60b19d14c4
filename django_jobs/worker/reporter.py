"""Drive: write how far bodies are, at most twice a second each; a body itself only notes it, and waits for nobody.

What a body notes while it runs goes by a connection of the reporter's own, so that others see it at once whatever
transaction the body is in. What was noted last and isn't written when the body ends goes by the connection that settles
the end, just before that. An error, or a row that somebody locks, loses progress and never a job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Protocol

from django.db import DatabaseError, InterfaceError

from django_jobs import clock, lifecycle, signals
from django_jobs.lifecycle import Run
from django_jobs.outcomes import Committed
from django_jobs.progress import Progress
from django_jobs.records import Claim, Lease
from django_jobs.worker.link import Link, is_away
from django_jobs.worker.seat import Seats

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

INTERVAL = 0.5
"""Seconds between two writes of what a body notes."""

IDLE = 10.0
"""Seconds without anything to write after which the connection is given back."""

LONGEST_WAIT = 1.0
"""Seconds that the last value of a body waits for a write that is under way, which may hold an older one."""


class Reporting(Protocol):
    """Takes notes from bodies, and has them written."""

    def note(self, claim: Claim, progress: Progress) -> None:
        """Take note of how far a body is."""

    def end(self, lease: Lease) -> None:
        """Take note that a body has ended."""

    def write_last(self, connection: BaseDatabaseWrapper, runs: Iterable[Run]) -> None:
        """Write what is unwritten of bodies whose ends are about to be settled."""


class Reporter:
    """Writes what the bodies of a worker note, by a loop that calls `tick`."""

    def __init__(self, *, link: Link, seats: Seats) -> None:
        self._link = link
        self._seats = seats
        # Each step on these is one that no other thread comes in between, and that no interruption breaks: bodies write
        # into the first, the threads that end them move from there to the last.
        self._noted: dict[Lease, Progress] = {}
        self._written: dict[Lease, Progress] = {}
        self._last: dict[Lease, Progress] = {}
        self._writing = Lock()
        self._used_at = 0.0

    def note(self, claim: Claim, progress: Progress) -> None:
        """Keep the value for the next tick. For any thread or task, also one that is interrupted in here."""
        self._noted[claim.lease] = progress

    def tick(self) -> float:
        """Write what is new, and give the seconds until the next tick."""
        with self._writing:
            if unwritten := self._unwritten():
                with self._link.connected() as connection:
                    written = _written(connection, unwritten)
                for lease in written:
                    self._written[lease] = unwritten[lease]
                self._used_at = clock.monotonic()
        if clock.monotonic() >= self._used_at + IDLE:
            self._link.close()
        return INTERVAL

    def _unwritten(self) -> dict[Lease, Progress]:
        """Give what running bodies have noted since it was last written."""
        noted, running = self._noted.copy(), set(self._seats)
        for lease in noted.keys() - running:
            # By a thread that has outlived its body. One that has just ended was moved before it left its seat.
            self._noted.pop(lease, None)
        self._written = {lease: value for lease, value in self._written.items() if lease in running}
        return {
            lease: value for lease, value in noted.items() if lease in running and value is not self._written.get(lease)
        }

    def end(self, lease: Lease) -> None:
        """Set the last value of a body aside for `write_last`; called before it leaves its seat."""
        if not self._noted:
            return
        value = self._noted.pop(lease, None)
        if value is not None and value is not self._written.get(lease):
            self._last[lease] = value

    def write_last(self, connection: BaseDatabaseWrapper, runs: Iterable[Run]) -> None:
        """Write what was set aside of these runs; raises only where the database is away, and keeps it then.

        The end of an atomic job that is committed was written with it.
        """
        if not self._last:
            return
        last = {claim.lease: self._last[claim.lease] for claim, ending in runs if _is_wanted(ending, claim, self._last)}
        if not last:
            return
        if self._writing.acquire(timeout=LONGEST_WAIT):
            self._writing.release()
        _write(connection, last, patient=True)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Drop what was set aside of runs whose ends are written."""
        if self._last:
            for lease in leases:
                self._last.pop(lease, None)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class Direct:
    """Writes what the one body notes that runs in the calling thread, within the transaction of its caller.

    No other connection would see its row. What is noted in another thread, or by an async body, is written at the end.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._thread = get_ident()
        self._next = 0.0
        self._last: dict[Lease, Progress] = {}

    def note(self, claim: Claim, progress: Progress) -> None:
        """Keep the value, and write it unless one was written less than half a second ago."""
        self._last[claim.lease] = progress
        if get_ident() != self._thread or self._connection.needs_rollback or clock.monotonic() < self._next:
            return
        self._next = clock.monotonic() + INTERVAL
        with suppress(DatabaseError, InterfaceError):
            _write(self._connection, {claim.lease: progress})

    def end(self, lease: Lease) -> None:
        """Do nothing: there is only one."""

    def write_last(self, connection: BaseDatabaseWrapper, runs: Iterable[Run]) -> None:
        """Write the last value, though it may have been: what the body wrote in a block of its own may be undone."""
        last = {claim.lease: self._last[claim.lease] for claim, ending in runs if _is_wanted(ending, claim, self._last)}
        if last:
            _write(connection, last)


def _written(connection: BaseDatabaseWrapper, noted: dict[Lease, Progress]) -> Iterable[Lease]:
    """Write values, one refused or not, each; and give the leases that needn't be tried again."""
    try:
        return lifecycle.report(connection, noted)
    except (DatabaseError, InterfaceError) as error:
        if is_away(error):
            raise
    for lease, value in noted.items():
        _write(connection, {lease: value})
    return noted


def _is_wanted(ending: object, claim: Claim, last: dict[Lease, Progress]) -> bool:
    return claim.lease in last and not isinstance(ending, Committed)


def _write(connection: BaseDatabaseWrapper, last: dict[Lease, Progress], *, patient: bool = False) -> None:
    try:
        lifecycle.report(connection, last, patient=patient)
    except (DatabaseError, InterfaceError) as error:
        if is_away(error):
            raise
        ids = ", ".join(str(lease.id) for lease in last)
        message = f"the progress of jobs {ids} can't be written, and is left: {error!r}"
        signals.tell(signals.odd, None, message=message, exception=error, level=logging.WARNING)
