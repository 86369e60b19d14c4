"""Write: what loops ask of a connection of their own, beside the verbs: to hear, to be watched, to be proven."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django_jobs.records import Pulse
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def listen(connection: BaseDatabaseWrapper) -> Any:
    """Begin to hear of new jobs, on a connection kept for that."""
    return store_for(connection.alias).listen(connection)


def hear(connection: BaseDatabaseWrapper, mark: Any, *, timeout: float) -> tuple[set[str], Any]:
    """Wait up to `timeout` seconds for news, and give what was said, with the mark for the next call."""
    return store_for(connection.alias).hear(connection, mark, timeout=timeout)


def unlisten(connection: BaseDatabaseWrapper) -> None:
    """Hear no more on a connection."""
    store_for(connection.alias).unlisten(connection)


def needs_proof(connection: BaseDatabaseWrapper) -> bool:
    """Whether hearing may fail without an error, so that it has to be tried."""
    return store_for(connection.alias).needs_proof


def notify(connection: BaseDatabaseWrapper, words: Iterable[str]) -> None:
    """Say something to all that listen."""
    store_for(connection.alias).notify(connection, words)


def dedicate(connection: BaseDatabaseWrapper, *, bound: float) -> bool:
    """Set up a connection of a loop's own before it opens, and tell whether a network lies between."""
    return store_for(connection.alias).dedicate(connection, bound=bound)


def prepare_if_direct(connection: BaseDatabaseWrapper) -> None:
    """Have the server prepare statements that come again and again, where that is safe."""
    store_for(connection.alias).prepare_if_direct(connection)


def cancel_statement(connection: BaseDatabaseWrapper, *, timeout: float) -> None:
    """Ask the server, from another thread, to end the statement that is under way."""
    store_for(connection.alias).cancel_statement(connection, timeout=timeout)


def hang_up(connection: BaseDatabaseWrapper) -> None:
    """Have whoever waits at this connection, in another thread, wait no longer."""
    store_for(connection.alias).hang_up(connection)


def pulse(connection: BaseDatabaseWrapper) -> Pulse:
    """Read since when the server runs, and what its clock says."""
    return store_for(connection.alias).pulse(connection)


def refused(connection: BaseDatabaseWrapper) -> tuple[str, Exception] | None:
    """Have the database plan each of our statements; give the name of the first it refuses, and why."""
    return store_for(connection.alias).refused(connection)
