"""Declare and run: from a claim to a performer with its arguments, ready to be called. Runs no performer."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.apps import apps

from django_jobs import codec, performers
from django_jobs.conf import settings
from django_jobs.context import Attempt, Report
from django_jobs.exceptions import GiveUp, InstanceGone, UndecodableValue
from django_jobs.performers import AnyPerformer
from django_jobs.records import Claim
from django_jobs.runner.surroundings import Interrupter


class Misfit(Exception):
    """Stored arguments that this code can't read or take; what is wrong with them is the cause, where there is one."""


class Call(NamedTuple):
    """A performer with the arguments of one claim."""

    claim: Claim
    performer: AnyPerformer
    args: list[object]
    kwargs: dict[str, object]
    attempt: Attempt

    def begin(self) -> Any:
        """Call the function: its value, or the coroutine of an async one."""
        if self.performer.takes_attempt:
            return self.performer.function(self.attempt, *self.args, **self.kwargs)
        return self.performer.function(*self.args, **self.kwargs)


def call_of(claim: Claim, performer: AnyPerformer, interrupter: Interrupter, report: Report) -> Call:
    """Read the claim's arguments, and fetch what they refer to. Raises Misfit, and GiveUp for a row that is gone."""
    args, kwargs, meta = _decoded(claim)
    try:
        performer.check_fit(args, kwargs)
    except TypeError as error:
        message = f"the stored arguments no longer fit {performer.name}{performer.signature}: {error}"
        raise Misfit(message) from error
    attempt = Attempt(
        claim,
        meta=meta,
        load_errors=lambda: _errors_of(claim),
        interruption=lambda: interrupter.sent,
        report=report,
    )
    return Call(claim, performer, args, kwargs, attempt)


def _decoded(claim: Claim) -> tuple[list[object], dict[str, object], dict[str, Any]]:
    try:
        args, kwargs = codec.decode_arguments(claim.args, claim.kwargs, resolve=_resolved)
        meta = {} if claim.meta == "{}" else codec.decode(claim.meta, path="meta")
    except UndecodableValue as error:
        message = f"the stored arguments can't be read by this code: {error}"
        raise Misfit(message) from error
    return args, kwargs, meta if isinstance(meta, dict) else {}


def _resolved(ref: codec.ModelRef) -> object:
    try:
        return performers.resolve(ref)
    except InstanceGone as gone:
        message = f"the {gone.label} that this job was queued for no longer exists"
        raise GiveUp(message) from None


def _errors_of(claim: Claim) -> list[dict[str, Any]]:
    model = apps.get_model("django_jobs", "Job")
    errors = model.objects.using(settings().database).filter(pk=claim.id).values_list("errors", flat=True).first()
    return list(errors) if isinstance(errors, list) else []
