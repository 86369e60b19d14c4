from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connections, transaction
from django.db.backends.postgresql import psycopg_any
from django.test import override_settings

from django_jobs import every, performers
from django_jobs.checks import check_database, check_schedules_in_database
from django_jobs.models import Schedule
from django_jobs.performers.registry import register
from tests.declaring import declared


def send() -> None: ...


def other() -> None: ...


def found(*, databases: list[str] | None = None) -> list[CheckMessage]:
    """Give what our checks say, those of databases too where some are named."""
    tags = ["django_jobs", *(["database"] if databases else [])]
    messages = run_checks(tags=tags, databases=databases)
    return [message for message in messages if str(message.id).startswith("django_jobs.")]


def texts(*, databases: list[str] | None = None) -> list[tuple[str | None, str, str | None]]:
    return [(message.id, str(message.msg), message.hint) for message in found(databases=databases)]


@pytest.mark.django_db(databases=["default", "other"])  # Some of Django's own checks ask them.
def test_a_good_project_is_silent() -> None:
    out, err = StringIO(), StringIO()
    call_command("check", fail_level="INFO", stdout=out, stderr=err)
    assert out.getvalue() == "System check identified no issues (0 silenced).\n"
    assert found() == []


@pytest.mark.django_db
def test_a_good_database_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    if connections["default"].vendor == "sqlite":
        # The suite runs with Django's default, which is the harder one for us.
        monkeypatch.setattr(connections["default"], "transaction_mode", "IMMEDIATE")
    assert found(databases=["default"]) == []


def test_errors_and_warnings_are_told_apart() -> None:
    with override_settings(DJANGO_JOBS={"LEASE": 0, "COLOUR": "red"}):
        assert [(message.id, message.is_serious()) for message in found()] == [
            ("django_jobs.W001", False),
            ("django_jobs.E001", True),
        ]


# -- the setting


def test_w001_an_unknown_key_is_told_with_the_nearest() -> None:
    with override_settings(DJANGO_JOBS={"QUEUE": ["mail"]}):
        assert texts() == [("django_jobs.W001", "DJANGO_JOBS has the unknown key 'QUEUE'.", "Did you mean 'QUEUES'?")]


def test_w001_an_unknown_key_far_from_all_is_told_with_all() -> None:
    with override_settings(DJANGO_JOBS={"COLOUR": "red"}):
        [(code, message, hint)] = texts()
    assert (code, message) == ("django_jobs.W001", "DJANGO_JOBS has the unknown key 'COLOUR'.")
    assert str(hint).startswith("The keys are DATABASE, QUEUES, DEFAULT_QUEUE, ")


def test_w001_an_unknown_key_of_worker_is_told_with_the_nearest() -> None:
    with override_settings(DJANGO_JOBS={"WORKER": {"max_job": 5, "concurrency": 2}}):
        message = "DJANGO_JOBS['WORKER'] has the unknown key 'max_job'."
        assert texts() == [("django_jobs.W001", message, "Did you mean 'max_jobs'?")]


def test_e001_the_setting_is_no_dict() -> None:
    with override_settings(DJANGO_JOBS=["DATABASE"]):
        assert texts() == [("django_jobs.E001", "DJANGO_JOBS is ['DATABASE']; give a dict", None)]


def test_e001_there_is_one_for_each_wrong_value() -> None:
    with override_settings(DJANGO_JOBS={"LEASE": 0, "UNKNOWN_JOBS": "ignore"}):
        lease = "DJANGO_JOBS['LEASE'] is 0; give a second or more; each lease is renewed every quarter"
        unknown = "DJANGO_JOBS['UNKNOWN_JOBS'] is 'ignore'; give 'fail' or 'leave'"
        assert texts() == [("django_jobs.E001", lease, None), ("django_jobs.E001", unknown, None)]


def test_e007_there_is_one_for_each_middleware_that_cannot_be_built() -> None:
    with override_settings(DJANGO_JOBS={"MIDDLEWARE": ["tests.runner.around.fails", "no.timing"]}):
        fails = (
            "DJANGO_JOBS['MIDDLEWARE'][0] is 'tests.runner.around.fails'; it failed: LookupError: no server was named"
        )
        missing = "DJANGO_JOBS['MIDDLEWARE'][1] is 'no.timing'; it can't be imported: No module named 'no'"
        assert texts() == [("django_jobs.E007", fails, None), ("django_jobs.E007", missing, None)]
        assert all(message.is_serious() for message in found())


def test_e007_a_middleware_that_can_be_built_is_none() -> None:
    with override_settings(DJANGO_JOBS={"MIDDLEWARE": ["tests.runner.around.Marking"]}):
        assert texts() == []


@pytest.mark.parametrize("key", ["MIDDLEWARE", "META", "REDACT"])
def test_e001_a_hook_of_the_wrong_type(key: str) -> None:
    with override_settings(DJANGO_JOBS={key: 5}):
        [(code, message, _)] = texts()
    assert (code, message.partition(";")[0]) == ("django_jobs.E001", f"DJANGO_JOBS[{key!r}] is 5")


def test_w008_jobs_run_within_requests_where_nobody_debugs() -> None:
    with override_settings(DJANGO_JOBS={"MODE": "inline"}, DEBUG=False):
        message = (
            "DJANGO_JOBS['MODE'] is 'inline' though DEBUG is off: jobs run within requests, and none is tried again."
        )
        assert texts() == [("django_jobs.W008", message, "Leave it out, and run workers.")]
    with override_settings(DJANGO_JOBS={"MODE": "inline"}, DEBUG=True):
        assert texts() == []


@pytest.mark.django_db
def test_a_wrong_setting_breaks_no_other_check() -> None:
    with override_settings(DJANGO_JOBS={"LEASE": 0, "QUEUES": ["mail"]}):
        assert [message.id for message in found(databases=["default"])] == ["django_jobs.E001"]


# -- the database


def test_e002_the_alias_is_unknown() -> None:
    with override_settings(DJANGO_JOBS={"DATABASE": "jobs"}):
        message = "DJANGO_JOBS['DATABASE'] is 'jobs', which DATABASES doesn't have."
        assert texts(databases=["default"]) == [("django_jobs.E002", message, "DATABASES has default, other.")]


def test_e002_the_alias_to_listen_on_is_unknown() -> None:
    with override_settings(DJANGO_JOBS={"LISTEN_DATABASE": "direct"}):
        message = "DJANGO_JOBS['LISTEN_DATABASE'] is 'direct', which DATABASES doesn't have."
        assert texts() == [("django_jobs.E002", message, "DATABASES has default, other.")]


def test_e002_the_alias_whose_commit_is_awaited_is_unknown() -> None:
    with override_settings(DJANGO_JOBS={"AFTER_COMMIT": "shop"}):
        message = "DJANGO_JOBS['AFTER_COMMIT'] is 'shop', which DATABASES doesn't have."
        assert texts() == [("django_jobs.E002", message, "DATABASES has default, other.")]


@pytest.mark.parametrize("odd_alias", ["django.db.backends.dummy"], indirect=True)
def test_any_database_may_be_awaited(odd_alias: str) -> None:
    assert connections[odd_alias].vendor == "unknown"
    with override_settings(DJANGO_JOBS={"AFTER_COMMIT": odd_alias}):
        assert texts() == []


@pytest.fixture
def odd_alias(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Configure an alias of the engine that the test names."""
    configured = {**connections.settings["default"], "ENGINE": request.param}
    monkeypatch.setitem(connections.settings, "odd", configured)
    yield "odd"
    del connections["odd"]


@pytest.mark.parametrize("odd_alias", ["django.db.backends.dummy"], indirect=True)
def test_e003_the_engine_is_neither_postgresql_nor_sqlite(odd_alias: str) -> None:
    with override_settings(DJANGO_JOBS={"DATABASE": odd_alias}):
        message = "The database 'odd' has the engine django.db.backends.dummy."
        hint = "Jobs need PostgreSQL or SQLite: name the alias of such a database in DJANGO_JOBS['DATABASE']."
        assert texts() == [("django_jobs.E003", message, hint)]


@pytest.mark.parametrize("odd_alias", ["django.db.backends.sqlite3"], indirect=True)
def test_e003_only_postgresql_is_listened_to(odd_alias: str) -> None:
    with override_settings(DJANGO_JOBS={"LISTEN_DATABASE": odd_alias}):
        message = "The database 'odd' has the engine django.db.backends.sqlite3."
        hint = "Only PostgreSQL is listened to: leave DJANGO_JOBS['LISTEN_DATABASE'] out."
        assert texts() == [("django_jobs.E003", message, hint)]


@pytest.mark.parametrize("odd_alias", ["django.db.backends.postgresql"], indirect=True)
def test_e003_the_driver_is_psycopg2(odd_alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections[odd_alias].vendor == "postgresql"
    monkeypatch.setattr(psycopg_any, "is_psycopg3", False)
    with override_settings(DJANGO_JOBS={"DATABASE": odd_alias}):
        message = "The database 'odd' is reached through psycopg2."
        hint = "Jobs need psycopg 3: pip install 'django-jobs-queue[postgres]'"
        assert texts() == [("django_jobs.E003", message, hint)]


@pytest.fixture
def sqlite_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> Iterator[Callable[..., list[CheckMessage]]]:
    """Check a new SQLite file that is configured with the given OPTIONS."""

    def check(**options: Any) -> list[CheckMessage]:
        engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3"), "OPTIONS": options}
        monkeypatch.setitem(connections.settings, "file", {**connections.settings["default"], **engine})
        with override_settings(DJANGO_JOBS={"DATABASE": "file"}), django_db_blocker.unblock():
            return check_database(databases=["default", "file"])

    yield check
    connections["file"].close()
    del connections["file"]


WAL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"
HINT = (
    f'Add to DATABASES[\'file\']: "OPTIONS": {{"init_command": "{WAL}", '
    '"transaction_mode": "IMMEDIATE", "timeout": 20}'
)


def test_d003_a_file_without_wal(sqlite_file: Callable[..., list[CheckMessage]]) -> None:
    [warning] = sqlite_file(transaction_mode="IMMEDIATE")
    trouble = "has the journal mode delete, in which workers and requests block each other."
    assert (warning.id, warning.hint) == ("django_jobs.D003", HINT)
    assert warning.msg == f"The SQLite database 'file' {trouble}"


def test_d003_a_file_without_a_timeout(sqlite_file: Callable[..., list[CheckMessage]]) -> None:
    [warning] = sqlite_file(init_command=WAL, transaction_mode="IMMEDIATE", timeout=0)
    trouble = "has a timeout of 0, so that the second of two writers fails at once."
    assert (warning.id, warning.hint) == ("django_jobs.D003", HINT)
    assert warning.msg == f"The SQLite database 'file' {trouble}"


@pytest.mark.parametrize("options", [{}, {"transaction_mode": None}, {"transaction_mode": "DEFERRED"}])
def test_d003_a_file_whose_transactions_begin_as_reads(
    sqlite_file: Callable[..., list[CheckMessage]], options: dict[str, Any]
) -> None:
    [warning] = sqlite_file(init_command=WAL, timeout=20, **options)
    trouble = (
        "begins transactions as reads (DEFERRED), so that one which reads before it writes fails at once, whatever the "
        "timeout, when somebody has written meanwhile."
    )
    assert (warning.id, warning.hint) == ("django_jobs.D003", HINT)
    assert warning.msg == f"The SQLite database 'file' {trouble}"


def test_d003_one_warning_for_each_trouble_and_the_journal_mode_stays(
    sqlite_file: Callable[..., list[CheckMessage]], tmp_path: Path
) -> None:
    assert [warning.id for warning in sqlite_file(timeout=0)] == ["django_jobs.D003"] * 3
    with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as file:
        assert file.execute("pragma journal_mode").fetchone() == ("delete",)


def test_a_file_with_the_options_of_the_hint_is_silent(sqlite_file: Callable[..., list[CheckMessage]]) -> None:
    assert sqlite_file(init_command=WAL, transaction_mode="IMMEDIATE", timeout=20) == []


def test_a_database_that_is_not_to_be_checked_is_left_alone() -> None:
    assert check_database(databases=None) == check_database(databases=["other"]) == []


# -- performers


def test_e004_two_jobs_share_a_name() -> None:
    hint = "Give one of them another name: @job('…')."
    with declared(send, name="shop.same"), declared(other, name="shop.same"):
        message = "Two jobs are named 'shop.same': tests.nowhere.jobs.send and tests.nowhere.jobs.other."
        assert ("django_jobs.E004", message, hint) in texts()


def test_e004_a_name_is_anothers_alias() -> None:
    with declared(send, name="shop.new", aliases=["shop.old"]), declared(other, name="shop.old"):
        assert [message.id for message in found() if "'shop.old'" in str(message.msg)] == ["django_jobs.E004"]


def test_w013_a_job_outside_of_discovered_modules() -> None:
    message = "The job 'shop.views.send' is declared in shop.views, which workers don't import."
    hint = "Move it to a module called `jobs` of an installed app, or import it from there."
    with declared(send, module="shop.views"):
        assert texts() == [("django_jobs.W013", message, hint)]


def test_w013_spares_jobs_of_test_modules() -> None:
    with declared(send, module="shop.tests.test_views"):
        assert texts() == []


def test_w002_a_jobs_queue_is_not_allowed() -> None:
    message = "The job 'tests.nowhere.send' is for queue 'bulk', which DJANGO_JOBS['QUEUES'] doesn't have."
    hint = "Add it there, or choose one of default, mail."
    with declared(send, queue="bulk"), declared(other, queue="mail"):
        with override_settings(DJANGO_JOBS={"QUEUES": {"default": {}, "mail": {"concurrency": 2}}}):
            assert ("django_jobs.W002", message, hint) in texts()
            assert not any("tests.nowhere.other" in str(message.msg) for message in found())
        with override_settings(DJANGO_JOBS={"QUEUES": None}):
            assert texts() == []


def test_w002_the_default_queue_is_not_allowed() -> None:
    message = "The job 'tests.nowhere.send' is for queue 'default', which DJANGO_JOBS['QUEUES'] doesn't have."
    with declared(send), override_settings(DJANGO_JOBS={"QUEUES": ["mail"]}):
        assert ("django_jobs.W002", message, "Add it there, or choose one of mail.") in texts()
    with declared(send), override_settings(DJANGO_JOBS={"QUEUES": ["mail"], "DEFAULT_QUEUE": "mail"}):
        assert not any("tests.nowhere.send" in str(message.msg) for message in found())


# -- schedules


def of_schedules(*, databases: list[str] | None = None) -> list[tuple[str | None, str, str | None]]:
    return [found for found in texts(databases=databases) if found[1].startswith(("The schedule", "Two schedules"))]


def test_e014_two_schedules_share_a_name() -> None:
    with declared(send, name="shop.send", schedule="0 12 * * *") as one, declared(other, name="shop.other") as two:
        every("0 13 * * *", two, name="shop.send")
        every("0 14 * * *", one, name="nightly")
        message = "Two schedules are named 'shop.send': one of shop.send and one of shop.other."
        assert of_schedules() == [("django_jobs.E014", message, "Give one of them another name: every(…, name='…').")]
        assert found()[0].is_serious()


def test_w002_a_schedules_queue_is_not_allowed() -> None:
    message = "The schedule 'nightly' is for queue 'bulk', which DJANGO_JOBS['QUEUES'] doesn't have."
    with declared(send) as performer, override_settings(DJANGO_JOBS={"QUEUES": ["default"]}):
        every("0 12 * * *", performer, name="nightly", queue="bulk")
        every("0 12 * * *", performer, name="fine", queue="default")
        assert of_schedules() == [("django_jobs.W002", message, "Add it there, or choose one of default.")]


OFTEN = (
    "django_jobs.W005",
    "The schedule 'tests.nowhere.send' fires more often than once a minute.",
    "Each tick is a job, with its row. A job each minute that goes on for that long costs less.",
)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (timedelta(seconds=59), [OFTEN]),
        ("*/30 * * * * *", [OFTEN]),
        ("0,1 0 0 * * *", [OFTEN]),
        (timedelta(seconds=60), []),
        ("* * * * *", []),
        ("30 * * * * *", []),
    ],
)
def test_w005_a_schedule_fires_more_often_than_once_a_minute(
    schedule: str | timedelta, expected: list[tuple[str, str, str]]
) -> None:
    with declared(send, schedule=schedule):
        assert of_schedules() == expected
        assert not any(message.is_serious() for message in found())


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("line", "zone", "shift"),
    [
        ("30 2 * * *", "Europe/Paris", ("Europe/Paris passes over on 2026-03-29, where the clock is put forward: it "
         "fires at 03:00 then")),
        ("15 2 * * *", "Australia/Lord_Howe", ("Australia/Lord_Howe passes over on 2026-10-04, where the clock is put "
         "forward: it fires at 02:30 then")),
        ("0 0 * * *", "America/Santiago", ("America/Santiago passes over on 2026-09-06, where the clock is put "
         "forward: it fires at 01:00 then")),
    ],
)  # fmt: skip
def test_w007_a_schedule_falls_into_a_gap_of_its_zone(line: str, zone: str, shift: str) -> None:
    message = f"The schedule 'tests.nowhere.send' ({line}) is for a time that {shift}."
    hint = "Where that matters choose another time, or another time_zone, such as 'UTC'."
    with declared(send, schedule=line, time_zone=zone):
        assert of_schedules() == [("django_jobs.W007", message, hint)]
        assert not any(item.is_serious() for item in found())


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("line", "zone"),
    [
        ("30 2 * * *", "UTC"),
        ("30 3 * * *", "Europe/Paris"),
        ("0 3 * * *", "Europe/Paris"),
        ("*/30 * * * *", "Europe/Paris"),
        ("30 2 * * MON-SAT", "Europe/Paris"),
        ("30 2 28 2 *", "Europe/Paris"),
    ],
)
def test_w007_spares_schedules_that_no_gap_bends(line: str, zone: str) -> None:
    with declared(send, schedule=line, time_zone=zone):
        assert of_schedules() == []


def test_schedules_are_not_read_with_settings_that_are_wrong() -> None:
    with declared(send, schedule="* * * * *"), override_settings(DJANGO_JOBS={"TIME_ZONE": "Mars/Base"}):
        assert [message.id for message in found()] == ["django_jobs.E001"]


@pytest.mark.django_db
def test_w003_the_job_of_a_schedule_that_was_made_by_hand_is_not_registered() -> None:
    with declared(send):
        for name, changes in {
            "fine": {"performer": "tests.nowhere.send"},
            "astray": {"performer": "shop.gone"},
            "disabled": {"performer": "shop.gone", "enabled": False},
            "removed": {"performer": "shop.gone", "removed": True},
            "anothers": {"performer": "shop.gone", "origin": "code", "owner": "billing"},
        }.items():
            Schedule.objects.create(name=name, cron="* * * * *", **changes)
        message = "The schedule 'astray', which was made by hand, is for the job 'shop.gone', which isn't registered."
        hint = "Declare it, give the job that has its name now an alias, or disable or delete the schedule."
        assert of_schedules() == []
        assert of_schedules(databases=["default"]) == [("django_jobs.W003", message, hint)]
        assert check_schedules_in_database(databases=["other"]) == []


@pytest.mark.django_db
def test_schedules_are_not_looked_for_before_there_is_a_table() -> None:
    name = Schedule._meta.db_table
    with transaction.atomic():
        with connections["default"].cursor() as cursor:
            cursor.execute(f'alter table "{name}" rename to elsewhere')
        assert check_schedules_in_database(databases=["default"]) == []
        transaction.set_rollback(True)


# -- isolation


def isolation_errors(*, databases: list[str] | None = None) -> list[tuple[str, str | None]]:
    return [(text, hint) for code, text, hint in texts(databases=databases) if code == "django_jobs.E008"]


def expected(level: str) -> list[tuple[str, str]]:
    start = "There are atomic jobs (tests.nowhere.send), but transactions on the database 'default' are"
    hint = "Workers run them under READ COMMITTED: make it the default, and lock rows where a job needs more."
    return [(f"{start} {level} by default.", hint)]


needs_postgresql = pytest.mark.skipif(
    connections["default"].vendor != "postgresql", reason="SQLite has no isolation levels to choose from"
)


@needs_postgresql
@pytest.mark.parametrize(("level", "name"), [(3, "REPEATABLE READ"), (4, "SERIALIZABLE")])
def test_e008_atomic_jobs_with_a_stricter_isolation_configured(
    monkeypatch: pytest.MonkeyPatch, level: int, name: str
) -> None:
    from psycopg import IsolationLevel

    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "isolation_level", IsolationLevel(level))
    with only_atomic_send():
        assert isolation_errors() == expected(name)


@needs_postgresql
@pytest.mark.django_db(transaction=True)
def test_e008_atomic_jobs_with_a_stricter_isolation_in_the_database() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("set default_transaction_isolation = 'repeatable read'")
    try:
        with only_atomic_send():
            assert isolation_errors() == []
            assert isolation_errors(databases=["default"]) == expected("REPEATABLE READ")
    finally:
        connections["default"].close()


@needs_postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("level", [None, 1, 2])
def test_atomic_jobs_under_read_committed_are_fine(monkeypatch: pytest.MonkeyPatch, level: int | None) -> None:
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "isolation_level", level)
    with only_atomic_send():
        assert isolation_errors(databases=["default"]) == []


@contextmanager
def only_atomic_send() -> Iterator[None]:
    """Declare one atomic job, and forget those of the yard meanwhile."""
    others = [performer for name in performers.registered() if (performer := performers.get_performer(name)).is_atomic]
    for performer in others:
        performers.forget(performer)
    with declared(send, atomic=True):
        yield
    for performer in others:
        register(performer)
