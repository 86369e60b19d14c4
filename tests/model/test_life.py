"""In no world that is small enough to be seen whole does anything go wrong, and a good end is always reachable."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.life import Life
from tests.model.settings import LARGE_WORLDS, WORLDS
from tests.model.world import Setting


def name(setting: Setting) -> str:
    """Say in short what may happen in a world."""
    usual = Setting()
    more = [
        f"{field}={getattr(setting, field)}"
        for field in ("jobs", "supervisor_of", "claims", "max_attempts", "restart", "keep", "outcomes")
        if getattr(setting, field) != getattr(usual, field)
    ]
    return " ".join([*sorted(setting.faults), *sorted(setting.wishes), *more])


@pytest.mark.parametrize("setting", WORLDS, ids=name)
def test_nothing_goes_wrong(setting: Setting) -> None:
    explored = explore(Life(setting), most=100_000)
    assert not explored.broken, explored.story
    assert explored.is_complete


@pytest.mark.soak
@pytest.mark.parametrize("setting", LARGE_WORLDS, ids=name)
def test_nothing_goes_wrong_in_larger_worlds(setting: Setting) -> None:
    explored = explore(Life(setting), most=300_000)
    assert not explored.broken, explored.story


def test_all_goes_well_where_nothing_befalls_anybody() -> None:
    explored = explore(Life(Setting()))
    assert not explored.broken, explored.story
    finished = {row.state for world in explored.states for row in world.rows if row and not row.worker}
    assert finished == {"READY", "SUCCESSFUL", "FAILED"}
    assert all(row.crashes == 0 for world in explored.states for row in world.rows if row)
