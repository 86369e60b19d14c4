"""Drive: take back at once what dead worker processes held, by what their boards say."""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass

from django_jobs import lifecycle
from django_jobs.records import Failure
from django_jobs.worker.child import Child
from django_jobs.worker.link import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A worker process that is gone, with what waitpid said of it."""

    child: Child
    status: int

    @property
    def cause(self) -> str:
        """Say in words how it ended."""
        return describe(self.status)


def describe(status: int) -> str:
    """Say in words what an exit code, or the negative number of a signal, means."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


class Undertaker:
    """Buries dead workers one after the other, each until it is written."""

    def __init__(self, *, link: Link) -> None:
        self._link = link
        self._deaths: deque[Death] = deque()

    def receive(self, death: Death) -> None:
        """Take on a dead worker."""
        self._deaths.append(death)

    @property
    def is_idle(self) -> bool:
        """Whether all are buried."""
        return not self._deaths

    def tick(self) -> float:
        """Bury whoever waits. Raises what the database raises; the next round goes on with the same one."""
        while self._deaths:
            self._bury(self._deaths[0])
            self._deaths.popleft().child.close()
        return 60.0

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _bury(self, death: Death) -> None:
        child = death.child
        entries = child.board.entries()
        if not entries:
            return
        timed_out = [entry.lease for entry in entries if entry.lease in child.timed_out]
        running = [entry.lease for entry in entries if entry.is_running and entry.lease not in child.timed_out]
        waiting = [entry.lease for entry in entries if not entry.is_running and entry.lease not in child.timed_out]
        reason = f"the worker process {child.identity} died while this ran: {death.cause}"
        with self._link.connected() as connection:
            lifecycle.bury(
                connection,
                running=running,
                waiting=waiting,
                timed_out=timed_out,
                failure=Failure(kind="crash", reason=reason),
                is_blamed=not child.is_killed,
            )
