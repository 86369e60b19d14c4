"""A notification waits for no disk, also where the session waits for it otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.stores.base import Store

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has nobody who listens"),
]


@pytest.fixture(autouse=True)
def careful(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have the session wait for the disk, whatever the server does by itself."""
    with connection.cursor() as cursor:
        cursor.execute("set synchronous_commit = on")
        yield
        cursor.execute("reset synchronous_commit")


@pytest.mark.parametrize("words", [["default"], ["default", "mail"]])
def test_its_commit_is_not_flushed(store: Store, connection: BaseDatabaseWrapper, words: list[str]) -> None:
    """PostgreSQL flushes at a commit only where the transaction has written something beside that."""

    def is_flushed() -> bool:
        store.notify(connection, words)
        with connection.cursor() as cursor:
            cursor.execute("select pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
            return bool(cursor.fetchone()[0])

    # Somebody else may flush just then, but not each time.
    assert not all(is_flushed() for _ in range(50))


def test_each_word_is_said(store: Store, connection: BaseDatabaseWrapper) -> None:
    store.listen(connection)
    store.notify(connection, ["mail"])
    store.notify(connection, [])
    store.notify(connection, ["a", "b's"])
    heard: set[str] = set()
    while len(heard) < 3:
        said, _ = store.hear(connection, None, timeout=5.0)
        assert said
        heard |= said
    store.unlisten(connection)
    assert heard == {"mail", "a", "b's"}
