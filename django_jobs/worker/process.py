"""Drive: one process that works: builds the loops, starts them, drains them.

Supervised, it has a board that its supervisor made, and leaves renewing and chores to it. By itself it does all of
that, but can't stop a body that doesn't return, nor outlive one that kills its process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue

from django_jobs import clock, runner, signals
from django_jobs.conf import settings
from django_jobs.worker.beat import Member
from django_jobs.worker.board import Board
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.listener import listening
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.recycling import INTERVAL, Idleness, Limits, Recycling, memory_in_use, too_low
from django_jobs.worker.reporter import Reporter
from django_jobs.worker.seat import Seats
from django_jobs.worker.signs import NO_SIGNS, Signs
from django_jobs.worker.tally import Tally, summary
from django_jobs.worker.upkeep import Upkeep
from django_jobs.worker.watch import Watch

ALL_WRITTEN, CANNOT_WORK, NOT_ALL_WRITTEN, JOB_FAILED = 0, 1, 3, 4
"""Exit codes: every end is in the database; it can't go on like this; some bodies still ran, and are left to their
lease; a job failed for good while draining."""

LOOK_INTERVAL = 0.2
"""Seconds between two looks at the boards."""

LAST_MOMENT = 0.8
"""Seconds that interrupted bodies have to end, when the process must stop at once."""


class _Word(Enum):
    STOP = "stop"
    NOW = "now"
    OVER = "over"
    IDLE = "idle"
    SPENT = "spent"
    LEAVE = "leave"
    BROKEN = "broken"


class Process:
    """A worker in one process: a crew and a watch; without a supervisor, keeper and chores beside them."""

    def __init__(self, plan: Plan, *, board: Board | None = None, signs: Signs = NO_SIGNS) -> None:
        self._plan = plan
        self._is_supervised = board is not None
        self._words: SimpleQueue[_Word] = SimpleQueue()
        lease = settings().lease.total_seconds()
        board = board or Board.create(plan.board_capacity, lease=lease, shared=False)
        self._board = board
        self._tally = Tally(board)
        self._why_leave = ""
        limits = Limits.drawn(plan)
        self._recycling = Recycling(limits, now=clock.monotonic(), memory=memory_in_use())
        self._idleness = Idleness(plan.idle_timeout, now=clock.monotonic())
        seats = Seats()
        reporter = Reporter(link=Link(plan.alias), seats=seats)
        self._watch = Watch(board=board, seats=seats, lease=lease, ends_itself=self._is_supervised)
        self._crew = Crew(
            plan=plan,
            board=board,
            seats=seats,
            link=Link(plan.alias, patience=1 / 4),
            reporter=reporter,
            most=limits.jobs,
            may_claim=lambda: self._watch.may_claim,
            on_spent=lambda: self._words.put(_Word.SPENT),
            on_over=lambda: self._words.put(_Word.OVER),
            on_death=self._break,
        )
        self._loops = [
            self._loop("watch", self._watch.tick, on_end=self._watch.disarm),
            self._loop("reporter", reporter.tick, on_end=reporter.close),
        ]
        if self._recycling.is_needed:
            self._loops.append(self._loop("recycling", self._look_at_limits))
        if plan.idle_timeout is not None and not self._is_supervised:
            self._loops.append(self._loop("idleness", self._look_for_idleness))
        self._upkeep: Upkeep | None = None
        if not self._is_supervised:
            self._upkeep = self._kept_up(board, signs)
            keeper = Keeper(boards=lambda: [board], link=Link(plan.alias), leaves_stuck=True)
            chores = Chores(link=Link(plan.alias, patience=1 / 2), duties=duties())
            listeners = listening(
                plan.alias,
                queues=plan.queue_names,
                wake=self._upkeep.news,
                tell=self._upkeep.hear,
            )
            self._loops += [
                self._loop("keeper", keeper.tick, on_end=keeper.close),
                self._loop("chores", chores.tick, on_end=chores.close),
                *(self._loop("listener", listener.tick, on_end=listener.close) for listener in listeners),
                *self._upkeep.loops,
                self._loop("health", self._upkeep.health.look),
            ]

    def _loop(self, name: str, tick: Callable[[], float], *, on_end: Callable[[], None] = lambda: None) -> Loop:
        return Loop(name, tick, on_end=on_end, on_death=self._break, on_back=self.come_back)

    def _break(self) -> None:
        """Have the process end: one of its threads has, and without it jobs would wait or lose their leases."""
        self._words.put(_Word.BROKEN)

    def _kept_up(self, board: Board, signs: Signs) -> Upkeep:
        me = Member.this_process(self._plan, board)
        return Upkeep(
            self._plan,
            members=lambda: [me],
            wanted=1,
            wake=self.wake,
            loops=lambda: self._loops,
            make_loop=self._loop,
            signs=signs,
        )

    def ask_to_stop(self) -> None:
        """Claim nothing more and finish what runs; asked twice, stop now. Safe in a signal handler."""
        self._words.put(_Word.STOP)

    def stop_now(self) -> None:
        """Interrupt what runs, and end when it has. Safe in a signal handler."""
        self._words.put(_Word.NOW)

    def wake(self) -> None:
        """Look for jobs at once."""
        self._crew.wake()

    def come_back(self) -> None:
        """Have everything try at once what failed: the database can be used again."""
        for loop in self._loops:
            loop.poke()
        self._crew.come_back()

    @property
    def readiness(self) -> str:
        """Say in the word of `/ready` whether it takes jobs; only for one without a supervisor."""
        assert self._upkeep is not None
        return self._upkeep.health.answer("/ready") or ""

    def hold_back(self, count: int) -> None:
        """Leave so many slots free for those that a process before this one still uses."""
        self._crew.hold_back(count)

    def run(self) -> int:
        """Work until asked to stop, until nothing is due where the plan says drain, or until it is time to be replaced.

        Gives the exit code. Raises ImproperlyConfigured, before a job is claimed, for a MIDDLEWARE that can't be used.
        """
        plan = self._plan
        runner.prepare()
        began = clock.monotonic()
        signals.tell(
            signals.worker_started, None, identity=plan.identity, queues=plan.queues, concurrency=plan.concurrency
        )
        self._warn_of_memory()
        with self._tally.counting():
            for loop in self._loops:
                loop.start()
            self._crew.start()
            if self._upkeep is not None:
                self._upkeep.begin()
            code = self._end(self._next_word())
        _tell(self._tally.released)
        signals.tell(signals.worker_stopped, None, identity=plan.identity, written=code != NOT_ALL_WRITTEN)
        if not self._is_supervised:
            _tell(summary(self._board.counts, seconds=clock.monotonic() - began))
            if code == ALL_WRITTEN and plan.drain and plan.fail_on_error and self._board.counts.failed:
                return JOB_FAILED
        return code

    def _next_word(self) -> _Word:
        """Wait for a word that ends the process, and see to those that only announce the end."""
        while True:
            match word := self._words.get():
                case _Word.SPENT:
                    self._leave(f"it has taken {self._board.taken:,} jobs")
                case _Word.LEAVE:
                    self._crew.close()
                    self._leave(self._why_leave)
                case _Word.IDLE:
                    _tell(f"nothing to do for {self._plan.idle_timeout:g} s: stopping")
                    return _Word.STOP
                case _:
                    return word

    def _leave(self, because: str) -> None:
        """Claim nothing more; what runs goes on for as long as it takes."""
        self._board.note_leaving()
        then = "is replaced" if self._is_supervised else "ends"
        _tell(f"worker {self._plan.identity} claims nothing more and {then}: {because}")

    def _end(self, word: _Word) -> int:
        match word:
            case _Word.OVER:
                is_over = True
            case _Word.STOP:
                is_over = self._finish() or self._end_at_once()
            case _:
                is_over = self._end_at_once()
        self._end_loops(join=1.0 if is_over else 0.1)
        if not is_over:
            return NOT_ALL_WRITTEN
        return CANNOT_WORK if word is _Word.BROKEN else ALL_WRITTEN

    # -- limits

    def _warn_of_memory(self) -> None:
        if self._recycling.is_memory_too_low:
            needed = memory_in_use()
            self._board.note_needed(needed)
            if not self._is_supervised:
                _tell(too_low(self._plan, needed), level=logging.WARNING)

    def _look_at_limits(self) -> float:
        because = self._recycling.due(now=clock.monotonic(), memory=memory_in_use())
        if because is not None and not self._board.is_leaving:
            self._why_leave = because
            self._words.put(_Word.LEAVE)
            return 60.0
        return INTERVAL

    def _look_for_idleness(self) -> float:
        if self._idleness.is_over([self._board], now=clock.monotonic()):
            self._words.put(_Word.IDLE)
            return 60.0
        return LOOK_INTERVAL

    # -- the end

    def _finish(self) -> bool:
        """Give running jobs their grace, or until asked again, and tell whether all came to an end."""
        self._crew.close()
        self._board.note_leaving()
        if self._upkeep is not None:
            self._upkeep.health.stop()
        if running := self._crew.running:
            _tell(f"finishing {running} running jobs, up to {self._plan.grace:g} s; asked again, stopping now")
        give_up = clock.monotonic() + self._plan.grace
        while (left := give_up - clock.monotonic()) > 0:
            try:
                word = self._words.get(timeout=left)
            except Empty:
                break
            # A signal may reach a worker beside its supervisor, which alone says when it is enough.
            if word in (_Word.OVER, _Word.NOW, _Word.BROKEN) or (word is _Word.STOP and not self._is_supervised):
                return word is _Word.OVER
        return False

    def _end_at_once(self) -> bool:
        """Interrupt all bodies, and tell whether they ended and were written."""
        self._crew.close()
        self._watch.lose_everything()
        self._loops[0].poke()
        return self._crew.wait(timeout=LAST_MOMENT)

    def _end_loops(self, *, join: float) -> None:
        if self._upkeep is not None:
            self._upkeep.end()
        # Leases are renewed until the last end is written.
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(timeout=join)
        if join >= 1.0:
            self._crew.stop()


def _tell(message: str, *, level: int = logging.INFO) -> None:
    if message:
        signals.tell(signals.odd, None, message=message, exception=None, level=level)
