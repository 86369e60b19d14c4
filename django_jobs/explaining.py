"""Decide: in plain words, why a job stands where it does. Asks nobody: it is told what was seen, at one moment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_never

from django_jobs.durations import words
from django_jobs.records import WorkerSeen
from django_jobs.states import State
from django_jobs.wording import one_line

BEAT_BOUND = 30.0
"""Seconds since its last beat after which a worker no longer counts: three beats."""

MOST_AHEAD = 1_000
"""So many jobs that are before another are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSeen:
    """Since when a queue is paused, by whom and why; both are '' where nobody said."""

    since: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A job's row and what is around it, as they were `now`. Instants are aware.

    `ahead` counts the due jobs that its queue gives out before it, MOST_AHEAD + 1 for more than that; `is_known` says
    whether this process has a performer of its name; `key_holder` is another job that holds its key.
    """

    now: datetime
    id: int
    name: str
    queue: str
    state: State
    run_at: datetime
    attempts: int
    max_attempts: int
    expires_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    lease_expires_at: datetime | None = None
    timeout: float | None = None
    worker: str | None = None
    is_alone: bool = False
    error: Mapping[str, Any] = field(default_factory=dict)
    pause: PauseSeen | None = None
    workers: Sequence[WorkerSeen] = ()
    ahead: int = 0
    is_known: bool = True
    key_holder: int | None = None

    @property
    def is_pushed(self) -> bool:
        """Whether it is a row of the low level, for which no worker looks."""
        return not self.name


def explain(job: JobSeen) -> list[str]:
    """Say why a job doesn't run, or what it came to: a sentence for each thing, what decides first."""
    match job.state:
        case State.READY:
            return list(_of_waiting(job))
        case State.RUNNING:
            return list(_of_running(job))
        case State.SUCCESSFUL:
            return [f"It has succeeded, {_ago(job, job.finished_at)}, in attempt {job.attempts}."]
        case State.FAILED:
            return [*_of_failed(job), *_of_key(job)]
        case State.CANCELLED:
            return [_of_cancelled(job), *_of_key(job)]
        case _:
            assert_never(job.state)


def gone(job_id: int) -> str:
    """Say of a job without a row what is known of it."""
    return f"Job {job_id} is no longer here: it was deleted, or its keeping was over."


# -- a job that waits


def _of_waiting(job: JobSeen) -> Iterator[str]:
    if job.run_at > job.now:
        yield _of_time(job)
    elif job.expires_at is not None and job.expires_at <= job.now:
        yield f"It expired {_ago(job, job.expires_at)}, before it could start; the next look at its queue cancels it."
        return
    hindrances = [*_of_pause(job), *_of_workers(job)]
    yield from hindrances
    if not job.is_pushed and not job.is_known:
        yield (
            f"No performer is named {job.name} in this process. A worker that knows none either fails the attempt, and "
            'tries again for an hour at least; with UNKNOWN_JOBS = "leave" it leaves the job alone.'
        )
    if job.run_at <= job.now and not hindrances:
        yield _of_line(job)


def _of_time(job: JobSeen) -> str:
    due = f"in {words((job.run_at - job.now).total_seconds())}, at {_instant(job.run_at)}"
    if not job.attempts:
        return f"It is not due: it may start {due}."
    why = f" The last one ended with: {reason}." if (reason := _reason(job)) else ""
    return f"It waits for another attempt after {job.attempts} of {job.max_attempts}, {due}.{why}"


def _of_pause(job: JobSeen) -> Iterator[str]:
    if job.pause is not None:
        by = f" by {one_line(job.pause.by)}" if job.pause.by else ""
        why = f": {one_line(job.pause.reason)}" if job.pause.reason else ""
        since = words((job.now - job.pause.since).total_seconds())
        yield f'Queue {job.queue} has been paused for {since}{by}{why}. It goes on with queues["{job.queue}"].resume().'


def _of_workers(job: JobSeen) -> Iterator[str]:
    if job.is_pushed:
        return
    alive = _alive(job)
    if not alive:
        yield "No worker is alive. Start one: python manage.py runjobs"
    elif not _serving(job):
        served = sorted({queue for worker in alive for queue in worker.queues})
        near = difflib.get_close_matches(job.queue, served, n=1)
        hint = f" Was queue {near[0]} meant?" if near else ""
        yield (
            f"No live worker serves queue {job.queue}; those that are alive serve {', '.join(served)}.{hint} "
            f"Start one: python manage.py runjobs -q {job.queue}"
        )


def _of_line(job: JobSeen) -> str:
    since = f"It has been due for {words((job.now - job.run_at).total_seconds())}"
    if job.is_pushed:
        return f"{since}, and waits for a consumer: take({job.queue!r}) gives it out when its turn has come."
    serving = _serving(job)
    slots, busy = sum(worker.slots for worker in serving), sum(worker.in_hand for worker in serving)
    in_hand = "1 job" if busy == 1 else f"{busy} jobs"
    served = f"the workers that serve queue {job.queue} have {in_hand} in hand and {slots} slots"
    if job.is_alone:
        return (
            f"{since}. It is suspected of having killed its process, so it runs by itself: it waits for a worker with "
            f"nothing else in hand; {served}."
        )
    if job.ahead or busy >= slots:
        return f"{since}. Before it come {_jobs(job.ahead)} of its queue, and {served}."
    return f"{since}. Nothing is in its way: {served}, and one of them claims it as soon as it looks."


def _jobs(count: int) -> str:
    if count > MOST_AHEAD:
        return f"more than {MOST_AHEAD:,} due jobs"
    return {0: "no due jobs", 1: "1 due job"}.get(count, f"{count:,} due jobs")


def _alive(job: JobSeen) -> list[WorkerSeen]:
    return [worker for worker in job.workers if worker.beat_age <= BEAT_BOUND]


def _serving(job: JobSeen) -> list[WorkerSeen]:
    return [worker for worker in _alive(job) if not worker.queues or job.queue in worker.queues]


# -- a job that somebody holds


def _of_running(job: JobSeen) -> Iterator[str]:
    since = _ago(job, job.started_at)
    if job.is_pushed:
        yield f"A consumer took it {since}, in attempt {job.attempts}."
    else:
        yield f"It is running: attempt {job.attempts} of {job.max_attempts} began {since} on worker {job.worker}."
    if job.timeout is not None and job.started_at is not None:
        left = job.timeout - (job.now - job.started_at).total_seconds()
        if left > 0:
            yield f"Its time limit of {words(job.timeout)} ends it in {words(left)}."
        else:
            yield f"Its time limit of {words(job.timeout)} was over {words(-left)} ago."
    yield _of_lease(job)


def _of_lease(job: JobSeen) -> str:
    if job.lease_expires_at is None:
        return "Nobody's lease holds it."
    left = (job.lease_expires_at - job.now).total_seconds()
    if left > 0:
        return f"It is leased until {_instant(job.lease_expires_at)}, for {words(left)} more."
    if job.is_pushed:
        return f"Its lease ran out {words(-left)} ago, so the next take({job.queue!r}) brings it back."
    over = f"Its lease ran out {words(-left)} ago, so the next look of any worker's command takes it back."
    return over if _alive(job) else f"{over} No worker is alive. Start one: python manage.py runjobs"


# -- a job that has ended


def _of_failed(job: JobSeen) -> Iterator[str]:
    if job.is_pushed:
        yield f"It died {_ago(job, job.finished_at)}, after {job.attempts} attempts{_because(job)}."
    else:
        after = f"after attempt {job.attempts} of {job.max_attempts}"
        yield f"It failed for good {_ago(job, job.finished_at)}, {after}{_because(job)}."
    yield "It runs again with retry()."


def _of_cancelled(job: JobSeen) -> str:
    what = f"It was cancelled {_ago(job, job.finished_at)}{_because(job)}."
    if job.worker is None:
        return what
    if job.is_pushed:
        return f"{what} A consumer may still be at it, and hears of that from its next word. {_of_lease(job)}"
    return f"{what} Its body may still be running on worker {job.worker}, and is being stopped. {_of_lease(job)}"


def _of_key(job: JobSeen) -> Iterator[str]:
    if job.key_holder is not None:
        yield f"Job {job.key_holder} holds its key now, so it can't be retried beside that one."


# -- words


def _because(job: JobSeen) -> str:
    return f": {reason}" if (reason := _reason(job)) else ""


def _reason(job: JobSeen) -> str:
    """Give the newest reason in one line, with the name of its exception."""
    kind = str(job.error.get("exception", "")).rpartition(".")[2]
    reason = one_line(job.error.get("reason", ""))
    return ": ".join(filter(None, (kind, reason)))


def _ago(job: JobSeen, instant: datetime | None) -> str:
    return "at an unknown time" if instant is None else f"{words((job.now - instant).total_seconds())} ago"


def _instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
