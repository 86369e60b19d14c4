"""Read: wait for the end of a job, by looking at its row. Nobody is told of a wait, and none holds a lock.

A look is one statement on the caller's connection. They begin at 20 ms and come to a second, so a short job is waited
for hardly longer than it takes, and a long one costs a statement a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import connections

from django_jobs import clock, codec, durations, performers
from django_jobs.exceptions import WaitCancelled, WaitFailed, WaitGone
from django_jobs.models.facts import newest_error
from django_jobs.states import FINISHED, State

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.durations import Duration
    from django_jobs.models.job import Job

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
"""Seconds between the first two looks, and between two after a while."""

GROWTH = 1.5
"""Each pause is so many times as long as the one before."""


def wait_result(job: Job, timeout: Duration | None, *, using: str) -> Any:
    """Look at the row again and again, and give the result once the job has succeeded."""
    performers.refuse_in_event_loop("wait_result", "job.await_result")
    wait = _Wait(job, timeout, using=using)
    while not wait.is_over():
        time.sleep(wait.pause())
    return wait.result()


async def await_result(job: Job, timeout: Duration | None, *, using: str) -> Any:
    """Do as `wait_result`, from async code; between two looks the loop is free."""
    wait = await sync_to_async(_Wait)(job, timeout, using=using)
    while not await sync_to_async(wait.is_over)():
        await asyncio.sleep(wait.pause())
    return await sync_to_async(wait.result)()


class _Wait:
    """What one wait knows: what it looks at, and until when."""

    def __init__(self, job: Job, timeout: Duration | None, *, using: str) -> None:
        self._timeout = None if timeout is None else durations.parse(timeout, what="timeout").total_seconds()
        if job._state.adding:
            message = "wait_result(): this job isn't queued yet; it has an id after the commit of the transaction"
            raise RuntimeError(message)
        self._job = job
        self._using = using
        self._refuse_transaction(connections[using])
        self._began = clock.monotonic()
        self._pause = FIRST_PAUSE

    def is_over(self) -> bool:
        """Look at the row, and tell whether the job has come to its end; then the instance is as its row.

        Raises WaitGone; TimeoutError where the time is over; and RuntimeError where the end can't come.
        """
        rows = type(self._job)._base_manager.using(self._using).filter(pk=self._job.pk)
        state = rows.values_list("state", flat=True).first()
        if state in FINISHED:
            state = self._refreshed()
        if state is None:
            raise WaitGone(
                f"job {self._job.pk} is no longer here: it was deleted, or its keeping was over (with keep=0 a job and "
                "its result go as it succeeds)",
                job_id=self._job.pk,
            )
        if state in FINISHED:
            return True
        self._refuse_to_go_on(state)
        return False

    def _refreshed(self) -> str | None:
        """Read the whole row; somebody may have deleted or retried the job since the look."""
        try:
            self._job.refresh_from_db(using=self._using)
        except ObjectDoesNotExist:
            return None
        return self._job.state

    def _refuse_to_go_on(self, state: str) -> None:
        if self._timeout is None:
            # Any other transaction was refused at the beginning.
            if connections[self._using].in_atomic_block:
                message = (
                    f"wait_result(): job {self._job.pk} is in the transaction of this test, where no worker sees it, "
                    "so its end won't come; call run_jobs() first, or give a timeout"
                )
                raise RuntimeError(message)
        elif clock.monotonic() >= self._began + self._timeout:
            message = f"job {self._job.pk} has not come to its end within {self._timeout:g} s; it is {state} still"
            raise TimeoutError(message)

    def pause(self) -> float:
        """Give the seconds until the next look; the last one is when the time is over."""
        pause, self._pause = self._pause, min(self._pause * GROWTH, LONGEST_PAUSE)
        if self._timeout is None:
            return pause
        return max(0.0, min(pause, self._began + self._timeout - clock.monotonic()))

    def result(self) -> Any:
        """Give what the job returned, if it has succeeded. Raises WaitFailed or WaitCancelled, and as `decode` does."""
        job = self._job
        if job.state == State.FAILED:
            raise WaitFailed(job.pk, newest_error(job.errors))
        if job.state == State.CANCELLED:
            raise WaitCancelled(job.pk, newest_error(job.errors))
        if job.result is None:
            return None
        return codec.decode(json.dumps(job.result), path="result", resolve=performers.resolve)

    def _refuse_transaction(self, connection: BaseDatabaseWrapper) -> None:
        """Refuse to wait where the job isn't seen, or its end isn't; the transaction of a test is the test's affair."""
        is_manual = not (connection.in_atomic_block or connection.get_autocommit())
        if is_manual or not all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
            message = (
                f"wait_result(): job {self._job.pk} can't be waited for in a transaction: what is queued in it runs "
                "after its commit, and its locks may keep workers waiting; wait after the atomic() block"
            )
            raise RuntimeError(message)
