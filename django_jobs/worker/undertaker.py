"""Drive: take back at once what dead worker processes held; their boards say what had started."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_jobs import clock, lifecycle, signals
from django_jobs.records import Failure, Lease
from django_jobs.states import State
from django_jobs.transitions import Change
from django_jobs.worker.board import Counts
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


LATER_LOOKS = (1.0, 5.0)
"""Seconds after the burial at which it is looked again: a claim that was under way may be committed after its worker's
death, and a row may have been locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known of a death, once its board is closed."""

    worker: str
    running: frozenset[Lease]
    ended: frozenset[Lease]
    timed_out: frozenset[Lease]
    reason: str
    is_blamed: bool

    @classmethod
    def of(cls, death: Death) -> Case:
        """Read the board of the dead."""
        child = death.child
        entries = child.board.entries()
        running = {entry.lease for entry in entries if entry.is_running}
        return cls(
            worker=child.identity,
            running=frozenset(running - child.timed_out),
            ended=frozenset(entry.lease for entry in entries if entry.ended),
            timed_out=frozenset(child.timed_out),
            reason=f"the worker process {child.identity} died while this ran: {death.cause}",
            is_blamed=not child.is_killed,
        )


class Undertaker:
    """Buries dead workers one after the other, each until it is written.

    `inherited` are cases that another left, each with the moment from which on it is due.
    """

    def __init__(self, *, link: Link, inherited: Iterable[tuple[float, Case]] = ()) -> None:
        self._link = link
        self._deaths: deque[Death] = deque()
        self._later = list(inherited)
        self.counts = Counts()
        """What became of the jobs of the buried: failed for good, or given back."""

    def receive(self, death: Death) -> None:
        """Take on a dead worker."""
        self._deaths.append(death)

    @property
    def is_idle(self) -> bool:
        """Whether all are buried."""
        return not self._deaths

    @property
    def cases(self) -> list[tuple[float, Case]]:
        """Give what is still to be done, and when."""
        return [*((0.0, Case.of(death)) for death in self._deaths), *self._later]

    def tick(self) -> float:
        """Bury whoever waits, and look again after those of a moment ago. Gives the seconds until the next look.

        Raises what the database raises; the next round goes on with the same one.
        """
        while self._deaths:
            case = Case.of(self._deaths[0])
            self._bury(case)
            self._deaths.popleft().child.close()
            self._later += [(clock.monotonic() + later, case) for later in LATER_LOOKS]
        for look in [look for look in self._later if look[0] <= clock.monotonic()]:
            self._bury(look[1])
            self._later.remove(look)
        return max(0.0, min((moment - clock.monotonic() for moment, _ in self._later), default=60.0))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _bury(self, case: Case) -> None:
        with _told(case.reason) as changes, self._link.connected() as connection:
            lifecycle.bury(
                connection,
                case.worker,
                running=case.running,
                ended=case.ended,
                timed_out=case.timed_out,
                failure=Failure(kind="crash", reason=case.reason),
                is_blamed=case.is_blamed,
            )
        failed = sum(change.state is State.FAILED for change in changes)
        released = sum(change.state is State.READY and change.lease in case.running for change in changes)
        self.counts += Counts(failed=failed, released=released)


@contextmanager
def _told(reason: str) -> Iterator[list[Change]]:
    """Hear what is told to have been taken back for this reason, which names one process life."""
    heard: list[Change] = []

    def hear(*, changes: list[Change], because: str, **_: Any) -> None:
        if because == reason:
            heard.extend(changes)

    signals.jobs_reclaimed.connect(hear)
    try:
        yield heard
    finally:
        signals.jobs_reclaimed.disconnect(hear)
