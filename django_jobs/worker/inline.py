"""Drive: jobs that run at once in the caller that queues them, by the way that every job goes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from django.apps import apps

from django_jobs.conf import settings
from django_jobs.exceptions import Retry, RunFailed
from django_jobs.outcomes import Failed, GaveUp, Retried, Succeeded
from django_jobs.worker.turn import Turn, work_claim

if TYPE_CHECKING:
    from django_jobs.models import Job


def run_at_once(ids: Sequence[int]) -> list[Job]:
    """Give each of these jobs one attempt, due or not, and give them as they stand then.

    When all had theirs, it raises what the first of them raised that failed.
    """
    error: BaseException | None = None
    jobs: list[Job] = []
    for job_id in ids:
        turn = work_claim(job_id=job_id)
        jobs.append(_taken(job_id) if turn is None else job_after(turn))
        error = error or (None if turn is None else error_of(turn))
    if error is not None:
        raise error
    return jobs


def job_after(turn: Turn) -> Job:
    """Give the job as its row stands now; one that isn't kept is gone, and comes back as it would have stood."""
    model: type[Job] = apps.get_model("django_jobs", "Job")
    try:
        return _read(turn.claim.id)
    except model.DoesNotExist:
        return model.of_claim(turn.claim, turn.outcome.result if isinstance(turn.outcome, Succeeded) else None)


def _taken(job_id: int) -> Job:
    """Give a job that a worker took first; once that one is through, the row may be gone."""
    model: type[Job] = apps.get_model("django_jobs", "Job")
    return model.objects.using(settings().database).filter(pk=job_id).first() or model(pk=job_id)


def _read(job_id: int) -> Job:
    model: type[Job] = apps.get_model("django_jobs", "Job")
    return model.objects.using(settings().database).get(pk=job_id)


def error_of(turn: Turn, *, retries: bool = False) -> BaseException | None:
    """Give the exception of a turn that failed: the body's own where it raised one.

    A body that asks for another attempt by Retry has failed only where there is none; with `retries` that holds for any
    exception.
    """
    match turn.outcome:
        case Failed(failure=failure) | GaveUp(failure=failure):
            pass
        case Retried(failure=failure) if not retries and not isinstance(turn.error, Retry):
            pass
        case _:
            return None
    if turn.error is None:
        return RunFailed(f"{turn.claim.name} #{turn.claim.id}: {failure.reason}")
    return turn.error.with_traceback(own_traceback(turn.error))


def own_traceback(error: BaseException) -> TracebackType | None:
    """Give where the body was when it raised, without the way to it."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _WAY:
        found = found.tb_next
    return found or error.__traceback__


_WAY = frozenset({"django_jobs", "asgiref"})
