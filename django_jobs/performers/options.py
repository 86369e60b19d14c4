"""Declare: what can be said of a job, checked where it is said. Reads no setting."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from django_jobs import durations


class Unset(Enum):
    """The type of UNSET, which says that an option wasn't given."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is said of one job or of all jobs of a performer; UNSET comes from the next wider place.

    Durations are held as timedelta, None where the option allows it (`keep`: for ever, `timeout`: no limit).
    """

    queue: str | Unset = UNSET
    priority: int | Unset = UNSET
    max_attempts: int | Unset = UNSET
    max_crashes: int | Unset = UNSET
    timeout: timedelta | Unset | None = UNSET
    keep: timedelta | Unset | None = UNSET
    keep_failed: timedelta | Unset | None = UNSET
    expires: timedelta | Unset | None = UNSET
    restart: bool | Unset = UNSET
    delay: timedelta | Unset = UNSET
    run_at: datetime | Unset = UNSET
    meta: Mapping[str, Any] | Unset = UNSET

    def over(self, wider: Options) -> Options:
        """Give these options, and the wider ones where nothing is said."""
        given = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not UNSET}
        return replace(wider, **given)


def check_options(**given: Any) -> Options:
    """Turn options as people write them into Options. Raises TypeError or ValueError, naming option, value and remedy."""
    checked: dict[str, Any] = {}
    for option, value in given.items():
        if option not in _CHECKS:
            near = difflib.get_close_matches(option, _CHECKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(_CHECKS)}"
            message = f"{option!r} is no option of a job; {hint}"
            raise TypeError(message)
        checked[option] = value if value is UNSET else _CHECKS[option](option, value)
    return Options(**checked)


def _whole(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{option}={value!r}: give a whole number"
        raise TypeError(message)
    return value


def _priority(option: str, value: object) -> int:
    priority = _whole(option, value)
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        message = f"{option}={value!r}: give a whole number from -100 to 100, higher runs first"
        raise ValueError(message)
    return priority


def _count(option: str, value: object) -> int:
    count = _whole(option, value)
    if not 1 <= count <= 1_000_000:
        message = f"{option}={value!r}: give a whole number of 1 or more"
        raise ValueError(message)
    return count


def _duration(option: str, value: Any) -> timedelta:
    return durations.parse(value, what=option)


def _maybe_duration(option: str, value: Any) -> timedelta | None:
    return None if value is None else _duration(option, value)


def _timeout(option: str, value: Any) -> timedelta | None:
    timeout = _maybe_duration(option, value)
    if timeout is not None and not timeout:
        message = f"{option}={value!r}: give a duration above 0, or None for no limit"
        raise ValueError(message)
    return timeout


def _truth(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        message = f"{option}={value!r}: give True or False"
        raise TypeError(message)
    return value


def check_name(option: str, value: object) -> str:
    """Give a name of a performer or queue back. Raises TypeError or ValueError, naming option, value and remedy."""
    if not isinstance(value, str):
        message = f"{option}={value!r}: give a text"
        raise TypeError(message)
    if not NAME.fullmatch(value):
        shown = value if len(value) <= 120 else f"{value[:120]}… ({len(value)} characters)"
        message = f"{option}={shown!r}: give 1 to 100 letters, digits or any of _ - . :"
        raise ValueError(message)
    return value


def _instant(option: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        message = f"{option}={value!r}: give a datetime; for a delay there is after()"
        raise TypeError(message)
    if value.tzinfo is None:
        message = f"{option}={value!r} is naive: give an aware datetime, for example django.utils.timezone.now()"
        raise ValueError(message)
    return value


def _meta(option: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        message = f"{option}={value!r}: give a mapping"
        raise TypeError(message)
    return dict(value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "queue": check_name,
    "priority": _priority,
    "max_attempts": _count,
    "max_crashes": _count,
    "timeout": _timeout,
    "keep": _maybe_duration,
    "keep_failed": _maybe_duration,
    "expires": _maybe_duration,
    "restart": _truth,
    "delay": _duration,
    "run_at": _instant,
    "meta": _meta,
}
