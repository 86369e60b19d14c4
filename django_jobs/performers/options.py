"""Declare: what can be said of a job, checked where it is said. Reads no setting."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from django.db import connections

from django_jobs import backoff, durations
from django_jobs.backoff import Backoff
from django_jobs.conf import MOST, NAME, NAME_RULE
from django_jobs.durations import Duration
from django_jobs.exceptions import ControlWord
from django_jobs.records import Places

ExceptionClasses: TypeAlias = type[Exception] | tuple[type[Exception], ...]


Key: TypeAlias = str | bool | Callable[..., str | None]
"""What names the key of a job: a text, a function of its arguments, or True for all of them."""

OnDuplicate: TypeAlias = Literal["return", "replace", "raise"]


class Unset(Enum):
    """The type of UNSET, which says that an option wasn't given."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


class Policy(TypedDict, total=False):
    """What `@job` may say of all jobs of a performer, beside name, aliases and takes_attempt."""

    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    backoff: Backoff
    timeout: Duration | None
    keep: Duration | None
    keep_failed: Duration | None
    expires: Duration | None
    restart: bool
    atomic: bool
    retry_on: ExceptionClasses
    give_up_on: ExceptionClasses
    unique: Key | None
    unique_while_waiting: Key | None
    on_duplicate: OnDuplicate
    unique_for: Duration | None
    on_failure: Any
    redact: str | Iterable[str]


class JobOptions(TypedDict, total=False):
    """What `using` and `named` may say of single jobs."""

    queue: str
    priority: int
    max_attempts: int
    timeout: Duration | None
    keep: Duration | None
    expires: Duration | None
    meta: Mapping[str, Any]
    unique: Key | None
    unique_while_waiting: Key | None
    on_duplicate: OnDuplicate
    unique_for: Duration | None
    after_commit: str | None


class Reschedule(TypedDict, total=False):
    """What may be said anew of a job that waits."""

    queue: str
    priority: int
    run_at: datetime
    max_attempts: int


class Delay(TypedDict, total=False):
    """The parts that `after` adds up."""

    days: float
    hours: float
    minutes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said of one job or of all jobs of a performer, checked; what is UNSET comes from the settings.

    Durations are held as timedelta, None where the option allows it (`keep`: for ever, `timeout`: no limit). `start`
    is the delay that `after` asked for, or the moment of `at`: what was said last.
    """

    queue: str | Unset = UNSET
    priority: int | Unset = UNSET
    max_attempts: int | Unset = UNSET
    max_crashes: int | Unset = UNSET
    backoff: Backoff | Unset = UNSET
    timeout: timedelta | Unset | None = UNSET
    keep: timedelta | Unset | None = UNSET
    keep_failed: timedelta | Unset | None = UNSET
    expires: timedelta | Unset | None = UNSET
    restart: bool | Unset = UNSET
    atomic: bool | Unset = UNSET
    retry_on: tuple[type[Exception], ...] | Unset = UNSET
    give_up_on: tuple[type[Exception], ...] | Unset = UNSET
    unique: Key | Unset | None = UNSET
    unique_while_waiting: Key | Unset | None = UNSET
    on_duplicate: OnDuplicate | Unset = UNSET
    unique_for: timedelta | Unset | None = UNSET
    on_failure: str | Unset = UNSET
    redact: frozenset[str] | Unset = UNSET
    meta: Mapping[str, Any] | Unset = UNSET
    after_commit: str | Unset | None = UNSET
    start: timedelta | datetime | Unset = UNSET


def check_policy(given: Mapping[str, object]) -> Options:
    """Check what `@job` was given. Raises TypeError or ValueError, naming option, value and remedy."""
    return _of_one_kind(replace(Options(), **_checked(given, Policy, "@job()")), "@job()")


def check_options(given: Mapping[str, object], wider: Options, *, call: str = "using()") -> Options:
    """Put options of single jobs over wider ones. Raises TypeError or ValueError, naming option, value and remedy."""
    return _of_one_kind(replace(wider, **_checked(given, JobOptions, call)), call)


def _of_one_kind(options: Options, call: str) -> Options:
    """Refuse two kinds of keys at once, and a time for a key that there isn't."""
    unique, waiting = ({UNSET, None}.isdisjoint({key}) for key in (options.unique, options.unique_while_waiting))
    if unique and waiting:
        message = (
            f"{call}: unique={options.unique!r:.80} and unique_while_waiting={options.unique_while_waiting!r:.80}; "
            "a job has one kind of key, so give None for the other"
        )
        raise ValueError(message)
    if not {UNSET, None}.isdisjoint({options.unique_for}) or unique:
        return options
    message = f"{call}: unique_for={options.unique_for!s:.80} says how long a key is held, so give unique, too"
    raise ValueError(message)


def check_places(given: Mapping[str, object]) -> Places:
    """Check what `reschedule` was given. Raises TypeError or ValueError, naming option, value and remedy."""
    if not given:
        message = f"reschedule() takes {', '.join(Reschedule.__annotations__)}; give at least one"
        raise TypeError(message)
    others = {option: value for option, value in given.items() if option != "run_at"}
    run_at = check_moment(given["run_at"], call="run_at") if "run_at" in given else None
    return Places(**_checked(others, Reschedule, "reschedule()"), run_at=run_at)


def check_delay(delay: Any, parts: Mapping[str, object]) -> timedelta:
    """Read what `after` was given. Raises TypeError or ValueError, naming value and remedy."""
    _refuse_unknown(parts, Delay, "after()")
    if (delay is None) == (not parts):
        message = "after(): give either one duration, as in after(10) or after('5m'), or parts, as in after(minutes=5)"
        raise TypeError(message)
    if not parts:
        return durations.parse(delay, what="after()")
    seconds = sum(_number(unit, value) * _SECONDS[unit] for unit, value in parts.items())
    shown = ", ".join(f"{unit}={value}" for unit, value in parts.items())
    return durations.parse(seconds, what=f"after({shown})")


def check_moment(moment: object, *, call: str = "at()") -> datetime:
    """Read what `at` was given. Raises TypeError or ValueError, naming value and remedy."""
    name = call.removesuffix("()")
    if not isinstance(moment, datetime):
        message = f"{name}({moment!r:.80}): give a datetime; for a delay there is after()"
        raise TypeError(message)
    if moment.utcoffset() is None:
        message = (
            f"{name}({moment!r}): this datetime is naive; give an aware one, as django.utils.timezone.make_aware() does"
        )
        raise ValueError(message)
    try:
        moment.astimezone(UTC)
    except OverflowError:
        message = f"{name}({moment!r}): in UTC this is no year from 1 to 9999"
        raise ValueError(message) from None
    return moment


def check_name(option: str, value: object) -> str:
    """Give a name of a performer or queue back as plain text. Raises TypeError or ValueError, naming the rule."""
    if not isinstance(value, str):
        message = f"{option}={value!r:.80}: give a text"
        raise TypeError(message)
    if not NAME.fullmatch(value):
        message = f"{option}={value!r:.120}: give {NAME_RULE}"
        raise ValueError(message)
    return str.__str__(value)


def check_truth(option: str, value: object) -> bool:
    """Give True or False back. Raises TypeError for anything else, naming option, value and remedy."""
    if not isinstance(value, bool):
        message = f"{option}={value!r:.80}: give True or False"
        raise TypeError(message)
    return value


# -- one check per option


def _checked(given: Mapping[str, object], kind: type, call: str) -> dict[str, Any]:
    _refuse_unknown(given, kind, call)
    return {option: value if value is UNSET else _CHECKS[option](option, value) for option, value in given.items()}


def _refuse_unknown(given: Mapping[str, object], kind: type, call: str) -> None:
    known = list(kind.__annotations__)
    for option in given:
        if option not in known:
            near = difflib.get_close_matches(str(option), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
            message = f"{call} has no option {option!r}; {hint}"
            raise TypeError(message)


def check_whole(option: str, value: object, lowest: int, highest: int, hint: str = "") -> int:
    """Give a whole number back as a plain one. Raises TypeError or ValueError, naming option, value and remedy."""
    remedy = f"give a whole number from {lowest:,} to {highest:,}{hint}"
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{option}={value!r:.80}: {remedy}"
        raise TypeError(message)
    if not lowest <= value <= highest:
        message = f"{option}={value!r:.80}: {remedy}"
        raise ValueError(message)
    return int(value)


def _priority(option: str, value: object) -> int:
    return check_whole(option, value, LOWEST_PRIORITY, HIGHEST_PRIORITY, ", higher runs first")


def _count(option: str, value: object) -> int:
    return check_whole(option, value, 1, MOST)


def _backoff(option: str, value: Any) -> Backoff:
    remedy = "give one of django_jobs.backoff, or a callable of the attempt's number and the exception"
    if not callable(value):
        message = f"{option}={value!r:.80}: {remedy}"
        raise TypeError(message)
    try:
        backoff.takes_exception(value)
    except (TypeError, ValueError) as error:
        message = f"{option}={value!r:.80}: {error}; {remedy}"
        raise TypeError(message) from error
    return value  # type: ignore[no-any-return]


def _maybe_duration(option: str, value: Any) -> timedelta | None:
    return None if value is None else durations.parse(value, what=option)


def _timeout(option: str, value: Any) -> timedelta | None:
    timeout = _maybe_duration(option, value)
    if timeout == timedelta(0):
        message = f"{option}={value!r:.80}: give a duration above 0, or None for no limit"
        raise ValueError(message)
    return timeout


def _exceptions(option: str, value: object) -> tuple[type[Exception], ...]:
    given = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    for kind in given:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            message = f"{option}={value!r:.80}: give subclasses of Exception, one or a tuple of them"
            raise TypeError(message)
        if issubclass(kind, ControlWord):
            message = f"{option}={value!r:.80}: {kind.__name__} says by itself what becomes of the job; leave it out"
            raise TypeError(message)
    return tuple(given)


def _key(option: str, value: object) -> Key | None:
    if value is False or not (value is None or value is True or isinstance(value, str) or callable(value)):
        message = f"{option}={value!r:.80}: give a text, True for all arguments, a function of them, or None"
        raise TypeError(message)
    return value


def _on_duplicate(option: str, value: object) -> OnDuplicate:
    if value not in get_args(OnDuplicate):
        message = f'{option}={value!r:.80}: give "return", "replace" or "raise"'
        raise ValueError(message)
    return value  # type: ignore[return-value]


def _performer_name(option: str, value: Any) -> str:
    """Read a performer, or the name of one that may be declared later."""
    if isinstance(value, str):
        return check_name(option, value)
    if not (callable(getattr(value, "prepare", None)) and isinstance(getattr(value, "name", None), str)):
        message = f"{option}={value!r:.80}: give a performer, or the name of one"
        raise TypeError(message)
    return str(value.name)


def _redacted(option: str, value: object) -> frozenset[str]:
    given = [value] if isinstance(value, str) else value
    remedy = "give names of arguments, or of keys within them"
    if not isinstance(given, Iterable):
        message = f"{option}={value!r:.80}: {remedy}"
        raise TypeError(message)
    names: set[str] = set()
    for name in given:
        if not isinstance(name, str):
            message = f"{option}={name!r:.80}: {remedy}"
            raise TypeError(message)
        if not name:
            message = f"{option}={name!r}: an empty name hides nothing; {remedy}"
            raise ValueError(message)
        names.add(str.__str__(name))
    return frozenset(names)


def _meta(option: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        message = f"{option}={value!r:.80}: give a dict"
        raise TypeError(message)
    return dict(value)


def _alias(option: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value in connections):
        return value
    message = f"{option}={value!r:.80}: give an alias of DATABASES, which has {', '.join(connections)}, or None"
    raise ValueError(message)


def _number(unit: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"after({unit}={value!r:.80}): give a number of {unit}"
        raise TypeError(message)
    return value


_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "queue": check_name,
    "priority": _priority,
    "max_attempts": _count,
    "max_crashes": _count,
    "backoff": _backoff,
    "timeout": _timeout,
    "keep": _maybe_duration,
    "keep_failed": _maybe_duration,
    "expires": _maybe_duration,
    "restart": check_truth,
    "atomic": check_truth,
    "retry_on": _exceptions,
    "give_up_on": _exceptions,
    "unique": _key,
    "unique_while_waiting": _key,
    "on_duplicate": _on_duplicate,
    "unique_for": _timeout,
    "on_failure": _performer_name,
    "redact": _redacted,
    "meta": _meta,
    "after_commit": _alias,
}
