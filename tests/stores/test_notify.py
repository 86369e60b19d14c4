"""A notification waits for no disk, and says so of its own commit only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.stores.base import Store
from tests.stores.plans import statements_of

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


def commits_how(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute("show synchronous_commit")
        [how] = cursor.fetchone()
        return str(how)


def test_by_itself_it_commits_without_waiting_for_the_disk(store: Store, connection: BaseDatabaseWrapper) -> None:
    [(sql, values)] = statements_of(connection, lambda: store.notify(connection, ["default"]))
    with connection.cursor() as cursor:
        # Again, within a transaction of which Django doesn't know, to see what holds when it commits.
        cursor.execute("begin")
        cursor.execute(sql, values)
        assert commits_how(connection) == "off"
        cursor.execute("commit")
    assert commits_how(connection) == "on"


def test_in_a_callers_transaction_his_commit_stays_as_it_is(store: Store, connection: BaseDatabaseWrapper) -> None:
    with transaction.atomic():
        store.notify(connection, ["default"])
        assert commits_how(connection) == "on"
