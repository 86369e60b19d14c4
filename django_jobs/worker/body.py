"""Drive: one body in the seat of the calling thread, wherever an interruption strikes."""

from __future__ import annotations

from contextvars import Context

from django_jobs import runner
from django_jobs.context import Report
from django_jobs.exceptions import Interruption
from django_jobs.outcomes import Ending, Released
from django_jobs.records import Claim
from django_jobs.worker.seat import ThreadSeat

BROKEN_OFF = Released(started=True)
"""What a run comes to that an interruption ends before it has come to anything else."""


def run_in(
    seat: ThreadSeat, claim: Claim, *, context: Context | None = None, report: Report = runner.unreported
) -> tuple[Ending, type[Interruption] | None]:
    """Run a body, and give what it came to with what it was interrupted with. Nothing strikes after the return.

    `context` and `report` are as in `runner.run`.
    """
    ending: Ending = BROKEN_OFF
    try:
        try:
            seat.enter(claim.lease)
            ending = runner.run(claim, seat, context=context, report=report)
        except BaseException as error:  # noqa: BLE001 - runner lets nothing through; were it to, the slot must live on
            ending = runner.broken(claim, error)
        interruption = seat.leave()
    except Interruption:
        # It struck on the way out of the body. It is sent once, so nothing strikes any more.
        interruption = seat.leave()
    if interruption is not None:
        # It may have struck anywhere, also within a driver.
        runner.close_connections(claim)
    return ending, interruption
