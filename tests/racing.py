"""Races with real connections: threads that begin together, somebody else's open transaction, and who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.db import connections, transaction

from django_jobs.stores import store_for
from tests.system.processes import until

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

PATIENCE = 60.0
"""Seconds after which a test gives up waiting for another thread."""

T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work` in so many threads that begin together, each with a connection of its own."""
    gate = threading.Barrier(count)

    def run(number: int) -> T:
        try:
            connections["default"].ensure_connection()
            gate.wait(timeout=30)
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def waits(verb: Future[Any], cursor: Any) -> bool:
    """Wait until the verb waits for a lock, or is done."""
    until(lambda: verb.done() or cursor.execute(WAITING).fetchone()[0], what="the verb waits for the row")
    return not verb.done()


class Somebody:
    """Another thread with a connection of its own, which does one thing after the other as it is told."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def starts(self, work: Callable[[], T]) -> Future[T]:
        """Have it done, and go on."""
        return self._pool.submit(work)

    def does(self, work: Callable[[], T]) -> T:
        """Have it done, and wait for that."""
        return self.starts(work).result(timeout=PATIENCE)

    def waits(self, verb: Future[Any]) -> None:
        """See that what was started waits for a row; where the database locks its whole file nobody can tell."""
        if connections["default"].vendor == "postgresql":
            with connections["default"].cursor() as cursor:
                assert waits(verb, cursor)

    @contextmanager
    def in_transaction(self, *, is_committed: bool = True) -> Iterator[None]:
        """Have what it does within be one transaction, which it commits, or rolls back, at the end."""
        atomic = transaction.atomic()
        self.does(atomic.__enter__)
        try:
            yield
        except BaseException:
            is_committed = False
            raise
        finally:
            if not is_committed:
                self.does(lambda: transaction.set_rollback(True))
            self.does(lambda: atomic.__exit__(None, None, None))


def between(monkeypatch: pytest.MonkeyPatch, verb: str, work: Callable[[], object]) -> None:
    """Have somebody else do his work, once, just before this verb of the store."""
    store = store_for("default")
    right, is_done = getattr(store, verb), False

    def late(*given: Any, **options: Any) -> Any:
        nonlocal is_done
        if not is_done:
            is_done = True
            work()
        return right(*given, **options)

    monkeypatch.setattr(store, verb, late)


@contextmanager
def somebody() -> Iterator[Somebody]:
    """Give another thread, and close its connection at the end."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield Somebody(pool)
        finally:
            pool.submit(connections.close_all).result(timeout=PATIENCE)
