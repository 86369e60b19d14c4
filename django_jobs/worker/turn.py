"""Drive: one turn of a worker in the calling thread and on the caller's connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

from django.db import InterfaceError, OperationalError, connections

from django_jobs import clock, lifecycle, runner
from django_jobs.conf import settings
from django_jobs.exceptions import Interruption
from django_jobs.outcomes import Ending, Outcome
from django_jobs.performers import modes
from django_jobs.records import Claim, ClaimRequest
from django_jobs.runner.surroundings import is_in_transaction, refresh
from django_jobs.worker.board import Board
from django_jobs.worker.body import run_in
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan, new_identity
from django_jobs.worker.reporter import INTERVAL, Direct, Reporter, Reporting
from django_jobs.worker.seat import Seats, ThreadSeat
from django_jobs.worker.setback import pause_after
from django_jobs.worker.watch import Watch

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A claim, what its run came to, and what the body raised, or returned as a control word, if it did."""

    claim: Claim
    outcome: Outcome
    error: BaseException | None = None


def work_one(queue: str | None = None) -> Outcome | None:
    """Claim and run one due job, of `queue` or of any, and give its outcome; None when nothing is due.

    In a caller's transaction (a TestCase's, for one) everything happens inside of it; elsewhere the lease is renewed
    while the job runs.
    """
    turn = work_claim(queue)
    return None if turn is None else turn.outcome


def work_claim(
    queue: str | None = None, *, only: tuple[str, ...] | None = None, job_id: int | None = None
) -> Turn | None:
    """Do as `work_one`, and tell more of it; `only` limits it to jobs of these names, `job_id` to that one, due or not.

    The mode of the caller is that of the body, too.
    """
    runner.prepare()
    connection = connections[settings().database]
    if not is_in_transaction(connection):
        refresh(connection)
    token = lifecycle.new_token()
    with _living(connection, token):
        request = _request(connection, queue, only)
        claim = (
            _claimed(connection, request, token)
            if job_id is None
            else lifecycle.claim_this(connection, job_id, request, token=token)
        )
        if claim is None:
            return None
        with _kept(connection, claim) as (seat, reporter):
            context = Context()
            context.run(modes.carry, modes.carried())
            errors = runner.note_errors(context)
            begun = clock.monotonic()
            ending, interruption = run_in(seat, claim, context=context, report=reporter.note)
            seconds = clock.monotonic() - begun
            reporter.end(claim.lease)
            if interruption is not None:
                ending = runner.interrupted(claim, interruption, ending)
            _settle(connection, claim, ending, seconds, reporter)
    return Turn(claim=claim, outcome=lifecycle.came_to(connection, claim, ending), error=_last(errors, interruption))


def _last(errors: list[BaseException], interruption: type[Interruption] | None) -> BaseException | None:
    if errors:
        return errors[-1]
    return None if interruption is None else interruption()


@contextmanager
def _living(connection: BaseDatabaseWrapper, token: int) -> Iterator[None]:
    """Show that this process lives while it has a claim of `token` in hand.

    Within a transaction nobody else sees the claim, so nobody can take it.
    """
    end = None if is_in_transaction(connection) else lifecycle.begin_life(connection, token)
    try:
        yield
    finally:
        if end is not None:
            end()


def _request(connection: BaseDatabaseWrapper, queue: str | None, only: tuple[str, ...] | None) -> ClaimRequest:
    plan = Plan(
        alias=connection.alias, identity=new_identity(), queues=None if queue is None else {queue: None}, concurrency=1
    )
    request = plan.request(limit=1, in_hand={}, last_queue="")
    return request if only is None else replace(request, names=only)


def _claimed(connection: BaseDatabaseWrapper, request: ClaimRequest, token: int) -> Claim | None:
    while True:
        # What only ended expired rows has used up no token.
        claimed = lifecycle.claim(connection, request, token=token)
        if claimed.claims or not claimed.expired:
            return claimed.claims[0] if claimed.claims else None


@contextmanager
def _kept(connection: BaseDatabaseWrapper, claim: Claim) -> Iterator[tuple[ThreadSeat, Reporting]]:
    """Renew the claim's lease meanwhile, write how far its body is, and hold that to its deadline.

    Within a transaction nobody else sees the claim, so nobody can take it.
    """
    seat = ThreadSeat()
    if is_in_transaction(connection):
        yield seat, Direct(connection)
        return
    lease = settings().lease.total_seconds()
    board, seats = Board.create(1, lease=lease, shared=False), Seats()
    board.take([claim.lease])
    board.start(claim.lease, timeout=claim.timeout)
    seats.seat(claim.lease, seat)
    keeper = Keeper(boards=lambda: [board], link=Link(connection.alias))
    watch = Watch(board=board, seats=seats, lease=lease, ends_itself=False)
    reporter = Reporter(link=Link(connection.alias), seats=seats)
    loops = (
        Loop("keeper", keeper.tick, on_end=keeper.close),
        Loop("reporter", reporter.tick, on_end=reporter.close),
        Loop("watch", watch.tick),
    )
    # Most jobs are over before anything is to be done for them.
    loops[0].start(after=1.0)
    loops[1].start(after=INTERVAL)
    loops[2].start()
    try:
        yield seat, reporter
    finally:
        for loop in loops:
            loop.stop()
        for loop in loops:
            loop.join(timeout=1.0)


def _settle(connection: BaseDatabaseWrapper, claim: Claim, ending: Ending, seconds: float, reporter: Reporting) -> None:
    """Write the end, again for as long as a lease where the database is away or the row is locked."""
    give_up = clock.monotonic() + settings().lease.total_seconds()
    failures = 0
    while True:
        try:
            reporter.write_last(connection, [(claim, ending)])
            if not lifecycle.settle(connection, [(claim, ending)], took=lambda _: seconds):
                return
        except (OperationalError, InterfaceError):
            if is_in_transaction(connection) or clock.monotonic() > give_up:
                raise
            connection.close()
        if clock.monotonic() > give_up:
            return
        failures += 1
        Event().wait(pause_after(failures))
