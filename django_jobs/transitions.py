"""Decide: (claim, outcome) -> Change, and the table of allowed moves. Pure: no database, no clock, no settings."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import NamedTuple, assert_never

from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim, Failure, HeldRow, Lease
from django_jobs.states import State

PATIENCE = timedelta(hours=1)
"""How long a job whose name has no performer is tried at the least."""

TIMEOUT = "django_jobs.exceptions.JobTimeout"

FIRST_HOLD = timedelta(seconds=15)
LONGEST_HOLD = timedelta(hours=1)


class Place(Enum):
    """Where a job can be: the stored states, with STOPPING for a cancelled row that is still held."""

    ABSENT = "absent"
    READY = "READY"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCESSFUL = "SUCCESSFUL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_ENDED = (Place.SUCCESSFUL, Place.FAILED, Place.CANCELLED)

MOVES: dict[str, frozenset[tuple[Place, Place]]] = {
    "enqueue": frozenset({(Place.ABSENT, Place.READY)}),
    "claim": frozenset({(Place.READY, Place.RUNNING)}),
    "renew": frozenset({(Place.RUNNING, Place.RUNNING), (Place.STOPPING, Place.STOPPING)}),
    "settle": frozenset((Place.RUNNING, to) for to in (*_ENDED, Place.READY, Place.ABSENT)),
    "release": frozenset((Place.RUNNING, to) for to in (Place.READY, Place.FAILED, Place.CANCELLED)),
    "let go": frozenset({(Place.STOPPING, Place.CANCELLED)}),
    "reclaim": frozenset(
        {
            (Place.RUNNING, Place.READY),
            (Place.RUNNING, Place.FAILED),
            (Place.RUNNING, Place.CANCELLED),
            (Place.STOPPING, Place.CANCELLED),
        }
    ),
    "expire": frozenset({(Place.READY, Place.CANCELLED)}),
    "cancel": frozenset({(Place.READY, Place.CANCELLED), (Place.RUNNING, Place.STOPPING)}),
    "retry": frozenset((start, Place.READY) for start in (Place.READY, Place.FAILED, Place.CANCELLED)),
    "reschedule": frozenset({(Place.READY, Place.READY)}),
    "fire": frozenset({(Place.ABSENT, Place.READY)}),
    "prune": frozenset((start, Place.ABSENT) for start in _ENDED),
    "delete": frozenset((start, Place.ABSENT) for start in (*_ENDED, Place.READY)),
}
"""Every move that a verb may make. The diagram in docs/architecture.md is drawn from it; a test keeps them equal."""


class Change(NamedTuple):
    """What a transition writes to a row; the store adds the instants.

    A READY row runs again `delay` after now, or keeps its `run_at` where `delay` is None. `failure` is appended to the
    row's errors. `result` is JSON text. Where `gone` the row is deleted instead: its keeping is 0. One that is
    `superseded_by` a job is only written while that one waits, and for no longer than `delay`.
    """

    lease: Lease
    state: State
    attempts: int
    max_attempts: int
    crashes: int
    alone: bool
    delay: timedelta | None = None
    failure: Failure | None = None
    result: str | None = None
    gone: bool = False
    superseded_by: int | None = None


class End(NamedTuple):
    """An end that was written: what was claimed, what it came to, and the seconds of its body where they are known."""

    claim: Claim
    outcome: Outcome
    change: Change
    seconds: float | None


def settle(claim: Claim, outcome: Outcome) -> Change:
    """Decide what `outcome` makes of the claimed job."""
    match outcome:
        case Succeeded(result=result):
            return _ended(claim, State.SUCCESSFUL, result=result)
        case Failed(failure=failure) | GaveUp(failure=failure):
            return _ended(claim, State.FAILED, failure=failure)
        case Retried():
            return _retried(claim, outcome)
        case Snoozed(delay=delay):
            return _waiting(claim, delay=delay, attempts=claim.attempt - 1)
        case Cancelled(reason=reason):
            return _ended(claim, State.CANCELLED, failure=Failure(kind="cancelled", reason=reason))
        case Released(started=started):
            return release(claim, started=started)
        case _:
            assert_never(outcome)


def after_failure(claim: Claim, failure: Failure, *, delay: timedelta, patient: bool = False) -> Failed | Retried:
    """Decide what a failed attempt comes to: another one after `delay`, or the end where it was the last."""
    again = Retried(failure=failure, delay=delay, patient=patient)
    return Failed(failure=failure) if _is_over(claim, again) else again


def release(claim: Claim, *, started: bool) -> Change:
    """Give the job back with its `run_at` and without counting the attempt.

    A job that must not start twice (`restart=False`) and has started fails as interrupted instead.
    """
    if started and not claim.restart:
        reason = "the worker stopped while this ran, and restart=False forbids a second start"
        return _ended(claim, State.FAILED, failure=Failure(kind="interrupted", reason=reason))
    return _waiting(claim, delay=None, attempts=claim.attempt - 1)


def reclaim(row: HeldRow, *, failure: Failure, started: bool = True, shared: bool = False) -> Change:
    """Take a RUNNING row back from a worker that died or let its lease lapse.

    What hadn't started comes back uncounted. A death `shared` with other running jobs isn't counted as an attempt and
    raises `crashes` to at most max_crashes - 1; a job that stands there, however it got there, runs `alone` from then
    on. Dying alone counts as attempt and crash, and can fail the job. So a job that kills its process is found after
    max_crashes runs, and its neighbours live.
    """
    if not started:
        return _change(row, State.READY, attempts=row.attempts - 1)
    if not row.restart:
        return _change(row, State.FAILED, failure=_interrupted(failure.reason))
    if shared:
        limit = max(row.max_crashes - 1, 0)
        crashes = min(row.crashes + 1, limit)
        return _change(
            row, State.READY, attempts=row.attempts - 1, crashes=crashes, alone=crashes >= limit,
            delay=_hold(crashes), failure=failure,
        )  # fmt: skip
    crashes = row.crashes + 1
    if crashes >= row.max_crashes or row.attempts >= row.max_attempts:
        return _change(row, State.FAILED, crashes=crashes, failure=failure)
    # Else it might share its last death, which isn't counted, and kill once more than it may.
    alone = crashes == row.max_crashes - 1
    return _change(row, State.READY, crashes=crashes, alone=alone, delay=_hold(crashes), failure=failure)


def hand_back(row: HeldRow, *, failure: Failure, started: bool) -> Change:
    """Give a RUNNING row back uncounted: its process was ended for another job's sake, or on purpose."""
    if started and not row.restart:
        return _change(row, State.FAILED, failure=_interrupted(failure.reason))
    return _change(row, State.READY, attempts=row.attempts - 1)


def put_back(attempts: int, *, max_attempts: int) -> State:
    """Say where a pushed row comes to that its consumer puts back: READY, or FAILED where no attempt is left."""
    return State.FAILED if attempts >= max_attempts else State.READY


def hold_of_unreadable(attempts: int) -> timedelta:
    """Give how long a pushed row stays back whose payload can't be read: 15 s, 30 s … an hour."""
    return _hold(attempts + 1)


def supersede(change: Change, by: int) -> Change:
    """Cancel what would wait again, since another job with its key waits; what went wrong before is told with it."""
    before = change.failure
    failure = Failure(
        kind="superseded",
        reason=f"superseded by #{by}" + (f"; before that: {before.reason}" if before else ""),
        exception=before.exception if before else "",
        traceback=before.traceback if before else "",
    )
    return change._replace(state=State.CANCELLED, failure=failure, superseded_by=by)


def sooner(first: timedelta | None, second: timedelta | None) -> timedelta | None:
    """Give the earlier of two delays of rows that wait again; None, a `run_at` that is kept, has passed already."""
    return None if first is None or second is None else min(first, second)


def timed_out(row: HeldRow, *, delay: timedelta) -> Change:
    """End the attempt of a body that had to be killed since it ran on past its deadline; it is counted."""
    failure = Failure(kind="timeout", reason="timed out, and went on until its process was killed", exception=TIMEOUT)
    if row.attempts >= row.max_attempts:
        return _change(row, State.FAILED, failure=failure)
    return _change(row, State.READY, delay=delay, failure=failure)


def _retried(claim: Claim, outcome: Retried) -> Change:
    if _is_over(claim, outcome):
        return _ended(claim, State.FAILED, failure=outcome.failure)
    max_attempts = max(claim.max_attempts, claim.attempt + 1)
    return _waiting(claim, delay=outcome.delay, failure=outcome.failure, max_attempts=max_attempts)


def _is_over(claim: Claim, outcome: Retried) -> bool:
    patient = outcome.patient and claim.started_at - claim.first_started_at < PATIENCE
    return claim.is_last and not patient


def _ended(claim: Claim, state: State, *, failure: Failure | None = None, result: str | None = None) -> Change:
    is_gone = state is State.SUCCESSFUL and claim.keep == 0
    # By place, since a worker makes thousands a second.
    return Change(
        claim.lease,
        state,
        claim.attempt,
        claim.max_attempts,
        claim.crashes,
        claim.alone,
        None,
        failure,
        result,
        is_gone,
    )


def _waiting(
    claim: Claim,
    *,
    delay: timedelta | None,
    attempts: int | None = None,
    max_attempts: int | None = None,
    failure: Failure | None = None,
) -> Change:
    return Change(
        lease=claim.lease,
        state=State.READY,
        attempts=claim.attempt if attempts is None else attempts,
        max_attempts=claim.max_attempts if max_attempts is None else max_attempts,
        crashes=claim.crashes,
        alone=claim.alone,
        delay=delay,
        failure=failure,
    )


def _interrupted(reason: str) -> Failure:
    return Failure(kind="interrupted", reason=f"{reason}; restart=False forbids a second start")


def _change(
    row: HeldRow,
    state: State,
    *,
    attempts: int | None = None,
    crashes: int | None = None,
    alone: bool | None = None,
    delay: timedelta | None = None,
    failure: Failure | None = None,
) -> Change:
    return Change(
        lease=row.lease,
        state=state,
        attempts=row.attempts if attempts is None else attempts,
        max_attempts=row.max_attempts,
        crashes=row.crashes if crashes is None else crashes,
        alone=row.alone if alone is None else alone,
        delay=delay,
        failure=failure,
    )


def _hold(crashes: int) -> timedelta:
    """Give how long a job stays back after its crash of that number: nothing at first, then 15 s, 30 s … an hour."""
    if crashes <= 1:
        return timedelta(0)
    return min(FIRST_HOLD * 2.0 ** min(crashes - 2, 20), LONGEST_HOLD)
