"""Drive: one turn of a worker in the calling thread and on the caller's connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from django.db import InterfaceError, OperationalError, connections

from django_jobs import clock, lifecycle, runner
from django_jobs.conf import settings
from django_jobs.outcomes import Ending, Outcome
from django_jobs.records import Claim
from django_jobs.runner.surroundings import is_in_transaction, refresh
from django_jobs.worker.board import Board
from django_jobs.worker.body import run_in
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan, new_identity
from django_jobs.worker.seat import Seats, ThreadSeat
from django_jobs.worker.setback import pause_after
from django_jobs.worker.watch import Watch

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def work_one(queue: str | None = None) -> Outcome | None:
    """Claim and run one due job, of `queue` or of any, and give its outcome; None when nothing is due.

    In a caller's transaction (a TestCase's, for one) everything happens inside of it; elsewhere the lease is renewed
    while the job runs.
    """
    done = work_claim(queue)
    return None if done is None else done[1]


def work_claim(queue: str | None = None, *, only: tuple[str, ...] | None = None) -> tuple[Claim, Outcome] | None:
    """Do as `work_one`, and give the claim with its outcome; `only` limits it to jobs of these names."""
    connection = connections[settings().database]
    if not is_in_transaction(connection):
        refresh(connection)
    token = lifecycle.new_token()
    with _living(connection, token):
        claim = _claimed(connection, queue, only, token)
        if claim is None:
            return None
        with _kept(connection, claim) as seat:
            begun = clock.monotonic()
            ending, interruption = run_in(seat, claim)
            seconds = clock.monotonic() - begun
            if interruption is not None:
                ending = runner.interrupted(claim, interruption, ending)
            _settle(connection, claim, ending, seconds)
    return claim, lifecycle.came_to(connection, claim, ending)


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


def _claimed(
    connection: BaseDatabaseWrapper, queue: str | None, only: tuple[str, ...] | None, token: int
) -> Claim | None:
    plan = Plan(
        alias=connection.alias, identity=new_identity(), queues=None if queue is None else {queue: None}, concurrency=1
    )
    request = plan.request(limit=1, in_hand={}, last_queue="")
    if only is not None:
        request = replace(request, names=only)
    while True:
        # What only ended expired rows has used up no token.
        claimed = lifecycle.claim(connection, request, token=token)
        if claimed.claims or not claimed.expired:
            return claimed.claims[0] if claimed.claims else None


@contextmanager
def _kept(connection: BaseDatabaseWrapper, claim: Claim) -> Iterator[ThreadSeat]:
    """Renew the claim's lease meanwhile, and hold its body to its deadline.

    Within a transaction nobody else sees the claim, so nobody can take it.
    """
    seat = ThreadSeat()
    if is_in_transaction(connection):
        yield seat
        return
    lease = settings().lease.total_seconds()
    board, seats = Board.create(1, lease=lease, shared=False), Seats()
    board.take([claim.lease])
    board.start(claim.lease, timeout=claim.timeout)
    seats.seat(claim.lease, seat)
    keeper = Keeper(boards=lambda: [board], link=Link(connection.alias))
    watch = Watch(board=board, seats=seats, lease=lease, ends_itself=False)
    loops = (Loop("keeper", keeper.tick, on_end=keeper.close), Loop("watch", watch.tick))
    # Most jobs are over before anything is to be done for them.
    loops[0].start(after=1.0)
    loops[1].start()
    try:
        yield seat
    finally:
        for loop in loops:
            loop.stop()
        for loop in loops:
            loop.join(timeout=1.0)


def _settle(connection: BaseDatabaseWrapper, claim: Claim, ending: Ending, seconds: float) -> None:
    """Write the end, again for as long as a lease where the database is away or the row is locked."""
    give_up = clock.monotonic() + settings().lease.total_seconds()
    failures = 0
    while True:
        try:
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
