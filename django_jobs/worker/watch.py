"""Drive: a worker's eye on its own board: interrupts bodies, and ends a process that can't confirm its leases.

It acts when a deadline has passed, when the board says that a job was cancelled or taken away, and when the leases have
not been confirmed for three quarters of their time, or nobody is there to confirm them.
"""

from __future__ import annotations

import faulthandler
from threading import Event

from django_jobs import clock
from django_jobs.exceptions import Interruption, JobCancelled, JobLost, JobTimeout
from django_jobs.worker.board import Board, Entry, Flag
from django_jobs.worker.seat import Seats

LONGEST_LOOK_AWAY = 0.2
"""Seconds between two looks at the board while a body runs."""

IDLE_LOOK_AWAY = 1.0


class Watch:
    """Looks at the board, again and again, from the worker's side."""

    def __init__(self, *, board: Board, seats: Seats, lease: float, ends_itself: bool) -> None:
        self._board = board
        self._seats = seats
        self._lease = lease
        self._ends_itself = ends_itself
        self._is_armed = False
        self._everything_is_lost = Event()

    def lose_everything(self) -> None:
        """Interrupt every body from now on: the supervisor is gone, or this process must stop at once."""
        self._everything_is_lost.set()

    @property
    def may_claim(self) -> bool:
        """Whether the leases are confirmed well enough to take on more."""
        return not self._everything_is_lost.is_set() and self._left() > self._lease / 4

    def tick(self) -> float:
        """Look once, and give the seconds until the next look."""
        self._board.beat()
        entries = self._board.entries()
        if self._ends_itself:
            self._arm(entries)
        running = [entry for entry in entries if entry.is_running]
        for entry in running:
            if (kind := self._due(entry)) is not None:
                self._seats.interrupt(entry.lease, kind)
        if not running:
            return IDLE_LOOK_AWAY if self.may_claim and not self._is_armed else LONGEST_LOOK_AWAY
        now = clock.monotonic()
        nearest = min((entry.deadline - now for entry in running if entry.deadline > now), default=LONGEST_LOOK_AWAY)
        return max(0.001, min(LONGEST_LOOK_AWAY, nearest))

    def disarm(self) -> None:
        """Let the process live: all is written."""
        if self._is_armed:
            faulthandler.cancel_dump_traceback_later()
            self._is_armed = False

    def _left(self) -> float:
        return self._board.confirmed_until - clock.monotonic()

    def _due(self, entry: Entry) -> type[Interruption] | None:
        if Flag.LOST in entry.flags or not self.may_claim:
            return JobLost
        if Flag.CANCELLED in entry.flags:
            return JobCancelled
        return JobTimeout if entry.deadline and clock.monotonic() >= entry.deadline else None

    def _arm(self, entries: list[Entry]) -> None:
        """Have the process end at seven eighths of an unconfirmed lease, whatever holds the interpreter then.

        The timer is a thread in C that needs no interpreter lock. It runs only while confirmations are missing: a body
        that holds the lock keeps us from putting it off. It doesn't run when no body is there, nor may begin any more:
        what has ended waits to be written, and would run again if the process took that with it.
        """
        left = self._left()
        is_over = not self.may_claim and all(entry.ended for entry in entries)
        if left > self._lease / 2 or is_over:
            self.disarm()
            return
        faulthandler.dump_traceback_later(max(0.01, left - self._lease / 8), exit=True)
        self._is_armed = True
