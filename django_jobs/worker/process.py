"""Drive: one process that works: builds the loops, starts them, drains them."""

from __future__ import annotations

import logging
from enum import Enum
from queue import Empty, SimpleQueue

from django_jobs import clock, signals
from django_jobs.worker.board import Board
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan

ALL_WRITTEN, NOT_ALL_WRITTEN = 0, 3
"""Exit codes: every end is in the database; some bodies still ran, and are left to their lease."""


class _Word(Enum):
    STOP = "stop"
    OVER = "over"


class Process:
    """A worker in one process: crew, keeper and chores, each with a connection of its own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._words: SimpleQueue[_Word] = SimpleQueue()
        board = Board()
        self._crew = Crew(plan=plan, board=board, link=Link(plan.alias), on_over=lambda: self._words.put(_Word.OVER))
        self._keeper = Keeper(board=board, link=Link(plan.alias))
        self._chores = Chores(link=Link(plan.alias), duties=duties())
        self._loops = (
            Loop("keeper", self._keeper.tick, on_end=self._keeper.close),
            Loop("chores", self._chores.tick, on_end=self._chores.close),
        )

    def ask_to_stop(self) -> None:
        """Claim nothing more and finish what runs; asked twice, stop now. Safe in a signal handler."""
        self._words.put(_Word.STOP)

    def run(self) -> int:
        """Work until asked to stop, or until nothing is due where the plan says drain, and give the exit code."""
        plan = self._plan
        signals.worker_started.send_robust(
            None, identity=plan.identity, queues=plan.queues, concurrency=plan.concurrency
        )
        for loop in self._loops:
            loop.start()
        self._crew.start()
        is_over = self._words.get() is _Word.OVER or self._finish()
        self._end_loops(join=1.0 if is_over else 0.1)
        signals.worker_stopped.send_robust(None, identity=plan.identity, written=is_over)
        return ALL_WRITTEN if is_over else NOT_ALL_WRITTEN

    def _finish(self) -> bool:
        """Give running jobs their grace, or until asked again, and tell whether all came to an end."""
        self._crew.close()
        if running := self._crew.running:
            message = f"finishing {running} running jobs, up to {self._plan.grace:g} s; asked again, stopping now"
            signals.odd.send_robust(None, message=message, exception=None, level=logging.INFO)
        give_up = clock.monotonic() + self._plan.grace
        while (left := give_up - clock.monotonic()) > 0:
            try:
                word = self._words.get(timeout=left)
            except Empty:
                break
            if word is _Word.OVER:
                return True
            give_up = min(give_up, clock.monotonic())
        # A moment for what has ended but isn't written yet.
        return self._crew.wait(timeout=0.5)

    def _end_loops(self, *, join: float) -> None:
        # Leases are renewed until the last end is written.
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(timeout=join)
        if join >= 1.0:
            self._crew.stop()
