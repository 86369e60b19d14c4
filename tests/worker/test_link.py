"""A loop's own connection: how it is made, and when it is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import Error, InterfaceError, OperationalError, ProgrammingError, connections

from django_jobs import lifecycle
from django_jobs.worker.link import Link, is_away
from tests.factories import queue_jobs, request

pytestmark = pytest.mark.django_db(transaction=True)

on_postgresql = pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no server")


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link("default")
    yield link
    link.close()


def ask(link: Link, sql: str) -> Any:
    with link.connected() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Change how the project configured the database, OPTIONS among the rest."""

    def configure(**changes: Any) -> None:
        for name, value in changes.items():
            monkeypatch.setitem(connections["default"].settings_dict, name, value)

    return configure


def test_it_is_in_autocommit_whatever_the_project_says(link: Link, configured: Any) -> None:
    configured(AUTOCOMMIT=False, CONN_MAX_AGE=0)
    with link.connected() as connection:
        assert connection.get_autocommit()
        assert connection.settings_dict["CONN_MAX_AGE"] is None


def test_it_stays_open_from_use_to_use(link: Link) -> None:
    with link.connected() as first:
        pass
    with link.connected() as second:
        assert second is first


def test_any_error_drops_it_and_the_next_use_opens_another(link: Link) -> None:
    with pytest.raises(ZeroDivisionError), link.connected() as first:
        raise ZeroDivisionError
    assert first.connection is None
    assert ask(link, "select 1") == 1


@on_postgresql
class TestOnPostgreSQL:
    def test_it_takes_no_place_in_the_projects_pool(self, link: Link, configured: Any) -> None:
        options = connections["default"].settings_dict["OPTIONS"]
        configured(OPTIONS={**options, "pool": {"min_size": 1, "max_size": 1}})
        with link.connected() as connection:
            assert connection.pool is None
        assert connections["default"].settings_dict["OPTIONS"]["pool"] == {"min_size": 1, "max_size": 1}

    def test_it_notices_a_dead_peer_as_soon_as_a_statement_without_answer(self, link: Link) -> None:
        with link.connected() as connection:
            given = connection.settings_dict["OPTIONS"]
        expected = {
            "connect_timeout": 8,
            "keepalives": 1,
            "keepalives_idle": 8,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 11_250,
        }
        assert expected.items() <= given.items()

    def test_what_the_project_said_goes_first(self, link: Link, configured: Any) -> None:
        options = connections["default"].settings_dict["OPTIONS"]
        configured(OPTIONS={**options, "connect_timeout": 3, "keepalives_idle": 77})
        with link.connected() as connection:
            given = connection.settings_dict["OPTIONS"]
        assert (given["connect_timeout"], given["keepalives_idle"], given["keepalives_count"]) == (3, 77, 3)
        assert "keepalives_count" not in connections["default"].settings_dict["OPTIONS"]

    def test_straight_at_the_server_statements_are_prepared(self, link: Link) -> None:
        for _ in range(5):
            ask(link, "select 41 + 1")
        assert ask(link, "select count(*) from pg_prepared_statements where statement = 'select 41 + 1'") == 1
        assert ask(link, "show jit") == "off"

    def test_where_another_answers_than_was_met_nothing_is_prepared(
        self, link: Link, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As behind a pooler, which tells a process id of its own invention."""
        from psycopg import ConnectionInfo

        monkeypatch.setattr(ConnectionInfo, "backend_pid", 1)
        for _ in range(5):
            ask(link, "select 41 + 1")
        assert ask(link, "select count(*) from pg_prepared_statements") == 0
        assert ask(link, "show jit") == "on"

    def test_a_prepared_statement_that_is_lost_is_the_last(self, link: Link) -> None:
        """Nothing ran of what is refused; the next use goes on without prepared statements."""
        for _ in range(5):
            ask(link, "select 41 + 1")
        # In words that the driver doesn't understand.
        ask(link, "do $$ begin execute 'deallocate all'; end $$")
        with pytest.raises(Error):
            ask(link, "select 41 + 1")
        for _ in range(5):
            assert ask(link, "select 41 + 1") == 42
        assert ask(link, "select count(*) from pg_prepared_statements") == 0

    def test_prepared_claims_keep_the_order(self, link: Link) -> None:
        """Also where the server plans a statement once for all values."""
        ids = {priority: queue_jobs(20, priority=priority) for priority in (-5, 7, 0)}
        ask(link, "set plan_cache_mode = force_generic_plan")
        claimed: list[int] = []
        for _ in range(20):
            with link.connected() as connection:
                claimed += [claim.id for claim in lifecycle.claim(connection, request(limit=3)).claims]
        assert claimed == ids[7] + ids[0] + ids[-5]
        assert ask(link, "select count(*) from pg_prepared_statements where generic_plans > 0") >= 1

    def test_a_server_that_only_reads_is_a_lost_connection(self, link: Link) -> None:
        ask(link, "set default_transaction_read_only = on")
        before = ask(link, "select pg_backend_pid()")
        with pytest.raises(Error) as caught:
            ask(link, "create table nobody_makes (id int)")
        assert is_away(caught.value)
        assert ask(link, "select pg_backend_pid()") != before

    def test_a_statement_without_answer_is_ended(self) -> None:
        # Whatever the lease, the bound is a second at the least.
        link = Link("default", patience=0.0)
        with pytest.raises(OperationalError) as caught:
            ask(link, "select pg_sleep(30)")
        assert is_away(caught.value)
        link.close()

    def test_each_statement_has_the_bound_for_itself(self) -> None:
        link = Link("default", patience=0.0)
        with link.connected() as connection, connection.cursor() as cursor:
            for _ in range(5):
                cursor.execute("select pg_sleep(0.3)")
        link.close()


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OperationalError("the connection is closed"), True),
        (InterfaceError("connection already closed"), True),
        (ProgrammingError("no such column"), False),
        (ValueError("bad"), False),
    ],
)
def test_some_errors_say_that_the_database_is_away(error: Exception, away: bool) -> None:
    assert is_away(error) is away
