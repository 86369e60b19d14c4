"""Declare and run: one run, from the claim to its outcome. Everything that a performer may raise ends here."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context, ContextVar
from datetime import timedelta
from functools import partial

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from django_jobs import backoff, codec, durations, performers, signals, transitions
from django_jobs.conf import settings
from django_jobs.context import Report, enter
from django_jobs.exceptions import Cancel, ControlWord, GiveUp, Interruption, JobCancelled, JobTimeout, Retry, Snooze
from django_jobs.failures import exception_path, failure_of, fingerprint_of, shown
from django_jobs.outcomes import (
    Cancelled,
    Committed,
    Ending,
    Failed,
    GaveUp,
    InDoubt,
    Outcome,
    Released,
    Retried,
    Snoozed,
    Succeeded,
)
from django_jobs.performers import AnyPerformer
from django_jobs.progress import Progress
from django_jobs.records import Claim, Failure
from django_jobs.runner import atomic, middleware
from django_jobs.runner.call import Call, Misfit, call_of
from django_jobs.runner.surroundings import (
    NOBODY,
    Interrupter,
    activate,
    close_connections,
    deactivate,
    prepare_connections,
    tell_odd,
    tidy_connections,
)

NOTHING = Succeeded()
"""What most bodies return."""


def unreported(claim: Claim, progress: Progress) -> None:
    """Take no note of how far a body is: there is no row, or nobody asks."""


def is_async(claim: Claim) -> bool:
    """Tell whether the claim is for a performer that runs on the event loop."""
    performer = performers.find_performer(claim.name)
    return performer is not None and performer.is_async


def run(
    claim: Claim, interrupter: Interrupter = NOBODY, *, context: Context | None = None, report: Report = unreported
) -> Ending:
    """Run the performer in this thread, in a context of its own, and say what it came to; an async one in a loop.

    The interrupter's door is closed when an atomic performer's body has ended, before anything is committed. `context`
    is one made for this run alone, in which something was set. `report` is told how far the body is.
    """
    return (Context() if context is None else context).run(_run, claim, interrupter, report)


_errors: ContextVar[list[BaseException] | None] = ContextVar("django_jobs.errors", default=None)


def note_errors(context: Context) -> list[BaseException]:
    """Have a run in `context` note, as it is, what it makes a failure or a control word of; gives where it does."""
    errors: list[BaseException] = []
    context.run(_errors.set, errors)
    return errors


def rehearse(claim: Claim, *, context: Context) -> Outcome:
    """Run the performer in this thread for a claim without a row, and say what it came to; nobody is told.

    What an atomic one does in the jobs' database stays, within the caller's transaction, with a success alone.
    """
    return context.run(_rehearsed, claim)


def _rehearsed(claim: Claim) -> Outcome:
    marks = prepare_connections(claim)
    try:
        performer = performers.get_performer(claim.name)
        try:
            call = call_of(claim, performer, NOBODY, unreported)
            enter(call.attempt)
        except BaseException as error:  # noqa: BLE001 - as in _prepared
            return _raised(claim, performer, error)
        if not performer.is_atomic:
            return _called(call)
        return atomic.rehearse(partial(_called, call), failed=partial(_raised, claim, performer))
    finally:
        tidy_connections(claim, marks)


async def arun(claim: Claim, interrupter: Interrupter = NOBODY, *, report: Report = unreported) -> Outcome:
    """Run an async performer on the running loop; the caller gives it a context of its own.

    Sync code that it calls gets a thread of its own, whose connections are closed with it.
    """
    async with ThreadSensitiveContext():
        try:
            return await _arun(claim, interrupter, report)
        finally:
            await sync_to_async(close_connections)(claim)


def _run(claim: Claim, interrupter: Interrupter, report: Report) -> Ending:
    marks = prepare_connections(claim)
    try:
        call = _prepared(claim, interrupter, report)
        return _performed(call, interrupter) if isinstance(call, Call) else call
    finally:
        tidy_connections(claim, marks)


async def _arun(claim: Claim, interrupter: Interrupter, report: Report) -> Outcome:
    call = await sync_to_async(_prepared)(claim, interrupter, report)
    if not isinstance(call, Call):
        return call
    try:
        # A task of its own: a body that cancels the one it runs in must not reach the worker's.
        return await asyncio.create_task(_aperformed(call))
    except asyncio.CancelledError as error:
        return _raised(claim, call.performer, error)


# -- before the body


def _prepared(claim: Claim, interrupter: Interrupter, report: Report) -> Call | Outcome:
    """Find the performer, read the arguments and tell of the start; an outcome where it doesn't come to one."""
    performer = performers.find_performer(claim.name)
    if performer is None:
        return _unknown(claim)
    try:
        call = call_of(claim, performer, interrupter, report)
        enter(call.attempt)
        signals.starts.tell(claim)
        if signals.job_started.receivers:
            signals.tell(signals.job_started, claim.name, claim=claim)
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are the job's failure too
        return _raised(claim, performer, error)
    return call


def _unknown(claim: Claim) -> Outcome:
    known = ", ".join(performers.known_names()) or "none"
    failure = Failure(
        kind="unknown",
        reason=f"no performer is named {claim.name}",
        traceback=f"known here: {known}",
        fingerprint=fingerprint_of(claim.name, "unknown"),
    )
    return transitions.after_failure(claim, failure, delay=_delay(claim, None, None), patient=True)


# -- the body


def _performed(call: Call, interrupter: Interrupter) -> Ending:
    if not call.performer.is_atomic:
        return _called(call)
    return atomic.perform(
        call, partial(_called_and_left, call, interrupter), failed=partial(_raised, call.claim, call.performer)
    )


def _called_and_left(call: Call, interrupter: Interrupter) -> Outcome:
    """Close the door behind the body: nothing may strike a COMMIT, and what was struck before doesn't come to one."""
    outcome = _called(call)
    kind = interrupter.leave()
    if kind is None:
        return outcome
    return _interrupted(call.claim, kind, Released(started=True) if isinstance(outcome, Succeeded) else outcome)


def _called(call: Call) -> Outcome:
    try:
        if call.performer.is_async:
            return async_to_sync(_aperformed)(call)
        activate(call.attempt.meta)
        value = middleware.begin(call)
    except BaseException as error:  # noqa: BLE001 - as in _prepared; a child task's SystemExit comes out of the loop
        return _raised(call.claim, call.performer, error)
    return _came_to(call, value)


async def _aperformed(call: Call) -> Outcome:
    try:
        activate(call.attempt.meta)
        value = await middleware.begin(call)
    except BaseException as error:  # noqa: BLE001 - as in _prepared
        return _raised(call.claim, call.performer, error)
    return _came_to(call, value)


# -- around the run


def broken(claim: Claim, error: BaseException) -> Outcome:
    """Say what a run came to whose surroundings failed, for example a connection that broke while it was tidied."""
    return transitions.after_failure(
        claim, failure_of(error, job=claim.name), delay=backoff.exponential()(claim.attempt)
    )


def interrupted(claim: Claim, kind: type[Interruption], ending: Ending) -> Ending:
    """Say what a run came to that the worker interrupted, whatever its body made of that."""
    if isinstance(ending, Committed | InDoubt):
        # The body had ended before.
        return ending
    return _interrupted(claim, kind, ending)


def _interrupted(claim: Claim, kind: type[Interruption], outcome: Outcome) -> Outcome:
    if issubclass(kind, JobTimeout):
        return _timed_out(claim, outcome.failure.traceback if isinstance(outcome, Failed | Retried) else "")
    if issubclass(kind, JobCancelled):
        return Cancelled(reason="cancelled while it ran")
    # What was done is done, if it was done before the word came; the token says whether it still counts.
    return outcome if isinstance(outcome, Succeeded) else Released(started=True)


def _timed_out(claim: Claim, traceback: str) -> Outcome:
    failure = Failure(
        kind="timeout",
        reason=f"timed out after {claim.timeout:g} s",
        exception=exception_path(JobTimeout()),
        traceback=traceback,
        fingerprint=fingerprint_of(claim.name, "timeout"),
    )
    delay = _delay(claim, performers.find_performer(claim.name), JobTimeout())
    return transitions.after_failure(claim, failure, delay=delay)


# -- after the body


def _came_to(call: Call, value: object) -> Outcome:
    """Turn what a performer returned into an outcome: a control word says the same as if it had been raised."""
    if value is None:
        return NOTHING
    try:
        deactivate()
        if isinstance(value, ControlWord):
            return _raised(call.claim, call.performer, value)
        return Succeeded(result=_encoded(value))
    except BaseException as error:  # noqa: BLE001 - a value may be hostile
        _note(error)
        # Not tried again: the work was done.
        return Failed(failure=failure_of(error, job=call.claim.name, kind="result"))


def _encoded(value: object) -> str:
    if inspect.iscoroutine(value):
        value.close()
        message = "it returned a coroutine, whose body never ran; declare it with async def"
        raise TypeError(message)
    return codec.encode(value, path="result", limit=settings().max_args_bytes, reference=performers.reference)


def _raised(claim: Claim, performer: AnyPerformer, error: BaseException) -> Outcome:
    """Turn what a performer raised into an outcome; a control word may be of a subclass, and broken."""
    _note(error)
    try:
        deactivate()
        return _outcome_of(claim, performer, error)
    except BaseException as problem:  # noqa: BLE001 - nothing gets out of here
        return _failed_attempt(claim, performer, problem)


def _note(error: BaseException) -> None:
    """Keep it for who asked; a worker asks for none."""
    if (errors := _errors.get()) is not None:
        errors.append(error)


def _outcome_of(claim: Claim, performer: AnyPerformer, error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(delay=durations.parse(error.after, what="Snooze.after"), reason=shown(error.reason))
        case Cancel():
            return Cancelled(reason=shown(error.reason))
        case GiveUp():
            return GaveUp(failure=failure_of(error, job=claim.name, kind="gave_up"))
        case Retry():
            return _asked_again(claim, performer, error)
        case JobTimeout() if claim.timeout is not None:
            # A checkpoint may notice it before the worker does.
            return _timed_out(claim, failure_of(error, job=claim.name).traceback)
        case Misfit():
            cause = error.__cause__ or error
            return Failed(failure=failure_of(cause, job=claim.name, kind="misfit", reason=error))
        case _:
            return _failed_attempt(claim, performer, error)


def _asked_again(claim: Claim, performer: AnyPerformer, word: Retry) -> Outcome:
    failure = failure_of(word, job=claim.name, reason=word.reason or "asked for another attempt")
    after = None if word.after is None else durations.parse(word.after, what="Retry.after")
    return transitions.after_failure(claim, failure, delay=_delay(claim, performer, word) if after is None else after)


def _failed_attempt(claim: Claim, performer: AnyPerformer, error: BaseException) -> Outcome:
    if performer.gives_up_on(error):
        return GaveUp(failure=failure_of(error, job=claim.name, kind="gave_up"))
    failure = failure_of(error, job=claim.name)
    return transitions.after_failure(claim, failure, delay=_delay(claim, performer, error))


def _delay(claim: Claim, performer: AnyPerformer | None, error: BaseException | None) -> timedelta:
    """Ask the performer's backoff, the setting's where it has none or fails, and ours where that one fails too."""
    own = None if performer is None else performer.backoff
    given = [own] if callable(own) else []
    for chosen in (*given, settings().backoff):
        try:
            return backoff.delay_of(chosen, claim.attempt, error)
        except BaseException as problem:  # noqa: BLE001 - the backoff may be anybody's code
            tell_odd(f"the backoff of {claim.name} failed, so another one was used", problem)
    return backoff.exponential()(claim.attempt)
