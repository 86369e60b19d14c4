"""Durations: seconds, a timedelta or text like "5m" -> timedelta. The lowest storey: imports nothing of ours."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = int | float | timedelta | str
"""How people write a length of time: seconds, a timedelta, or text like "5m" and "1h30m"."""

LONGEST = timedelta(days=36_525)
"""The longest duration that is believed: about a hundred years."""

_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_BARE_NUMBER = re.compile(_NUMBER)
_PARTS = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}) *{unit} *)?" for unit in _SECONDS))


def parse(value: Duration, *, what: str = "duration") -> timedelta:
    """Turn a duration into a timedelta.

    Numbers, and text that is a bare number, are seconds. Other text has the units w, d, h, m, s and ms, the largest
    first and each at most once: "90s", "1.5h", "2 d", "1h30m". `what` begins the messages.

    Raises TypeError for another type (bool too), and ValueError for text that can't be read and for durations that are
    negative, not finite or longer than about a hundred years.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta, str)):
        raise TypeError(_refusal(what, value, "is not a duration"))
    seconds = _seconds(value)
    if seconds < 0:
        raise ValueError(_refusal(what, value, "is negative"))
    if seconds > LONGEST.total_seconds():
        raise ValueError(_refusal(what, value, "is longer than 100 years"))
    if not seconds >= 0:  # Only NaN is none of the three.
        raise ValueError(_refusal(what, value, "is not a duration"))
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)


def _seconds(value: Duration) -> float:
    match value:
        case timedelta():
            return value.total_seconds()
        case str():
            return _seconds_of_text(value.strip())
        case _:
            return value


def _seconds_of_text(text: str) -> float:
    """Add up the parts of "1h30m"; NaN where the text can't be read."""
    if _BARE_NUMBER.fullmatch(text):
        return float(text)
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        return math.nan
    return sum(float(parts[unit] or 0) * seconds for unit, seconds in _SECONDS.items())


def _refusal(what: str, value: object, problem: str) -> str:
    return f'{what}: {_shown(value)} {problem}; give seconds, a timedelta or text like "5m"'


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a message about a bad value must not fail on the value
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def words(seconds: float) -> str:
    """Write a length of time for people, in the largest unit that leaves a number above one: "45 s", "3 min", "2 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"
