"""Decide: whether workers and queues are well, from what was seen of them. Asks nobody, and starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from django_jobs.durations import words
from django_jobs.records import WorkerSeen


class Trouble(Enum):
    """What may be wrong with a worker."""

    SILENT = "silent"
    """It shows no sign of life."""
    CLAIMLESS = "claimless"
    """It lives and has room for jobs, but no claim of it gets an answer."""
    STUCK = "stuck"
    """A body in it doesn't stop, and keeps its slot."""


def trouble_of(*, beat_age: float, claim_age: float, beat_bound: float, claim_bound: float) -> Trouble | None:
    """Judge a worker by the seconds since its last beat, and since a claim of it got an answer or it had no room."""
    if beat_age > beat_bound:
        return Trouble.SILENT
    return Trouble.CLAIMLESS if claim_age > claim_bound else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    """A queue that has jobs due: for how long the oldest of them has been, in seconds."""

    name: str
    oldest: float
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is still well. A worker whose poll interval is longer than `claim_bound` needs a longer one."""

    beat_bound: timedelta = timedelta(minutes=1)
    claim_bound: timedelta = timedelta(minutes=1)
    min_workers: int = 1
    max_wait: timedelta | None = timedelta(minutes=5)
    max_failed: int | None = None


def problems(
    workers: Sequence[WorkerSeen], queues: Iterable[QueueSeen] = (), *, failed: int = 0, limits: Limits = Limits()
) -> list[str]:
    """Say what is wrong, a line for each problem; nothing where all is well. `failed` jobs are those of a while."""
    troubles = {worker.identity: _trouble(worker, limits) for worker in workers}
    alive = [worker for worker in workers if troubles[worker.identity] is not Trouble.SILENT]
    found = []
    if len(alive) < limits.min_workers:
        alive_are = {0: "no worker is", 1: "1 worker is"}.get(len(alive), f"{len(alive)} workers are")
        found.append(f"{alive_are} alive, and {limits.min_workers} should be: python manage.py runjobs")
    for worker in workers:
        found += _worker_problems(worker, troubles[worker.identity])
    for queue in queues:
        found += _queue_problems(queue, alive, limits)
    if limits.max_failed is not None and failed > limits.max_failed:
        found.append(f"{failed} jobs failed for good, more than {limits.max_failed}")
    return found


def _trouble(worker: WorkerSeen, limits: Limits) -> Trouble | None:
    # Both are as of its last beat: what came after is for the next one to say.
    claimless = worker.age if worker.claim_age is None else worker.claim_age
    return trouble_of(
        beat_age=worker.beat_age,
        claim_age=claimless - worker.beat_age,
        beat_bound=limits.beat_bound.total_seconds(),
        claim_bound=limits.claim_bound.total_seconds(),
    )


def _worker_problems(worker: WorkerSeen, trouble: Trouble | None) -> list[str]:
    if trouble is Trouble.CLAIMLESS:
        age = worker.age if worker.claim_age is None else worker.claim_age
        return [f"worker {worker.identity} beats but claims nothing, for {words(age)}"]
    # One that is gone and holds nothing is no problem: others do its work.
    if trouble is Trouble.SILENT and worker.in_hand:
        return [f"worker {worker.identity} hasn't beaten for {words(worker.beat_age)} and holds {worker.in_hand} jobs"]
    return []


def _queue_problems(queue: QueueSeen, alive: Sequence[WorkerSeen], limits: Limits) -> list[str]:
    if queue.is_paused:
        return []
    if not any(not worker.queues or queue.name in worker.queues for worker in alive):
        return [f"queue {queue.name} has jobs due, and no live worker serves it: runjobs -q {queue.name}"]
    if limits.max_wait is not None and queue.oldest > limits.max_wait.total_seconds():
        longest = words(limits.max_wait.total_seconds())
        return [f"a job in queue {queue.name} has waited for {words(queue.oldest)}, longer than {longest}"]
    return []
