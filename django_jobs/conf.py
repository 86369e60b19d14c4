"""Know: the settings, read lazily from DJANGO_JOBS, dropped when a test overrides it. No other room reads settings."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, TypeVar

from asgiref.sync import iscoroutinefunction
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from django_jobs import backoff, cron, durations
from django_jobs.records import NewJob

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
"""How performers and queues may be named."""

NAME_RULE = "1 to 100 characters of A-Z a-z 0-9 _ - . :"

OWNER_LENGTH = 100
"""So many characters the name of a project may have."""

MOST = 1_000_000
"""The largest number of attempts or crashes that is believed; it leaves room in the column for retries by hand."""


Observer: TypeAlias = Callable[[str, float, int | None], object]
"""Called with each statement's name, its duration in seconds and how many rows it gave back, None where it failed."""

MetaProvider: TypeAlias = Callable[[NewJob], Mapping[str, object]]
"""Gives what is added to the meta of a job that is being queued."""


class QueueOptions(TypedDict, total=False):
    """What may be said of one queue in `QUEUES`."""

    concurrency: int


class DjangoJobs(TypedDict, total=False):
    """The shape of the setting DJANGO_JOBS; every key is optional. A Duration is seconds, a timedelta or "5m"."""

    DATABASE: str
    QUEUES: Sequence[str] | Mapping[str, QueueOptions] | None
    DEFAULT_QUEUE: str
    MODE: str
    AUTODISCOVER: Sequence[str]
    MAX_ATTEMPTS: int
    BACKOFF: str | backoff.Backoff
    TIMEOUT: durations.Duration | None
    KEEP_SUCCESSFUL: durations.Duration | None
    KEEP_FAILED: durations.Duration | None
    WORKER: Mapping[str, Any]
    LEASE: durations.Duration
    GRACE: durations.Duration
    TIMEOUT_GRACE: durations.Duration
    LISTEN: bool
    LISTEN_DATABASE: str | None
    AFTER_COMMIT: str | None
    UNKNOWN_JOBS: str
    MAX_ARGS_BYTES: int
    OBSERVE: str | Observer | None
    MIDDLEWARE: Sequence[str]
    META: Sequence[str | MetaProvider]
    REDACT: Sequence[str]
    TIME_ZONE: str
    OWNER: str


def _project() -> str:
    """Name the project by the first part of its settings module."""
    said: Any = django_settings
    # What override_settings puts over the settings names no module; those below it do.
    while not (module := getattr(said, "SETTINGS_MODULE", None)) and hasattr(said, "default_settings"):
        said = said.default_settings
    return str(module or "").partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """DJANGO_JOBS with its defaults, checked. Field names are the keys in lower case.

    `queues` maps each allowed queue to its cap for one command, None for no cap; None instead allows every queue.
    `listen` says whether processes with these settings notify and listen, on PostgreSQL. `middleware` are dotted paths,
    which only processes that run jobs import. `after_commit` is the alias whose commit an insert into another database
    waits for. `time_zone` is that of schedules which say none. `owner` tells this
    project's from those of others in the database: the first part of the settings module, where nothing is said.
    """

    database: str = "default"
    queues: Mapping[str, int | None] | None = None
    default_queue: str = "default"
    mode: str = "database"
    autodiscover: tuple[str, ...] = ("jobs",)
    max_attempts: int = 20
    backoff: backoff.Backoff = field(default_factory=backoff.exponential)
    timeout: timedelta | None = timedelta(minutes=5)
    keep_successful: timedelta | None = timedelta(days=1)
    keep_failed: timedelta | None = timedelta(days=14)
    worker: Mapping[str, Any] = field(default_factory=dict)
    lease: timedelta = timedelta(seconds=60)
    grace: timedelta = timedelta(seconds=15)
    timeout_grace: timedelta = timedelta(seconds=5)
    listen: bool = True
    listen_database: str | None = None
    after_commit: str | None = None
    unknown_jobs: str = "fail"
    max_args_bytes: int = 1_000_000
    observe: Observer | None = None
    middleware: tuple[str, ...] = ()
    meta: tuple[MetaProvider, ...] = ()
    redact: tuple[re.Pattern[str], ...] = ()
    time_zone: str = field(default_factory=lambda: str(django_settings.TIME_ZONE))
    owner: str = field(default_factory=_project)


KEYS = tuple(field.name.upper() for field in fields(Settings))

_cached: Settings | None = None


def settings() -> Settings:
    """Give the project's settings. Raises ImproperlyConfigured, naming key, value and remedy, where one is wrong."""
    global _cached  # noqa: PLW0603 - read once, dropped by setting_changed
    if _cached is None:
        _cached = read(given())
    return _cached


def given() -> object:
    """Give DJANGO_JOBS as it stands in the project's settings, unchecked."""
    return getattr(django_settings, "DJANGO_JOBS", {})


def autodiscover() -> tuple[str, ...]:
    """Give the names of modules to import at start, also where another key is wrong: check E001 tells of that one."""
    try:
        return settings().autodiscover
    except ImproperlyConfigured:
        return Settings().autodiscover


def is_debugging() -> bool:
    """Whether the project runs with DEBUG, as it does where somebody edits it."""
    return bool(django_settings.DEBUG)


def project_language() -> str:
    """Give the language of the project, in which a job runs if it was queued in no other."""
    return str(django_settings.LANGUAGE_CODE)


def read(given: object) -> Settings:
    """Turn what stands in DJANGO_JOBS into Settings. Raises ImproperlyConfigured with one line for each wrong key."""
    if not isinstance(given, Mapping):
        message = f"DJANGO_JOBS is {given!r:.80}; give a dict"
        raise ImproperlyConfigured(message)
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for key, reader in _READERS.items():
        if key in given:
            try:
                values[key.lower()] = reader(f"DJANGO_JOBS[{key!r}]", given[key])
            except ImproperlyConfigured as error:
                wrong.append(str(error))
    if wrong:
        raise ImproperlyConfigured("\n".join(wrong))
    return Settings(**values)


def unknown_keys(given: object) -> dict[str, str]:
    """Map each key that DJANGO_JOBS doesn't know to the nearest one it does, '' where none is near."""
    if not isinstance(given, Mapping):
        return {}
    strangers = [str(key) for key in given if key not in KEYS]
    return {key: next(iter(difflib.get_close_matches(key.upper(), KEYS, n=1)), "") for key in strangers}


# -- readers: where it stands and what was given -> the value of the field

Value = TypeVar("Value")


def _wrong(where: str, value: object, remedy: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{where} is {value!r:.80}; {remedy}")


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(where, value, "give a text that isn't empty")
    return value


def _maybe_text(where: str, value: object) -> str | None:
    return None if value is None else _text(where, value)


def _truth(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, value, "give True or False")
    return value


def _name(where: str, value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise _wrong(where, value, f"give {NAME_RULE}")
    return value


def _module_names(where: str, value: object) -> tuple[str, ...]:
    return _each(_text, where, value, "give a list of module names, as in ['jobs']")


def _each(reader: Callable[[str, Any], Value], where: str, value: object, remedy: str) -> tuple[Value, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong(where, value, remedy)
    return tuple(reader(f"{where}[{place}]", one) for place, one in enumerate(value))


def _queues(where: str, value: object) -> Mapping[str, int | None] | None:
    match value:
        case None:
            return None
        case Mapping():
            return {_name(where, queue): _cap(f"{where}[{queue!r}]", options) for queue, options in value.items()}
        case Sequence() if not isinstance(value, str):
            return {_name(where, queue): None for queue in value}
        case _:
            remedy = "give a list of names, a dict like {'mail': {'concurrency': 4}}, or None for any queue"
            raise _wrong(where, value, remedy)


def _cap(where: str, options: object) -> int | None:
    if not isinstance(options, Mapping) or options.keys() - {"concurrency"}:
        raise _wrong(where, options, "give a dict like {'concurrency': 4}, or an empty one")
    return _count(f"{where}['concurrency']", options["concurrency"]) if options else None


def _count(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise _wrong(where, value, f"give a whole number from 1 to {MOST:,}")
    return value


def _bytes(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(where, value, "give a whole number of bytes, 1 or more")
    return value


def _duration(where: str, value: Any) -> timedelta:
    try:
        return durations.parse(value, what=where)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(str(error)) from error


def _timeout(where: str, value: object) -> timedelta | None:
    timeout = _maybe_duration(where, value)
    if timeout == timedelta(0):
        raise _wrong(where, value, "give a duration above 0, or None for no limit")
    return timeout


def _maybe_duration(where: str, value: object) -> timedelta | None:
    return None if value is None else _duration(where, value)


def _lease(where: str, value: object) -> timedelta:
    lease = _duration(where, value)
    if lease < timedelta(seconds=1):
        raise _wrong(where, value, "give a second or more; each lease is renewed every quarter")
    return lease


def _backoff(where: str, value: object) -> backoff.Backoff:
    chosen = _imported(where, value)
    if not callable(chosen):
        raise _wrong(where, value, "give one of django_jobs.backoff, a callable, or the dotted path of one")
    try:
        backoff.takes_exception(chosen)
    except (TypeError, ValueError) as error:
        raise _wrong(where, value, str(error)) from error
    return chosen  # type: ignore[no-any-return]


def _observer(where: str, value: object) -> Observer | None:
    if value is None:
        return None
    chosen = _imported(where, value)
    if not callable(chosen):
        raise _wrong(where, value, "give a callable, the dotted path of one, or None")
    _check_takes(where, value, chosen, ("CLAIM", 0.001, 1), "it must take (name, seconds, rows)")
    return chosen  # type: ignore[no-any-return]


def _check_takes(
    where: str, value: object, chosen: Callable[..., object], arguments: Sequence[object], remedy: str
) -> None:
    try:
        inspect.signature(chosen).bind(*arguments)
    except TypeError as error:
        raise _wrong(where, value, remedy) from error
    except ValueError:
        # Some callables written in C have no signature to be read; they are believed.
        pass


def _middleware(where: str, value: object) -> tuple[str, ...]:
    return _each(_text, where, value, "give a list of dotted paths, as in ['shop.middleware.timing']")


def _meta(where: str, value: object) -> tuple[MetaProvider, ...]:
    return _each(_meta_provider, where, value, "give a list of callables or of their dotted paths")


def _meta_provider(where: str, value: object) -> MetaProvider:
    chosen = _imported(where, value)
    if not callable(chosen):
        raise _wrong(where, value, "give a callable, or the dotted path of one")
    if iscoroutinefunction(chosen):
        raise _wrong(where, value, "it is async, and jobs are queued from plain code, too; give a plain function")
    _check_takes(where, value, chosen, (None,), "it must take one argument, the new job")
    return chosen  # type: ignore[no-any-return]


def _redact(where: str, value: object) -> tuple[re.Pattern[str], ...]:
    return _each(_pattern, where, value, "give a list of regular expressions, as in ['iban']")


def _pattern(where: str, value: object) -> re.Pattern[str]:
    try:
        return re.compile(_text(where, value), re.IGNORECASE)
    except re.error as error:
        raise _wrong(where, value, f"it is no regular expression: {error}") from error


def _imported(where: str, value: object) -> Any:
    """Give what a dotted path names; anything but a text is given as it is."""
    try:
        return import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        raise _wrong(where, value, f"it can't be imported: {error}") from error


def _unknown_jobs(where: str, value: object) -> str:
    if value not in ("fail", "leave"):
        raise _wrong(where, value, "give 'fail' or 'leave'")
    return str(value)


def _time_zone(where: str, value: object) -> str:
    try:
        return cron.zone_of(_text(where, value)).key
    except ValueError as error:
        raise _wrong(where, value, f"give the key of a zone, such as 'Europe/Paris': {error}") from error


def _owner(where: str, value: object) -> str:
    if len(owner := _text(where, value)) > OWNER_LENGTH:
        raise _wrong(where, value, f"give {OWNER_LENGTH} characters at the most")
    return owner


def _mode(where: str, value: object) -> str:
    if value not in ("database", "inline"):
        raise _wrong(where, value, "give 'database', or 'inline' to run each job at once where it is queued")
    return str(value)


def _mapping(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "give a dict")
    return value


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "DATABASE": _text,
    "QUEUES": _queues,
    "DEFAULT_QUEUE": _name,
    "MODE": _mode,
    "AUTODISCOVER": _module_names,
    "MAX_ATTEMPTS": _count,
    "BACKOFF": _backoff,
    "TIMEOUT": _timeout,
    "KEEP_SUCCESSFUL": _maybe_duration,
    "KEEP_FAILED": _maybe_duration,
    "WORKER": _mapping,
    "LEASE": _lease,
    "GRACE": _duration,
    "TIMEOUT_GRACE": _duration,
    "LISTEN": _truth,
    "LISTEN_DATABASE": _maybe_text,
    "AFTER_COMMIT": _maybe_text,
    "UNKNOWN_JOBS": _unknown_jobs,
    "MAX_ARGS_BYTES": _bytes,
    "OBSERVE": _observer,
    "MIDDLEWARE": _middleware,
    "META": _meta,
    "REDACT": _redact,
    "TIME_ZONE": _time_zone,
    "OWNER": _owner,
}


def _drop(*, setting: str, **_: object) -> None:
    global _cached  # noqa: PLW0603 - see settings()
    if setting == "DJANGO_JOBS":
        _cached = None


setting_changed.connect(_drop, dispatch_uid="django_jobs.conf")
