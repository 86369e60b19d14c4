"""Declare and run: run(claim) -> Outcome, sync and async. The only place where user code is called; writes nothing.

Whatever a performer raises becomes an outcome; nothing it raises gets out of here, and nothing it activated stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.apps import apps
from django.conf import settings as project
from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, reset_queries
from django.utils import timezone, translation

from django_jobs import backoff, codec, context, performers, signals, transitions
from django_jobs.conf import settings
from django_jobs.context import Attempt
from django_jobs.exceptions import (
    ArgumentsTooLarge,
    Cancel,
    ControlWord,
    GiveUp,
    Retry,
    Snooze,
    UndecodableValue,
    UnencodableValue,
)
from django_jobs.failures import failure_of, fingerprint_of
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Snoozed, Succeeded
from django_jobs.performers import Performer
from django_jobs.records import Claim, Failure

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def is_async(claim: Claim) -> bool:
    """Tell whether the claim is for a performer that runs on the event loop."""
    performer = performers.find_performer(claim.name)
    return performer is not None and performer.is_async


def run(claim: Claim) -> Outcome:
    """Run the performer in this thread, in a context of its own, and say what it came to; an async one in a loop."""
    return Context().run(_run_in_context, claim)


async def arun(claim: Claim) -> Outcome:
    """Run an async performer on the running loop; the caller gives it a context of its own.

    Sync code that it calls gets a thread of its own, whose connections are closed with it.
    """
    async with ThreadSensitiveContext():
        try:
            return await _arun(claim)
        finally:
            await sync_to_async(connections.close_all)()


def _run_in_context(claim: Claim) -> Outcome:
    with _tidy_connections():
        performer = performers.find_performer(claim.name)
        if performer is not None and performer.is_async:
            return async_to_sync(_arun)(claim)
        try:
            call = _call_of(claim, performer)
            with _activated(call.meta):
                return _came_to(call, call.perform())
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are the job's failure too
            return _raised(claim, performer, error)


async def _arun(claim: Claim) -> Outcome:
    performer = performers.find_performer(claim.name)
    try:
        call = await sync_to_async(_call_of)(claim, performer)
        with _activated(call.meta):
            context.enter(call.attempt)
            return _came_to(call, await call.perform())
    except BaseException as error:  # noqa: BLE001 - as above
        return _raised(claim, performer, error)


# -- before the body


class _NoPerformer(Exception):
    pass


class _Misfit(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A performer with the arguments of one claim, ready to be called."""

    claim: Claim
    performer: Performer[..., ..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    meta: Mapping[str, Any]
    attempt: Attempt

    def perform(self) -> Any:
        context.enter(self.attempt)
        signals.job_started.send_robust(self.claim.name, claim=self.claim)
        if self.performer.takes_attempt:
            return self.performer.function(self.attempt, *self.args, **self.kwargs)
        return self.performer.function(*self.args, **self.kwargs)


def _call_of(claim: Claim, performer: Performer[..., ..., Any] | None) -> _Call:
    if performer is None:
        raise _NoPerformer
    args, kwargs, meta = _decoded(claim)
    try:
        performer.signature.bind(*args, **kwargs)
    except TypeError as error:
        message = f"the stored arguments no longer fit {performer.name}{performer.signature}: {error}"
        raise _Misfit(message) from error
    attempt = Attempt(claim, meta=meta, load_errors=lambda: _errors_of(claim))
    return _Call(claim=claim, performer=performer, args=args, kwargs=kwargs, meta=meta, attempt=attempt)


def _decoded(claim: Claim) -> tuple[list[Any], dict[str, Any], Mapping[str, Any]]:
    try:
        args, kwargs = codec.decode_arguments(claim.args, claim.kwargs, resolve=_resolved)
        meta = codec.decode(claim.meta, path="meta")
    except (UndecodableValue, RecursionError) as error:
        message = f"the stored arguments can't be read by this code: {error}"
        raise _Misfit(message) from error
    return args, kwargs, meta if isinstance(meta, dict) else {}


def _resolved(ref: codec.ModelRef) -> object:
    """Fetch a model instance fresh. Raises GiveUp where it is gone."""
    try:
        model = apps.get_model(ref.label)
    except (LookupError, ValueError) as error:
        message = f"the stored arguments name the model {ref.label}, which isn't here"
        raise _Misfit(message) from error
    try:
        return model._base_manager.using(ref.alias).get(pk=ref.pk)
    except ObjectDoesNotExist:
        message = f"the {ref.label} that this job was queued for no longer exists"
        raise GiveUp(message) from None


def _errors_of(claim: Claim) -> list[dict[str, Any]]:
    model = apps.get_model("django_jobs", "Job")
    errors = model.objects.using(settings().database).filter(pk=claim.id).values_list("errors", flat=True).first()
    return list(errors) if isinstance(errors, list) else []


# -- after the body


def _came_to(call: _Call, value: object) -> Outcome:
    """Turn what a performer returned into an outcome: a control word says the same as if it had been raised."""
    if isinstance(value, ControlWord):
        return _raised(call.claim, call.performer, value)
    if value is None:
        return Succeeded()
    try:
        return Succeeded(result=codec.encode(value, path="result", limit=settings().max_args_bytes))
    except (UnencodableValue, ArgumentsTooLarge) as error:
        _close(value)
        # Not tried again: the work was done.
        return Failed(failure=failure_of(error, job=call.claim.name, kind="result"))


def _close(value: object) -> None:
    """Close a coroutine or generator that nobody will run, so that Python doesn't complain about it later."""
    close = getattr(value, "close", None)
    if callable(close) and type(value).__name__ in {"coroutine", "generator"}:
        close()


def _raised(claim: Claim, performer: Performer[..., ..., Any] | None, error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(delay=error.after, reason=error.reason)
        case Cancel():
            return Cancelled(reason=error.reason)
        case GiveUp():
            return GaveUp(failure=failure_of(error, job=claim.name, kind="gave_up"))
        case Retry():
            reason = error.reason or "asked for another attempt"
            failure = failure_of(error, job=claim.name, reason=reason)
            delay = _delay(claim, performer, error) if error.after is None else error.after
            return transitions.after_failure(claim, failure, delay=delay)
        case _NoPerformer():
            return _no_performer(claim)
        case _Misfit():
            return Failed(
                failure=failure_of(error.__cause__ or error, job=claim.name, kind="misfit", reason=str(error))
            )
        case _:
            failure = failure_of(error, job=claim.name)
            return transitions.after_failure(claim, failure, delay=_delay(claim, performer, error))


def _no_performer(claim: Claim) -> Outcome:
    known = ", ".join(performers.known_names()) or "none"
    failure = Failure(
        kind="unknown",
        reason=f"no performer is named {claim.name}",
        traceback=f"known here: {known}",
        fingerprint=fingerprint_of(claim.name, "unknown"),
    )
    return transitions.after_failure(claim, failure, delay=_delay(claim, None, None), patient=True)


def _delay(claim: Claim, performer: Performer[..., ..., Any] | None, error: BaseException | None) -> timedelta:
    """Ask the performer's backoff, the setting's where it has none or fails, and ours where that one fails too."""
    own = None if performer is None else performer.backoff
    given = [own] if callable(own) else []
    for chosen in (*given, settings().backoff):
        try:
            return backoff.delay_of(chosen, claim.attempt, error)
        except Exception as problem:  # noqa: BLE001 - the backoff may be anybody's code
            message = f"the backoff of {claim.name} failed, so another one was used: {problem!r}"
            signals.odd.send_robust(None, message=message, exception=problem, level=logging.ERROR)
    return backoff.exponential()(claim.attempt)


# -- around the body


@contextmanager
def _activated(meta: Mapping[str, Any]) -> Iterator[None]:
    """Activate the language and time zone that were active when the job was queued, the project's own otherwise."""
    language, zone = meta.get("language"), meta.get("time_zone")
    with translation.override(language if isinstance(language, str) else project.LANGUAGE_CODE):
        try:
            timezone.activate(zone if isinstance(zone, str) else timezone.get_default_timezone())
        except (KeyError, ValueError, TypeError):
            timezone.deactivate()
        try:
            yield
        finally:
            timezone.deactivate()


@contextmanager
def _tidy_connections() -> Iterator[None]:
    """Treat connections as Django's request cycle does, and leave none in a transaction that the job left open.

    A connection that is in a transaction already (a test's) is never closed; what broke in it is rolled back to where
    the job began.
    """
    reset_queries()
    _close_old_connections()
    marks = {c.alias: c.savepoint() for c in _open_connections() if c.in_atomic_block}
    try:
        yield
    finally:
        for connection in _open_connections():
            if connection.alias in marks:
                _mend(connection, marks[connection.alias])
            elif connection.in_atomic_block:
                _abandon(connection)
        _close_old_connections()


def _close_old_connections() -> None:
    """Do as Django's function of that name, which would close the connection of a test within its transaction, too."""
    for connection in _open_connections():
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _open_connections() -> list[BaseDatabaseWrapper]:
    return [c for c in connections.all(initialized_only=True) if c.connection is not None]


def _mend(connection: BaseDatabaseWrapper, mark: str | None) -> None:
    if mark is None:
        return
    if connection.needs_rollback or _is_broken(connection):
        connection.needs_rollback = False
        connection.savepoint_rollback(mark)
    connection.savepoint_commit(mark)


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether PostgreSQL refuses everything but a rollback since a statement of the job failed."""
    return not connection.is_usable()


def _abandon(connection: BaseDatabaseWrapper) -> None:
    """Throw away a connection whose transaction the job began by hand and didn't end."""
    connection.needs_rollback = False
    connection.in_atomic_block = False
    connection.savepoint_ids.clear()
    connection.atomic_blocks.clear()
    connection.closed_in_transaction = False
    connection.run_on_commit.clear()
    connection.close()
