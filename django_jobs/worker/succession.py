"""Drive: how workers leave and are followed, so that slots are never missing for long and caps never exceeded.

A worker leaves when it is due for recycling, when the code has changed, or one after the other on hangup. It claims
nothing more; while its last jobs run, one that follows it already works with the slots that are free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from django_jobs.worker.child import Child

LAST_WORD = 1.5
"""Seconds between the word to stop now and the kill."""


class Succession:
    """Looks at the workers of a supervisor, by their process ids, and speaks to those that are to leave."""

    def __init__(self, children: Mapping[int, Child], *, grace: float) -> None:
        self._children = children
        self._grace = grace
        self._to_replace: deque[int] = deque()

    def replace_one_by_one(self) -> None:
        """Have all that live now leave, one after the other."""
        self._to_replace = deque(self._children)

    def replace_all(self, now: float) -> None:
        """Have all that live now leave."""
        for child in self._children.values():
            if child.leave_at is None:
                self._dismiss(child, now)

    def tick(self, now: float, *, is_complete: bool) -> None:
        """See that those leave that were told to; the next one's turn comes when the workers are complete again."""
        leaving = [child for child in self._children.values() if child.leave_at is not None]
        for child in leaving:
            assert child.leave_at is not None
            if now >= child.leave_at + LAST_WORD:
                child.kill()
            elif now >= child.leave_at:
                child.say("now")
        if self._to_replace and is_complete and not leaving:
            following = self._children.get(self._to_replace.popleft())
            if following is not None:
                self._dismiss(following, now)

    def followed(self, *, most: int) -> list[int]:
        """Give those of the first `most` places in which one may begin beside the one that leaves, each once."""
        places = []
        for child in self._children.values():
            is_alone = child.board.is_leaving and not child.is_followed and child.place < most
            if is_alone and self.held_back(child.place) < child.concurrency:
                child.is_followed = True
                places.append(child.place)
        return places

    def held_back(self, place: int) -> int:
        """Say how many slots of this place are still used by workers that leave."""
        return sum(
            not entry.ended
            for child in self._children.values()
            if child.place == place and child.board.is_leaving
            for entry in child.board.entries()
        )

    def tell_held_back(self) -> None:
        """Tell those that follow another how many slots it still uses, when that has changed."""
        for child in self._children.values():
            if child.held_back and not child.board.is_leaving:
                count = self.held_back(child.place)
                if count != child.held_back:
                    child.held_back = count
                    child.say(f"hold {count}")

    def _dismiss(self, child: Child, now: float) -> None:
        child.leave_at = now + self._grace
        child.say("stop")
