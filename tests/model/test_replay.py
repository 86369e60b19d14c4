"""Stories of the life model, acted out on the real database: its rows must go the way of the model's."""

from __future__ import annotations

from functools import cache

import pytest
from django.db import connections

from django_jobs.stores import statements
from tests.model.replay import Breaker, stage
from tests.model.settings import ACTED_OUT, ACTED_OUT_WITH_LOCKS, LARGE_WORLDS
from tests.model.stories import Story, choose, kinds_in
from tests.model.world import Setting

pytestmark = pytest.mark.django_db(transaction=True)

STATEMENTS = (
    "claim", "disown: look", "disown: write", "disown: let go", "settle: succeed", "settle: change", "settle: peek",
    "settle: let go", "renew", "renew: peek", "bury: look", "bury: write", "bury: let go", "reclaim: look",
    "reclaim: look again", "reclaim: write", "reclaim: let go",
)  # fmt: skip

LOOKS = ("disown: look", "settle: peek", "renew: peek", "bury: look", "reclaim: look", "reclaim: look again")
"""They change nothing, so it makes no difference whether they were broken off before or after."""


def locks_rows() -> bool:
    return connections["default"].features.has_select_for_update_skip_locked


@cache
def stories(most: int) -> list[Story]:
    settings = ACTED_OUT + (ACTED_OUT_WITH_LOCKS if locks_rows() else [])
    return choose(settings, most=most, states=2_000)


def act_out(chosen: list[Story]) -> int:
    """Act these out and say how often a connection was broken for it."""
    breaker = Breaker()
    for story in chosen:
        with stage(story, breaker) as acted:
            acted.act()
    return breaker.count


def test_stories_of_the_model_go_the_same_way_on_the_real_rows() -> None:
    chosen = stories(200)
    assert len(chosen) == 200
    assert act_out(chosen) > 100


def test_the_stories_break_connections_before_and_after_each_statement() -> None:
    """Together they show each kind of move that there is."""
    kinds = kinds_in(stories(200))
    assert set(STATEMENTS) <= kinds
    assert {f"{statement}, not written" for statement in STATEMENTS} <= kinds
    assert {f"{statement}, answer lost" for statement in STATEMENTS if statement not in LOOKS} <= kinds


@pytest.mark.parametrize(
    ("name", "guard", "kind"),
    [
        ("CHANGE", "job.token = c.token and job.state = 'RUNNING'", "settle: change"),
        ("SUCCEED", "job.token = c.token and job.state = 'RUNNING'", "settle: succeed"),
        ("CHANGE_LAPSED", "job.token = c.token and job.state = 'RUNNING'", "reclaim: write"),
        ("RENEW", "job.token = c.token and job.worker is not null", "renew"),
        ("DELETE", "job.worker is null", "delete (refused)"),
    ],
)
def test_a_statement_without_its_guard_goes_another_way(
    monkeypatch: pytest.MonkeyPatch, name: str, guard: str, kind: str
) -> None:
    text: str = getattr(statements, name)
    assert guard in text
    monkeypatch.setattr(statements, name, text.replace(guard, "1 = 1"))
    with pytest.raises(AssertionError):
        act_out([story for story in stories(200) if kind in kinds_in([story])])


@pytest.mark.soak
@pytest.mark.parametrize("setting", LARGE_WORLDS)
def test_many_more_stories_go_the_same_way(setting: Setting) -> None:
    if "lock" in setting.faults and not locks_rows():
        pytest.skip("this database locks whole files, not rows")
    act_out(choose([setting], most=200, states=20_000))
