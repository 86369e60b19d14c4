"""Declare and run: the body of an atomic performer and the end of its job, in one transaction.

It is Django's own connection to the jobs' database, so the body takes part without knowing of it. Only a success is
committed; everything else is rolled back, and written afterwards like the end of any other job. Where the caller is in
a transaction (a test, for one), all of it happens in a savepoint of that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from django.db import Error, InterfaceError, OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError

from django_jobs import lifecycle
from django_jobs.conf import settings
from django_jobs.outcomes import Cancelled, Committed, Ending, InDoubt, Outcome, Released, Succeeded
from django_jobs.runner.call import Call
from django_jobs.runner.surroundings import activate, deactivate, is_in_transaction, tell_odd
from django_jobs.states import State

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_Hooks: TypeAlias = list[Callable[[], object]]


class _RolledBack(Exception):
    """Leaves the transaction without a commit."""


def perform(call: Call, body: Callable[[], Outcome], *, failed: Callable[[BaseException], Outcome]) -> Ending:
    """Run `body` and write the end of its job in one transaction, then call what it registered with on_commit.

    When `body` returns, nothing interrupts this thread any more, and it gives Succeeded only where nothing did before.
    `failed` says what an error of the transaction itself comes to.
    """
    connection = connections[settings().database]
    outcome: Outcome | None = None
    success: Succeeded | None = None
    hooks: _Hooks = []
    try:
        with _transaction(connection) as is_own:
            outcome = _settled(connection, call, body())
            if not isinstance(outcome, Succeeded):
                raise _RolledBack
            success = outcome
            if is_own:
                hooks = _taken_hooks(connection)
    except BaseException as error:  # noqa: BLE001 - as in _performed; also what a rollback on a dead connection raises
        if success is not None:
            # The COMMIT was under way, and the row alone knows what became of it.
            return InDoubt(success=success, failure=failed(error))
        return failed(error) if outcome is None else outcome
    _call(hooks, call)
    return Committed(success=success)


def rehearse(body: Callable[[], Outcome], *, failed: Callable[[BaseException], Outcome]) -> Outcome:
    """Run `body` in a transaction, or a savepoint of the caller's, that stays with a success alone; there is no row."""
    connection = connections[settings().database]
    outcome: Outcome | None = None
    try:
        with _transaction(connection):
            outcome = body()
            if not isinstance(outcome, Succeeded):
                raise _RolledBack
            _refuse_broken(connection)
    except _RolledBack:
        assert outcome is not None
        return outcome
    except BaseException as error:  # noqa: BLE001 - as in perform
        return failed(error)
    return outcome


def _settled(connection: BaseDatabaseWrapper, call: Call, outcome: Outcome) -> Outcome:
    """Write the end of a success, and give what the run came to: not Succeeded where nothing may be committed."""
    if not isinstance(outcome, Succeeded):
        return outcome
    _refuse_broken(connection)
    match lifecycle.settle_within(connection, call.claim, outcome, progress=call.attempt.reported):
        case State.SUCCESSFUL:
            return outcome
        case State.CANCELLED:
            return Cancelled(reason="cancelled while it ran")
        case _:
            return Released(started=True)


def _refuse_broken(connection: BaseDatabaseWrapper) -> None:
    if connection.needs_rollback or connection.closed_in_transaction:
        message = (
            "nothing was committed, since the transaction of this atomic job was marked for rollback: within it an "
            "error was swallowed, set_rollback(True) was called, or the connection was closed"
        )
        raise TransactionManagementError(message) from connection.rollback_exc  # type: ignore[attr-defined]


# -- the transaction


@contextmanager
def _transaction(connection: BaseDatabaseWrapper) -> Iterator[bool]:
    """Begin a transaction, or a savepoint in the caller's, and tell whether it is our own."""
    if is_in_transaction(connection):
        with transaction.atomic(using=connection.alias):
            yield False
        return
    with _autocommit(connection), ExitStack() as stack:
        raw = connection.connection
        try:
            stack.enter_context(_begun(connection))
        except (OperationalError, InterfaceError):
            if connection.connection is raw:
                raise
            # The connection had broken while nobody used it, so Django dropped it; nothing has happened yet.
            stack.enter_context(_begun(connection))
        yield True


@contextmanager
def _begun(connection: BaseDatabaseWrapper) -> Iterator[None]:
    with transaction.atomic(using=connection.alias):
        # What is told of a swallowed error must not be an older one.
        connection.rollback_exc = None  # type: ignore[attr-defined]
        lifecycle.begin(connection)
        yield


@contextmanager
def _autocommit(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Turn autocommit on where a project has it off: there the end of an atomic block commits nothing."""
    if connection.get_autocommit():
        yield
        return
    connection.rollback()
    connection.set_autocommit(True)
    try:
        yield
    finally:
        with suppress(Error):
            connection.set_autocommit(False)


# -- after the commit


def _taken_hooks(connection: BaseDatabaseWrapper) -> _Hooks:
    """Take the callbacks out of Django's hands, where the first that fails would look like a failed COMMIT."""
    hooks: _Hooks = [entry[1] for entry in connection.run_on_commit]
    connection.run_on_commit.clear()
    return hooks


def _call(hooks: _Hooks, call: Call) -> None:
    # As the body found it, not as it left it.
    deactivate()
    activate(call.attempt.meta)
    for hook in hooks:
        try:
            hook()
        except BaseException as error:  # noqa: BLE001 - the end of the job is recorded
            claim = call.claim
            tell_odd(f"{claim.name} #{claim.id} has succeeded, but an on_commit callback of it failed", error)
    deactivate()
