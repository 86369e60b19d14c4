"""Drive: renew the leases of what the board holds, each quarter of a lease."""

from __future__ import annotations

from django_jobs import lifecycle
from django_jobs.conf import settings
from django_jobs.states import State
from django_jobs.worker.board import Board
from django_jobs.worker.link import Link

RENEWALS = 4
"""So many times a lease is renewed before it would be over."""


class Keeper:
    """Keeps exactly the leases that stand on the board, and notes there which jobs were cancelled."""

    def __init__(self, *, board: Board, link: Link) -> None:
        self._board = board
        self._link = link

    @property
    def interval(self) -> float:
        """Seconds between renewals."""
        return settings().lease.total_seconds() / RENEWALS

    def tick(self) -> float:
        """Renew once."""
        if leases := self._board.leases():
            with self._link.connected() as connection:
                states = lifecycle.renew(connection, leases)
            self._board.mark_cancelled(job_id for job_id, state in states.items() if state is State.CANCELLED)
        return self.interval

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
