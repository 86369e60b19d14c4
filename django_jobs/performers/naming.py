"""Declare: jobs by a stored name alone, for performers that live elsewhere or aren't at hand."""

from __future__ import annotations

from typing import Any

from django_jobs.performers.keys import Keys
from django_jobs.performers.options import UNSET, JobOptions, Options, Unset, check_name, check_options
from django_jobs.performers.queueing import adding, draft, filled, surroundings
from django_jobs.performers.registry import find_performer
from django_jobs.records import NewJob


def named(
    name: str, /, *args: Any, queue: str | Unset = UNSET, options: JobOptions | None = None, **kwargs: Any
) -> NewJob:
    """Prepare a job by its stored name, for a performer that lives elsewhere; `options` are those of `using()`.

    Raises as `prepare` does, but for a wrong call: nobody knows the signature here.
    """
    said = {} if queue is UNSET else {"queue": queue}
    checked = check_options({**(options or {}), **said}, Options(), call="named()")
    now, stored = surroundings(), check_name("name", name)
    performer = find_performer(stored)
    keys = Keys(performer.name if performer else stored, checked, performer.signature if performer else None)
    job = filled(draft(stored, checked, now), args, kwargs, limit=now.conf.max_args_bytes, keys=keys)
    more = adding(stored, checked, now)
    return job if more is None else more.to(job)


def follow_up(name: str, job_id: int) -> NewJob:
    """Prepare a job that hears of the failure of another, with its performer's policy where that is known here.

    The functions of META aren't asked: a supervisor may write a failure, and where a worker does, the body is over.
    """
    performer = find_performer(name)
    if performer is not None:
        return performer.prepare_unasked(job_id)
    now = surroundings()
    return filled(draft(check_name("name", name), Options(), now), (job_id,), {}, limit=now.conf.max_args_bytes)
