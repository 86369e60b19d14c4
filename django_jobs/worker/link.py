"""Drive: a connection of a loop's own, apart from those of user code; opened when needed, dropped when it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from django.db import DatabaseError, InterfaceError, OperationalError, connections

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class Link:
    """One connection made from Django's parameters for an alias, in autocommit, without Django's pool.

    Used by one thread at a time, whichever it is.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._connection: BaseDatabaseWrapper | None = None

    @contextmanager
    def connected(self) -> Iterator[BaseDatabaseWrapper]:
        """Give the connection; after an error that means it is gone, the next use opens another."""
        if self._connection is None:
            self._connection = self._opened()
        # Kept by Django under DEBUG, and nobody reads what this connection did.
        self._connection.queries_log.clear()
        try:
            yield self._connection
        except (OperationalError, InterfaceError):
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(DatabaseError, InterfaceError):
                connection.close()

    def _opened(self) -> BaseDatabaseWrapper:
        connection = connections[self._alias].copy()
        connection.settings_dict["OPTIONS"].pop("pool", None)
        connection.settings_dict["CONN_MAX_AGE"] = None
        connection.settings_dict["AUTOCOMMIT"] = True
        connection.inc_thread_sharing()
        return connection
