"""Know: what the jobs of a worker, and of a whole command, came to, in numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django_jobs import signals
from django_jobs.outcomes import Released
from django_jobs.states import State
from django_jobs.transitions import End
from django_jobs.worker.board import Board, Counts

MOST_NAMED = 10
"""So many released jobs are named at the end; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    id: int
    name: str


class Tally:
    """Counts the ends that one worker process writes, on its board, where its supervisor reads them after any end."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._pid = os.getpid()
        self._released: list[_Named] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Hear of every end while this is open."""
        signals.ends.hear(self._hear)
        try:
            yield
        finally:
            signals.ends.unhear(self._hear)

    def _hear(self, ends: list[End]) -> None:
        if os.getpid() != self._pid:
            # A forked child shares the board's memory, and may have a worker of its own.
            return
        others = [end for end in ends if end.change.state is not State.SUCCESSFUL]
        # What had not started isn't worth a word.
        released = [
            _Named(id=claim.id, name=claim.name)
            for claim, outcome, change, _ in others
            if change.state is State.READY and isinstance(outcome, Released) and outcome.started
        ]
        self._released += released
        self._board.count(
            succeeded=len(ends) - len(others),
            failed=sum(end.change.state is State.FAILED for end in others),
            released=len(released),
        )

    @property
    def released(self) -> str:
        """Name the jobs that had started and were given back; '' where there are none."""
        if not self._released:
            return ""
        some = ", ".join(f"#{job.id} {job.name}" for job in self._released[:MOST_NAMED])
        count = len(self._released)
        return f"{count} jobs were released and will run again: {some}{' …' if count > MOST_NAMED else ''}"


def summary(counts: Counts, *, seconds: float) -> str:
    """Say in one line how it went."""
    return (
        f"stopped after {_length(seconds)}: {counts.succeeded:,} succeeded, {counts.failed:,} failed, "
        f"{counts.released:,} released"
    )


def _length(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
