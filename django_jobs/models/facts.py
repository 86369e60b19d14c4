"""Read: what is there to be known of a job and of what is around it, in a handful of bounded statements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections

from django_jobs import explaining, lifecycle, performers
from django_jobs.explaining import MOST_AHEAD, JobSeen, PauseSeen
from django_jobs.models.fields import DatabaseNow
from django_jobs.states import FINISHED, State

if TYPE_CHECKING:
    from django_jobs.models.job import Job


def explained(job_id: int, *, using: str) -> str:
    """Say of a job, as its row stands now, why it doesn't run or what it came to, a line for each thing."""
    seen = _seen(job_id, using=using)
    return explaining.gone(job_id) if seen is None else "\n".join(explaining.explain(seen))


def _seen(job_id: int, *, using: str) -> JobSeen | None:
    model: type[Job] = apps.get_model("django_jobs", "Job")
    job = model._base_manager.using(using).annotate(read_at=DatabaseNow()).filter(pk=job_id).first()
    if job is None:
        return None
    now: datetime = job.read_at
    is_ready = job.state == State.READY
    return JobSeen(
        now=now,
        id=job.pk,
        name=job.name,
        queue=job.queue,
        state=State(job.state),
        run_at=job.run_at,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        expires_at=job.expires_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        lease_expires_at=job.lease_expires_at,
        timeout=job.timeout,
        worker=job.worker,
        is_alone=job.alone,
        error=newest_error(job.errors),
        pause=_pause(job.queue, using=using) if is_ready else None,
        workers=() if job.state in FINISHED else tuple(lifecycle.workers(connections[using])),
        ahead=_ahead(job, using=using) if is_ready and job.run_at <= now else 0,
        is_known=performers.find_performer(job.name) is not None,
        key_holder=lifecycle.key_holder(job.pk, using=using) if job.state in (State.FAILED, State.CANCELLED) else None,
    )


def _ahead(job: Job, *, using: str) -> int:
    limit = MOST_AHEAD + 1
    where = {"queue": job.queue, "priority": job.priority, "run_at": job.run_at}
    return min(lifecycle.ahead(job.pk, **where, limit=limit, using=using), limit)


def _pause(queue: str, *, using: str) -> PauseSeen | None:
    rows = apps.get_model("django_jobs", "Queue")._base_manager.using(using)
    row = rows.filter(name=queue, paused_at__isnull=False).first()
    return None if row is None else PauseSeen(since=row.paused_at, by=row.paused_by, reason=row.reason)


def newest_error(errors: object) -> Mapping[str, Any]:
    """Give the newest entry of a job's errors; somebody may have written anything there."""
    newest = errors[-1] if isinstance(errors, list) and errors else {}
    return newest if isinstance(newest, Mapping) else {}
