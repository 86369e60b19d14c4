"""Statements are prepared, never compiled, and look rows up, only in a session that is ours alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.records import Lease
from django_jobs.stores.base import Store
from tests.factories import seconds
from tests.stores.plans import TABLE, explained, prepared, statements_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite is asked in this process"),
]


@pytest.fixture
def own(connection: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
    """Give a connection of the test's own, since what is said of it stays said."""
    made = connection.copy()
    made.ensure_connection()
    yield made
    made.close()


SETTINGS = ("jit", "enable_seqscan", "plan_cache_mode")


def said(connection: BaseDatabaseWrapper) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("select current_setting(name) from unnest(%s::text[]) as name", [list(SETTINGS)])
        return [value for (value,) in cursor.fetchall()]


def test_straight_at_the_server(store: Store, own: BaseDatabaseWrapper) -> None:
    store.prepare_if_direct(own)
    assert own.connection.prepare_threshold is not None
    assert said(own) == ["off", "off", "force_generic_plan"]


def test_where_another_answers_than_was_met(
    store: Store, own: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which tells a process id of its own invention."""
    from psycopg import ConnectionInfo

    before = own.connection.prepare_threshold
    monkeypatch.setattr(ConnectionInfo, "backend_pid", 1)
    store.prepare_if_direct(own)
    assert own.connection.prepare_threshold == before
    assert said(own) == ["on", "on", "auto"]


@pytest.mark.django_db(transaction=True)
def test_statements_prepared_on_a_table_that_is_known_to_be_empty_look_rows_up_when_it_has_filled(
    store: Store, own: BaseDatabaseWrapper
) -> None:
    """A worker waited for the first jobs after everything had been pruned, and vacuumed to no pages at all."""
    with own.cursor() as cursor:
        cursor.execute(f'vacuum (analyze) "{TABLE}"')
    cursors = own.connection.cursor_factory
    store.prepare_if_direct(own)
    # An EXPLAIN takes its values from the client.
    own.connection.cursor_factory = cursors
    [statement] = statements_of(own, lambda: store.renew(own, [Lease(id=1, token=1)], lease=seconds(60)))
    own.set_autocommit(False)
    execute = prepared(own, "ours", statement)
    assert explained(own, execute).scans == ()
    own.rollback()
