"""Drive: how long jobs have taken of late, and so how many may be claimed ahead of free slots. Asks nobody.

A claim costs a round trip however many jobs it takes, so that short jobs are claimed many at a time. What is claimed
ahead of a free slot isn't there for other workers: it must start within a moment. Until a queue's jobs have shown
themselves to be short, and from the first sign that they aren't, no more are claimed of it than there are free slots.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

SHORT = 0.005
"""Seconds within which a short job has ended."""

WINDOW = 256
"""So many of the latest runs are remembered."""

ENOUGH = 16
"""So many runs of a queue must be remembered before its jobs are known to be short."""

LONG_SHARE = 20
"""One long run among so many is allowed."""

FIRST_AHEAD, MOST_AHEAD = 8, 100
"""How many jobs a claim takes beyond the free slots at first, and at the most, once its queues' jobs are known to be
short. A hundred did better than fifty, and no worse than two or four hundred."""


class Pace:
    """Remembers the latest runs of one worker. Not locked: its owner lets one thread in at a time."""

    def __init__(self) -> None:
        self._latest: deque[tuple[str, bool]] = deque()
        self._runs: Counter[str] = Counter()
        self._long: Counter[str] = Counter()
        self._ahead = FIRST_AHEAD

    def note(self, queue: str, seconds: float) -> None:
        """Note that a job of `queue` ran for so many seconds."""
        is_long = seconds >= SHORT
        self._latest.append((queue, is_long))
        self._runs[queue] += 1
        if is_long:
            self._long[queue] += 1
            self._ahead = max(FIRST_AHEAD, self._ahead // 2)
        if len(self._latest) > WINDOW:
            oldest, was_long = self._latest.popleft()
            self._forget(oldest, is_long=was_long)

    def _forget(self, queue: str, *, is_long: bool) -> None:
        self._runs[queue] -= 1
        self._long[queue] -= is_long
        if not self._runs[queue]:
            # Queues come and go.
            del self._runs[queue], self._long[queue]

    def stumbled(self) -> None:
        """Note that jobs claimed ahead had to wait: nothing is known to be short until it shows itself to be anew."""
        self._latest.clear()
        self._runs.clear()
        self._long.clear()
        self._ahead = FIRST_AHEAD

    def is_short(self, queue: str) -> bool:
        """Whether 19 of 20 jobs of this queue have been short of late."""
        runs = self._runs.get(queue, 0)
        return runs >= ENOUGH and self._long[queue] * LONG_SHARE <= runs

    def unsure(self, in_hand: Iterable[str]) -> set[str]:
        """Give the queues, of those that ran of late and those in hand, that aren't known to be short."""
        return {queue for queue in {*self._runs, *in_hand} if not self.is_short(queue)}

    def limit(self, free: int, in_hand: Iterable[str] = ()) -> int:
        """Say how many jobs to have waiting for so many free slots, given the queues of those in hand."""
        unsure = self.unsure(in_hand)
        # Each of several unsure queues could fill all that is free.
        if free < 1 or len(unsure) > 1 or not (self._runs.keys() - unsure):
            return free
        return free + self._ahead

    def filled(self) -> None:
        """Note that a claim gave as many as it was asked for: the next may ask for twice as many."""
        self._ahead = min(2 * self._ahead, MOST_AHEAD)
