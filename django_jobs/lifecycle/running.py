"""Write: from the claim of a job to the end of its run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from django.db import DatabaseError, InterfaceError, OperationalError

from django_jobs import signals, transitions
from django_jobs.conf import settings
from django_jobs.lifecycle.batches import each, savepoint, ties_of
from django_jobs.lifecycle.waking import wake
from django_jobs.outcomes import Committed, Ending, InDoubt, Outcome, Released, Succeeded
from django_jobs.progress import Progress
from django_jobs.records import Claim, Claimed, ClaimRequest, Due, HeldRow, Lease
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Change, End

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

Run: TypeAlias = tuple[Claim, Ending]
"""A claim, and what its run came to."""


def new_token() -> int:
    """Draw a token for one claim statement."""
    return secrets.randbits(62) + 1


def claim(connection: BaseDatabaseWrapper, request: ClaimRequest, *, token: int | None = None) -> Claimed:
    """Take due jobs under a new token; committed before any of them starts, unless the caller is in a transaction.

    A worker draws the token itself, so that it can `disown` what it took where the answer doesn't come.
    """
    claimed = store_for(connection.alias).claim(connection, request, new_token() if token is None else token)
    if claimed.expired:
        signals.tell(signals.jobs_expired, None, ids=claimed.expired)
    return claimed


def claim_this(
    connection: BaseDatabaseWrapper, job_id: int, request: ClaimRequest, *, token: int | None = None
) -> Claim | None:
    """Take one READY job, due or not, for its caller, who runs it at once. None where it is no longer READY."""
    return store_for(connection.alias).claim_this(connection, job_id, request, new_token() if token is None else token)


def begin_life(connection: BaseDatabaseWrapper, token: int) -> Callable[[], None]:
    """Show others that this process lives and has what it is about to claim under `token` in hand.

    Gives what ends that. Until then nobody takes it back by time, where the database is a file of this host; elsewhere
    the lease alone judges.
    """
    return store_for(connection.alias).begin_life(connection, token)


def next_due(connection: BaseDatabaseWrapper, request: ClaimRequest) -> Due:
    """Say whether a job that the request could take is due, and in how many seconds the next one will be."""
    return store_for(connection.alias).next_due(connection, request)


def stopping(connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> list[Lease]:
    """Find those that were cancelled and are still held under these leases."""
    rows = store_for(connection.alias).peek(connection, [lease.id for lease in leases])
    return [
        lease
        for lease in leases
        if (row := rows.get(lease.id)) and row.token == lease.token and row.state is State.CANCELLED and row.worker
    ]


def still_held(connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> set[Lease]:
    """Find those that are held under these leases: a renewal that missed them met a row that somebody locks."""
    rows = store_for(connection.alias).peek(connection, [lease.id for lease in leases])
    return {lease for lease in leases if (row := rows.get(lease.id)) and row.token == lease.token and row.worker}


def renew(connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> dict[Lease, State]:
    """Renew exactly these leases and give the states of the rows still held; a CANCELLED one is to be stopped."""
    return store_for(connection.alias).renew(connection, leases, lease=settings().lease)


def report(connection: BaseDatabaseWrapper, reports: Mapping[Lease, Progress], *, patient: bool = False) -> set[Lease]:
    """Write how far bodies are, and give the leases of the rows that were written; a run that lost its lease has none.

    Rows that somebody locks are passed over. So they are where the database is a file that somebody has locked, unless
    the call is `patient`.
    """
    with savepoint(connection):
        return store_for(connection.alias).report(connection, reports, patient=patient)


def settle(
    connection: BaseDatabaseWrapper,
    runs: Sequence[Run],
    *,
    doubted: Callable[[], Collection[Lease]] = tuple,
    took: Callable[[Lease], float | None] = lambda _: None,
) -> list[Run]:
    """Write what runs came to, and give those that couldn't be written now since somebody locks their rows.

    A run whose row was taken away meanwhile writes nothing and is told as lost. One that a constraint refuses is left.
    The end of an atomic job that is committed is only told. `doubted` gives the leases that others may have had
    meanwhile, and is asked where an end meets no row: only a success is then known by its token to be ours. `took`
    gives the seconds of a body, which are told with its end.
    """
    # What was given twice is written, and told, once.
    runs = [*{run[0].lease: run for run in runs}.values()]
    decided = [(claim, ending, _change(claim, ending)) for claim, ending in runs]
    store = store_for(connection.alias)
    changes = [change for _, ending, change in decided if not isinstance(ending, Committed)]
    written, refused, instead = each(connection, store.settle, changes, ties_of([claim for claim, _ in runs]))
    if instead:
        decided = [(claim, ending, instead.get(claim.lease, change)) for claim, ending, change in decided]
    read = _ALL_FOUND
    if len(written) + len(refused) < len(changes):
        missed = {change.lease for change in changes} - written - refused
        read = _read_back(connection, [entry for entry in decided if entry[0].lease in missed], doubted())
    # Told last: the whole is repeated where a statement fails, and nothing is to be told twice.
    _tell_ends([entry for entry in decided if entry[0].lease not in refused] if refused else decided, read, took)
    _wake_for_released(connection, [run for run in runs if isinstance(run[1], Released) and run[0].lease in written])
    return [run for run in runs if run[0].lease in read.again] if read.again else []


def _tell_ends(
    decided: Sequence[tuple[Claim, Ending, Change]], read: _ReadBack, took: Callable[[Lease], float | None]
) -> None:
    """Tell of the ends that were written, then of those that were lost; rooms of ours hear of all at once."""
    ends: list[End] = []
    lost: list[tuple[Claim, Outcome]] = []
    for claim, ending, change in decided:
        lease = claim.lease
        if lease in read.lost:
            lost.append((claim, _unwritten(ending)))
        elif lease in read.committed and isinstance(ending, InDoubt):
            ends.append(End(claim, ending.success, _kept(claim, ending.success), took(lease)))
        elif lease not in read.again:
            ends.append(End(claim, _unwritten(ending), change, took(lease)))
    signals.ends.tell(ends)
    if signals.job_finished.receivers:
        for claim, outcome, change, _ in ends:
            signals.tell(signals.job_finished, claim.name, claim=claim, outcome=outcome, change=change)
    for claim, outcome in lost:
        signals.tell(signals.job_lost, claim.name, claim=claim, outcome=outcome)


def _wake_for_released(connection: BaseDatabaseWrapper, released: Iterable[Run]) -> None:
    """Have others hear of what was given back, since whoever does that stops working. A hint, as every wake."""
    queues = {claim.queue for claim, _ in released}
    if queues and not connection.in_atomic_block:
        with suppress(DatabaseError, InterfaceError):
            wake(connection, queues)


def _change(claim: Claim, ending: Ending) -> Change:
    """Decide what is, or would be, written."""
    if isinstance(ending, Committed):
        return _kept(claim, ending.success)
    return transitions.settle(claim, _unwritten(ending))


def _kept(claim: Claim, success: Succeeded) -> Change:
    """Decide the end of an atomic job, whose row stays even where its keeping is 0; prune deletes it.

    So a COMMIT whose answer is lost can be recognised.
    """
    return transitions.settle(claim, success)._replace(gone=False)


def _unwritten(ending: Ending) -> Outcome:
    """Give what is, or would be, still to be written."""
    if isinstance(ending, Committed):
        return ending.success
    return ending.failure if isinstance(ending, InDoubt) else ending


@dataclass(frozen=True, slots=True)
class _ReadBack:
    """What became of ends that met no row: to be tried again, lost, or committed after all; the rest was written."""

    again: set[Lease] = field(default_factory=set)
    lost: set[Lease] = field(default_factory=set)
    committed: set[Lease] = field(default_factory=set)


_ALL_FOUND = _ReadBack()


def _read_back(
    connection: BaseDatabaseWrapper,
    missed: Sequence[tuple[Claim, Ending, Change]],
    doubted: Collection[Lease],
) -> _ReadBack:
    """Find out why ends met no row: locked, written before by an answer that was lost, cancelled, or taken away."""
    store = store_for(connection.alias)
    rows = store.peek(connection, [claim.id for claim, _, _ in missed])
    read = _ReadBack()
    for claim, ending, change in missed:
        row, lease = rows.get(claim.id), claim.lease
        if row is None:
            is_ours = (change.gone or (isinstance(ending, InDoubt) and claim.keep == 0)) and lease not in doubted
            if not is_ours:
                read.lost.add(lease)
            elif isinstance(ending, InDoubt):
                read.committed.add(lease)
        elif row.token != claim.token:
            read.lost.add(lease)
        elif row.state is State.RUNNING:
            read.again.add(lease)
        elif isinstance(ending, InDoubt) and row.state is State.SUCCESSFUL:
            read.committed.add(lease)
        elif _stands(change, row) and (row.state is State.SUCCESSFUL or lease not in doubted):
            continue
        elif row.worker and not store.let_go(connection, [lease]):
            # Cancelled, and locked by somebody just now; nobody else would let it go before its lease is over.
            read.again.add(lease)
        else:
            read.lost.add(lease)
    return read


def _stands(change: Change, row: HeldRow) -> bool:
    """Whether a row is as this change of its latest claim leaves it; one taken back from that claim has crashed."""
    counts = (change.state, change.attempts, change.max_attempts, change.crashes, change.alone)
    return not row.worker and counts == (row.state, row.attempts, row.max_attempts, row.crashes, row.alone)


def _was_committed(claim: Claim, row: HeldRow | None) -> bool:
    """Tell whether the transaction of an atomic job came through; what isn't kept may have been pruned since."""
    if row is None:
        return claim.keep == 0
    return row.token == claim.token and row.state is State.SUCCESSFUL


def came_to(connection: BaseDatabaseWrapper, claim: Claim, ending: Ending) -> Outcome:
    """Say what a run came to that has been settled."""
    if isinstance(ending, InDoubt):
        row = store_for(connection.alias).peek(connection, [claim.id]).get(claim.id)
        return ending.success if _was_committed(claim, row) else ending.failure
    return _unwritten(ending)


LOCKED_PAUSES = (0.01, 0.02, 0.05, 0.1, *(0.2,) * 24)
"""Seconds between the tries to write an end whose row somebody locks, while the body's own locks are held: 5 s."""


def begin(connection: BaseDatabaseWrapper) -> None:
    """Begin the transaction of an atomic job, as its first statement."""
    store_for(connection.alias).begin(connection)


def settle_within(
    connection: BaseDatabaseWrapper, claim: Claim, success: Succeeded, *, progress: Progress | None = None
) -> State | None:
    """Write the end of an atomic job as the last statement of its transaction, and give the state of the row then.

    SUCCESSFUL: it is written; CANCELLED: somebody cancelled it; None: it was taken away. How far its body said it was
    is written just before. Nothing is told yet. Raises OperationalError where somebody keeps the row locked.
    """
    store = store_for(connection.alias)
    change = _kept(claim, success)
    for pause in (*LOCKED_PAUSES, None):
        # What can't be written, since somebody locks the row, keeps its end waiting, too.
        is_told = progress is None or store.report(connection, {claim.lease: progress})
        if is_told and store.settle(connection, [change]):
            return State.SUCCESSFUL
        row = store.peek(connection, [claim.id]).get(claim.id)
        if row is None or row.token != claim.token:
            return None
        if row.state is not State.RUNNING:
            return row.state
        if pause is not None:
            # A renewal or a cancel is over in a moment, and the next statement sees what it did.
            time.sleep(pause)
    message = f"the row of job {claim.id} was locked by somebody for {sum(LOCKED_PAUSES):.0f} s"
    raise OperationalError(message)


def release(connection: BaseDatabaseWrapper, claims: Sequence[Claim]) -> list[Run]:
    """Give back claims that haven't started."""
    return settle(connection, [(claim, Released(started=False)) for claim in claims])
