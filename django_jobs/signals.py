"""Know: the signals that tell what happened. Receivers log, count and notify; nothing here decides.

`sender` is the job's stored name for signals about one job, so that a receiver can listen to one performer only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from django import dispatch


class Signal(dispatch.Signal):
    """A signal that rooms of ours may hear by a plain call: two of them hear of every job's end."""

    def __init__(self) -> None:
        super().__init__()
        self.hearers: tuple[Callable[..., None], ...] = ()

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens, be it to a single sender."""
        return bool(self.hearers or self.receivers)

    def hear(self, hearer: Callable[..., None]) -> None:
        """Call `hearer` with the arguments, before the receivers, each time it is told."""
        self.hearers = (*(each for each in self.hearers if each != hearer), hearer)

    def unhear(self, hearer: Callable[..., None]) -> None:
        """Call it no more."""
        self.hearers = tuple(each for each in self.hearers if each != hearer)


job_enqueued = Signal()
"""After commit. Arguments: `job_id`, `name`, `queue`."""

job_started = Signal()
"""Before the body, in its thread and context; for an async one in a thread, where the database may be used. Arguments:
`claim`."""

job_finished = Signal()
"""After a run's end was written. Arguments: `claim`, `outcome`, `change`."""

job_lost = Signal()
"""A run's end met a row that was taken away meanwhile; nothing was written. Arguments: `claim`, `outcome`."""

jobs_reclaimed = Signal()
"""Rows were taken back from workers that are gone. Arguments: `changes`, `let_go` (ids), `because`."""

jobs_expired = Signal()
"""Jobs passed their `expires_at` before they started. Arguments: `ids`."""

jobs_pruned = Signal()
"""Finished jobs past their keeping were deleted. Arguments: `count`."""

worker_started = Signal()
"""A worker begins to claim. Arguments: `identity`, `queues` (None: all), `concurrency`."""

worker_stopped = Signal()
"""A worker has ended. Arguments: `identity`, `written` (whether every end is in the database)."""

odd = Signal()
"""Private: something that deserves a line in the log. Arguments: `message`, `exception` (or None), `level`."""


def tell(signal: Signal, sender: object, **arguments: object) -> None:
    """Send a signal, and let nothing through that a receiver raises, nor what a log handler raises about that."""
    for hear in signal.hearers:
        with suppress(Exception):
            hear(**arguments)
    if signal.receivers:
        with suppress(Exception):
            signal.send_robust(sender, **arguments)
