"""Drive: a connection of a loop's own, apart from those of user code; opened when needed, dropped when it breaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from django_jobs import lifecycle
from django_jobs.conf import settings
from django_jobs.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

SHORTEST_BOUND = 1.0
"""Seconds that a statement has for its answer at the least, however short the lease."""

READ_ONLY = "25006"
UNKNOWN_STATEMENT, KNOWN_STATEMENT = "26000", "42P05"

_watchdog = Watchdog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watchdog.begin_anew)


class Link:
    """One connection made from Django's parameters for an alias, in autocommit, without Django's pool.

    Used by one thread at a time, whichever it is. `patience` is the share of a lease that a statement has for its
    answer; one that gets none is ended by the watchdog.
    """

    def __init__(self, alias: str, *, patience: float = 1 / 8, watchdog: Watchdog = _watchdog) -> None:
        self._alias = alias
        self._patience = patience
        self._watchdog = watchdog
        self._may_prepare = True
        self._is_remote = False
        self._connection: BaseDatabaseWrapper | None = None

    @contextmanager
    def connected(self) -> Iterator[BaseDatabaseWrapper]:
        """Give the connection. After any error it is dropped, and the next use opens another.

        That an error came doesn't tell what it left behind: the server may be gone or a mere standby by now, or the
        statement may still be under way.
        """
        if self._connection is None:
            self._connection = self._opened()
        # Kept by Django under DEBUG, and nobody reads what this connection did.
        self._connection.queries_log.clear()
        try:
            yield self._connection
        except BaseException as error:
            if _sqlstate(error) in (UNKNOWN_STATEMENT, KNOWN_STATEMENT):
                self._may_prepare = False
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close(connection)

    def _opened(self) -> BaseDatabaseWrapper:
        bound = max(SHORTEST_BOUND, settings().lease.total_seconds() * self._patience)
        connection = connections[self._alias].copy()
        connection.settings_dict["OPTIONS"].pop("pool", None)
        connection.settings_dict["CONN_MAX_AGE"] = None
        connection.settings_dict["AUTOCOMMIT"] = True
        connection.inc_thread_sharing()
        self._is_remote = lifecycle.dedicate(connection, bound=bound)
        if self._is_remote:
            self._watchdog.engage()
            connection.execute_wrappers.append(self._watched(bound))
        try:
            # The driver bounds how long connecting itself may take, but not what Django says then.
            with self._watchdog.watch(connection, 2.0 + 2 * bound) if self._is_remote else nullcontext():
                connection.ensure_connection()
            if self._is_remote and self._may_prepare:
                lifecycle.prepare_if_direct(connection)
        except BaseException:
            self._close(connection)
            raise
        return connection

    def _close(self, connection: BaseDatabaseWrapper) -> None:
        with suppress(DatabaseError, InterfaceError):
            connection.close()
        if self._is_remote:
            self._watchdog.release()

    def _watched(self, bound: float) -> Callable[..., Any]:
        def execute(call: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:  # noqa: FBT001 - as Django calls it
            with self._watchdog.watch(context["connection"], bound):
                return call(sql, params, many, context)

        return execute


def is_away(error: BaseException) -> bool:
    """Whether an error says that the database can't serve us now, and that it is worth to come back soon."""
    return isinstance(error, (OperationalError, InterfaceError)) or _sqlstate(error) == READ_ONLY


def _sqlstate(error: BaseException) -> str:
    """Give the code of a driver's error, '' where the driver has none."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")
