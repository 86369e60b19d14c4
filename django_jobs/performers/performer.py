"""Declare: performers and the ways to queue. What isn't said comes from the settings at the moment of queueing."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.utils import timezone, translation

from django_jobs import codec, lifecycle
from django_jobs.conf import settings
from django_jobs.durations import Duration
from django_jobs.exceptions import UnencodableValue
from django_jobs.performers.options import UNSET, Options, Unset, check_name, check_options
from django_jobs.records import NewJob, Queued

if TYPE_CHECKING:
    from django_jobs.models import Job

Call = ParamSpec("Call")
Args = ParamSpec("Args")
Result = TypeVar("Result")


class Performer(Generic[Call, Args, Result]):
    """A function registered under a stable name, with its policy. Called plainly, it is that function."""

    def __init__(
        self,
        function: Callable[Call, Result],
        *,
        name: str,
        aliases: tuple[str, ...],
        takes_attempt: bool,
        backoff: Callable[..., Any] | Unset,
        options: Options,
    ) -> None:
        self.function = function
        self.name = name
        self.aliases = aliases
        self.takes_attempt = takes_attempt
        self.backoff = backoff
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = _queued_signature(function, name, takes_attempt=takes_attempt)
        self._queue: Enqueuer[Args] = Enqueuer(self, Options())
        update_wrapper(self, function)

    def __call__(self, *args: Call.args, **kwargs: Call.kwargs) -> Result:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Performer {self.name}>"

    def later(self, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Queue a job in the caller's transaction and give it.

        Raises TypeError for arguments that don't fit the signature, UnencodableValue (with the path) or ArgumentsTooLarge
        for those that can't be stored, ValueError for a queue that the settings don't allow, and
        SynchronousOnlyOperation in a running event loop.
        """
        return self._queue.later(*args, **kwargs)

    async def alater(self, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Do as `later`, from async code."""
        return await self._queue.alater(*args, **kwargs)

    def later_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Queue many jobs, all or none; each call is a tuple of arguments, a dict of them, or what `prepare` gave.

        Answers in the given order. Raises as `later` does, before anything is written.
        """
        return self._queue.later_many(calls)

    async def alater_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Do as `later_many`, from async code."""
        return await self._queue.alater_many(calls)

    def prepare(self, *args: Args.args, **kwargs: Args.kwargs) -> NewJob:
        """Bind and encode a job for `enqueue([...])` without queueing it. Raises as `later` does."""
        return self._queue.prepare(*args, **kwargs)

    def after(
        self,
        delay: Duration | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Enqueuer[Args]:
        """Have jobs run no sooner than that long after they are queued: `after(10)`, `after("5m")`, `after(minutes=5)`."""
        return self._queue.after(delay, days=days, hours=hours, minutes=minutes, seconds=seconds)

    def at(self, moment: datetime) -> Enqueuer[Args]:
        """Have jobs run no sooner than `moment` (aware)."""
        return self._queue.at(moment)

    def using(
        self,
        *,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        expires: Duration | Unset | None = UNSET,
        meta: Mapping[str, Any] | Unset = UNSET,
        keep: Duration | Unset | None = UNSET,
        max_attempts: int | Unset = UNSET,
        timeout: Duration | Unset | None = UNSET,
    ) -> Enqueuer[Args]:
        """Queue with other options than the performer's; nothing is queued before `later`.

        `expires` counts from the moment the job may first run. Raises TypeError or ValueError for wrong values.
        """
        return self._queue.using(
            queue=queue,
            priority=priority,
            expires=expires,
            meta=meta,
            keep=keep,
            max_attempts=max_attempts,
            timeout=timeout,
        )


def _queued_signature(function: Callable[..., Any], name: str, *, takes_attempt: bool) -> inspect.Signature:
    """Give the signature as callers of `later` see it: without the attempt."""
    signature = inspect.signature(function)
    if not takes_attempt:
        return signature
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        message = f"{name}{signature}: takes_attempt=True needs a first positional parameter for the Attempt"
        raise TypeError(message)
    return signature.replace(parameters=parameters[1:])


Arguments: TypeAlias = tuple[Any, ...] | dict[str, Any] | NewJob
"""One call's arguments for `later_many`."""


class Enqueuer(Generic[Args]):
    """A performer with options said for the jobs queued through it."""

    def __init__(self, performer: Performer[Any, Args, Any], options: Options) -> None:
        self._performer = performer
        self._options = options

    def __repr__(self) -> str:
        return f"<{self._performer.name}, not queued: call .later(…)>"

    def later(self, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Queue a job; see Performer.later."""
        _refuse_in_event_loop(self._performer.name, "later", "alater")
        return _queued(self.prepare(*args, **kwargs))

    async def alater(self, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Do as `later`, from async code."""
        return await sync_to_async(lambda: _queued(self.prepare(*args, **kwargs)))()

    def later_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Queue many jobs; see Performer.later_many."""
        _refuse_in_event_loop(self._performer.name, "later_many", "alater_many")
        jobs = [self._prepared(call) for call in calls]
        return lifecycle.enqueue_many(jobs, using=settings().database)

    async def alater_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Do as `later_many`, from async code."""
        jobs = [self._prepared(call) for call in calls]
        return await sync_to_async(lifecycle.enqueue_many)(jobs, using=settings().database)

    def prepare(self, *args: Args.args, **kwargs: Args.kwargs) -> NewJob:
        """Bind and encode; see Performer.prepare."""
        performer = self._performer
        try:
            performer.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{performer.name}{performer.signature}: {error}"
            raise TypeError(message) from None
        return _new_job(performer.name, args, kwargs, self._options.over(performer.options))

    def after(
        self,
        delay: Duration | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Enqueuer[Args]:
        """Delay the jobs; see Performer.after."""
        parts = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if (delay is None) == (not parts):
            message = "after(): give either one duration, as after(10) or after('5m'), or parts, as after(minutes=5)"
            raise TypeError(message)
        return self._with(check_options(delay=parts if delay is None else delay, run_at=UNSET))

    def at(self, moment: datetime) -> Enqueuer[Args]:
        """Set the earliest moment; see Performer.at."""
        return self._with(check_options(run_at=moment))

    def using(
        self,
        *,
        queue: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        expires: Duration | Unset | None = UNSET,
        meta: Mapping[str, Any] | Unset = UNSET,
        keep: Duration | Unset | None = UNSET,
        max_attempts: int | Unset = UNSET,
        timeout: Duration | Unset | None = UNSET,
    ) -> Enqueuer[Args]:
        """Say options; see Performer.using."""
        return self._with(
            check_options(
                queue=queue,
                priority=priority,
                expires=expires,
                meta=meta,
                keep=keep,
                max_attempts=max_attempts,
                timeout=timeout,
            )
        )

    def _with(self, options: Options) -> Enqueuer[Args]:
        return Enqueuer(self._performer, options.over(self._options))

    def _prepared(self, call: object) -> NewJob:
        prepare: Callable[..., NewJob] = self.prepare
        match call:
            case NewJob():
                return call
            case tuple():
                return prepare(*call)
            case dict():
                return prepare(**call)
        message = (
            f"later_many(): {call!r} is no call; give a tuple of arguments, as (5,), a dict of them, or prepare(…)"
        )
        raise TypeError(message)


def enqueue(jobs: Iterable[NewJob]) -> list[Queued]:
    """Queue jobs of several kinds, all or none, and answer in the given order; each comes from `prepare` or `named`."""
    _refuse_in_event_loop("", "enqueue", "aenqueue")
    return lifecycle.enqueue_many(_all_prepared(jobs), using=settings().database)


async def aenqueue(jobs: Iterable[NewJob]) -> list[Queued]:
    """Do as `enqueue`, from async code."""
    return await sync_to_async(lifecycle.enqueue_many)(_all_prepared(jobs), using=settings().database)


def named(
    name: str, /, *args: Any, queue: str | Unset = UNSET, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> NewJob:
    """Prepare a job by its stored name, for a performer that lives elsewhere; `options` are those of `using()`.

    Raises as `prepare` does, but for a wrong call: nobody knows the signature here.
    """
    said = dict(options or {})
    if queue is not UNSET:
        said["queue"] = queue
    return _new_job(check_name("name", name), args, kwargs, check_options(**said))


def _all_prepared(jobs: Iterable[NewJob]) -> list[NewJob]:
    prepared = list(jobs)
    for job in prepared:
        if not isinstance(job, NewJob):
            message = f"enqueue(): {job!r} is not prepared; give performer.prepare(…) or named(…)"
            raise TypeError(message)
    return prepared


def _queued(job: NewJob) -> Job:
    from django.apps import apps  # noqa: PLC0415 - a `jobs` module may be imported while apps load

    alias = settings().database
    inserted = lifecycle.enqueue(job, using=alias)
    model: type[Job] = apps.get_model("django_jobs", "Job")
    return model.mirror(job, inserted, using=alias)


def _refuse_in_event_loop(name: str, call: str, other: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        dot = f"{name}." if name else ""
        message = f"{dot}{call}() would block the running event loop; write: await {dot}{other}(…)"
        raise SynchronousOnlyOperation(message)


# -- a new job


def _new_job(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options) -> NewJob:
    conf = settings()
    encoded_args, encoded_kwargs = codec.encode_arguments(args, kwargs, limit=conf.max_args_bytes, reference=_reference)
    queue = _or(options.queue, conf.default_queue)
    if conf.queues is not None and queue not in conf.queues:
        allowed = ", ".join(sorted(conf.queues))
        message = f"queue {queue!r} is not in DJANGO_JOBS['QUEUES'] ({allowed}); add it there or choose one of them"
        raise ValueError(message)
    return NewJob(
        name=name,
        queue=queue,
        priority=_or(options.priority, 0),
        args=encoded_args,
        kwargs=encoded_kwargs,
        max_attempts=_or(options.max_attempts, conf.max_attempts),
        max_crashes=_or(options.max_crashes, 3),
        restart=_or(options.restart, True),  # noqa: FBT003 - a default
        timeout=_seconds(_or(options.timeout, conf.timeout)),
        keep=_seconds(_or(options.keep, conf.keep_successful)),
        keep_failed=_seconds(_or(options.keep_failed, conf.keep_failed)),
        delay=_or(options.delay, timedelta(0)),
        run_at=_or(options.run_at, None),
        expires=_or(options.expires, None),
        meta=_encoded_meta(_or(options.meta, {})),
    )


Value = TypeVar("Value")


def _or(value: Value | Unset, default: Value) -> Value:
    return default if isinstance(value, Unset) else value


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _encoded_meta(said: Mapping[str, Any]) -> str:
    """Encode what goes with the job: the language and zone that are active, where they aren't the project's own."""
    from django.conf import settings as project  # noqa: PLC0415 - not while settings themselves are being imported

    meta: dict[str, Any] = {}
    language = translation.get_language()
    if language and language != project.LANGUAGE_CODE:
        meta["language"] = language
    zone = timezone.get_current_timezone_name()
    if zone != timezone.get_default_timezone_name():
        meta["time_zone"] = zone
    meta.update(said)
    return codec.encode(meta, path="meta") if meta else "{}"


def _reference(value: object) -> codec.ModelRef | None:
    """Turn a model instance into what is stored of it. Raises UnencodableValue for one that isn't in the database."""
    from django.db.models import Model  # noqa: PLC0415 - `from django_jobs import job` touches no model machinery

    if not isinstance(value, Model):
        return None
    label = value._meta.label
    if value.pk is None or value._state.adding:
        raise UnencodableValue(label, "it isn't saved yet; save it before queueing")
    return codec.ModelRef(label=label, pk=value.pk, alias=value._state.db or "default")
