"""Write: a batch that a constraint refuses goes row by row, and no error of ours breaks a caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from django.db import DatabaseError, IntegrityError, OperationalError

from django_jobs import signals
from django_jobs.exceptions import KeyContended
from django_jobs.lifecycle.keys import TRIES, superseding
from django_jobs.lifecycle.queueing import insert_follow_ups
from django_jobs.records import Claim, HeldRow, Lease
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


Write: TypeAlias = Callable[["BaseDatabaseWrapper", Sequence[Change]], set[Lease]]


class Written(NamedTuple):
    """What became of a batch: what was written, what a constraint refused, and what was written instead of a change."""

    leases: set[Lease]
    refused: set[Lease]
    instead: dict[Lease, Change]


LEFT_FOR_LATER = Written(set(), set(), {})
"""A row that was neither written nor refused; whoever asked for it finds it as it was, and asks again."""


class Ties(NamedTuple):
    """What ties rows to others: the keys under which some wait, and the performers that hear of the failure of some."""

    waiting_keys: Mapping[Lease, str]
    on_failure: Mapping[Lease, str]


def ties_of(rows: Iterable[Claim | HeldRow]) -> Ties:
    """Give what ties these rows to others."""
    keys: dict[Lease, str] = {}
    names: dict[Lease, str] = {}
    for row in rows:
        if row.waiting_key is not None:
            keys[row.lease] = row.waiting_key
        if row.on_failure:
            names[row.lease] = row.on_failure
    return Ties(keys, names)


def each(connection: BaseDatabaseWrapper, write: Write, changes: Sequence[Change], ties: Ties) -> Written:
    """Write a batch; where a constraint refuses it, row by row, leaving the offender with a line in the log.

    What would wait again while another with its key waits is superseded; one that meets such another whenever it is
    written, and doesn't find it then, is left for later: a caller may have queued it and not have committed. With a job
    that fails the one is queued that hears of that.
    """
    if not changes:
        return Written(set(), set(), {})
    if len(changes) == 1:
        return _written_alone(connection, write, changes[0], ties)
    try:
        return _written(connection, write, changes, ties)
    except (IntegrityError, OperationalError, KeyContended) as error:
        _raise_unless_about_a_row(connection, error)
        return _joined([_written_alone(connection, write, change, ties) for change in changes])


def _raise_unless_about_a_row(connection: BaseDatabaseWrapper, error: DatabaseError | KeyContended) -> None:
    if not isinstance(error, (IntegrityError, KeyContended)) and not store_for(connection.alias).gave_up(error):
        raise error


def _written(connection: BaseDatabaseWrapper, write: Write, changes: Sequence[Change], ties: Ties) -> Written:
    followed = [change.lease for change in changes if change.state is State.FAILED and change.lease in ties.on_failure]
    with together(connection) if followed else savepoint(connection):
        decided = superseding(connection, changes, ties.waiting_keys) if ties.waiting_keys else changes
        written = write(connection, decided)
        names = [(ties.on_failure[lease], lease.id) for lease in followed if lease in written]
        queued = insert_follow_ups(connection, names)
    queued.tell()
    return Written(written, set(), {change.lease: change for change in decided if change.superseded_by is not None})


def _written_alone(
    connection: BaseDatabaseWrapper, write: Write, change: Change, ties: Ties, *, tries: int = TRIES
) -> Written:
    """Write one change; where it meets another with its key that wasn't found, it is tried anew."""
    try:
        return _written(connection, write, [change], ties)
    except (IntegrityError, OperationalError, KeyContended) as error:
        _raise_unless_about_a_row(connection, error)
        if not isinstance(error, IntegrityError):
            return LEFT_FOR_LATER
        refusal = error
    if change.lease in ties.waiting_keys:
        return _written_alone(connection, write, change, ties, tries=tries - 1) if tries else LEFT_FOR_LATER
    if change.gone:
        # Somebody's row refers to the job: it did succeed, so it stays instead of going.
        return _written_alone(connection, write, change._replace(gone=False), ties)
    message = f"the end of job {change.lease.id} can't be written and its row stays as it is: {refusal}"
    signals.tell(signals.odd, None, message=message, exception=refusal, level=logging.ERROR)
    return Written(set(), {change.lease}, {})


def _joined(parts: Sequence[Written]) -> Written:
    return Written(
        {lease for part in parts for lease in part.leases},
        {lease for part in parts for lease in part.refused},
        {lease: change for part in parts for lease, change in part.instead.items()},
    )


@contextmanager
def together(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Make one transaction of what follows, on whichever connection; a caller's own is kept from breaking.

    One of ours waits for nobody for long: what is queued in it may have a key.
    """
    if connection.in_atomic_block or not connection.get_autocommit():
        with savepoint(connection):
            yield
        return
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        store_for(connection.alias).begin(connection)
        store_for(connection.alias).be_brief(connection)
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.set_autocommit(True)


@contextmanager
def savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Keep an error of ours from breaking the transaction of a caller; a worker's own connection has none."""
    if connection.get_autocommit() and not connection.in_atomic_block:
        yield
        return
    mark = connection.savepoint() or ""
    try:
        yield
    except BaseException:
        connection.savepoint_rollback(mark)
        raise
    connection.savepoint_commit(mark)
