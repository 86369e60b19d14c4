"""What the migrations leave in the database."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder

from django_jobs import clock
from django_jobs.models import Job, JobStat, Queue, Schedule, ScheduleSet, Worker
from tests.factories import take

pytestmark = pytest.mark.django_db

MODELS = (Job, JobStat, Queue, Schedule, ScheduleSet, Worker)

TABLES = (
    "django_jobs_job", "django_jobs_jobstat", "django_jobs_queue", "django_jobs_schedule", "django_jobs_scheduleset",
    "django_jobs_worker",
)  # fmt: skip


@pytest.fixture
def postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("comments and storage parameters are PostgreSQL's")


def fetched(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


def without_default(table: str) -> list[str]:
    """List the columns that every INSERT has to name."""
    if connection.vendor == "sqlite":
        columns = fetched(f'pragma table_info("{table}")')
        return sorted(
            name for _, name, _, not_null, default, key in columns if not_null and default is None and not key
        )
    return sorted(
        name
        for (name,) in fetched(
            "select column_name from information_schema.columns where table_schema = current_schema() "
            "and table_name = %s and is_nullable = 'NO' and column_default is null and is_identity = 'NO' "
            "and column_name not in (select attname from pg_index, pg_attribute where indrelid = %s::regclass "
            "and indisprimary and attrelid = indrelid and attnum = any(indkey))",
            table,
            table,
        )
    )


def test_the_tables_are_these() -> None:
    assert tuple(model._meta.db_table for model in MODELS) == TABLES


def test_the_models_have_no_changes_that_migrations_lack() -> None:
    out = StringIO()
    call_command("makemigrations", check=True, dry_run=True, stdout=out)
    assert out.getvalue() == "No changes detected\n"


# -- defaults

AT = "'2026-03-01 12:00:00.000000'"


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("django_jobs_job", ["queue"]),
        ("django_jobs_jobstat", ["minute", "name", "queue"]),
        ("django_jobs_queue", []),
        ("django_jobs_schedule", ["name", "performer"]),
        ("django_jobs_worker", ["beat_at", "host", "pid", "started_at"]),
    ],
)
def test_only_these_columns_have_no_default_in_the_database(table: str, columns: list[str]) -> None:
    assert without_default(table) == columns


@pytest.mark.parametrize(
    ("insert", "model"),
    [
        ("insert into django_jobs_job (queue) values ('mail')", Job),
        (f"insert into django_jobs_jobstat (minute, name, queue) values ({AT}, 'a', 'b')", JobStat),
        ("insert into django_jobs_queue (name) values ('mail')", Queue),
        ("insert into django_jobs_schedule (name, performer) values ('nightly', 'shop.report')", Schedule),
        (
            f"insert into django_jobs_worker (identity, host, pid, started_at, beat_at) values ('w', 'h', 1, {AT}, {AT})",
            Worker,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_insert_of_an_earlier_release_works(insert: str, model: type) -> None:
    with connection.cursor() as cursor:
        cursor.execute(insert)
    row = model.objects.get()
    for field in model._meta.concrete_fields:
        if field.has_default() and not field.primary_key:
            assert getattr(row, field.attname) == field.get_default(), field.attname


def test_a_row_that_names_little_is_waiting_since_now_and_claimed() -> None:
    before = clock.now()
    with connection.cursor() as cursor:
        cursor.execute("insert into django_jobs_job (name, queue) values ('shop.greet', 'mail')")
    row = Job.objects.get()
    assert (row.state, row.args, row.kwargs, row.errors, row.attempts) == ("READY", [], {}, [], 0)
    assert abs((row.run_at - before).total_seconds()) < 60
    assert abs((row.enqueued_at - before).total_seconds()) < 60
    with clock.freeze(datetime(2199, 1, 1, tzinfo=UTC)):
        assert [claim.id for claim in take().claims] == [row.pk]


# -- indexes


def test_the_table_of_jobs_has_exactly_these_indexes() -> None:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "django_jobs_job")
    indexes = {
        name for name, facts in constraints.items() if (facts["index"] or facts["unique"]) and not facts["primary_key"]
    }
    assert sorted(indexes) == [
        "django_jobs_claim", "django_jobs_expiry", "django_jobs_fired", "django_jobs_held", "django_jobs_prune",
        "django_jobs_take", "django_jobs_trouble", "django_jobs_unique", "django_jobs_waiting",
    ]  # fmt: skip


def test_a_renewal_touches_no_index() -> None:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "django_jobs_job")
    indexed = {
        column
        for facts in constraints.values()
        if facts["index"] or facts["unique"]
        for column in facts["columns"] or ()
    }
    assert "lease_expires_at" not in indexed


def test_no_table_refers_to_another() -> None:
    with connection.cursor() as cursor:
        for table in TABLES:
            constraints = connection.introspection.get_constraints(cursor, table)
            assert [name for name, facts in constraints.items() if facts["foreign_key"]] == []


# -- PostgreSQL's own


def test_every_column_says_what_it_is_for(postgresql: None) -> None:
    for model in MODELS:
        table = model._meta.db_table
        comments = dict(
            fetched(
                "select attname, col_description(attrelid, attnum) from pg_attribute "
                "where attrelid = %s::regclass and attnum > 0 and not attisdropped",
                table,
            )
        )
        expected = {field.column: str(field.help_text) or None for field in model._meta.local_fields}
        assert comments == expected
        assert [column for column, comment in comments.items() if not comment and column != "id"] == []


def test_the_table_of_jobs_is_stored_for_many_updates(postgresql: None) -> None:
    [(options,)] = fetched("select reloptions from pg_class where oid = 'django_jobs_job'::regclass")
    assert sorted(options) == [
        "autovacuum_vacuum_cost_delay=0",
        "autovacuum_vacuum_scale_factor=0",
        "autovacuum_vacuum_threshold=1000",
        "fillfactor=85",
        "vacuum_truncate=off",
    ]


def test_ids_are_an_identity_that_may_be_given(postgresql: None) -> None:
    found = fetched(
        "select identity_generation, data_type from information_schema.columns "
        "where table_schema = current_schema() and table_name = 'django_jobs_job' and column_name = 'id'"
    )
    assert found == [("BY DEFAULT", "bigint")]


# -- there and back


def tables_of(alias: str) -> list[str]:
    there = connections[alias].introspection.table_names()
    return sorted(table for table in there if table.startswith("django_jobs_"))


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_all_migrations_can_be_undone_and_done_again() -> None:
    try:
        call_command("migrate", "django_jobs", "zero", database="other", verbosity=0)
        assert tables_of("other") == []
    finally:
        call_command("migrate", "django_jobs", database="other", verbosity=0)
    assert tables_of("other") == sorted(TABLES)
    applied = MigrationRecorder(connections["other"]).applied_migrations()
    assert ("django_jobs", "0001_initial") in applied
    assert not Job.objects.using("other").exists()
