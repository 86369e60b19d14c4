from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.test import override_settings

from django_jobs.migrations._operations import CommentColumns, KeepSequence, StorageParameters

TABLE = "yard_ticket"

LONGER = migrations.AlterField("ticket", "title", models.CharField(max_length=90, default="", help_text="what for"))


def apply(operation: Operation, state: ProjectState) -> ProjectState:
    """Run an operation forwards, and give the state after it."""
    after = state.clone()
    operation.state_forwards("yard", after)
    with connection.schema_editor(atomic=True) as editor:
        operation.database_forwards("yard", editor, state, after)
    return after


def undo(operation: Operation, before: ProjectState, after: ProjectState) -> None:
    with connection.schema_editor(atomic=True) as editor:
        operation.database_backwards("yard", editor, after, before)


def insert(count: int = 1) -> list[int]:
    """Insert rows and give their ids."""
    with connection.cursor() as cursor:
        ids = []
        for _ in range(count):
            cursor.execute(f"insert into {TABLE} (title) values ('x') returning id")
            ids.append(cursor.fetchone()[0])
        return ids


def delete(*ids: int) -> None:
    with connection.cursor() as cursor:
        for row in ids:
            cursor.execute(f"delete from {TABLE} where id = %s", [row])


@pytest.fixture
def tickets(transactional_db: None) -> Iterator[ProjectState]:
    """Give the state of a project with one table, which is there."""
    create = migrations.CreateModel(
        "Ticket",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("title", models.CharField(max_length=9, default="", help_text="what's it for")),
        ],
    )
    state = apply(create, ProjectState())
    yield state
    with connection.cursor() as cursor:
        cursor.execute(f"drop table {TABLE}")


@pytest.fixture
def sqlite() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite copies a table to alter it")


@pytest.fixture
def postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("comments and storage parameters are PostgreSQL's")


# -- KeepSequence


def test_no_id_of_a_deleted_row_comes_back_over_a_rebuild(tickets: ProjectState) -> None:
    ids = insert(3)
    delete(ids[1], ids[2])
    apply(KeepSequence("ticket", [LONGER]), tickets)
    assert insert() == [ids[2] + 1]


def test_without_it_they_would_come_back(sqlite: None, tickets: ProjectState) -> None:
    ids = insert(3)
    delete(ids[1], ids[2])
    apply(LONGER, tickets)
    assert insert() == [ids[1]]


def test_ids_go_on_where_a_rebuilt_table_is_empty(tickets: ProjectState) -> None:
    ids = insert(3)
    delete(*ids)
    apply(KeepSequence("ticket", [LONGER]), tickets)
    assert insert() == [ids[2] + 1]


def test_a_table_that_never_had_a_row_begins_at_one(tickets: ProjectState) -> None:
    apply(KeepSequence("ticket", [LONGER]), tickets)
    assert insert() == [1]


def test_the_rebuild_itself_is_done(tickets: ProjectState) -> None:
    [row] = insert()
    add = migrations.AddField("ticket", "seat", models.IntegerField(default=4))
    after = apply(KeepSequence("ticket", [LONGER, add]), tickets)
    found = after.apps.get_model("yard", "ticket").objects.get()
    assert (found.pk, found.title, found.seat) == (row, "x", 4)


def test_no_id_comes_back_when_it_is_undone(tickets: ProjectState) -> None:
    keep = KeepSequence("ticket", [LONGER, migrations.AddField("ticket", "seat", models.IntegerField(default=4))])
    after = apply(keep, tickets)
    ids = insert_with_seats(2)
    delete(ids[1])
    undo(keep, tickets, after)
    assert insert() == [ids[1] + 1]


def insert_with_seats(count: int) -> list[int]:
    with connection.cursor() as cursor:
        ids = []
        for _ in range(count):
            cursor.execute(f"insert into {TABLE} (title, seat) values ('x', 1) returning id")
            ids.append(cursor.fetchone()[0])
        return ids


def test_a_sequence_that_is_further_already_is_not_put_back(tickets: ProjectState) -> None:
    insert()
    insert_far = migrations.RunSQL(f"insert into {TABLE} (id, title) values (500, 'far')", migrations.RunSQL.noop)
    apply(KeepSequence("ticket", [insert_far]), tickets)
    if connection.vendor == "sqlite":
        assert insert() == [501]


def test_it_can_be_undone_exactly_if_all_within_can() -> None:
    assert KeepSequence("ticket", [LONGER]).reversible
    assert not KeepSequence("ticket", [LONGER, migrations.RunSQL("select 1")]).reversible


def test_it_describes_what_is_within() -> None:
    described = KeepSequence("ticket", [LONGER, migrations.DeleteModel("Other")]).describe()
    assert described == "Alter field title on ticket; Delete model Other"


# -- CommentColumns


def comments() -> dict[str, str | None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select attname, col_description(attrelid, attnum) from pg_attribute "
            "where attrelid = %s::regclass and attnum > 0 and not attisdropped",
            [TABLE],
        )
        return dict(cursor.fetchall())


def test_columns_are_commented_with_their_help_text(postgresql: None, tickets: ProjectState) -> None:
    apply(CommentColumns(["Ticket"]), tickets)
    assert comments() == {"id": None, "title": "what's it for"}


def test_comments_are_taken_back(postgresql: None, tickets: ProjectState) -> None:
    operation = CommentColumns(["Ticket"])
    undo(operation, tickets, apply(operation, tickets))
    assert comments() == {"id": None, "title": None}


# -- StorageParameters


def parameters() -> list[str] | None:
    with connection.cursor() as cursor:
        cursor.execute("select reloptions from pg_class where oid = %s::regclass", [TABLE])
        return cursor.fetchone()[0]


def test_storage_parameters_are_set(postgresql: None, tickets: ProjectState) -> None:
    apply(StorageParameters("Ticket", fillfactor=70, vacuum_truncate="off"), tickets)
    assert parameters() == ["fillfactor=70", "vacuum_truncate=off"]


def test_storage_parameters_are_taken_back(postgresql: None, tickets: ProjectState) -> None:
    operation = StorageParameters("Ticket", fillfactor=70, vacuum_truncate="off")
    undo(operation, tickets, apply(operation, tickets))
    assert parameters() is None


# -- all of them


OURS: list[Any] = [CommentColumns(["Ticket"]), StorageParameters("Ticket", fillfactor=70)]


@pytest.mark.parametrize("operation", OURS, ids=lambda operation: type(operation).__name__)
def test_it_works_on_either_database_and_can_be_undone(tickets: ProjectState, operation: Operation) -> None:
    assert operation.reversible
    after = apply(operation, tickets)
    assert after.models == tickets.models
    undo(operation, tickets, after)
    assert insert() == [1]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (CommentColumns(["Ticket", "Seat"]), "Comment the columns of Ticket, Seat on PostgreSQL"),
        (StorageParameters("Ticket", fillfactor=70), "Set storage parameters of Ticket on PostgreSQL"),
    ],
)
def test_it_describes_itself(operation: Operation, text: str) -> None:
    assert operation.describe() == text


class NothingHere:
    """A router that keeps every model out of every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
        return False


@pytest.mark.parametrize(
    "operation",
    [
        CommentColumns(["Job"]),
        StorageParameters("Job", fillfactor=70),
        KeepSequence("Job", [migrations.AddField("job", "seat", models.IntegerField(default=4))]),
    ],
    ids=lambda operation: type(operation).__name__,
)
@pytest.mark.django_db(transaction=True)
def test_it_leaves_databases_alone_that_a_router_keeps_it_out_of(operation: Operation) -> None:
    state = ProjectState.from_apps(apps)
    after = state.clone()
    operation.state_forwards("django_jobs", after)
    statements: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    routed = override_settings(DATABASE_ROUTERS=[NothingHere()])
    with routed, connection.schema_editor() as editor, connection.execute_wrapper(listen):
        operation.database_forwards("django_jobs", editor, state, after)
        operation.database_backwards("django_jobs", editor, after, state)
    assert [sql for sql in statements if not sql.upper().startswith("SELECT")] == []


def test_parameters_are_written_into_migrations() -> None:
    operation = StorageParameters("Ticket", fillfactor=70, vacuum_truncate="off")
    expected = ("StorageParameters", ["Ticket"], {"fillfactor": 70, "vacuum_truncate": "off"})
    assert operation.deconstruct() == expected
