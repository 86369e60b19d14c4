"""Front door: one performer is run without a row, and gives or raises what its body does."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextvars import Context
from typing import Any, Protocol, TypeVar, overload

from asgiref.sync import sync_to_async

from django_jobs import clock, codec, runner
from django_jobs.outcomes import Outcome, Succeeded
from django_jobs.performers import Performer, modes, resolve
from django_jobs.performers.queueing import refuse_in_event_loop
from django_jobs.records import Claim, Lease, NewJob
from django_jobs.testing.targets import whole
from django_jobs.worker.inline import own_traceback

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Performs(Protocol[Result_co]):
    """A performer, as far as types tell what it gives: a Performer is invariant in that."""

    name: str
    aliases: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Result_co:
        """Call the function."""


NO_ROW = Lease(id=0, token=0)


@overload
def perform(
    job: Performs[Coroutine[Any, Any, Result]],
    /,
    *args: Any,
    attempt: int = 1,
    max_attempts: int | None = None,
    meta: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Result: ...


@overload
def perform(
    job: Performs[Result],
    /,
    *args: Any,
    attempt: int = 1,
    max_attempts: int | None = None,
    meta: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Result: ...


def perform(
    job: Any,
    /,
    *args: Any,
    attempt: int = 1,
    max_attempts: int | None = None,
    meta: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Run a performer as its worker would, but without a row, and give what it returned.

    Arguments and result are encoded and decoded again, so what can't be stored is refused, and a model instance is
    fetched fresh. The body finds an Attempt of that number (of `max_attempts`, the policy's by default), with `meta`.
    An async one runs on a loop of its own; what an atomic one does in the jobs' database stays with a success alone. A
    timeout isn't enforced. A parameter of the job that is called attempt, max_attempts or meta is given by position.

    Raises what the body raised, or returned as a control word, and TypeError or ValueError for arguments that the job
    can't be queued with.
    """
    __tracebackhide__ = True
    refuse_in_event_loop("perform", "aperform")
    _refuse_strangers(job)
    claim = _claim(_prepared(job, args, kwargs, max_attempts=max_attempts, meta=meta), attempt)
    outcome, error = rehearsed(claim)
    if error is not None:
        raise error.with_traceback(own_traceback(error))
    assert isinstance(outcome, Succeeded)
    return None if outcome.result is None else codec.decode(outcome.result, path="result", resolve=resolve)


def _refuse_strangers(job: object) -> None:
    if not isinstance(job, Performer):
        message = f"perform() takes what @job made, and not {job!r:.80}"
        raise TypeError(message)


@overload
async def aperform(job: Performs[Coroutine[Any, Any, Result]], /, *args: Any, **options: Any) -> Result: ...


@overload
async def aperform(job: Performs[Result], /, *args: Any, **options: Any) -> Result: ...


async def aperform(job: Any, /, *args: Any, **options: Any) -> Any:
    """Do as `perform`, from an async test."""
    return await sync_to_async(perform)(job, *args, **options)


def rehearsed(claim: Claim) -> tuple[Outcome, BaseException | None]:
    """Run the body for a claim without a row, and say what it came to, with what it raised."""
    context = Context()
    context.run(modes.carry, modes.carried())
    errors = runner.note_errors(context)
    outcome = runner.rehearse(claim, context=context)
    return outcome, errors[-1] if errors else None


def _prepared(
    job: Performer[..., ..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    max_attempts: int | None,
    meta: Mapping[str, Any] | None,
) -> NewJob:
    enqueuer = job.using(meta=meta or {})
    if max_attempts is not None:
        enqueuer = enqueuer.using(max_attempts=max_attempts)
    return enqueuer.prepare(*args, **kwargs)


def _claim(new: NewJob, attempt: int) -> Claim:
    whole("attempt", attempt, 1)
    now, draft = clock.now(), new.draft
    return Claim(
        lease=NO_ROW,
        name=draft.name,
        queue=draft.queue,
        priority=draft.priority,
        args=new.args,
        kwargs=new.kwargs,
        meta=draft.meta,
        attempt=attempt,
        max_attempts=draft.max_attempts,
        crashes=0,
        max_crashes=draft.max_crashes,
        alone=False,
        restart=draft.restart,
        timeout=draft.timeout,
        keep=draft.keep,
        schedule=None,
        waiting_key=None,
        on_failure=draft.on_failure,
        instants=(now, now, now, now, None),
    )
