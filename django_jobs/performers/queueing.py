"""Declare: from a call to a job in the caller's transaction. Here the settings say what nobody said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.utils import timezone, translation

from django_jobs import codec, lifecycle
from django_jobs.conf import Settings, project_language, settings
from django_jobs.exceptions import KeyContended
from django_jobs.performers import modes
from django_jobs.performers.instances import reference
from django_jobs.performers.keys import Keys
from django_jobs.performers.meta import Adding
from django_jobs.performers.options import Options, Unset
from django_jobs.records import Draft, NewJob, Queued

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

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
    """Insert one job and give it as it stands in the database, without asking again; or the one that holds its key.

    Where it waits for another database's commit, it has no id before that. Raises DuplicateJob where the job says so,
    KeyContended, and TransactionManagementError where it should wait for a commit that Django doesn't see.
    """
    if (awaited := _awaited([job])) is None:
        return _insert_now(job)
    model: type[Job] = apps.get_model("django_jobs", "Job")
    unsaved = model.to_come(job, using=settings().database)
    transaction.on_commit(lambda: unsaved.become(_insert_now(job)), using=awaited)
    return unsaved


def _insert_now(job: NewJob) -> Job:
    alias = settings().database
    model: type[Job] = apps.get_model("django_jobs", "Job")
    for _ in range(lifecycle.TRIES):
        inserted = lifecycle.enqueue(job, using=alias)
        if not inserted.duplicate:
            row = model.mirror(job, inserted, using=alias)
            return modes.run_now([row.pk])[0] if modes.is_inline() else row
        if (holder := model._base_manager.using(alias).filter(pk=inserted.id).first()) is not None:
            holder.duplicate, holder.replaced = True, inserted.replaced
            return holder
    raise KeyContended(job.key.text if job.key else "", tries=lifecycle.TRIES)


def insert_many(jobs: list[NewJob]) -> list[Queued]:
    """Insert jobs, all or none. Where they wait for another database's commit, that fills the list.

    Raises as `insert` does, and ValueError where they wait for several.
    """
    if (awaited := _awaited(jobs)) is None:
        return _insert_many_now(jobs)
    queued: list[Queued] = []
    transaction.on_commit(lambda: queued.extend(_insert_many_now(jobs)), using=awaited)
    return queued


def _awaited(jobs: list[NewJob]) -> str | None:
    """Give the alias of the database whose commit jobs wait for: one with an open transaction, but not their own."""
    aliases = {job.draft.after_commit for job in jobs} - {"", settings().database}
    awaited = sorted(alias for alias in aliases if _is_in_transaction(connections[alias]))
    if len(awaited) > 1:
        message = (
            f"these jobs wait for commits of several databases, {' and '.join(awaited)}: queue them by one call each"
        )
        raise ValueError(message)
    return awaited[0] if awaited else None


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Say whether what is written now waits for a commit; a connection that isn't open yet is left so."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def _insert_many_now(jobs: list[NewJob]) -> list[Queued]:
    queued = lifecycle.enqueue_many(jobs, using=settings().database)
    if modes.is_inline() and (ids := [one.id for one in queued if not one.duplicate]):
        modes.run_now(ids)
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


class Surroundings(NamedTuple):
    """What is active now and has a say in jobs, beside what was said of them: the same for most calls."""

    conf: Settings
    language: str | None
    zone: tzinfo
    own_language: str | None
    own_zone: tzinfo


_NOTHING: Mapping[str, object] = {}


def surroundings() -> Surroundings:
    """Look at the settings, the active language and time zone, and the project's own."""
    return Surroundings(
        settings(),
        translation.get_language(),
        timezone.get_current_timezone(),
        project_language(),
        timezone.get_default_timezone(),
    )


def draft(name: str, options: Options, now: Surroundings, added: Mapping[str, object] = _NOTHING) -> Draft:
    """Fill in every option; `added` is what the setting META says.

    Raises ValueError for the queue and the expiry, and what encoding raises for meta.
    """
    conf, start = now.conf, options.start
    meta = {**_ambient(now), **added, **_or(options.meta, {})}
    expires = _or(options.expires, None)
    keep = _seconds(_or(options.keep, conf.keep_successful))
    unique_for = _seconds(_or(options.unique_for, None))
    if keep == 0 and unique_for is not None:
        # A row that went as it succeeds would free its key before the time.
        keep = unique_for
    if isinstance(start, datetime) and expires is not None:
        _check_end(start, expires)
    return Draft(
        name=name,
        queue=allowed_queue(_or(options.queue, conf.default_queue), conf.queues),
        priority=_or(options.priority, 0),
        max_attempts=_or(options.max_attempts, conf.max_attempts),
        max_crashes=_or(options.max_crashes, 3),
        restart=_or(options.restart, True),  # noqa: FBT003 - a default
        timeout=_seconds(_or(options.timeout, conf.timeout)),
        keep=keep,
        keep_failed=_seconds(_or(options.keep_failed, conf.keep_failed)),
        delay=start if isinstance(start, timedelta) else timedelta(0),
        run_at=start if isinstance(start, datetime) else None,
        expires=expires,
        meta=codec.encode(meta, path="meta", limit=conf.max_args_bytes) if meta else "{}",
        on_failure=_or(options.on_failure, ""),
        unique_for=unique_for,
        on_duplicate=_or(options.on_duplicate, "return"),
        after_commit=_or(options.after_commit, conf.after_commit) or "",
    )


def adding(name: str, options: Options, now: Surroundings) -> Adding | None:
    """Give what adds to each job what the setting META says of it, None where that is nothing."""
    if not now.conf.meta:
        return None
    return Adding(now.conf.meta, lambda added: draft(name, options, now, added))


def filled(
    draft: Draft, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int, keys: Keys | None = None
) -> NewJob:
    """Make a job with these arguments. Raises UnencodableValue and ArgumentsTooLarge; `limit` counts bytes."""
    encoded_args, encoded_kwargs = codec.encode_arguments(args, kwargs, limit=limit, reference=reference)
    if keys is None or not keys.are_wanted:
        return NewJob(draft, encoded_args, encoded_kwargs)
    return NewJob(draft, encoded_args, encoded_kwargs, *keys.of(args, kwargs))


def _check_end(start: datetime, expires: timedelta) -> None:
    try:
        start.astimezone(UTC) + expires
    except OverflowError:
        message = f"expires={expires}: at({start!r}) and that are after the year 9999"
        raise ValueError(message) from None


def allowed_queue(queue: str, queues: Mapping[str, int | None] | None) -> str:
    """Give the queue back. Raises ValueError where the settings name queues and this is none of them."""
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


def _ambient(now: Surroundings) -> dict[str, str]:
    """Name the language and time zone that are active now, where they aren't the project's own."""
    found: dict[str, str] = {}
    if now.language and now.language != now.own_language:
        found["language"] = now.language
    if now.zone is not now.own_zone:
        zone = timezone.get_current_timezone_name()
        if zone != timezone.get_default_timezone_name():
            found["time_zone"] = zone
    return found
