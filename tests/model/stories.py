"""Choose stories for the replay: few, and such that each kind of move, each change of a row and each pair occur.

A story is the shortest way to something new, and from there on to the nearest good end, so that recovery is told, too.
The choice is the same in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tests.model.explorer import Explored, Move, explore
from tests.model.life import Life
from tests.model.rows import place_of
from tests.model.world import Setting, World


class Scene(NamedTuple):
    """A move, and the worlds before and after it."""

    move: Move
    before: World
    after: World


@dataclass(frozen=True)
class Story:
    """What happens, one thing after the other, in one setting."""

    setting: Setting
    scenes: tuple[Scene, ...]

    def __str__(self) -> str:
        return "\n".join(str(scene.move) for scene in self.scenes)


Feature = tuple[str, ...]


def _features(before: Move | None, scene: Scene) -> Iterator[Feature]:
    """Name what a scene shows, the most wanted first."""
    kind = scene.move.kind
    yield ("kind", kind)
    for old, new in zip(scene.before.rows, scene.after.rows, strict=True):
        yield ("change", kind, place_of(old).value, place_of(new).value)
    if before is not None:
        yield ("pair", before.kind, kind)


def kinds_in(stories: list[Story]) -> set[str]:
    """List the kinds of moves that occur."""
    return {scene.move.kind for story in stories for scene in story.scenes}


def choose(settings: list[Setting], *, most: int, states: int) -> list[Story]:
    """Give at most so many stories from the first so many states of each world."""
    candidates: dict[Feature, tuple[int, int, Move, int]] = {}
    graphs = []
    for number, setting in enumerate(settings):
        graph = explore(Life(setting), most=states)
        assert not graph.broken, graph.story
        graphs.append((setting, graph, _ways_home(graph)))
        for index, edges in enumerate(graph.edges):
            for move, after in edges:
                scene = Scene(move, graph.states[index], graph.states[after])
                for feature in _features(graph.came_by[index], scene):
                    candidates.setdefault(feature, (number, index, move, after))
    order = {"kind": 0, "change": 1, "pair": 2}
    seen: set[Feature] = set()
    stories: list[Story] = []
    for feature in sorted(candidates, key=lambda one: order[one[0]]):
        if feature in seen or len(stories) >= most:
            continue
        number, index, move, after = candidates[feature]
        setting, graph, ways = graphs[number]
        story = Story(setting, tuple(_scenes(graph, ways, index, move, after)))
        stories.append(story)
        last = None
        for scene in story.scenes:
            seen.update(_features(last, scene))
            last = scene.move
    return stories


def _ways_home(graph: Explored[World]) -> list[tuple[Move, int] | None]:
    """Give for each state the first step to its nearest good end, by moves that happen by themselves."""
    before: list[list[tuple[Move, int]]] = [[] for _ in graph.states]
    for index, edges in enumerate(graph.edges):
        for move, after in edges:
            if move.by_itself:
                before[after].append((move, index))
    ways: list[tuple[Move, int] | None] = [None] * len(graph.states)
    waiting = deque(index for index, state in enumerate(graph.states) if graph.model.is_good_end(state))
    known = set(waiting)
    while waiting:
        after = waiting.popleft()
        for move, index in before[after]:
            if index not in known:
                known.add(index)
                ways[index] = (move, after)
                waiting.append(index)
    return ways


def _scenes(
    graph: Explored[World], ways: list[tuple[Move, int] | None], index: int, move: Move, after: int
) -> Iterator[Scene]:
    way = graph.path(index)
    for (_, here), (step, there) in pairwise(way):
        assert step is not None
        yield Scene(step, graph.states[here], graph.states[there])
    yield Scene(move, graph.states[index], graph.states[after])
    here = after
    while (following := ways[here]) is not None:
        yield Scene(following[0], graph.states[here], graph.states[following[1]])
        here = following[1]
