"""Declare: from a call to a job in the caller's transaction. Here the settings say what nobody said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db.models import Model
from django.utils import timezone, translation

from django_jobs import codec, lifecycle
from django_jobs.conf import project_language, settings
from django_jobs.performers import modes
from django_jobs.performers.options import UNSET, JobOptions, Options, Unset, check_name, check_options
from django_jobs.records import NewJob, Queued

if TYPE_CHECKING:
    from django_jobs.models import Job


def enqueue(jobs: Iterable[NewJob]) -> list[Queued]:
    """Queue jobs of several kinds, all or none, and answer in the given order; each comes from `prepare` or `named`.

    Raises TypeError for anything else, before a job is written, and SynchronousOnlyOperation in a running event loop.
    """
    refuse_in_event_loop("enqueue", "aenqueue")
    return insert_many(_all_prepared(jobs))


async def aenqueue(jobs: Iterable[NewJob]) -> list[Queued]:
    """Do as `enqueue`, from async code."""
    return await sync_to_async(lambda: insert_many(_all_prepared(jobs)))()


def named(
    name: str, /, *args: Any, queue: str | Unset = UNSET, options: JobOptions | None = None, **kwargs: Any
) -> NewJob:
    """Prepare a job by its stored name, for a performer that lives elsewhere; `options` are those of `using()`.

    Raises as `prepare` does, but for a wrong call: nobody knows the signature here.
    """
    said = {} if queue is UNSET else {"queue": queue}
    checked = check_options({**(options or {}), **said}, Options(), call="named()")
    return new_job(check_name("name", name), args, kwargs, checked)


def _all_prepared(jobs: Iterable[object]) -> list[NewJob]:
    if isinstance(jobs, NewJob):
        message = "enqueue() takes a list of jobs: enqueue([…])"
        raise TypeError(message)
    prepared: list[NewJob] = []
    for place, job in enumerate(jobs):
        if not isinstance(job, NewJob):
            message = f"enqueue(): [{place}] is of type {type(job).__name__}; give performer.prepare(…) or named(…)"
            raise TypeError(message)
        prepared.append(job)
    return prepared


def insert(job: NewJob) -> Job:
    """Insert one job and give it as it stands in the database, without asking again."""
    alias = settings().database
    inserted = lifecycle.enqueue(job, using=alias)
    model: type[Job] = apps.get_model("django_jobs", "Job")
    row = model.mirror(job, inserted, using=alias)
    if modes.is_inline():
        [row] = modes.run_now([row.pk])
    return row


def insert_many(jobs: list[NewJob]) -> list[Queued]:
    """Insert jobs, all or none."""
    queued = lifecycle.enqueue_many(jobs, using=settings().database)
    if queued and modes.is_inline():
        modes.run_now([one.id for one in queued])
    return queued


def refuse_in_event_loop(call: str, instead: str) -> None:
    """Do as Django's `async_unsafe`, naming what to await instead. Raises SynchronousOnlyOperation."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        message = f"{call}() would block the running event loop; write: await {instead}(…)"
        raise SynchronousOnlyOperation(message)


# -- a new job


def new_job(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options) -> NewJob:
    """Encode arguments and fill in every option. Raises UnencodableValue, ArgumentsTooLarge, and ValueError (queue)."""
    return Draft(name, options).filled(args, kwargs)


class Draft:
    """A job but for its arguments: every option settled, and what is active now. All jobs of a bulk call share one.

    Raises ValueError for the queue, and what encoding raises for meta.
    """

    def __init__(self, name: str, options: Options) -> None:
        conf = settings()
        self._limit = conf.max_args_bytes
        start = options.start
        self._common: dict[str, Any] = {
            "name": name,
            "queue": _allowed(_or(options.queue, conf.default_queue), conf.queues),
            "priority": _or(options.priority, 0),
            "max_attempts": _or(options.max_attempts, conf.max_attempts),
            "max_crashes": _or(options.max_crashes, 3),
            "restart": _or(options.restart, True),  # noqa: FBT003 - a default
            "timeout": _seconds(_or(options.timeout, conf.timeout)),
            "keep": _seconds(_or(options.keep, conf.keep_successful)),
            "keep_failed": _seconds(_or(options.keep_failed, conf.keep_failed)),
            "delay": start if isinstance(start, timedelta) else timedelta(0),
            "run_at": start if isinstance(start, datetime) else None,
            "expires": _or(options.expires, None),
            "meta": codec.encode({**_ambient(), **_or(options.meta, {})}, path="meta", limit=self._limit),
        }

    def filled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """Make a job with these arguments. Raises UnencodableValue and ArgumentsTooLarge."""
        encoded_args, encoded_kwargs = codec.encode_arguments(args, kwargs, limit=self._limit, reference=reference)
        return NewJob(args=encoded_args, kwargs=encoded_kwargs, **self._common)


def _allowed(queue: str, queues: Mapping[str, int | None] | None) -> str:
    if queues is not None and queue not in queues:
        allowed = ", ".join(sorted(queues))
        message = f"queue {queue!r} is not in DJANGO_JOBS['QUEUES'] ({allowed}); add it there or choose one of them"
        raise ValueError(message)
    return queue


Value = TypeVar("Value")


def _or(value: Value | Unset, default: Value) -> Value:
    return default if isinstance(value, Unset) else value


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _ambient() -> dict[str, str]:
    """Name the language and time zone that are active now, where they aren't the project's own."""
    found: dict[str, str] = {}
    language = translation.get_language()
    if language and language != project_language():
        found["language"] = language
    zone = timezone.get_current_timezone_name()
    if zone != timezone.get_default_timezone_name():
        found["time_zone"] = zone
    return found


def reference(value: object) -> codec.ModelRef | None:
    """Say what is stored of a model instance. Raises TypeError for one that isn't in the database."""
    if not isinstance(value, Model):
        return None
    label = value._meta.label
    if value.pk is None or value._state.adding:
        message = f"this {label} is not in the database; save it first"
        raise TypeError(message)
    return codec.ModelRef(label=label, pk=value.pk, alias=value._state.db or "default")
