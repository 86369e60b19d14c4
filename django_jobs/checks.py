"""Read: system checks. Errors only for what can never work; the rest warns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction

from django_jobs import clock, conf, performers, runner
from django_jobs.cron import Cron, Interval
from django_jobs.performers import scheduling
from django_jobs.ticks import Timing
from django_jobs.worker.flags import FLAGS, unknown_keys


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "django_jobs")
    checks.register(check_middleware, "django_jobs")
    checks.register(check_performers, "django_jobs")
    checks.register(check_queues, "django_jobs")
    checks.register(check_schedules, "django_jobs")
    checks.register(check_isolation, "django_jobs")
    checks.register(check_database, checks.Tags.database)
    checks.register(check_isolation_in_database, checks.Tags.database)
    checks.register(check_schedules_in_database, checks.Tags.database)


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """Check the setting DJANGO_JOBS: its type and values, unknown keys, the database it names."""
    found: list[checks.CheckMessage] = []
    for key, near in conf.unknown_keys(conf.given()).items():
        hint = f"Did you mean {near!r}?" if near else f"The keys are {', '.join(conf.KEYS)}."
        found.append(checks.Warning(f"DJANGO_JOBS has the unknown key {key!r}.", hint=hint, id="django_jobs.W001"))
    try:
        settings = conf.settings()
    except ImproperlyConfigured as error:
        return [*found, *(checks.Error(line, id="django_jobs.E001") for line in str(error).splitlines())]
    found += _check_mode(settings.mode)
    found += _check_worker(settings.worker)
    found += _check_alias("DATABASE", settings.database)
    if settings.listen_database is not None:
        found += _check_alias("LISTEN_DATABASE", settings.listen_database, vendors=("postgresql",))
    if settings.after_commit is not None:
        # It may be of any kind.
        found += _check_known("AFTER_COMMIT", settings.after_commit)
    return found


def check_middleware(**_: Any) -> list[checks.CheckMessage]:
    """Check that the setting MIDDLEWARE can be built, as each process that runs jobs does; it is built for that."""
    try:
        conf.settings()
    except ImproperlyConfigured:
        return []
    try:
        runner.prepare()
    except ImproperlyConfigured as error:
        return [checks.Error(line, id="django_jobs.E007") for line in str(error).splitlines()]
    return []


def _check_mode(mode: str) -> list[checks.CheckMessage]:
    if mode != "inline" or conf.is_debugging():
        return []
    message = "DJANGO_JOBS['MODE'] is 'inline' though DEBUG is off: jobs run within requests, and none is tried again."
    return [checks.Warning(message, hint="Leave it out, and run workers.", id="django_jobs.W008")]


def _check_worker(setting: Mapping[str, Any]) -> list[checks.CheckMessage]:
    """Check the keys of WORKER, which `runjobs` refuses: better to hear of them before it is started."""
    return [
        checks.Warning(
            f"DJANGO_JOBS['WORKER'] has the unknown key {key!r}.",
            hint=f"Did you mean {near!r}?" if near else f"The keys are {', '.join(flag.name for flag in FLAGS)}.",
            id="django_jobs.W001",
        )
        for key, near in unknown_keys(setting).items()
    ]


def _check_alias(
    key: str, alias: str, *, vendors: Sequence[str] = ("postgresql", "sqlite")
) -> list[checks.CheckMessage]:
    if unknown := _check_known(key, alias):
        return unknown
    vendor = connections[alias].vendor
    if vendor not in vendors:
        message = f"The database {alias!r} has the engine {connections[alias].settings_dict['ENGINE']}."
        hint = f"Jobs need PostgreSQL or SQLite: name the alias of such a database in DJANGO_JOBS[{key!r}]."
        if key == "LISTEN_DATABASE":
            hint = "Only PostgreSQL is listened to: leave DJANGO_JOBS['LISTEN_DATABASE'] out."
        return [checks.Error(message, hint=hint, id="django_jobs.E003")]
    if vendor == "postgresql" and not _has_psycopg3():
        message = f"The database {alias!r} is reached through psycopg2."
        hint = "Jobs need psycopg 3: pip install 'django-jobs-queue[postgres]'"
        return [checks.Error(message, hint=hint, id="django_jobs.E003")]
    return []


def _check_known(key: str, alias: str) -> list[checks.CheckMessage]:
    if alias in connections:
        return []
    message = f"DJANGO_JOBS[{key!r}] is {alias!r}, which DATABASES doesn't have."
    return [checks.Error(message, hint=f"DATABASES has {', '.join(connections)}.", id="django_jobs.E002")]


def _has_psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415 - fails where there is no driver

    return bool(is_psycopg3)


def check_performers(**_: Any) -> list[checks.CheckMessage]:
    """Check the declared performers: names that two claim, modules that no worker imports."""
    twice = [
        checks.Error(
            f"Two jobs are named {name!r}: {_where(first)} and {_where(second)}.",
            hint="Give one of them another name: @job('…').",
            id="django_jobs.E004",
        )
        for name, first, second in performers.clashes()
    ]
    astray = [
        checks.Warning(
            f"The job {performer.name!r} is declared in {performer.function.__module__}, which workers don't import.",
            hint="Move it to a module called `jobs` of an installed app, or import it from there.",
            id="django_jobs.W013",
        )
        for performer in performers.undiscovered()
    ]
    return [*twice, *astray]


def _where(performer: performers.AnyPerformer) -> str:
    return f"{performer.function.__module__}.{performer.function.__qualname__}"


def check_queues(**_: Any) -> list[checks.CheckMessage]:
    """Check that the queue of each performer is one that the settings allow."""
    try:
        settings = conf.settings()
    except ImproperlyConfigured:
        return []
    if settings.queues is None:
        return []
    queues = {name: performers.get_performer(name).options.queue for name in performers.registered()}
    return [
        checks.Warning(
            f"The job {name!r} is for queue {queue!r}, which DJANGO_JOBS['QUEUES'] doesn't have.",
            hint=f"Add it there, or choose one of {', '.join(sorted(settings.queues))}.",
            id="django_jobs.W002",
        )
        for name, said in queues.items()
        if (queue := settings.default_queue if said is performers.UNSET else said) not in settings.queues
    ]


def check_schedules(**_: Any) -> list[checks.CheckMessage]:
    """Check the schedules of the code: names that two claim, their queues, how often they fire, what shifts do."""
    twice: list[checks.CheckMessage] = [
        checks.Error(
            f"Two schedules are named {one.name!r}: one of {one.performer} and one of {other.performer}.",
            hint="Give one of them another name: every(…, name='…').",
            id="django_jobs.E014",
        )
        for one, other in performers.schedule_clashes()
    ]
    try:
        settings = conf.settings()
    except ImproperlyConfigured:
        return twice
    found = twice
    for one in performers.declared():
        if one.queue and settings.queues is not None and one.queue not in settings.queues:
            found.append(
                checks.Warning(
                    f"The schedule {one.name!r} is for queue {one.queue!r}, which DJANGO_JOBS['QUEUES'] doesn't have.",
                    hint=f"Add it there, or choose one of {', '.join(sorted(settings.queues))}.",
                    id="django_jobs.W002",
                )
            )
        found += _timing_remarks(one, scheduling.timing_of(one))
    return found


A_YEAR = timedelta(days=366)


def _timing_remarks(one: performers.Declared, timing: Timing) -> Iterator[checks.CheckMessage]:
    now = clock.now()
    if _fires_often(timing, now):
        yield checks.Info(
            f"The schedule {one.name!r} fires more often than once a minute.",
            hint="Each tick is a job, with its row. A job each minute that goes on for that long costs less.",
            id="django_jobs.W005",
        )
    if isinstance(timing, Cron) and (moment := timing.moved(now, until=now + A_YEAR)) is not None:
        local = moment.astimezone(timing.zone)
        yield checks.Info(
            f"The schedule {one.name!r} ({timing.line}) is for a time that {timing.zone.key} passes over on "
            f"{local:%Y-%m-%d}, where the clock is put forward: it fires at {local:%H:%M} then.",
            hint="Where that matters choose another time, or another time_zone, such as 'UTC'.",
            id="django_jobs.W007",
        )


def _fires_often(timing: Timing, now: datetime) -> bool:
    if isinstance(timing, Interval):
        return timing.seconds < 60
    moments = list(islice(timing.moments(now), 20)) if len(timing.line.split()) == 6 else []
    return any(later - earlier < timedelta(minutes=1) for earlier, later in pairwise(moments))


def check_schedules_in_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check that the job of each schedule that was made by hand is one of this project's."""
    try:
        alias = conf.settings().database
    except ImproperlyConfigured:
        return []
    if alias not in (databases or ()) or alias not in connections:
        return []
    rows = apps.get_model("django_jobs", "Schedule").objects.using(alias)
    try:
        with transaction.atomic(using=alias):
            made = list(rows.filter(origin="admin", enabled=True, removed=False).values_list("name", "performer"))
    except DatabaseError:
        # Before `migrate` there is no such table, and `migrate` asks for these checks.
        return []
    return [
        checks.Warning(
            f"The schedule {name!r}, which was made by hand, is for the job {performer!r}, which isn't registered.",
            hint="Declare it, give the job that has its name now an alias, or disable or delete the schedule.",
            id="django_jobs.W003",
        )
        for name, performer in made
        if performers.find_performer(performer) is None
    ]


SQLITE_OPTIONS = (
    '"OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", '
    '"transaction_mode": "IMMEDIATE", "timeout": 20}'
)


def check_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check an SQLite file for the options with which requests and workers get along; we never set them ourselves."""
    try:
        alias = conf.settings().database
    except ImproperlyConfigured:
        return []
    if alias not in (databases or ()) or alias not in connections or connections[alias].vendor != "sqlite":
        return []
    troubles = list(_sqlite_troubles(alias))
    hint = f"Add to DATABASES[{alias!r}]: {SQLITE_OPTIONS}"
    return [
        checks.Warning(f"The SQLite database {alias!r} {trouble}.", hint=hint, id="django_jobs.D003")
        for trouble in troubles
    ]


def _sqlite_troubles(alias: str) -> Iterator[str]:
    connection: Any = connections[alias]
    with connection.cursor() as cursor:
        [mode] = cursor.execute("PRAGMA journal_mode").fetchone()
        [patience] = cursor.execute("PRAGMA busy_timeout").fetchone()
    if mode not in {"wal", "memory"}:
        yield f"has the journal mode {mode}, in which workers and requests block each other"
    if mode != "memory" and (connection.transaction_mode or "DEFERRED") == "DEFERRED":
        yield (
            "begins transactions as reads (DEFERRED), so that one which reads before it writes fails at once, whatever "
            "the timeout, when somebody has written meanwhile"
        )
    if not patience:
        yield "has a timeout of 0, so that the second of two writers fails at once"


READ_COMMITTED = 2
"""The number that psycopg, and so the option `isolation_level`, has for it; a higher one is a stricter level."""


def check_isolation(**_: Any) -> list[checks.CheckMessage]:
    """Check that atomic jobs find the isolation they run under as the configured default, too."""
    alias = _alias_for_atomic_jobs()
    if alias is None or (level := _configured_isolation(alias)) <= READ_COMMITTED:
        return []
    name = {3: "REPEATABLE READ", 4: "SERIALIZABLE"}.get(level, f"isolation level {level}")
    return [_isolation_error(alias, name)]


def check_isolation_in_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Check the same of a default that the server, the database or the role has."""
    alias = _alias_for_atomic_jobs()
    if alias is None or alias not in (databases or ()) or _configured_isolation(alias) > READ_COMMITTED:
        return []
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("show transaction_isolation")
        [name] = cursor.fetchone()
    return [] if name in {"read committed", "read uncommitted"} else [_isolation_error(alias, name.upper())]


def _alias_for_atomic_jobs() -> str | None:
    try:
        alias = conf.settings().database
    except ImproperlyConfigured:
        return None
    is_postgresql = alias in connections and connections[alias].vendor == "postgresql"
    return alias if is_postgresql and _atomic_names() else None


def _configured_isolation(alias: str) -> int:
    return int(connections[alias].settings_dict["OPTIONS"].get("isolation_level") or READ_COMMITTED)


def _atomic_names() -> list[str]:
    return [name for name in performers.registered() if performers.get_performer(name).is_atomic]


def _isolation_error(alias: str, level: str) -> checks.CheckMessage:
    names = _atomic_names()
    few = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return checks.Error(
        f"There are atomic jobs ({few}), but transactions on the database {alias!r} are {level} by default.",
        hint="Workers run them under READ COMMITTED: make it the default, and lock rows where a job needs more.",
        id="django_jobs.E008",
    )
