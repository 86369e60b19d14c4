"""Drive: a crew's settles. An end whose row somebody locks waits by itself, and is tried again in a moment."""

from __future__ import annotations

from django_jobs import clock, lifecycle
from django_jobs.lifecycle import Run
from django_jobs.records import Lease
from django_jobs.worker.board import Board
from django_jobs.worker.link import Link
from django_jobs.worker.reporter import Reporter

LOCKED_PAUSE, LONGEST_LOCKED_PAUSE = 0.1, 1.0
"""Seconds until an end whose row somebody locks is tried again, the first time and at the most."""


class Settling:
    """Writes what runs came to. Called by one thread at a time."""

    def __init__(self, *, board: Board, link: Link, reporter: Reporter) -> None:
        self._board = board
        self._link = link
        self._reporter = reporter
        self._locked: list[Run] = []
        self._again_at = 0.0
        self._pause = LOCKED_PAUSE

    @property
    def waiting(self) -> int:
        """How many ends wait for a lock."""
        return len(self._locked)

    @property
    def due_in(self) -> float:
        """Seconds until those that wait are tried again, infinite where there are none."""
        return max(0.0, self._again_at - clock.monotonic()) if self._locked else float("inf")

    def settle(self, ended: list[Run]) -> list[Lease]:
        """Write these ends, and those that have waited long enough, and give the leases that this lets go.

        Where this raises, nobody knows what was written; `ended` is to be given again, and no end is written twice.
        """
        again: list[Run] = []
        if self._locked and clock.monotonic() >= self._again_at:
            again = self._locked
        runs = again + ended
        if not runs:
            return []
        with self._link.connected() as connection:
            self._reporter.write_last(connection, runs)
            locked = lifecycle.settle(connection, runs, doubted=lambda: self._board.doubted, took=self._board.took)
        self._put_aside(locked, again=again)
        still = {claim.lease for claim, _ in locked}
        written = [claim.lease for claim, _ in runs if claim.lease not in still]
        self._board.drop(written)
        self._reporter.forget(written)
        return written

    def _put_aside(self, locked: list[Run], *, again: list[Run]) -> None:
        """Try these ends again in a moment; meanwhile others are written as ever.

        Those that wait already wait no longer because of these, and only those that were tried `again` in vain wait
        longer than the first time: where many workers claim, each turn finds a few rows that somebody locks briefly.
        """
        if again:
            self._locked = []
        tried = {claim.lease for claim, _ in again}
        if not any(claim.lease in tried for claim, _ in locked) and not self._locked:
            self._pause = LOCKED_PAUSE
        if locked and not self._locked:
            self._again_at = clock.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_LOCKED_PAUSE)
        self._locked += locked
