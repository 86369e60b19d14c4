"""The explorer itself, on a lamp that may burn out."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import NO_GOOD_END, Move, explore


class Lamp:
    """It is switched on and off; `may_break` lets it burn out, `is_mended` brings it back, by a person or by itself."""

    def __init__(self, *, may_break: bool = False, is_mended: bool | None = None, forbidden: str = "") -> None:
        self.may_break = may_break
        self.is_mended = is_mended
        self.forbidden = forbidden

    def start(self) -> str:
        return "off"

    def moves(self, state: str) -> Iterator[tuple[Move, str]]:
        if state != "broken":
            yield Move("switch", "somebody"), {"off": "on", "on": "off"}[state]
        if state == "on" and self.may_break:
            yield Move("burn out", "the lamp", by_itself=False), "broken"
        if state == "broken" and self.is_mended is not None:
            yield Move("mend", "somebody", by_itself=self.is_mended), "off"

    def wrong(self, state: str) -> str:
        return "it is never so" if state == self.forbidden else ""

    def is_good_end(self, state: str) -> bool:
        return state == "off"

    def tell(self, state: str) -> str:
        return f"the lamp is {state}"


def test_every_state_is_met_once() -> None:
    explored = explore(Lamp(may_break=True, is_mended=True))
    assert explored.states == ["off", "on", "broken"]
    assert (explored.broken, explored.is_complete) == ("", True)
    assert explored.story == "nothing went wrong in 3 states"


def test_the_shortest_story_of_what_is_wrong_is_told() -> None:
    explored = explore(Lamp(may_break=True, forbidden="broken"))
    assert explored.story.splitlines() == [
        "Broken: it is never so.",
        "  0. it begins",
        "       the lamp is off",
        "  1. somebody: switch",
        "       the lamp is on",
        "  2. the lamp: burn out",
        "       the lamp is broken",
    ]


def test_a_state_without_way_to_a_good_end_is_found() -> None:
    explored = explore(Lamp(may_break=True))
    assert (explored.broken, explored.states[explored.at]) == (NO_GOOD_END, "broken")


def test_a_way_that_nobody_can_rely_on_is_none() -> None:
    assert explore(Lamp(may_break=True, is_mended=False)).broken == NO_GOOD_END


def test_a_bound_ends_the_walk() -> None:
    explored = explore(Lamp(may_break=True), most=2)
    assert (len(explored.states), explored.is_complete, explored.broken) == (2, False, "")
