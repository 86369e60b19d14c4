"""A rule that is left out is missed: for each, the explorer tells a story in which something goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model import rows, rules
from tests.model.explorer import NO_GOOD_END, explore
from tests.model.life import Life
from tests.model.settings import CANCEL, NEIGHBOURS, ONE_WORKER, unlucky
from tests.model.world import Mistake, Setting

MISTAKES: list[tuple[Mistake, Setting, str]] = [
    (Mistake.RENEW_BY_WORKER, unlucky("forget"), NO_GOOD_END),
    (Mistake.CANCEL_LETS_GO, Setting(**CANCEL), rules.KEEPS_EXCLUSION),
    (Mistake.SETTLE_WITHOUT_TOKEN, unlucky("stop host"), rows.ONLY_ITS_CLAIM),
    (Mistake.RECLAIM_OLD_PICTURE, unlucky("stop host"), rows.ONLY_ITS_CLAIM),
    (Mistake.LET_GO_OLD_PICTURE, unlucky("stop host", outcomes=("ok",), claims=1, **CANCEL), rules.KEEPS_EXCLUSION),
    (Mistake.RECLAIM_AT_ONCE, unlucky("lock"), rules.NOBODY_IS_ROBBED),
    (Mistake.RELEASE_BEFORE_DEATH, unlucky("deadline"), rules.CONFIRMED_IS_HELD),
    (Mistake.RELEASE_BEFORE_DEATH, unlucky("deadline", **NEIGHBOURS, **ONE_WORKER), rules.CONFIRMED_IS_HELD),
    (Mistake.COUNT_AT_START, Setting(), rows.CHARGED_RIGHTLY),
    (Mistake.COUNT_AT_START, unlucky("kill"), rules.COUNTERS),
    (Mistake.NO_READ_BACK, unlucky("answer"), rules.NO_FALSE_TELLING),
    (Mistake.READ_BACK_STATE_ONLY, unlucky("stop host"), rules.NO_FALSE_TELLING),
    (Mistake.GONE_IS_OURS, unlucky("stop host", keep=0.0, outcomes=("ok",)), rules.NO_FALSE_TELLING),
    (Mistake.TELL_EARLY, unlucky("answer", **NEIGHBOURS, **ONE_WORKER, **CANCEL, claims=1), rules.TOLD_ONCE),
    (Mistake.TRUST_THE_BOARD, unlucky("kill"), rules.NOBODY_FORGETS),
    (Mistake.ENDED_IS_UNSTARTED, unlucky("kill", restart=False), rows.STARTS_ONCE),
    (Mistake.DISOWN_ONCE, unlucky("air"), rules.NOBODY_FORGETS),
    (Mistake.BURY_ONCE, unlucky("air", "kill"), rules.NOBODY_FORGETS),
    (Mistake.LET_GO_ONCE, unlucky("lock", **CANCEL), rules.NOBODY_FORGETS),
    (Mistake.START_STALE, unlucky("stop"), rules.NO_LONGER_THAN_HELD),
    (Mistake.CONFIRM_FROM_AFTER, unlucky("stop supervisor"), rules.NO_LONGER_THAN_HELD),
    (Mistake.NEVER_ENDS_ITSELF, unlucky("kill supervisor"), rules.STOPS_IN_TIME),
]


def with_mistake(setting: Setting, mistake: Mistake) -> Life:
    values: dict[str, Any] = {field: getattr(setting, field) for field in setting.__dataclass_fields__}
    return Life(Setting(**{**values, "mistakes": frozenset({mistake})}))


@pytest.mark.parametrize(
    ("mistake", "setting", "rule"),
    MISTAKES,
    ids=[f"{mistake.name}-{number}" for number, (mistake, *_) in enumerate(MISTAKES)],
)
def test_a_known_mistake_is_found(mistake: Mistake, setting: Setting, rule: str) -> None:
    explored = explore(with_mistake(setting, mistake), most=100_000)
    assert explored.broken.partition(":")[0] == rule


def test_every_mistake_is_tried() -> None:
    assert {mistake for mistake, *_ in MISTAKES} == set(Mistake)


def test_the_story_of_a_mistake_can_be_read() -> None:
    explored = explore(with_mistake(Setting(**CANCEL), Mistake.CANCEL_LETS_GO))
    lines = explored.story.splitlines()
    assert lines[0] == "Broken: a cancelled row is held until its body has stopped."
    assert [line.strip() for line in lines if line[:4].strip()][1:] == [
        "0. it begins",
        "1. caller: enqueue",
        "2. worker A: claim (1,)",
        "3. worker A: answer",
        "4. worker A: start (0,)",
        "5. somebody: cancel (0,)",
    ]
    assert lines[-1].strip() == (
        "job 1 CANCELLED (attempt 1 of 2, 0 crashes) · worker A [up, confirmed 0/4 ago, job 1 under token 1 runs]"
    )
