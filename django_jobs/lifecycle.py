"""Write: a job's whole life on one page. Each verb decides, writes and tells; nothing else opens the store for writing.

The verbs of workers and chores take the connection they run on. Those of people take an alias and run on the caller's
connection, in the caller's transaction.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, connections, transaction

from django_jobs import backoff, clock, signals, transitions
from django_jobs.conf import settings
from django_jobs.exceptions import JobFinished, JobGone, JobRunning, VerbRefused
from django_jobs.outcomes import Committed, Ending, InDoubt, Outcome, Released, Succeeded
from django_jobs.records import (
    Claim,
    Claimed,
    ClaimRequest,
    Due,
    Failure,
    HeldRow,
    Inserted,
    Lease,
    NewJob,
    Pulse,
    Queued,
    WorkerLife,
    WorkerSeen,
)
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Change, End

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

Run: TypeAlias = tuple[Claim, Ending]
"""A claim, and what its run came to."""

CHUNK = 1_000
"""Rows that one statement writes at the most."""

CHUNK_BYTES = 8_000_000

SILENCE = 0.01
"""Seconds in which a process doesn't notify a queue twice; every wake is followed by a second claim after that time."""

SWEEP_AGE = timedelta(hours=1)
"""The row of a worker that no longer beats stays for people to see, so long at the least."""


# -- enqueue


def enqueue(job: NewJob, *, using: str) -> Inserted:
    """Insert one job in the caller's transaction; after its commit, wake workers and tell."""
    connection = connections[using]
    inserted = store_for(using).insert(connection, job)
    _after_commit(connection, [(inserted.id, job)])
    return inserted


def enqueue_many(jobs: Sequence[NewJob], *, using: str) -> list[Queued]:
    """Insert any number of jobs in the caller's transaction, all or nothing, and answer in the order of `jobs`."""
    if not jobs:
        return []
    connection, store = connections[using], store_for(using)
    ids: list[int] = []
    with transaction.atomic(using=using):
        for chunk in _chunks(jobs):
            ids += store.insert_many(connection, chunk)
    _after_commit(connection, list(zip(ids, jobs, strict=True)))
    return [Queued(id=job_id) for job_id in ids]


def _chunks(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    chunk: list[NewJob] = []
    size = 0
    for job in jobs:
        chunk.append(job)
        size += len(job.args) + len(job.kwargs) + len(job.meta)
        if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _after_commit(connection: BaseDatabaseWrapper, jobs: list[tuple[int, NewJob]]) -> None:
    """Have the commit wake workers and tell. Under manual transactions nobody is told: the poll finds the rows."""
    if connection.in_atomic_block or connection.get_autocommit():
        woken = _woken_by_next_commit(connection)
        # Not a partial: Django asks a hook that failed for its qualified name, and would raise in the caller's request.
        connection.on_commit(lambda: _announce(connection, jobs, woken), robust=True)


@dataclass(slots=True)
class _Woken:
    """The queues for which a commit has woken workers; its hooks share it, and their running takes as long as it takes.

    Each call has a hook of its own, so that a savepoint that is rolled back takes its own along.
    """

    queues: set[str] = field(default_factory=set)
    is_committed: bool = False


_woken: WeakKeyDictionary[BaseDatabaseWrapper, _Woken] = WeakKeyDictionary()


def _woken_by_next_commit(connection: BaseDatabaseWrapper) -> _Woken:
    woken = _woken.get(connection)
    if woken is None or woken.is_committed:
        woken = _woken[connection] = _Woken()
    return woken


def _announce(connection: BaseDatabaseWrapper, jobs: list[tuple[int, NewJob]], woken: _Woken) -> None:
    woken.is_committed = True
    queues = {job.queue for _, job in jobs} - woken.queues
    woken.queues |= queues
    _wake(connection, queues)
    if signals.job_enqueued.has_listeners():
        for job_id, job in jobs:
            signals.tell(signals.job_enqueued, job.name, job_id=job_id, name=job.name, queue=job.queue)


_notified: dict[tuple[str, str], float] = {}


def _wake(connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
    """Notify in a statement of its own: within a business transaction it would hold a lock through the commit.

    Where the settings want nobody to listen, nobody is notified.
    """
    if not settings().listen:
        return
    now = clock.monotonic()
    loud = sorted(q for q in queues if not 0 <= now - _notified.get((connection.alias, q), -1.0) < SILENCE)
    if not loud:
        return
    if len(_notified) > CHUNK:
        _notified.clear()
    _notified.update({(connection.alias, queue): now for queue in loud})
    store_for(connection.alias).notify(connection, loud)


# -- a worker's verbs


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


def disown(connection: BaseDatabaseWrapper, worker: str, tokens: Iterable[int]) -> None:
    """Give back, uncounted, what claims of these tokens took: their answers never came, so nothing has started."""
    store, given = store_for(connection.alias), set(tokens)
    rows = [row for row in store.held_by(connection, worker) if row.token in given]
    _each(
        connection,
        store.settle,
        [transitions.reclaim(row, failure=_UNANSWERED, started=False) for row in _running(rows)],
    )
    store.let_go(connection, [row.lease for row in rows if row.state is State.CANCELLED])


_UNANSWERED = Failure(kind="interrupted", reason="the claim got no answer")


def _running(rows: Iterable[HeldRow]) -> list[HeldRow]:
    return [row for row in rows if row.state is State.RUNNING]


def next_due(connection: BaseDatabaseWrapper, request: ClaimRequest) -> Due:
    """Say whether a job that the request could take is due, and in how many seconds the next one will be."""
    return store_for(connection.alias).next_due(connection, request)


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
    decided = {run[0].lease: (*run, _change(*run)) for run in runs}
    store = store_for(connection.alias)
    changes = [change for _, ending, change in decided.values() if not isinstance(ending, Committed)]
    written, refused = _each(connection, store.settle, changes)
    read = _ReadBack()
    if len(written) + len(refused) < len(changes):
        missed = [change.lease for change in changes if change.lease not in written | refused]
        read = _read_back(connection, [decided[lease] for lease in missed], doubted())
    # Told last: the whole is repeated where a statement fails, and nothing is to be told twice.
    _tell_ends([entry for lease, entry in decided.items() if lease not in refused], read, took)
    _wake_for_released(connection, [decided[lease][:2] for lease in written])
    return [decided[lease][:2] for lease in decided if lease in read.again]


def _tell_ends(
    decided: Iterable[tuple[Claim, Ending, Change]], read: _ReadBack, took: Callable[[Lease], float | None]
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


def _wake_for_released(connection: BaseDatabaseWrapper, written: Iterable[Run]) -> None:
    """Have others hear of what was given back, since whoever does that stops working. A hint, as every wake."""
    queues = {claim.queue for claim, ending in written if isinstance(ending, Released)}
    if queues and not connection.in_atomic_block:
        with suppress(DatabaseError, InterfaceError):
            _wake(connection, queues)


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


# -- an atomic job: the verbs that run in the transaction of its body


LOCKED_PAUSES = (0.01, 0.02, 0.05, 0.1, *(0.2,) * 24)
"""Seconds between the tries to write an end whose row somebody locks, while the body's own locks are held: 5 s."""


def begin(connection: BaseDatabaseWrapper) -> None:
    """Begin the transaction of an atomic job, as its first statement."""
    store_for(connection.alias).begin(connection)


def settle_within(connection: BaseDatabaseWrapper, claim: Claim, success: Succeeded) -> State | None:
    """Write the end of an atomic job as the last statement of its transaction, and give the state of the row then.

    SUCCESSFUL: it is written; CANCELLED: somebody cancelled it; None: it was taken away. Nothing is told yet. Raises
    OperationalError where somebody keeps the row locked.
    """
    store = store_for(connection.alias)
    change = _kept(claim, success)
    for pause in (*LOCKED_PAUSES, None):
        if store.settle(connection, [change]):
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
    written, _ = _each(connection, store.settle, changes)
    let_go = store.let_go(connection, [row.lease for row in rows if row.state is State.CANCELLED])
    _wake(connection, {row.queue for row in rows if row.lease in written})
    if rows:
        signals.tell(
            signals.jobs_reclaimed,
            None,
            changes=[change for change in changes if change.lease in written],
            let_go=sorted(lease.id for lease in let_go),
            because=failure.reason,
        )
    return len(rows)


def _delay_without_user_code(attempt: int) -> timedelta:
    """Ask the setting's backoff where it is one of ours: a supervisor runs nobody else's code."""
    chosen = settings().backoff
    is_ours = type(chosen).__module__ == backoff.__name__
    return backoff.delay_of(chosen if is_ours else backoff.exponential(), attempt)


# -- chores


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
    written, _ = _each(connection, store.reclaim, changes)
    _wake(connection, {row.queue for row in running if row.lease in written})
    let_go = store.let_go_lapsed(connection, [row.lease for row in rows if row.state is State.CANCELLED])
    signals.tell(
        signals.jobs_reclaimed,
        None,
        changes=[change for change in changes if change.lease in written],
        let_go=sorted(lease.id for lease in let_go),
        because="their lease or deadline was over",
    )
    return len(rows)


def _reclaimed(row: HeldRow, *, shared: bool) -> Change:
    reason = f"the lease of worker {row.worker} ran out, or the deadline passed, while this ran"
    return transitions.reclaim(row, failure=Failure(kind="lapse", reason=reason), shared=shared)


def expire(connection: BaseDatabaseWrapper, *, limit: int = CHUNK) -> int:
    """Cancel waiting jobs past their `expires_at`, and say how many."""
    expired = store_for(connection.alias).expire(connection, limit=limit)
    if expired:
        signals.tell(signals.jobs_expired, None, ids=tuple(sorted(expired)))
    return len(expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a round of pruning came to: how many jobs it found, how many of them went, and where the next one goes on.

    That is beyond an id, where each job is deleted by itself; None stands for all that may go, in one statement.
    """

    found: int
    gone: int
    after: int | None = None


def prune(connection: BaseDatabaseWrapper | None = None, *, using: str | None = None, limit: int = CHUNK) -> int:
    """Delete finished jobs whose keeping is over, in rounds of `limit`, and say how many went."""
    connection = connection or connections[using or settings().database]
    count, after = 0, None
    while True:
        pruned = prune_round(connection, after=after, limit=limit)
        count, after = count + pruned.gone, pruned.after
        if pruned.found < limit:
            break
    tell_of_pruned(count)
    return count


def prune_round(connection: BaseDatabaseWrapper, *, after: int | None = None, limit: int = CHUNK) -> Pruned:
    """Delete up to `limit` finished jobs whose keeping is over. There may be more where that many were found.

    Where somebody's rows refer to one of them, the next rounds go one by one, and leave it with a line in the log.
    """
    if after is not None:
        return _prune_one_by_one(connection, after=after, limit=limit)
    try:
        gone = _pruned(connection, limit=limit)
    except IntegrityError:
        return Pruned(found=limit, gone=0, after=0)
    return Pruned(found=gone, gone=gone)


def tell_of_pruned(count: int) -> None:
    """Tell that so many jobs were pruned, if there were any."""
    if count:
        signals.tell(signals.jobs_pruned, None, count=count)


def _pruned(connection: BaseDatabaseWrapper, *, limit: int, only: int | None = None) -> int:
    with _savepoint(connection):
        return store_for(connection.alias).prune(connection, limit=limit, only=only)


def _prune_one_by_one(connection: BaseDatabaseWrapper, *, after: int, limit: int) -> Pruned:
    ids = store_for(connection.alias).prunable(connection, after=after, limit=limit)
    gone = 0
    for job_id in ids:
        try:
            gone += _pruned(connection, limit=1, only=job_id)
        except IntegrityError as error:
            message = f"job {job_id} can't be pruned, since something refers to it: {error}"
            signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
    return Pruned(found=len(ids), gone=gone, after=ids[-1] if ids else after)


# -- workers: rows that say who is alive; nothing of a job depends on them


def beat(connection: BaseDatabaseWrapper, lives: Sequence[WorkerLife]) -> None:
    """Say that these workers are alive; a row that is missing is written."""
    store_for(connection.alias).beat(connection, lives)


def sign_off(connection: BaseDatabaseWrapper, identities: Iterable[str]) -> None:
    """Delete the rows of workers that are gone."""
    store_for(connection.alias).sign_off(connection, identities)


def sweep(connection: BaseDatabaseWrapper) -> int:
    """Delete the rows of workers that haven't beaten for long, and say how many: their supervisor died with them."""
    return len(store_for(connection.alias).sweep(connection, age=max(10 * settings().lease, SWEEP_AGE)))


def workers(connection: BaseDatabaseWrapper) -> list[WorkerSeen]:
    """Read who is alive, and who was until lately."""
    return store_for(connection.alias).workers(connection)


# -- a loop's own connection


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


# -- verbs by hand


def cancel(ids: Iterable[int], *, reason: str = "", using: str | None = None) -> list[int]:
    """Cancel waiting and running jobs, and give the ids of those it moved."""
    return _by_hand(partial(_cancel_chunk, reason), ids, using=using)


def _cancel_chunk(reason: str, connection: BaseDatabaseWrapper, ids: list[int]) -> set[int]:
    return store_for(connection.alias).cancel(connection, ids, reason=reason)


def cancel_one(job_id: int, *, reason: str = "", using: str | None = None) -> None:
    """Cancel a job. Raises JobFinished or JobGone."""
    if not cancel([job_id], reason=reason, using=using):
        raise _refusal(job_id, "cancelled", using=using)


def retry(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Make waiting, failed and cancelled jobs READY now, and give the ids of those it moved."""
    alias = using or settings().database
    moved = _by_hand(lambda connection, chunk: store_for(connection.alias).retry(connection, chunk), ids, using=alias)
    if moved and (connections[alias].in_atomic_block or connections[alias].get_autocommit()):
        connections[alias].on_commit(lambda: _wake_queues_of(connections[alias], moved), robust=True)
    return moved


def _wake_queues_of(connection: BaseDatabaseWrapper, ids: list[int]) -> None:
    _wake(connection, store_for(connection.alias).queues(connection, ids))


def retry_one(job_id: int, *, using: str | None = None) -> None:
    """Make a job READY now. Raises JobRunning, JobFinished (it has succeeded) or JobGone."""
    if not retry([job_id], using=using):
        raise _refusal(job_id, "retried", using=using)


def delete(ids: Iterable[int], *, using: str | None = None) -> list[int]:
    """Delete jobs that nobody holds, and give the ids of those it deleted; the skipped are logged."""
    wanted = list(ids)
    gone = _by_hand(
        lambda connection, chunk: store_for(connection.alias).delete(connection, chunk), wanted, using=using
    )
    if skipped := sorted(set(wanted) - set(gone)):
        message = f"{len(skipped)} jobs were not deleted since they are held or gone: {_few(skipped)}"
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
    return gone


def delete_one(job_id: int, *, using: str | None = None) -> None:
    """Delete a job. Raises JobRunning while it is held, JobGone when there is none."""
    if not delete([job_id], using=using):
        raise _refusal(job_id, "deleted", using=using)


def _by_hand(
    verb: Callable[[BaseDatabaseWrapper, list[int]], set[int]], ids: Iterable[int], *, using: str | None
) -> list[int]:
    connection = connections[using or settings().database]
    wanted = sorted(set(ids))
    moved: list[int] = []
    for start in range(0, len(wanted), CHUNK):
        moved += sorted(verb(connection, wanted[start : start + CHUNK]))
    return moved


def _refusal(job_id: int, done: str, *, using: str | None) -> VerbRefused:
    connection = connections[using or settings().database]
    found = store_for(connection.alias).states(connection, [job_id]).get(job_id)
    if found is None:
        return JobGone(f"job {job_id} is no longer here, so it was not {done}", job_id=job_id)
    state, held = found
    if state is State.RUNNING:
        return JobRunning(f"job {job_id} is running now, so it was not {done}", job_id=job_id)
    if held and done != "cancelled":
        message = f"job {job_id} was cancelled and its body is still stopping, so it was not {done}"
        return JobRunning(message, job_id=job_id)
    word = {State.SUCCESSFUL: "has succeeded", State.FAILED: "has failed", State.CANCELLED: "was cancelled before"}
    return JobFinished(f"job {job_id} {word.get(state, 'has just changed')}, so it was not {done}", job_id=job_id)


def _few(ids: list[int]) -> str:
    shown = ", ".join(f"#{job_id}" for job_id in ids[:10])
    return f"{shown} …" if len(ids) > 10 else shown


# -- nothing may hold a job back


def _each(
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
        with _savepoint(connection):
            return write(connection, changes), set()
    except IntegrityError as error:
        if len(changes) > 1:
            each = [_each(connection, write, [change]) for change in changes]
            return {lease for written, _ in each for lease in written}, {lease for _, left in each for lease in left}
        if changes[0].gone:
            # Somebody's row refers to the job: it did succeed, so it stays instead of going.
            return _each(connection, write, [changes[0]._replace(gone=False)])
        message = f"the end of job {changes[0].lease.id} can't be written and its row stays as it is: {error}"
        signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
        return set(), {changes[0].lease}


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
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
