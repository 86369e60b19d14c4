"""Write: a batch that a constraint refuses goes row by row, and no error of ours breaks a caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import IntegrityError

from django_jobs import signals
from django_jobs.records import Lease
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def each(
    connection: BaseDatabaseWrapper,
    write: Callable[[BaseDatabaseWrapper, Sequence[Change]], set[Lease]],
    changes: Sequence[Change],
) -> tuple[set[Lease], set[Lease]]:
    """Write a batch; where a constraint refuses it, row by row, leaving the offender with a line in the log.

    Gives the leases that were written and those that were refused.
    """
    if not changes:
        return set(), set()
    try:
        with savepoint(connection):
            return write(connection, changes), set()
    except IntegrityError as error:
        if len(changes) > 1:
            singly = [each(connection, write, [change]) for change in changes]
            return {lease for written, _ in singly for lease in written}, {
                lease for _, left in singly for lease in left
            }
        if changes[0].gone:
            # Somebody's row refers to the job: it did succeed, so it stays instead of going.
            return each(connection, write, [changes[0]._replace(gone=False)])
        message = f"the end of job {changes[0].lease.id} can't be written and its row stays as it is: {error}"
        signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
        return set(), {changes[0].lease}


@contextmanager
def savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Keep an error of ours from breaking the transaction of a caller; a worker's own connection has none."""
    if not connection.in_atomic_block:
        yield
        return
    mark = connection.savepoint() or ""
    try:
        yield
    except BaseException:
        connection.savepoint_rollback(mark)
        raise
    connection.savepoint_commit(mark)
