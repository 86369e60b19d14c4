"""Drive: one process that works: builds the loops, starts them, drains them.

Supervised, it has a board that its supervisor made, and leaves renewing and chores to it. By itself it does all of
that, but can't stop a body that doesn't return, nor outlive one that kills its process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue

from django_jobs import clock, signals
from django_jobs.conf import settings
from django_jobs.worker.board import Board
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.listener import Listener
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.seat import Seats
from django_jobs.worker.watch import Watch

ALL_WRITTEN, CANNOT_WORK, NOT_ALL_WRITTEN = 0, 1, 3
"""Exit codes: every end is in the database; it can't go on like this; some bodies still ran, and are left to their
lease."""

LAST_MOMENT = 0.8
"""Seconds that interrupted bodies have to end, when the process must stop at once."""


class _Word(Enum):
    STOP = "stop"
    NOW = "now"
    OVER = "over"
    BROKEN = "broken"


class Process:
    """A worker in one process: a crew and a watch; without a supervisor, keeper and chores beside them."""

    def __init__(self, plan: Plan, *, board: Board | None = None) -> None:
        self._plan = plan
        self._is_supervised = board is not None
        self._words: SimpleQueue[_Word] = SimpleQueue()
        lease = settings().lease.total_seconds()
        board = board or Board.create(plan.board_capacity, lease=lease, shared=False)
        seats = Seats()
        self._watch = Watch(board=board, seats=seats, lease=lease, ends_itself=self._is_supervised)
        self._crew = Crew(
            plan=plan,
            board=board,
            seats=seats,
            link=Link(plan.alias),
            may_claim=lambda: self._watch.may_claim,
            on_over=lambda: self._words.put(_Word.OVER),
            on_death=self._break,
        )
        self._loops = [self._loop("watch", self._watch.tick, on_end=self._watch.disarm)]
        if not self._is_supervised:
            keeper = Keeper(boards=lambda: [board], link=Link(plan.alias))
            chores = Chores(link=Link(plan.alias), duties=duties())
            listener = Listener(
                link=Link(plan.alias),
                speaker=Link(plan.alias),
                queues=plan.queue_names,
                wake=self.wake,
                tell=lambda is_hearing: self.hear(is_hearing=is_hearing),
            )
            self._loops += [
                self._loop("keeper", keeper.tick, on_end=keeper.close),
                self._loop("chores", chores.tick, on_end=chores.close),
                self._loop("listener", listener.tick, on_end=listener.close),
            ]

    def _loop(self, name: str, tick: Callable[[], float], *, on_end: Callable[[], None]) -> Loop:
        return Loop(name, tick, on_end=on_end, on_death=self._break)

    def _break(self) -> None:
        """Have the process end: one of its threads has, and without it jobs would wait or lose their leases."""
        self._words.put(_Word.BROKEN)

    def ask_to_stop(self) -> None:
        """Claim nothing more and finish what runs; asked twice, stop now. Safe in a signal handler."""
        self._words.put(_Word.STOP)

    def stop_now(self) -> None:
        """Interrupt what runs, and end when it has. Safe in a signal handler."""
        self._words.put(_Word.NOW)

    def wake(self) -> None:
        """Look for jobs at once."""
        self._crew.wake()

    def hear(self, *, is_hearing: bool) -> None:
        """Rely on being woken, or not."""
        self._crew.hear(is_hearing=is_hearing)

    def run(self) -> int:
        """Work until asked to stop, or until nothing is due where the plan says drain, and give the exit code."""
        plan = self._plan
        signals.tell(
            signals.worker_started, None, identity=plan.identity, queues=plan.queues, concurrency=plan.concurrency
        )
        for loop in self._loops:
            loop.start()
        self._crew.start()
        code = ALL_WRITTEN
        match self._words.get():
            case _Word.OVER:
                is_over = True
            case _Word.STOP:
                is_over = self._finish() or self._end_at_once()
            case _Word.NOW:
                is_over = self._end_at_once()
            case _Word.BROKEN:
                is_over = self._end_at_once()
                code = CANNOT_WORK
        self._end_loops(join=1.0 if is_over else 0.1)
        signals.tell(signals.worker_stopped, None, identity=plan.identity, written=is_over)
        return code if is_over else NOT_ALL_WRITTEN

    def _finish(self) -> bool:
        """Give running jobs their grace, or until asked again, and tell whether all came to an end."""
        self._crew.close()
        if running := self._crew.running:
            message = f"finishing {running} running jobs, up to {self._plan.grace:g} s; asked again, stopping now"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.INFO)
        give_up = clock.monotonic() + self._plan.grace
        while (left := give_up - clock.monotonic()) > 0:
            try:
                word = self._words.get(timeout=left)
            except Empty:
                break
            # A signal may reach a worker beside its supervisor, which alone says when it is enough.
            if not (word is _Word.STOP and self._is_supervised):
                return word is _Word.OVER
        return False

    def _end_at_once(self) -> bool:
        """Interrupt all bodies, and tell whether they ended and were written."""
        self._crew.close()
        self._watch.lose_everything()
        self._loops[0].poke()
        return self._crew.wait(timeout=LAST_MOMENT)

    def _end_loops(self, *, join: float) -> None:
        # Leases are renewed until the last end is written.
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(timeout=join)
        if join >= 1.0:
            self._crew.stop()
