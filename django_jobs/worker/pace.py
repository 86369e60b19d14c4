"""Drive: how long jobs have taken of late, and so how many may be claimed ahead of free slots. Asks nobody.

A claim costs a round trip however many jobs it takes, so that short jobs are claimed many at a time. What is claimed
ahead of a free slot isn't there for other workers: it must start within a moment. Until a queue's jobs have shown
themselves to be short, and from the first sign that they aren't, no more are claimed of it than there are free slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

SHORT = 0.005
"""Seconds within which a short job has ended."""

TINY = 0.0003
"""Seconds within which a tiny job has ended: to have another thread run the next one takes a tenth of that."""

WINDOW = 256
"""So many of the latest runs are remembered."""

ENOUGH = 16
"""So many runs of a queue must be remembered before its jobs are known to be short."""

LONG_SHARE = 20
"""One long run among so many is allowed."""

TINY_SHARE = 4
"""One run that isn't tiny among so many is allowed: a thread may lose the interpreter in the midst of any."""

FIRST_AHEAD, MOST_AHEAD = 8, 200
"""How many jobs a claim takes beyond the free slots at first, and at the most, once its queues' jobs are known to be
short. Two hundred no-op jobs take as long as an end may wait for its settle, so that more wouldn't do better."""

AHEAD_SECONDS = 0.1
"""No more jobs are claimed ahead than one thread would run in so many seconds, as long as the latest took."""


class _Queue:
    """What is remembered of the runs of one queue."""

    __slots__ = ("long", "runs", "tiny")

    def __init__(self) -> None:
        self.runs = self.long = self.tiny = 0


class Pace:
    """Remembers the latest runs of one worker. Not locked: its owner lets one thread in at a time."""

    def __init__(self) -> None:
        self._latest: deque[tuple[str, float]] = deque()
        self._queues: dict[str, _Queue] = {}
        self._seconds = 0.0
        self._ahead = FIRST_AHEAD

    def note(self, queue: str, seconds: float) -> None:
        """Note that a job of `queue` ran for so many seconds."""
        self._latest.append((queue, seconds))
        self._seconds += seconds
        seen = self._queues.get(queue)
        if seen is None:
            seen = self._queues[queue] = _Queue()
        seen.runs += 1
        if seconds < TINY:
            seen.tiny += 1
        elif seconds >= SHORT:
            seen.long += 1
            self._ahead = max(FIRST_AHEAD, self._ahead // 2)
        if len(self._latest) > WINDOW:
            self._forget(*self._latest.popleft())

    def _forget(self, queue: str, seconds: float) -> None:
        self._seconds -= seconds
        seen = self._queues[queue]
        seen.runs -= 1
        seen.tiny -= seconds < TINY
        seen.long -= seconds >= SHORT
        if not seen.runs:
            # Queues come and go.
            del self._queues[queue]

    def stumbled(self) -> None:
        """Note that jobs claimed ahead had to wait: nothing is known to be short until it shows itself to be anew."""
        self._latest.clear()
        self._queues.clear()
        self._seconds = 0.0
        self._ahead = FIRST_AHEAD

    def is_short(self, queue: str) -> bool:
        """Whether 19 of 20 jobs of this queue have been short of late."""
        seen = self._queues.get(queue)
        return seen is not None and seen.runs >= ENOUGH and seen.long * LONG_SHARE <= seen.runs

    def is_tiny(self, queue: str) -> bool:
        """Whether they have been short, and three of four so short that one thread alone runs them best."""
        seen = self._queues.get(queue)
        return seen is not None and self.is_short(queue) and (seen.runs - seen.tiny) * TINY_SHARE <= seen.runs

    def unsure(self, in_hand: Iterable[str]) -> set[str]:
        """Give the queues, of those that ran of late and those in hand, that aren't known to be short."""
        return {queue for queue in {*self._queues, *in_hand} if not self.is_short(queue)}

    def limit(self, free: int, in_hand: Iterable[str] = ()) -> int:
        """Say how many jobs to have waiting for so many free slots, given the queues of those in hand."""
        unsure = self.unsure(in_hand)
        # Each of several unsure queues could fill all that is free.
        if free < 1 or len(unsure) > 1 or not (self._queues.keys() - unsure):
            return free
        return free + self._ahead

    def filled(self) -> None:
        """Note that a claim gave as many as it was asked for: the next may ask for twice as many."""
        each = self._seconds / len(self._latest) if self._latest else 0.0
        most = MOST_AHEAD if each * MOST_AHEAD <= AHEAD_SECONDS else int(AHEAD_SECONDS / each)
        self._ahead = max(FIRST_AHEAD, min(2 * self._ahead, most))
