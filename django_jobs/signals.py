"""Know: the signals that tell what happened. Receivers log, count and notify; nothing here decides.

`sender` is the job's stored name for signals about one job, so that a receiver can listen to one performer only; it is
None for the others. What a receiver raises is logged by Django and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
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


class JobSignal(Signal):
    """A signal about one job. Its sender is the job's stored name, and any equal text is that sender.

    (To Django a sender is an object, and a name that comes from a row is another one each time.)
    """

    def __init__(self) -> None:
        super().__init__()
        # The first text of a name, for all that are equal to it; it lives on, so nothing else gets its identity.
        self._names: dict[str, str] = {}

    def connect(
        self,
        receiver: Callable[..., Any],
        sender: object = None,
        weak: bool = True,  # noqa: FBT001, FBT002 - Django's signature
        dispatch_uid: Hashable | None = None,
    ) -> None:
        """Call `receiver` for jobs of that stored name, or for all.

        Raises TypeError where `sender` is neither a text nor None: nothing else would ever be told of.
        """
        if isinstance(sender, str):
            sender = self._names.setdefault(sender, sender)
        elif sender is not None:
            message = f"sender={sender!r:.80}: give the stored name of the jobs, as in sender=send_welcome.name"
            raise TypeError(message)
        super().connect(receiver, sender, weak, dispatch_uid)

    def disconnect(
        self,
        receiver: Callable[..., Any] | None = None,
        sender: object = None,
        dispatch_uid: Hashable | None = None,
    ) -> bool:
        """Call it no more, and say whether it was called before."""
        return super().disconnect(receiver, self._known(sender), dispatch_uid)

    def has_listeners(self, sender: object = None) -> bool:
        """Say whether anybody would be called."""
        return super().has_listeners(self._known(sender))

    def send(self, sender: object, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does."""
        return super().send(self._known(sender), **named)

    def send_robust(self, sender: object, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does."""
        return super().send_robust(self._known(sender), **named)

    async def asend(self, sender: object, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does."""
        return await super().asend(self._known(sender), **named)

    async def asend_robust(self, sender: object, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        """Send as Django does."""
        return await super().asend_robust(self._known(sender), **named)

    def _known(self, sender: object) -> object:
        return self._names.get(sender, sender) if isinstance(sender, str) else sender


job_enqueued = JobSignal()
"""After the commit that queued it, in the process that did. Arguments: `job_id`, `name`, `queue`."""

job_started = JobSignal()
"""Before the body, in its thread and context; for an async one in a thread, where the database may be used. Arguments:
`claim`."""

job_finished = JobSignal()
"""After a run's end was written, in the process that ran it. Arguments: `claim`, `outcome`, `change`.

Ends that somebody else writes (a supervisor of a worker that died, for one) are no `job_finished`."""

ends = Bulletin()
"""Private: the ends that one settle has written, a list of `transitions.End`; each is a `job_finished`, too."""

starts = Bulletin()
"""Private: the claim of a job whose body is about to begin; each is a `job_started`, too."""

job_lost = JobSignal()
"""A run's end met a row that was taken away meanwhile; nothing was written. Arguments: `claim`, `outcome`."""

jobs_reclaimed = Signal()
"""Rows were taken back from workers that are gone. Arguments: `changes`, `let_go` (ids), `because`."""

jobs_expired = Signal()
"""Jobs passed their `expires_at` before they started. Arguments: `ids`."""

jobs_pruned = Signal()
"""Finished jobs past their keeping were deleted. Arguments: `count`."""

schedule_fired = Signal()
"""After the commit. Arguments: `name` (the schedule's), `job_ids`, `skipped` (ticks), `next_at`."""

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
