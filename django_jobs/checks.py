"""Read: system checks. Errors only for what can never work; the rest warns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings as project
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_jobs import conf, performers


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "django_jobs")
    checks.register(check_performers, "django_jobs")
    checks.register(check_database, checks.Tags.database)


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """Check the setting DJANGO_JOBS: its type and values, unknown keys, the database it names."""
    given = getattr(project, "DJANGO_JOBS", {})
    found: list[checks.CheckMessage] = []
    for key, near in conf.unknown_keys(given).items():
        hint = f"Did you mean {near!r}?" if near else f"The keys are {', '.join(conf.KEYS)}."
        found.append(checks.Warning(f"DJANGO_JOBS has the unknown key {key!r}.", hint=hint, id="django_jobs.W001"))
    try:
        settings = conf.read(given)
    except ImproperlyConfigured as error:
        return [*found, checks.Error(str(error), id="django_jobs.E001")]
    return [*found, *_check_alias(settings.database)]


def _check_alias(alias: str) -> list[checks.CheckMessage]:
    if alias not in connections:
        message = f"DJANGO_JOBS['DATABASE'] is {alias!r}, which DATABASES doesn't have."
        return [checks.Error(message, hint=f"DATABASES has {', '.join(connections)}.", id="django_jobs.E002")]
    if connections[alias].vendor not in {"postgresql", "sqlite"}:
        message = f"The database {alias!r} is {connections[alias].vendor}; jobs need PostgreSQL or SQLite."
        return [checks.Error(message, hint="Name another alias in DJANGO_JOBS['DATABASE'].", id="django_jobs.E003")]
    if connections[alias].vendor == "postgresql" and not _has_psycopg3():
        message = "The PostgreSQL driver is psycopg2; jobs need psycopg 3."
        return [checks.Error(message, hint="pip install 'django-jobs-queue[postgres]'", id="django_jobs.E003")]
    return []


def _has_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415 - imports the driver

    return bool(is_psycopg3)


def check_performers(**_: Any) -> list[checks.CheckMessage]:
    """Check the declared performers: names that two claim, modules no worker imports, queues that aren't allowed."""
    found: list[checks.CheckMessage] = [
        checks.Error(
            f"Two performers are named {name!r}: {_where(first)} and {_where(second)}.",
            hint="Give one of them another name: @job('…').",
            id="django_jobs.E004",
        )
        for name, first, second in performers.clashes()
    ]
    found += [
        checks.Warning(
            f"The performer {performer.name!r} is declared in {performer.function.__module__}, which no worker imports.",
            hint="Move it to a module called `jobs` of an installed app, or import it from there.",
            id="django_jobs.W013",
        )
        for performer in performers.undiscovered()
    ]
    return found + _check_queues()


def _check_queues() -> list[checks.CheckMessage]:
    try:
        allowed = conf.settings().queues
    except ImproperlyConfigured:
        return []
    if allowed is None:
        return []
    return [
        checks.Warning(
            f"The performer {name!r} is for queue {queue!r}, which DJANGO_JOBS['QUEUES'] doesn't have.",
            hint=f"Add it there, or choose one of {', '.join(sorted(allowed))}.",
            id="django_jobs.W002",
        )
        for name in performers.registered()
        if isinstance(queue := performers.get_performer(name).options.queue, str) and queue not in allowed
    ]


def _where(performer: performers.Performer[..., ..., Any]) -> str:
    return f"{performer.function.__module__}.{performer.function.__qualname__}"


SQLITE_OPTIONS = (
    '"OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", "transaction_mode": "IMMEDIATE", '
    '"timeout": 20}'
)


def check_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check an SQLite file for the journal mode that lets readers and a writer work side by side."""
    try:
        alias = conf.settings().database
    except ImproperlyConfigured:
        return []
    if alias not in (databases or ()) or alias not in connections or connections[alias].vendor != "sqlite":
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        mode = cursor.fetchone()[0]
    if mode in {"wal", "memory"}:
        return []
    message = f"The SQLite database {alias!r} has journal mode {mode}: workers and requests block each other."
    hint = f"Add to DATABASES[{alias!r}]: {SQLITE_OPTIONS}"
    return [checks.Warning(message, hint=hint, id="django_jobs.D003")]
