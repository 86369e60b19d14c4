"""A watchdog that nobody but the test has look, over statements on real connections."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import signals
from django_jobs.clock import FrozenClock
from django_jobs.worker.link import Link
from django_jobs.worker.watchdog import Watchdog
from tests.factories import another_connection, seconds

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite is asked in this process"),
]

PATIENCE = 20.0


class Sleeper:
    """A statement that sleeps in the server, in a thread, watched with a bound of 10 s."""

    def __init__(self, watchdog: Watchdog, connection: BaseDatabaseWrapper) -> None:
        connection.inc_thread_sharing()
        self.connection = connection
        self.raised: list[Error] = []
        self._watchdog = watchdog
        self._is_watched = Event()
        self._thread = Thread(target=self._sleep)
        self._thread.start()
        assert self._is_watched.wait(PATIENCE)

    def _sleep(self) -> None:
        with self.connection.cursor() as cursor, self._watchdog.watch(self.connection, 10.0):
            self._is_watched.set()
            try:
                cursor.execute("select pg_sleep(60)")
            except Error as error:
                self.raised.append(error)

    def wait(self) -> str:
        """Wait until it is over, and give the code of the error that ended it, '' where the server gave none."""
        self._thread.join(PATIENCE)
        [error] = self.raised
        return str(getattr(error.__cause__, "sqlstate", None) or "")


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog()


@pytest.fixture
def sleeper(watchdog: Watchdog, frozen: FrozenClock) -> Iterator[Sleeper]:
    with another_connection() as connection:
        connection.ensure_connection()
        pid = connection.connection.info.backend_pid
        sleeper = Sleeper(watchdog, connection)
        yield sleeper
        with connections["default"].cursor() as cursor:
            # The server goes on with what was hung up on.
            cursor.execute("select pg_terminate_backend(%s, 5000)", [pid])
        sleeper._thread.join(PATIENCE)


def test_within_its_bound_a_statement_is_left_alone(watchdog: Watchdog, sleeper: Sleeper, frozen: FrozenClock) -> None:
    frozen.advance(seconds(9.9))
    watchdog.look()
    assert sleeper._thread.is_alive()
    assert sleeper.raised == []


def test_a_statement_without_answer_is_cancelled_in_the_server(
    watchdog: Watchdog, sleeper: Sleeper, frozen: FrozenClock
) -> None:
    told: list[tuple[str, int]] = []

    def note(*, message: str, level: int, **_: Any) -> None:
        told.append((message, level))

    signals.odd.connect(note)
    frozen.advance(seconds(10))
    watchdog.look()
    signals.odd.disconnect(note)
    assert sleeper.wait() == "57014"
    message = "the database gave no answer for 10 s: the statement is ended, and tried again"
    assert told == [(message, logging.WARNING)]


def test_one_that_does_not_end_by_that_either_is_hung_up_on(
    watchdog: Watchdog, sleeper: Sleeper, frozen: FrozenClock
) -> None:
    frozen.advance(seconds(15))
    watchdog.look()
    assert sleeper.wait() == ""


def test_what_has_got_its_answer_is_forgotten(watchdog: Watchdog, frozen: FrozenClock) -> None:
    with another_connection() as connection:
        with connection.cursor() as cursor, watchdog.watch(connection, 10.0):
            cursor.execute("select 1")
        frozen.advance(seconds(60))
        watchdog.look()
        with connection.cursor() as cursor:
            cursor.execute("select 2")
            assert cursor.fetchone() == (2,)


def test_its_thread_is_there_while_a_connection_is() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in enumerate_threads() if thread.name == "django_jobs watchdog"]

    first, second = Link("default"), Link("default")
    for link in (first, second):
        with link.connected():
            assert threads()
    first.close()
    assert threads()
    second.close()
    assert threads() == []
    with first.connected():
        assert threads()
    first.close()


def test_a_connection_that_is_being_opened_has_nothing_to_be_shut(watchdog: Watchdog, frozen: FrozenClock) -> None:
    with another_connection() as connection, watchdog.watch(connection, 10.0):
        frozen.advance(seconds(60))
        watchdog.look()
        connection.ensure_connection()
        assert connection.is_usable()
