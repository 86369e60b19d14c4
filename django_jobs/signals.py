"""Know: the signals that tell what happened. Receivers log, count and notify; nothing here decides.

`sender` is the job's stored name for signals about one job, so that a receiver can listen to one performer only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.dispatch import Signal


class Bulletin:
    """What rooms of ours hear by a plain call. Two of them hear of every job's end, many ends at a time."""

    def __init__(self) -> None:
        self._hearers: tuple[Callable[[Any], None], ...] = ()

    def hear(self, hearer: Callable[[Any], None]) -> None:
        """Call `hearer` with all that is told."""
        self._hearers = (*(each for each in self._hearers if each != hearer), hearer)

    def unhear(self, hearer: Callable[[Any], None]) -> None:
        """Call it no more."""
        self._hearers = tuple(each for each in self._hearers if each != hearer)

    def tell(self, news: object) -> None:
        """Call all that hear, and let nothing through that one of them raises."""
        for hear in self._hearers:
            try:  # noqa: SIM105 - told with each job, and that takes three times as long
                hear(news)
            except Exception:  # noqa: BLE001, S110 - a handler of the log may be anybody's
                pass


job_enqueued = Signal()
"""After commit. Arguments: `job_id`, `name`, `queue`."""

job_started = Signal()
"""Before the body, in its thread and context; for an async one in a thread, where the database may be used. Arguments:
`claim`."""

job_finished = Signal()
"""After a run's end was written. Arguments: `claim`, `outcome`, `change`."""

ends = Bulletin()
"""Private: the ends that one settle has written, a list of `transitions.End`; each is a `job_finished`, too."""

starts = Bulletin()
"""Private: the claim of a job whose body is about to begin; each is a `job_started`, too."""

job_lost = Signal()
"""A run's end met a row that was taken away meanwhile; nothing was written. Arguments: `claim`, `outcome`."""

jobs_reclaimed = Signal()
"""Rows were taken back from workers that are gone. Arguments: `changes`, `let_go` (ids), `because`."""

jobs_expired = Signal()
"""Jobs passed their `expires_at` before they started. Arguments: `ids`."""

jobs_pruned = Signal()
"""Finished jobs past their keeping were deleted. Arguments: `count`."""

queue_paused = Signal()
"""After the commit. Arguments: `queue`, `by` ('' for nobody in particular), `reason`."""

queue_resumed = Signal()
"""After the commit. Arguments: `queue`."""

worker_started = Signal()
"""A worker begins to claim. Arguments: `identity`, `queues` (None: all), `concurrency`."""

worker_stopped = Signal()
"""A worker has ended. Arguments: `identity`, `written` (whether every end is in the database)."""

odd = Signal()
"""Private: something that deserves a line in the log. Arguments: `message`, `exception` (or None), `level`."""


def tell(signal: Signal, sender: object, **arguments: object) -> None:
    """Send a signal, and let nothing through that a receiver raises, nor what a log handler raises about that."""
    if signal.receivers:
        with suppress(Exception):
            signal.send_robust(sender, **arguments)
