"""Know: the settings, read lazily from DJANGO_JOBS and dropped when a test overrides it. The only room that reads them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, TypedDict

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobs import backoff, durations


class DjangoJobs(TypedDict, total=False):
    """The shape of the setting DJANGO_JOBS; every key is optional. Durations are seconds, timedelta or text like "5m"."""

    DATABASE: str
    QUEUES: Sequence[str] | Mapping[str, Mapping[str, int]] | None
    DEFAULT_QUEUE: str
    AUTODISCOVER: Sequence[str]
    MAX_ATTEMPTS: int
    BACKOFF: str | Callable[..., Any]
    TIMEOUT: durations.Duration | None
    KEEP_SUCCESSFUL: durations.Duration | None
    KEEP_FAILED: durations.Duration | None
    WORKER: Mapping[str, Any]
    LEASE: durations.Duration
    GRACE: durations.Duration
    TIMEOUT_GRACE: durations.Duration
    UNKNOWN_JOBS: str
    MAX_ARGS_BYTES: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """DJANGO_JOBS with its defaults, checked. Field names are the keys in lower case."""

    database: str = "default"
    queues: frozenset[str] | None = None
    default_queue: str = "default"
    autodiscover: tuple[str, ...] = ("jobs",)
    max_attempts: int = 20
    backoff: Callable[..., Any] = backoff.exponential()
    timeout: timedelta | None = timedelta(minutes=5)
    keep_successful: timedelta | None = timedelta(days=1)
    keep_failed: timedelta | None = timedelta(days=14)
    worker: Mapping[str, Any]
    lease: timedelta = timedelta(seconds=60)
    grace: timedelta = timedelta(seconds=15)
    timeout_grace: timedelta = timedelta(seconds=5)
    unknown_jobs: str = "fail"
    max_args_bytes: int = 1_000_000


KEYS = tuple(field.name.upper() for field in fields(Settings))

_cached: Settings | None = None


def settings() -> Settings:
    """Give the project's settings. Raises ImproperlyConfigured, naming key, value and remedy, where one is wrong."""
    global _cached  # noqa: PLW0603 - read once, dropped by setting_changed
    if _cached is None:
        _cached = read(getattr(django_settings, "DJANGO_JOBS", {}))
    return _cached


def autodiscover() -> tuple[str, ...]:
    """Give the names of modules to import at start, also where another key is wrong: check E001 tells of that one."""
    try:
        return settings().autodiscover
    except ImproperlyConfigured:
        return ("jobs",)


def read(given: object) -> Settings:
    """Turn what stands in DJANGO_JOBS into Settings. Raises ImproperlyConfigured as `settings` does."""
    if not isinstance(given, Mapping):
        message = f"DJANGO_JOBS must be a dict, not {given!r}"
        raise ImproperlyConfigured(message)
    values: dict[str, Any] = {"worker": {}}
    for key, value in given.items():
        if key in _READERS:
            values[key.lower()] = _READERS[key](key, value)
    return Settings(**values)


def unknown_keys(given: object) -> dict[str, str]:
    """Map each key that DJANGO_JOBS doesn't know to the nearest one it does, '' where none is near."""
    if not isinstance(given, Mapping):
        return {}
    strangers = [str(key) for key in given if key not in KEYS]
    return {key: next(iter(difflib.get_close_matches(key.upper(), KEYS, n=1)), "") for key in strangers}


def _wrong(key: str, value: object, remedy: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"DJANGO_JOBS[{key!r}] is {value!r}; {remedy}")


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(key, value, "give a text that isn't empty")
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(key, value, "give a list of texts")
    return tuple(_text(key, item) for item in value)


def _queues(key: str, value: object) -> frozenset[str] | None:
    if value is None:
        return None
    return frozenset(_texts(key, list(value) if isinstance(value, Mapping) else value))


def _positive(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(key, value, "give a whole number of 1 or more")
    return value


def _duration(key: str, value: object) -> timedelta:
    try:
        return durations.parse(value, what=f"DJANGO_JOBS[{key!r}]")  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error


def _some_duration(key: str, value: object) -> timedelta:
    duration = _duration(key, value)
    if not duration:
        raise _wrong(key, value, "give a duration above 0")
    return duration


def _lease(key: str, value: object) -> timedelta:
    lease = _duration(key, value)
    if lease < timedelta(seconds=1):
        raise _wrong(key, value, "give a second or more; each lease is renewed every quarter")
    return lease


def _optional(reader: Callable[[str, object], timedelta]) -> Callable[[str, object], timedelta | None]:
    return lambda key, value: None if value is None else reader(key, value)


def _callable(key: str, value: object) -> Callable[..., Any]:
    if isinstance(value, str):
        try:
            value = import_string(value)
        except ImportError as error:
            raise _wrong(key, value, f"it can't be imported: {error}") from error
    if not callable(value):
        raise _wrong(key, value, "give a callable or the dotted path of one")
    return value


def _one_of(*words: str) -> Callable[[str, object], str]:
    def reader(key: str, value: object) -> str:
        if value not in words:
            raise _wrong(key, value, f"give one of {', '.join(map(repr, words))}")
        return str(value)

    return reader


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "give a dict")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "DATABASE": _text,
    "QUEUES": _queues,
    "DEFAULT_QUEUE": _text,
    "AUTODISCOVER": _texts,
    "MAX_ATTEMPTS": _positive,
    "BACKOFF": _callable,
    "TIMEOUT": _optional(_some_duration),
    "KEEP_SUCCESSFUL": _optional(_duration),
    "KEEP_FAILED": _optional(_duration),
    "WORKER": _mapping,
    "LEASE": _lease,
    "GRACE": _duration,
    "TIMEOUT_GRACE": _duration,
    "UNKNOWN_JOBS": _one_of("fail", "leave"),
    "MAX_ARGS_BYTES": _positive,
}


def _drop(*, setting: str, **_: object) -> None:
    global _cached  # noqa: PLW0603 - see settings()
    if setting == "DJANGO_JOBS":
        _cached = None


setting_changed.connect(_drop, dispatch_uid="django_jobs.conf")
