"""Walk all states that a model can come to, breadth first, and tell the shortest story of whatever goes wrong.

A model says where it begins, which moves a state has, what is wrong with a state, and which states are good ends. Its
states are frozen values; equal ones are met once. Nothing in here knows about jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Move(NamedTuple):
    """One step of one actor. What nobody can rely on, a fault or the will of a person, doesn't happen `by_itself`."""

    kind: str
    actor: str = ""
    on: tuple[int, ...] = ()
    by_itself: bool = True

    def __str__(self) -> str:
        subject = f"{self.actor}: " if self.actor else ""
        return f"{subject}{self.kind}{f' {self.on}' if self.on else ''}"


class Model(Protocol[State]):
    """What the explorer asks of a model."""

    def start(self) -> State:
        """Give the state in which every story begins."""

    def moves(self, state: State) -> Iterable[tuple[Move, State]]:
        """Give what may happen next, with what it comes to."""

    def wrong(self, state: State) -> str:
        """Name the rule that a state breaks; '' where all hold."""

    def is_good_end(self, state: State) -> bool:
        """Say whether the story may stay here for ever."""

    def tell(self, state: State) -> str:
        """Say in one line how things stand."""


NO_GOOD_END = "a good end is always reachable"


@dataclass(slots=True)
class Explored(Generic[State]):
    """The states that were met, in the order of their distance from the start, and what was found on the way."""

    model: Model[State]
    states: list[State] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    came_by: list[Move | None] = field(default_factory=list)
    edges: list[list[tuple[Move, int]]] = field(default_factory=list)
    broken: str = ""
    at: int = -1
    is_complete: bool = True

    def path(self, index: int) -> list[tuple[Move | None, int]]:
        """Give the shortest way from the start to a state: each move with the state that it came to."""
        steps: list[tuple[Move | None, int]] = []
        while index >= 0:
            steps.append((self.came_by[index], index))
            index = self.parents[index]
        return steps[::-1]

    @property
    def story(self) -> str:
        """Tell how the broken rule came about."""
        if not self.broken:
            return f"nothing went wrong in {len(self.states)} states"
        lines = [f"Broken: {self.broken}."]
        for number, (move, index) in enumerate(self.path(self.at)):
            lines.append(f"{number:3}. {move or 'it begins'}\n       {self.model.tell(self.states[index])}")
        return "\n".join(lines)


def explore(model: Model[State], *, most: int = 10_000_000) -> Explored[State]:
    """Meet every state, or the first `most`, and stop at the first that breaks a rule.

    When all were met and none breaks a rule by itself, look for states from which no good end can be reached any more
    by moves that happen by themselves.
    """
    found: Explored[State] = Explored(model)
    seen: dict[State, int] = {}

    def meet(state: State, parent: int, move: Move | None) -> int:
        index = seen.get(state, -1)
        if index < 0:
            index = seen[state] = len(found.states)
            found.states.append(state)
            found.parents.append(parent)
            found.came_by.append(move)
            found.edges.append([])
            if not found.broken and (broken := model.wrong(state)):
                found.broken, found.at = broken, index
            waiting.append(index)
        return index

    waiting: deque[int] = deque()
    meet(model.start(), -1, None)
    while waiting and not found.broken:
        if len(found.states) >= most:
            found.is_complete = False
            return found
        index = waiting.popleft()
        for move, state in model.moves(found.states[index]):
            found.edges[index].append((move, meet(state, index, move)))
    if not found.broken and (stuck := _stuck(found)):
        found.broken, found.at = NO_GOOD_END, stuck[0]
    return found


def _stuck(found: Explored[State]) -> list[int]:
    """List the states from which no good end is reachable, nearest to the start first."""
    before: list[list[int]] = [[] for _ in found.states]
    for index, edges in enumerate(found.edges):
        for move, after in edges:
            if move.by_itself:
                before[after].append(index)
    fine = [found.model.is_good_end(state) for state in found.states]
    waiting = deque(index for index, is_fine in enumerate(fine) if is_fine)
    while waiting:
        for index in before[waiting.popleft()]:
            if not fine[index]:
                fine[index] = True
                waiting.append(index)
    return [index for index, is_fine in enumerate(fine) if not is_fine]
