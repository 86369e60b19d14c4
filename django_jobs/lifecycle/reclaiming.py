"""Write: jobs are taken back from who can no longer hold them: a dead process, a lapsed lease, a lost answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from django_jobs import backoff, signals, transitions
from django_jobs.conf import settings
from django_jobs.lifecycle.batches import each, ties_of
from django_jobs.lifecycle.chores import CHUNK
from django_jobs.lifecycle.waking import wake
from django_jobs.records import Failure, HeldRow, Lease
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def disown(connection: BaseDatabaseWrapper, worker: str, tokens: Iterable[int]) -> None:
    """Give back, uncounted, what claims of these tokens took: their answers never came, so nothing has started."""
    store, given = store_for(connection.alias), set(tokens)
    rows = [row for row in store.held_by(connection, worker) if row.token in given]
    changes = [transitions.reclaim(row, failure=_UNANSWERED, started=False) for row in _running(rows)]
    each(connection, store.settle, changes, ties_of(rows))
    store.let_go(connection, [row.lease for row in rows if row.state is State.CANCELLED])


_UNANSWERED = Failure(kind="interrupted", reason="the claim got no answer")


def _running(rows: Iterable[HeldRow]) -> list[HeldRow]:
    return [row for row in rows if row.state is State.RUNNING]


def bury(
    connection: BaseDatabaseWrapper,
    worker: str,
    *,
    running: Collection[Lease],
    ended: Collection[Lease] = (),
    timed_out: Collection[Lease] = (),
    failure: Failure,
    is_blamed: bool = True,
) -> int:
    """Take back at once all that a dead process held, and say how many jobs that were.

    What was `running` is suspect of the death, unless `is_blamed` is False: then we ended the process for another's
    sake. Everything else comes back uncounted: it waited to start, had `ended` without being written (which a job that
    must not start twice doesn't survive), or was claimed by a statement whose answer the process didn't live to see.
    """
    store = store_for(connection.alias)
    rows = store.held_by(connection, worker)
    is_shared = sum(row.lease in running for row in rows) > 1
    changes = [
        transitions.timed_out(row, delay=_delay_without_user_code(row.attempts))
        if row.lease in timed_out
        else transitions.reclaim(row, failure=failure, started=row.lease in running, shared=is_shared)
        if is_blamed and row.lease not in ended
        else transitions.hand_back(row, failure=failure, started=row.lease in running or row.lease in ended)
        for row in _running(rows)
    ]
    written, _, instead = each(connection, store.settle, changes, ties_of(rows))
    let_go = store.let_go(connection, [row.lease for row in rows if row.state is State.CANCELLED])
    wake(connection, {row.queue for row in rows if row.lease in written})
    if rows:
        signals.tell(
            signals.jobs_reclaimed,
            None,
            changes=[instead.get(change.lease, change) for change in changes if change.lease in written],
            let_go=sorted(lease.id for lease in let_go),
            because=failure.reason,
        )
    return len(rows)


def _delay_without_user_code(attempt: int) -> timedelta:
    """Ask the setting's backoff where it is one of ours: a supervisor runs nobody else's code."""
    chosen = settings().backoff
    is_ours = type(chosen).__module__ == backoff.__name__
    return backoff.delay_of(chosen if is_ours else backoff.exponential(), attempt)


def lapsed(connection: BaseDatabaseWrapper, *, limit: int = CHUNK) -> set[Lease]:
    """Find rows whose lease, or deadline, is over and that nobody locks."""
    return {row.lease for row in store_for(connection.alias).lapsed(connection, limit=limit)}


def reclaim(connection: BaseDatabaseWrapper, *, limit: int = CHUNK, only: Collection[Lease] | None = None) -> int:
    """Take back rows whose lease, or deadline, is over, or `only` some of them, and say how many were found."""
    store = store_for(connection.alias)
    rows = [row for row in store.lapsed(connection, limit=limit) if only is None or row.lease in only]
    if not rows:
        return 0
    running = _running(rows)
    # A cancelled body that was still running is as suspect of the death as any other.
    held_by = Counter(row.worker for row in rows)
    changes = [_reclaimed(row, shared=held_by[row.worker] > 1) for row in running]
    written, _, instead = each(connection, store.reclaim, changes, ties_of(running))
    wake(connection, {row.queue for row in running if row.lease in written})
    let_go = store.let_go_lapsed(connection, [row.lease for row in rows if row.state is State.CANCELLED])
    signals.tell(
        signals.jobs_reclaimed,
        None,
        changes=[instead.get(change.lease, change) for change in changes if change.lease in written],
        let_go=sorted(lease.id for lease in let_go),
        because="their lease or deadline was over",
    )
    return len(rows)


def _reclaimed(row: HeldRow, *, shared: bool) -> Change:
    reason = f"the lease of worker {row.worker} ran out, or the deadline passed, while this ran"
    return transitions.reclaim(row, failure=Failure(kind="lapse", reason=reason), shared=shared)
