"""The worlds that are explored: small ones, each with some bad luck and some wishes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from tests.model.world import Setting

FAULTS = (
    "answer", "air", "kill", "stop", "kill supervisor", "stop supervisor", "stop host", "terminate", "deadline",
    "clock", "lock", "slow",
)  # fmt: skip

CANCEL: dict[str, Any] = {"wishes": frozenset({"cancel"}), "will": 1}
AGAIN: dict[str, Any] = {"wishes": frozenset({"retry", "delete"}), "will": 1}
NEIGHBOURS: dict[str, Any] = {"jobs": 2, "slots": 2, "outcomes": ("ok",)}
"""Two jobs in one worker."""

ONE_SUPERVISOR: dict[str, Any] = {"supervisor_of": (0, 0)}
ONE_WORKER: dict[str, Any] = {"supervisor_of": (0,)}


def unlucky(*faults: str, **more: Any) -> Setting:
    """Give a world in which as many faults may strike as are named, of these kinds."""
    return Setting(faults=frozenset(faults), trouble=len(faults), **more)


WORLDS = [
    unlucky("answer", outcomes=("ok",), **CANCEL),
    unlucky("answer", **AGAIN),
    unlucky("answer", keep=0.0, outcomes=("ok",)),
    unlucky("answer", outcomes=("ok", "snooze")),
    unlucky("answer", "air"),
    unlucky("air", "kill"),
    unlucky("kill", outcomes=("ok",), **CANCEL),
    unlucky("kill", restart=False),
    unlucky("kill", **ONE_SUPERVISOR),
    unlucky("stop"),
    unlucky("stop", restart=False),
    unlucky("stop", outcomes=("ok",), claims=1, **CANCEL),
    unlucky("kill supervisor"),
    unlucky("stop supervisor", outcomes=("ok",)),
    unlucky("stop host", max_attempts=1, outcomes=("ok",)),
    unlucky("terminate"),
    unlucky("terminate", restart=False),
    unlucky("deadline", max_attempts=1),
    unlucky("deadline", **NEIGHBOURS, **ONE_WORKER),
    unlucky("deadline", "kill", **NEIGHBOURS, **ONE_WORKER, claims=1),
    unlucky("clock"),
    unlucky("lock"),
    unlucky("forget"),
]
"""Explored in the ordinary suite, all of them to their end."""

LARGE_WORLDS = [
    *(unlucky(*pair) for pair in combinations(FAULTS, 2)),
    *(unlucky(fault, wishes=frozenset({"cancel", "retry", "delete"}), will=2) for fault in FAULTS),
    *(unlucky(fault, **NEIGHBOURS, **ONE_SUPERVISOR) for fault in FAULTS),
    *(unlucky(fault, **NEIGHBOURS, **ONE_WORKER, **CANCEL) for fault in FAULTS),
    *(unlucky(fault, restart=False, **AGAIN) for fault in FAULTS),
    *(unlucky(fault, keep=0.0, **CANCEL) for fault in FAULTS),
    unlucky("kill", "kill supervisor", "stop", claims=3, max_attempts=3, max_crashes=3, outcomes=("ok",)),
]
"""Explored in the long form, each as far as a bound."""

ACTED_OUT = [
    unlucky("answer", wishes=frozenset({"cancel", "retry", "delete"}), will=1),
    unlucky("answer", "kill"),
    unlucky("answer", "kill", outcomes=("ok",), claims=1, **ONE_WORKER, **CANCEL),
    unlucky("answer", "air"),
    unlucky("answer", "kill supervisor"),
    unlucky("answer", "stop"),
    unlucky("answer", "clock", **CANCEL),
    unlucky("answer", "terminate", restart=False),
    unlucky("answer", "deadline", **NEIGHBOURS, **ONE_SUPERVISOR),
    unlucky("stop host", keep=0.0, outcomes=("ok",)),
    unlucky("stop host", outcomes=("fail", "snooze")),
]
"""Stories of these are acted out on the real rows."""

ACTED_OUT_WITH_LOCKS = [unlucky("lock", **CANCEL)]
"""The same, where a database locks rows."""
