"""Drive: renew the leases of what the boards hold, each quarter of a lease; flag what was cancelled or taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django_jobs import clock, lifecycle
from django_jobs.conf import settings
from django_jobs.records import Lease
from django_jobs.states import State
from django_jobs.worker.board import Board, Entry, Flag
from django_jobs.worker.link import Link

RENEWALS = 4
"""So many times a lease is renewed before it would be over."""

CANCEL_INTERVAL = 1.0
"""Seconds between two looks for cancelled jobs, while any run."""

LOCKED_INTERVAL = 0.2
"""Seconds until a lease whose row somebody locks is renewed again: when the row is free, before anybody reclaims it."""


class Keeper:
    """Keeps exactly the leases that stand on the boards of this host's workers.

    With `leaves_stuck` that of a body which doesn't stop is left to run out: where nobody kills the process, others
    would never get the job.
    """

    def __init__(self, *, boards: Callable[[], Iterable[Board]], link: Link, leaves_stuck: bool = False) -> None:
        self._boards = boards
        self._link = link
        self._leaves_stuck = leaves_stuck
        self._renew_at = 0.0
        self.renewed_at = 0.0
        """When everything was last renewed."""
        self._locked: set[Lease] = set()

    @property
    def interval(self) -> float:
        """Seconds between renewals."""
        return settings().lease.total_seconds() / RENEWALS

    def tick(self) -> float:
        """Renew what is due to be renewed, look for cancelled jobs, and give the seconds until the next tick."""
        now = clock.monotonic()
        boards = list(self._boards())
        if now >= self._renew_at:
            self._renew(boards)
            for board in boards:
                # Counted from before the statement: the database's clock may have read any moment since.
                board.confirm(now + settings().lease.total_seconds())
            self._renew_at = now + self.interval
            self.renewed_at = now
        elif self._locked:
            self._renew(boards, only=self._locked)
        elif any(entry.is_running for board in boards for entry in board.entries()):
            self._look_for_cancelled(boards)
        longest = LOCKED_INTERVAL if self._locked else CANCEL_INTERVAL
        return max(0.0, min(longest, self._renew_at - clock.monotonic()))

    def hurry(self) -> None:
        """Renew everything in the next round."""
        self._renew_at = 0.0

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _renew(self, boards: list[Board], *, only: set[Lease] | None = None) -> None:
        leases = [entry.lease for board in boards for entry in board.entries() if not self._is_left(entry)]
        if only is not None:
            leases = [lease for lease in leases if lease in only]
        self._locked = set()
        if not leases:
            return
        with self._link.connected() as connection:
            states = lifecycle.renew(connection, leases)
            missing = [lease for lease in leases if lease not in states]
            locked = lifecycle.still_held(connection, missing) if missing else set()
        self._locked = locked
        self._flag(boards, (lease for lease, state in states.items() if state is State.CANCELLED), Flag.CANCELLED)
        for board in boards:
            # A lease that was confirmed all the time is over by a write of its own worker, whose answer was lost.
            is_sure = clock.monotonic() < board.confirmed_until
            flag = Flag.LOST if is_sure else Flag.LOST | Flag.DOUBTED
            self._flag([board], (lease for lease in missing if lease not in locked), flag)

    def _is_left(self, entry: Entry) -> bool:
        bound = settings().timeout_grace.total_seconds()
        return self._leaves_stuck and bool(overdue := entry.overdue(clock.monotonic())) and overdue >= bound

    def _look_for_cancelled(self, boards: list[Board]) -> None:
        running = [entry.lease for board in boards for entry in board.entries() if entry.is_running]
        with self._link.connected() as connection:
            self._flag(boards, lifecycle.stopping(connection, running), Flag.CANCELLED)

    def _flag(self, boards: list[Board], leases: Iterable[Lease], flag: Flag) -> None:
        for lease in leases:
            for board in boards:
                board.flag(lease, flag)
