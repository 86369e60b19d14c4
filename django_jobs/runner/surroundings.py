"""Declare and run: what a body finds around it, and what is put right behind it. Calls no user code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from django.db import Error, connections
from django.utils import timezone, translation

from django_jobs import signals
from django_jobs.exceptions import Interruption
from django_jobs.failures import shown
from django_jobs.records import Claim

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def tell_odd(message: str, error: BaseException | None = None, *, level: int = logging.ERROR) -> None:
    """Have something logged that nobody expects."""
    signals.tell(signals.odd, None, message=message, exception=error, level=level)


# -- who may interrupt it


class Interrupter(Protocol):
    """Who may interrupt the body: the worker's seat that it runs in."""

    @property
    def sent(self) -> type[Interruption] | None:
        """What it was interrupted with."""

    def leave(self) -> type[Interruption] | None:
        """Let nothing interrupt this thread any more, and give what did."""


class _Nobody:
    """Interrupts nothing."""

    sent = None

    def leave(self) -> None:
        """Nothing did."""


NOBODY: Interrupter = _Nobody()


# -- language and time zone


def activate(meta: Mapping[str, Any]) -> None:
    """Activate the language and time zone that were active when the job was queued, the project's own otherwise.

    For a run's own context, where nothing is active, so that the project's own are.
    """
    if meta:
        _activate("language", meta.get("language"), translation.activate)
        _activate("time zone", meta.get("time_zone"), lambda name: timezone.activate(_zone(name)))


def deactivate() -> None:
    """Go back to the project's own, also from what the body has activated: what went wrong is told in its language."""
    translation.deactivate()
    timezone.deactivate()


def _activate(what: str, name: object, do: Callable[[str], None]) -> None:
    if not isinstance(name, str):
        return
    try:
        do(name)
    except Exception as error:  # noqa: BLE001 - anybody may have written it, and what is raised differs by platform
        message = f"a job was queued under the {what} {name[:80]!r}, which this process can't activate: {shown(error)}"
        tell_odd(message, level=logging.WARNING)


def _zone(name: str) -> tzinfo:
    """Give a zone by its key, or a fixed offset as Django and Python name it: "+0230", "UTC+02:30"."""
    offset = name.removeprefix("UTC")
    if offset[:1] not in {"+", "-"}:
        return ZoneInfo(name)
    zone = datetime.strptime(offset, "%z").tzinfo
    assert zone is not None
    return zone


# -- connections


Marks: TypeAlias = "dict[str, _Mark | None]"
"""By alias: where the transactions stood that the caller was in when the job began."""


def prepare_connections(claim: Claim) -> Marks:
    """Treat connections as Django does when a request begins, and give what `tidy_connections` wants to know then."""
    marks: Marks = {}
    for connection in _connections():
        if _is_in_use(connection):
            if is_in_transaction(connection):
                marks[connection.alias] = _mark(connection)
            else:
                _surviving(claim, connection, refresh, connection)
    return marks


def tidy_connections(claim: Claim, marks: Marks) -> None:
    """Treat connections as Django does when a request ends, and leave none in a transaction that the job left open.

    A connection that the caller has in a transaction (a test's, for one) is never closed; what the job broke or left
    open in it is rolled back to where the job began.
    """
    for connection in _connections():
        if connection.alias in marks:
            _surviving(claim, connection, _restore, connection, marks[connection.alias], claim)
        elif _is_in_use(connection):
            _surviving(claim, connection, _clean, connection, claim)


def _is_in_use(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether there is anything to be put right."""
    return connection.connection is not None or connection.in_atomic_block or bool(connection.queries_log)


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether somebody is in a transaction that Django knows of, by `atomic()` or with autocommit off."""
    if connection.in_atomic_block:
        return True
    return connection.connection is not None and connection.get_autocommit() != connection.settings_dict["AUTOCOMMIT"]


def refresh(connection: BaseDatabaseWrapper) -> None:
    """Do as Django when a request starts; not for a connection that is in a transaction."""
    if not connection.force_debug_cursor:  # Somebody counts queries.
        connection.queries_log.clear()
    connection.close_if_unusable_or_obsolete()


def close_connections(claim: Claim) -> None:
    """Close every connection of this thread, which ends."""
    for connection in _connections():
        _surviving(claim, connection, connection.close)


_threads_own = threading.local()


def _connections() -> list[BaseDatabaseWrapper]:
    """List what this thread has; once it has one for each alias, they are its own for as long as it lives."""
    found: list[BaseDatabaseWrapper] = getattr(_threads_own, "connections", [])
    if len(found) < len(connections.settings):
        found = _threads_own.connections = list(connections.all(initialized_only=True))
    return found


def _surviving(claim: Claim, connection: BaseDatabaseWrapper, do: Callable[..., None], *arguments: object) -> None:
    try:
        do(*arguments)
    except Exception as error:  # noqa: BLE001 - what the job came to counts more
        tell_odd(f"the connection to {connection.alias} is broken beside {_who(claim)}", error)


def _clean(connection: BaseDatabaseWrapper, claim: Claim) -> None:
    """Do as Django when a request ends, and end every transaction, also one begun by a statement of the job's own."""
    if is_in_transaction(connection):
        _tell_left_open(connection, claim)
        # What is asked before the next connect, which resets the rest.
        connection.in_atomic_block = connection.closed_in_transaction = False
        connection.atomic_blocks.clear()
        connection.close()
    connection.close_if_unusable_or_obsolete()
    if connection.connection is not None:
        try:
            with connection.wrap_database_errors:
                connection.connection.rollback()
        except Error:
            # As in Django's own atomic(): then something is wrong with the connection.
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Where a caller's transaction stood when the job began."""

    savepoint: str
    savepoints: int
    blocks: int
    hooks: int


def _mark(connection: BaseDatabaseWrapper) -> _Mark | None:
    """Set a savepoint. None in a transaction by hand, or one that is broken already: those are left alone."""
    if not connection.in_atomic_block or connection.needs_rollback:
        return None
    savepoint = connection.savepoint()
    if savepoint is None:
        return None
    return _Mark(
        savepoint=savepoint,
        savepoints=len(connection.savepoint_ids),
        blocks=len(connection.atomic_blocks),
        hooks=len(connection.run_on_commit),
    )


def _restore(connection: BaseDatabaseWrapper, mark: _Mark | None, claim: Claim) -> None:
    if mark is None:
        return
    is_left_open = len(connection.atomic_blocks) > mark.blocks
    if is_left_open:
        _tell_left_open(connection, claim)
    # PostgreSQL refuses everything but a rollback once a statement has failed.
    if is_left_open or connection.needs_rollback or not connection.is_usable():
        del connection.savepoint_ids[mark.savepoints :]
        del connection.atomic_blocks[mark.blocks :]
        del connection.run_on_commit[mark.hooks :]
        connection.needs_rollback = False
        connection.savepoint_rollback(mark.savepoint)
    connection.savepoint_commit(mark.savepoint)


def _tell_left_open(connection: BaseDatabaseWrapper, claim: Claim) -> None:
    message = f"{_who(claim)} left a transaction open on {connection.alias}; what it did there was rolled back"
    tell_odd(message, level=logging.WARNING)


def _who(claim: Claim) -> str:
    return f"{claim.name} #{claim.id}"
