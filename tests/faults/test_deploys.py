"""Rows and tables of another release than the worker's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.backends.signals import connection_created
from django.test import override_settings

from django_jobs import clock, enqueue, named
from django_jobs.models import Job
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.factories import another_connection

pytestmark = pytest.mark.django_db(transaction=True)

done: list[int] = []


def good(number: int) -> None:
    done.append(number)


@pytest.fixture(autouse=True)
def clean() -> None:
    done.clear()


def drain() -> int:
    """Work until nothing is due."""
    return Process(Plan(alias="default", concurrency=2, drain=True)).run()


# -- O45


def missing() -> None:
    pass


def test_o45_a_name_unknown_here_is_neither_discarded_nor_burnt_and_holds_nobody_up() -> None:
    [queued] = enqueue([named("shop.missing", options={"priority": 50, "max_attempts": 1})])
    with declared(good) as performer:
        performer.later_many((n,) for n in range(100))
        began = clock.now()
        assert drain() == 0
    assert sorted(done) == list(range(100))
    row = Job.objects.get(pk=queued.id)
    # One look at it, and the next one later: no busy loop, and not the end either.
    assert (row.state, row.attempts, len(row.errors)) == ("READY", 1, 1)
    assert row.run_at > began
    assert (row.errors[0]["kind"], row.errors[0]["reason"]) == ("unknown", "no performer is named shop.missing")
    Job.objects.update(run_at=began)
    with declared(missing, name="shop.missing"):
        assert drain() == 0
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("SUCCESSFUL", 2)


@override_settings(DJANGO_JOBS={"UNKNOWN_JOBS": "leave"})
def test_o45_a_name_unknown_here_is_left_to_those_who_know_it_where_the_setting_says_so() -> None:
    [queued] = enqueue([named("shop.missing", options={"priority": 50})])
    with declared(good) as performer:
        performer.later_many((n,) for n in range(100))
        assert drain() == 0
    assert sorted(done) == list(range(100))
    row = Job.objects.get(pk=queued.id)
    assert (row.state, row.attempts, row.errors, row.token) == ("READY", 0, [], None)
    with declared(missing, name="shop.missing"):
        assert drain() == 0
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("SUCCESSFUL", 1)


# -- O46

UNREADABLE = [
    {"args": {"a": 1}},
    {"args": 5},
    {"args": None},
    {"kwargs": [1]},
    {"kwargs": None},
    {"args": [{"$novelty": 1}]},
    {"name": "no\nsuch'name\"; --"},
    {"queue": "no such queue: é\n"},
    {"errors": {"not": "a list"}},
    {"meta": [5]},
]


def overwrite(job_id: int, column: str, value: Any) -> None:
    """Write a column past the model, JSON null for None."""
    from django.db.models import JSONField, Value

    field = Job._meta.get_field(column)
    Job.objects.filter(pk=job_id).update(
        **{column: Value(value, output_field=field) if isinstance(field, JSONField) else value}
    )


def test_o46_rows_that_cannot_be_read_end_for_themselves_and_the_worker_goes_on() -> None:
    with declared(good) as performer:
        broken = [performer.using(priority=50).later(-1 - n) for n in range(len(UNREADABLE))]
        for job, columns in zip(broken, UNREADABLE, strict=True):
            for column, value in columns.items():
                overwrite(job.pk, column, value)
        performer.later_many((n,) for n in range(50))
        assert drain() == 0
    assert sorted(n for n in done if n >= 0) == list(range(50))
    ends = {}
    for job, columns in zip(broken, UNREADABLE, strict=True):
        row = Job.objects.get(pk=job.pk)
        ends[str(columns)] = (row.state, row.errors[-1]["kind"] if row.state != "SUCCESSFUL" else "")
    assert list(ends.values()) == [
        *[("FAILED", "misfit")] * 6,
        # A name that nobody knows yet; a queue, a log of errors and a meta that don't matter to the call.
        ("READY", "unknown"),
        ("SUCCESSFUL", ""),
        ("SUCCESSFUL", ""),
        ("SUCCESSFUL", ""),
    ]


@pytest.mark.parametrize("columns", [{"state": "PAUSED"}, {"state": ""}, {"priority": 101}, {"state": "RUNNING"}])
def test_o46_what_no_code_could_make_sense_of_the_database_refuses(columns: dict[str, Any]) -> None:
    with declared(good) as performer:
        job = performer.later(1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**columns)


# -- O50


@contextmanager
def empty_database(folder: Path) -> Iterator[str]:
    """Give the name of a database beside the test's own, without any table of ours."""
    if connections["default"].vendor == "sqlite":
        yield str(folder / "empty.sqlite3")
        return
    name = f"{connections['default'].settings_dict['NAME']}_empty"
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute(f'drop database if exists "{name}"')
        cursor.execute(f'create database "{name}" template template0')
        try:
            yield name
        finally:
            cursor.execute(f'drop database "{name}"')


def command(*arguments: str, database: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "LIVE_DATABASE": database},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_o50_a_worker_before_its_migrations_says_what_to_run_and_works_after_it(tmp_path: Path) -> None:
    with empty_database(tmp_path) as database:
        early = command("runjobs", "--drain", database=database)
        assert early.returncode == 1
        assert early.stderr.startswith(
            "CommandError: tables are missing or behind; run: python manage.py migrate django_jobs"
        )
        assert "Traceback" not in early.stderr
        migrated = command("migrate", "django_jobs", database=database)
        assert migrated.returncode == 0, migrated.stderr
        late = command("runjobs", "--drain", database=database)
        assert late.returncode == 0, late.stderr


DDL = re.compile(r"\s*(create|alter|drop|truncate|comment|reindex|vacuum|analyze|cluster|grant|lock)\b", re.IGNORECASE)


def test_o50_a_worker_changes_no_table_while_it_runs() -> None:
    said: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        said.append(sql)
        return execute(sql, params, many, context)

    def watch(sender: object, connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(listen)

    connection_created.connect(watch)
    try:
        with declared(good) as performer:
            performer.later_many((n,) for n in range(20))
            assert drain() == 0
    finally:
        connection_created.disconnect(watch)
    assert len(done) == 20
    assert any("update" in sql for sql in said)
    assert [sql for sql in said if DDL.match(sql)] == []


def test_o50_a_dump_that_reads_our_tables_holds_no_worker_up() -> None:
    connection = connections["default"]
    if not connection.features.has_select_for_update:
        pytest.skip("a reader of an SQLite file never holds up a writer, and locks no table")
    with another_connection() as dump:
        dump.set_autocommit(False)
        with dump.cursor() as cursor:
            for table in connection.introspection.table_names():
                if table.startswith("django_jobs_"):
                    cursor.execute(f'lock table "{table}" in access share mode')
        with declared(good) as performer:
            performer.later_many((n,) for n in range(20))
            assert drain() == 0
        dump.rollback()
    assert len(done) == 20
