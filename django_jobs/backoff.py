"""Decide: the number of the attempt that failed -> how long to wait. Pure: no database, no clock, no settings.

A backoff is any callable of the attempt's number, or of the number and the exception, that gives a duration. Those here
are values with a repr that reads like the call; they never overflow, however high the attempt.
"""
# ruff: noqa: N801 - these classes are called like functions, and each takes what every backoff may be given

from __future__ import annotations

import inspect
import math
import random
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from django_jobs import durations
from django_jobs.durations import Duration

__all__ = ["MAX_DELAY", "Backoff", "delay_of", "exponential", "fixed", "linear", "polynomial", "steps"]

Backoff: TypeAlias = Callable[[int, BaseException | None], Duration] | Callable[[int], Duration]
"""What may be given as a backoff."""

MAX_DELAY = timedelta(days=365)
"""No backoff waits longer."""

# An instance of its own, so that jitter neither follows nor disturbs the seed of user code.
_random = random.Random()  # noqa: S311 - jitter is no secret


@dataclass(frozen=True, slots=True)
class exponential:
    """Wait `base`·`factor`ⁿ⁻¹ after attempt n, at most `cap`, times a random number within 1 ± `jitter`.

    `base` and `cap` are durations, `factor` is at least 1, `jitter` lies in 0..1. Raises TypeError and ValueError.
    """

    base: Duration = 15
    _: KW_ONLY
    factor: float = 2
    cap: Duration = "6h"
    jitter: float = 0.1

    def __post_init__(self) -> None:
        _check_durations(base=self.base, cap=self.cap)
        _check_number("factor", self.factor, least=1)
        _check_number("jitter", self.jitter, least=0, most=1)

    def __call__(self, attempt: int, exception: BaseException | None = None) -> timedelta:
        """Give the delay after the attempt of that number."""
        growth = _power(self.factor, _number(attempt) - 1)
        return _delay(_seconds(self.base) * growth, cap=self.cap, jitter=self.jitter)


@dataclass(frozen=True, slots=True)
class polynomial:
    """Wait n^`power` seconds and `plus` after attempt n, at most `cap`, times a random number within 1 ± `jitter`.

    `plus` and `cap` are durations, `power` is at least 0, `jitter` lies in 0..1. Raises TypeError and ValueError.
    """

    power: float = 4
    _: KW_ONLY
    plus: Duration = 2
    cap: Duration = "365d"
    jitter: float = 0

    def __post_init__(self) -> None:
        _check_durations(plus=self.plus, cap=self.cap)
        _check_number("power", self.power, least=0)
        _check_number("jitter", self.jitter, least=0, most=1)

    def __call__(self, attempt: int, exception: BaseException | None = None) -> timedelta:
        """Give the delay after the attempt of that number."""
        return _delay(_power(_number(attempt), self.power) + _seconds(self.plus), cap=self.cap, jitter=self.jitter)


@dataclass(frozen=True, slots=True)
class linear:
    """Wait `step`·n after attempt n, at most `cap`; both are durations. Raises TypeError and ValueError."""

    step: Duration
    _: KW_ONLY
    cap: Duration = "365d"

    def __post_init__(self) -> None:
        _check_durations(step=self.step, cap=self.cap)

    def __call__(self, attempt: int, exception: BaseException | None = None) -> timedelta:
        """Give the delay after the attempt of that number."""
        return _delay(_seconds(self.step) * _number(attempt), cap=self.cap)


@dataclass(frozen=True, slots=True)
class fixed:
    """Wait `delay`, a duration, after every attempt. Raises TypeError and ValueError."""

    delay: Duration

    def __post_init__(self) -> None:
        _check_durations(delay=self.delay)

    def __call__(self, attempt: int, exception: BaseException | None = None) -> timedelta:
        """Give the delay, whatever the attempt."""
        return _delay(_seconds(self.delay))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class steps:
    """Wait the first of `delays` after attempt 1, the second after attempt 2, and the last ever after.

    Each is a duration. Raises TypeError and ValueError, also where none is given.
    """

    delays: tuple[Duration, ...]

    def __init__(self, *delays: Duration) -> None:
        if not delays:
            raise ValueError('steps: no delay is given; give one or more, as in steps("10s", "1m", "1h")')
        for number, delay in enumerate(delays, start=1):
            _check_durations(**{f"delay {number}": delay})
        object.__setattr__(self, "delays", delays)

    def __repr__(self) -> str:
        return f"steps({', '.join(map(repr, self.delays))})"

    def __call__(self, attempt: int, exception: BaseException | None = None) -> timedelta:
        """Give the delay after the attempt of that number."""
        return _delay(_seconds(self.delays[min(_number(attempt), len(self.delays)) - 1]))


def _check_durations(**arguments: Duration) -> None:
    for name, value in arguments.items():
        durations.parse(value, what=name)


def _check_number(name: str, value: float, *, least: float, most: float = sys.float_info.max) -> None:
    remedy = f"give a number from {least} to {most}" if most <= 1 else f"give a number of {least} or more"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: {value!r:.80} is not a number; {remedy}")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value!r:.80} is out of range; {remedy}")


def _number(attempt: int) -> int:
    """Count attempts from 1, also for a caller who begins below."""
    return max(attempt, 1)


def _seconds(duration: Duration) -> float:
    return durations.parse(duration).total_seconds()


def _power(base: float, exponent: float) -> float:
    """Raise to a power in floats, which is quick for every exponent; the largest float where it would overflow."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return sys.float_info.max


def _delay(seconds: float, *, cap: Duration = MAX_DELAY, jitter: float = 0) -> timedelta:
    seconds = min(seconds, _seconds(cap))
    if jitter:
        seconds *= _random.uniform(1 - jitter, 1 + jitter)
    return min(timedelta(seconds=seconds), MAX_DELAY)


def delay_of(backoff: Backoff, attempt: int, exception: BaseException | None = None) -> timedelta:
    """Ask `backoff` how long to wait after the attempt of that number, and check its answer.

    A callable that can be called with two positional arguments is given the exception too. Answers above MAX_DELAY,
    as long as they are finite, are cut to it.

    Raises TypeError for a callable that takes neither one nor two arguments and for an answer that is no duration,
    ValueError for one that is negative, not finite or can't be read; what `backoff` raises passes through.
    """
    call: Callable[..., Duration] = backoff
    answer = call(attempt, exception) if takes_exception(backoff) else call(attempt)
    if _is_above_max(answer):
        return MAX_DELAY
    return min(durations.parse(answer, what="the backoff's answer"), MAX_DELAY)


def takes_exception(backoff: Backoff) -> bool:
    """Tell whether a backoff wants the exception, too. Raises TypeError for a callable that takes no attempt number."""
    try:
        return _signature_takes_exception(backoff)
    except TypeError:  # It can't be hashed, so its signature is read each time; or it is wrong, and that is said again.
        return _signature_takes_exception.__wrapped__(backoff)


@lru_cache(maxsize=256)
def _signature_takes_exception(backoff: Callable[..., Any]) -> bool:
    signature = inspect.signature(backoff)
    for arguments in ((1, None), (1,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return len(arguments) == 2
    raise TypeError(f"a backoff takes (attempt) or (attempt, exception); {backoff!r} takes {signature}")


def _is_above_max(answer: Duration) -> bool:
    match answer:
        case timedelta():
            return answer > MAX_DELAY
        case int() | float():
            return MAX_DELAY.total_seconds() < answer < float("inf")
        case _:
            return False
