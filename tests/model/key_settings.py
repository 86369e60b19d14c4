"""The worlds of keys that are explored: a few callers, a worker or two, and some wishes and bad luck."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.model.keys import Ask, Hand, Row, Setting, Slip, Version

WAITS = Row(now=Version())
WAITS_FOR_LATER = Row(now=Version(later=True))
RUNS = Row(now=Version("RUNNING", held=True, attempts=1), hand=Hand("runs"))
KEPT = Row(now=Version("SUCCESSFUL", kept=1, attempts=1))
CANCELLED = Row(now=Version("CANCELLED"))

ONE = ((Ask(),),)
TWO = ((Ask(),), (Ask(),))
ONE_REPLACES = ((Ask(),), (Ask("replace", later=True),))
ONE_REFUSES = ((Ask("raise"),), (Ask(later=True),))
BOTH_REPLACE = ((Ask("replace", later=True),), (Ask("replace"),))
ASKS_TWICE = ((Ask(), Ask(later=True)), (Ask(),))
THREE = ((Ask(),), (Ask("replace", later=True),), (Ask(),))

PEOPLE: dict[str, Any] = {"wishes": frozenset({"cancel", "retry", "delete"}), "will": 1}
ALL_OUTCOMES = ("ok", "again", "later")


def waiting(*first: Row, **more: Any) -> Setting:
    return Setting(kind="waiting", first=first, **more)


def unique(*first: Row, **more: Any) -> Setting:
    return Setting(kind="unique", first=first, **more)


WORLDS = [
    waiting(),
    waiting(WAITS, outcomes=ALL_OUTCOMES),
    waiting(WAITS, callers=ONE_REPLACES),
    waiting(WAITS, callers=BOTH_REPLACE),
    waiting(WAITS, callers=ASKS_TWICE),
    waiting(WAITS, callers=ONE, trouble=1, **PEOPLE),
    waiting(WAITS_FOR_LATER, callers=ONE_REFUSES),
    waiting(RUNS, trouble=1),
    waiting(RUNS, callers=((Ask(later=True),), (Ask(),)), outcomes=ALL_OUTCOMES),
    waiting(RUNS, RUNS, callers=ONE, workers=2, trouble=1),
    waiting(RUNS, RUNS, callers=ONE, **PEOPLE),
    waiting(RUNS, WAITS_FOR_LATER, callers=ONE_REPLACES),
    waiting(RUNS, WAITS_FOR_LATER, callers=(), outcomes=ALL_OUTCOMES, trouble=1, **PEOPLE),
    waiting(CANCELLED, callers=TWO, attempts=1, **PEOPLE),
    unique(WAITS, trouble=1),
    unique(WAITS, callers=ONE_REPLACES),
    unique(WAITS, callers=BOTH_REPLACE),
    unique(WAITS, callers=ONE, trouble=1, **PEOPLE),
    unique(RUNS, callers=ONE_REFUSES, trouble=1),
    unique(RUNS, callers=TWO, **PEOPLE),
    unique(KEPT, unique_for=True),
    unique(KEPT, callers=THREE, attempts=1, outcomes=("ok",)),
    unique(KEPT, callers=TWO, attempts=1, **PEOPLE),
]
"""Explored in the ordinary suite, all of them to their end."""

LARGE_WORLDS = [
    *(
        replace(setting, callers=THREE, workers=2, trouble=1, outcomes=ALL_OUTCOMES, **PEOPLE)
        for setting in (waiting(), waiting(WAITS), waiting(RUNS), waiting(RUNS, RUNS), waiting(RUNS, WAITS_FOR_LATER))
    ),
    *(
        replace(setting, callers=THREE, trouble=1, outcomes=ALL_OUTCOMES, **PEOPLE)
        for setting in (unique(), unique(WAITS), unique(RUNS), unique(KEPT), unique(KEPT, unique_for=True))
    ),
    *(
        replace(setting, callers=(*ASKS_TWICE, ASKS_TWICE[0]), trouble=1)
        for setting in (waiting(WAITS), waiting(RUNS), unique(WAITS), unique(KEPT))
    ),
]
"""Explored in the long form, each as far as a bound."""


def with_slip(setting: Setting, slip: Slip, *unheeded: str) -> Setting:
    return replace(setting, slips=frozenset({slip}), unheeded=frozenset(unheeded))
