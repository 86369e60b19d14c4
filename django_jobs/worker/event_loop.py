"""Drive: the event loop beside a crew's threads, on which async bodies run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from threading import Condition, Thread
from typing import TypeAlias

from django_jobs import runner
from django_jobs.context import Report
from django_jobs.exceptions import Interruption
from django_jobs.outcomes import Ending, Outcome
from django_jobs.records import Claim
from django_jobs.worker.seat import Seat, TaskSeat

Begin: TypeAlias = Callable[[Claim, Seat], None]
End: TypeAlias = Callable[[Claim, Ending, type[Interruption] | None], None]
Mend: TypeAlias = Callable[[Claim, BaseException], None]


class EventLoop:
    """One event loop in a thread of its own, started with the first async job."""

    def __init__(self, *, report: Report = runner.unreported) -> None:
        self._report = report
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._starting = Condition()
        # What the loop hasn't begun yet, and whether it was told: it begins all there is at once.
        self._coming: deque[tuple[Claim, TaskSeat, End, Mend]] = deque()
        self._is_told = False
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, claim: Claim, begin: Begin, end: End, mend: Mend) -> None:
        """Run the job on the loop; `begin` is called here with its seat, `end` there with its outcome.

        What goes wrong there around the body is given to `mend`; what goes wrong here is raised.
        """
        loop = self._started()
        seat = TaskSeat(claim.lease, loop)
        begin(claim, seat)
        self._coming.append((claim, seat, end, mend))
        if not self._is_told:
            self._is_told = True
            loop.call_soon_threadsafe(self._begin_all)

    def stop(self) -> None:
        """Stop the loop."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=1.0)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._serve, args=(loop,), name="django_jobs event loop", daemon=True)
                # It may fail where threads are limited; then the next job tries again.
                self._thread.start()
                self._loop = loop
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        is_stopped = False
        while not is_stopped:
            # asyncio lets SystemExit and KeyboardInterrupt of a task through; its job has failed, and the others go on.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
                is_stopped = True
        loop.close()

    def _begin_all(self) -> None:
        assert self._loop is not None
        # Before the first is taken: what comes from now on may be missed here, and is told anew.
        self._is_told = False
        while self._coming:
            task = self._loop.create_task(self._run(*self._coming.popleft()), context=Context())
            # The loop itself holds tasks weakly.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, claim: Claim, seat: TaskSeat, end: End, mend: Mend) -> None:
        try:
            outcome = await self._outcome(claim, seat)
            end(claim, outcome, seat.leave())
        except BaseException as error:  # noqa: BLE001 - nobody waits for this task
            mend(claim, error)

    async def _outcome(self, claim: Claim, seat: TaskSeat) -> Outcome:
        # The body is a task of its own, so that an interruption ends it and not this.
        body: asyncio.Future[Outcome] = asyncio.ensure_future(runner.arun(claim, seat, report=self._report))
        seat.enter(body)
        try:
            return await body
        except BaseException as error:  # noqa: BLE001 - runner lets nothing through; were it to, the loop must live on
            return runner.broken(claim, error)
