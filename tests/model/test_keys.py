"""Keys hold while callers' transactions are open; and where a rule of the statements is left out, that shows."""

from __future__ import annotations

import pytest

from tests.model import keys
from tests.model.explorer import Explored, explore
from tests.model.holding import Keys
from tests.model.key_settings import (
    KEPT,
    LARGE_WORLDS,
    ONE,
    RUNS,
    TWO,
    WAITS,
    WORLDS,
    unique,
    waiting,
    with_slip,
)
from tests.model.keys import Ask, Setting, Slip, World

LATER = ((Ask(later=True),),)
LATER_THEN_NOW = (*LATER, *ONE)
RETURN_THEN_REPLACE = ((Ask(), Ask("replace")),) * 2


@pytest.mark.parametrize("setting", WORLDS, ids=range(len(WORLDS)))
def test_nothing_goes_wrong(setting: Setting) -> None:
    explored = explore(Keys(setting), most=100_000)
    assert not explored.broken, explored.story
    assert explored.is_complete


@pytest.mark.soak
@pytest.mark.parametrize("setting", LARGE_WORLDS, ids=range(len(LARGE_WORLDS)))
def test_nothing_goes_wrong_in_larger_worlds(setting: Setting) -> None:
    explored = explore(Keys(setting), most=1_500_000)
    assert not explored.broken, explored.story


SLIPS: list[tuple[Slip, Setting, str, tuple[str, ...]]] = [
    (Slip.LOOK_THEN_INSERT, waiting(), keys.ONE_HOLDER, ()),
    (Slip.LOOK_THEN_INSERT, unique(), keys.ONE_HOLDER, ()),
    (Slip.PLAIN_INSERT, waiting(), keys.CALLER_IS_SAFE, ()),
    (Slip.PLAIN_INSERT, unique(KEPT), keys.CALLER_IS_SAFE, ()),
    (Slip.NO_SHARE, waiting(WAITS), keys.LEFT_ALONE, ()),
    (Slip.NO_SHARE, unique(WAITS), keys.LEFT_ALONE, ()),
    (Slip.FIND_WHO_WAITS, waiting(WAITS), keys.LEFT_ALONE, ()),
    (Slip.FIND_WHO_WAITS, unique(WAITS), keys.LEFT_ALONE, ()),
    (Slip.CLAIM_WAITS, waiting(WAITS), keys.WORKER_NEVER_WAITS, ()),
    (Slip.CLAIM_WAITS, unique(WAITS), keys.WORKER_NEVER_WAITS, ()),
    (Slip.WAIT_FOR_TWIN, waiting(RUNS), keys.WORKER_NEVER_WAITS, ()),
    (Slip.UNLOCKED_RIVAL, waiting(RUNS, workers=2), keys.WAITED_THEN, ()),
    (Slip.UNLOCKED_RIVAL, waiting(RUNS, workers=2), keys.HEIR_RUNS, (keys.WAITED_THEN,)),
    (Slip.RIVAL_MAY_RUN, waiting(RUNS, workers=2), keys.WAITED_THEN, ()),
    (Slip.RIVAL_MAY_RUN, waiting(RUNS, workers=2), keys.LEFT_ALONE, (keys.WAITED_THEN,)),
    (
        Slip.RIVAL_MAY_RUN,
        waiting(RUNS, RUNS, workers=2, callers=ONE),
        keys.NEVER_BOTH,
        (keys.WAITED_THEN, keys.LEFT_ALONE, keys.HEIR_RUNS),
    ),
    (Slip.SUPERSEDE_FIRST, waiting(RUNS, callers=LATER, trouble=1), keys.IN_TIME, ()),
    (Slip.SUPERSEDE_FIRST, waiting(RUNS, callers=LATER_THEN_NOW), keys.IN_TIME, ()),
    (Slip.UNTIMED_RIVAL, waiting(RUNS, callers=LATER_THEN_NOW), keys.IN_TIME, ()),
]


@pytest.mark.parametrize(
    ("slip", "setting", "rule", "unheeded"),
    SLIPS,
    ids=[f"{slip.name}-{number}" for number, (slip, *_) in enumerate(SLIPS)],
)
def test_a_known_slip_is_found(slip: Slip, setting: Setting, rule: str, unheeded: tuple[str, ...]) -> None:
    explored = explore(Keys(with_slip(setting, slip, *unheeded)), most=100_000)
    assert explored.broken == rule, explored.story


def test_every_slip_is_tried() -> None:
    assert {slip for slip, *_ in SLIPS} == set(Slip)


def test_who_is_given_a_job_and_then_replaces_it_may_wait_in_a_circle_with_another() -> None:
    """Both share the lock of the job before either wants it alone; the database ends one of the two transactions."""
    explored = explore(Keys(waiting(WAITS, callers=RETURN_THEN_REPLACE)))
    assert explored.broken == keys.NEVER_LOCKED_OUT


@pytest.mark.parametrize("setting", [waiting(WAITS), unique(WAITS), unique(KEPT)])
def test_callers_that_wait_go_on_when_the_other_is_through(setting: Setting) -> None:
    """Each world has callers that wait for each other, or it would show nothing of that."""
    model = Keys(setting)
    explored = explore(model)
    assert any(model.waiting_callers(world) for world in explored.states)


def of(explored: Explored[World], *words: str) -> bool:
    kinds = {move.kind for edges in explored.edges for move, _ in edges}
    return set(words) <= kinds


def test_each_thing_happens_that_is_told_of() -> None:
    """A rule about what never happens would hold of anything."""
    seen = explore(Keys(waiting(RUNS, WAITS, callers=LATER_THEN_NOW, outcomes=("ok", "again", "later"))))
    assert of(seen, "change (committed twin)", "change (uncommitted twin)", "forward", "forward (locked)")
    assert of(seen, "supersede", "supersede (nothing)", "change", "lock", "commit", "roll back", "release")
    seen = explore(Keys(unique(KEPT, callers=TWO)))
    assert of(seen, "free", "insert again", "find", "its key was kept long enough")
