"""Nobody waits for the poll, though callers are silent for a while after each notification."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.waking import NOBODY_WAITS_FOR_THE_POLL, Place, Slip, Waking


@pytest.mark.parametrize("place", [Place(), Place(callers=2, jobs=2)], ids=["one caller", "two callers"])
def test_no_committed_job_waits_longer_than_for_the_second_look(place: Place) -> None:
    explored = explore(Waking(place))
    assert not explored.broken, explored.story


@pytest.mark.soak
def test_no_committed_job_waits_longer_among_several_callers_and_workers() -> None:
    explored = explore(Waking(Place(callers=2, jobs=2, workers=2)))
    assert not explored.broken, explored.story


@pytest.mark.parametrize("slip", Slip, ids=lambda slip: slip.name)
def test_a_known_slip_is_found(slip: Slip) -> None:
    explored = explore(Waking(Place(slips=frozenset({slip}))))
    assert explored.broken == NOBODY_WAITS_FOR_THE_POLL
