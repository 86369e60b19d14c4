"""O74: a job is cancelled somewhere in its life, and then ends on its own: one of two, and never both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connections

from django_jobs import Retry, backoff, lifecycle
from django_jobs.exceptions import JobFinished
from django_jobs.models import Job
from django_jobs.stores import store_for
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.system.processes import until
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = 20

STEP = 0.3
"""Seconds that a life waits for a cancel, which may itself wait for the locks of that life."""


class Life:
    """Counts the points of a job's life in the worker's slot, and has somebody cancel the job at one of them.

    A point is before and after each statement of ours, and wherever a body says so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.job: Job | None = None

    def begin(self, job: Job, *, cancel_at: int) -> None:
        self.point, self.cancel_at = 0, cancel_at
        self._is_asked = False
        # An interruption within Thread.join makes Python take that thread for ended; so this tells it.
        self._is_answered = threading.Event()
        self.refusal: Exception | None = None
        self.job = job

    def step(self) -> None:
        if self.job is None or not threading.current_thread().name.startswith("django_jobs slot"):
            return
        self.point += 1
        if self.point == self.cancel_at:
            self.cancel()
            self._is_answered.wait(STEP)

    def cancel(self) -> None:
        """Cancel in a thread of its own, as somebody elsewhere does."""
        with self._lock:
            if not self._is_asked:
                self._is_asked = True
                threading.Thread(target=self._cancel).start()

    def end(self) -> bool:
        """Cancel now at the latest, and tell whether the cancel was the end of the job."""
        self.cancel()
        assert self._is_answered.wait(60)
        assert self.refusal is None or isinstance(self.refusal, JobFinished), self.refusal
        return self.refusal is None

    def _cancel(self) -> None:
        assert self.job is not None
        try:
            lifecycle.cancel_one(self.job.pk, reason="not wanted")
        except Exception as error:
            self.refusal = error
        finally:
            connections.close_all()
            self._is_answered.set()


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    life = Life()
    store = store_for("default")
    run = store.run

    def counted(*given: Any) -> Any:
        life.step()
        try:
            return run(*given)
        finally:
            life.step()

    monkeypatch.setattr(store, "run", counted)
    return life


@contextmanager
def working() -> Iterator[None]:
    """Work in this process, with one slot."""
    plan = Plan(alias="default", identity="here", queues={"default": None}, concurrency=1, poll=0.02)
    process = Process(plan)
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        yield
    finally:
        process.ask_to_stop()
        thread.join(60)
        assert not thread.is_alive()


def succeed(step: Callable[[], None]) -> None:
    step()
    step()


def fail(step: Callable[[], None]) -> None:
    step()
    raise ValueError("no")


def ask_again(step: Callable[[], None]) -> None:
    step()
    raise Retry("not yet")


def run_out_of_time(step: Callable[[], None]) -> None:
    step()
    while True:
        time.sleep(0.005)


ENDS = {succeed: "SUCCESSFUL", fail: "FAILED", ask_again: "FAILED", run_out_of_time: "FAILED"}


@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
@pytest.mark.parametrize("ends", ENDS, ids=lambda ends: ends.__name__)
def test_o74_whatever_comes_first_is_the_end_and_the_worker_lives(
    life: Life, ends: Callable[[Callable[[], None]], None], atomic: bool
) -> None:
    def body() -> None:
        bodies.append(life.point)
        ends(life.step)

    bodies: list[int] = []
    came_to: list[str] = []
    policy = {"max_attempts": 2, "backoff": backoff.fixed(0), "timeout": 0.2, "atomic": atomic}
    with declared(body, **policy) as performer, working():
        for point in range(1, POINTS + 1):
            job = performer.after(seconds=60).later()
            life.begin(job, cancel_at=point)
            # Due only now, so that its life begins with the point counted from 0.
            Job.objects.filter(pk=job.pk).update(run_at=job.enqueued_at)
            until(partial(is_over, job, life), what=f"the job ends that is cancelled at point {point}")
            was_cancelled = life.end()
            until(partial(is_free, job), what="nobody holds it")
            life.job = None
            other = jobs.note.later(point)
            until(partial(has_succeeded, other), what="the worker goes on")
            job.refresh_from_db()
            came_to.append(job.state)
            assert (job.state, job.worker) == ("CANCELLED" if was_cancelled else ENDS[ends], None)
            assert job.finished_at is not None
            assert job.attempts <= 2
    # Some were cancelled before the body, some in it or behind it.
    assert "CANCELLED" in came_to
    assert len(bodies) >= POINTS / 2


def is_over(job: Job, life: Life) -> bool:
    job.refresh_from_db()
    return job.state in ("SUCCESSFUL", "FAILED", "CANCELLED") or life.point > life.cancel_at + 50


def is_free(job: Job) -> bool:
    job.refresh_from_db()
    return job.worker is None


def has_succeeded(job: Job) -> bool:
    job.refresh_from_db()
    return job.state == "SUCCESSFUL"
