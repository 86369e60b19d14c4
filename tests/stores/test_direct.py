"""Statements are prepared, and never compiled, only in a session that is ours alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.stores.base import Store

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


def is_compiling(connection: BaseDatabaseWrapper) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("show jit")
        return cursor.fetchone() == ("on",)


def test_straight_at_the_server(store: Store, own: BaseDatabaseWrapper) -> None:
    store.prepare_if_direct(own)
    assert own.connection.prepare_threshold is not None
    assert not is_compiling(own)


def test_where_another_answers_than_was_met(
    store: Store, own: BaseDatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which tells a process id of its own invention."""
    from psycopg import ConnectionInfo

    before = own.connection.prepare_threshold
    monkeypatch.setattr(ConnectionInfo, "backend_pid", 1)
    store.prepare_if_direct(own)
    assert own.connection.prepare_threshold == before
    assert is_compiling(own)
