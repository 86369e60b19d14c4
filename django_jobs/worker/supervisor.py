"""Drive: the parent of worker processes: starts, watches, replaces and stops them. No user code runs in it.

One thread turns `tick`; beside it turn the loops that need the database: keeper, chores, undertaker, listener.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from django_jobs import clock, signals
from django_jobs.conf import settings
from django_jobs.worker.beat import Member
from django_jobs.worker.board import Board, Counts
from django_jobs.worker.child import Child, wake
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.handover import HEARD, Estate, exec_again, hear_again, hear_later, hear_once_more
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.listener import listening
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import ALL_WRITTEN, CANNOT_WORK, JOB_FAILED, LOOK_INTERVAL, NOT_ALL_WRITTEN
from django_jobs.worker.recycling import Idleness, too_low
from django_jobs.worker.reloading import Reloading, look
from django_jobs.worker.signs import NO_SIGNS, Signs
from django_jobs.worker.succession import LAST_WORD, Succession
from django_jobs.worker.tally import summary
from django_jobs.worker.undertaker import Death, Undertaker, describe
from django_jobs.worker.upkeep import Upkeep

QUICK_DEATH = 5.0
"""A worker that dies sooner than this many seconds after its start, without a claim, died at once."""

MOST_QUICK_DEATHS = 5
LONGEST_PAUSE = 30.0

EXEC_BOUND = 1.5
"""Seconds that each loop has to end before this program starts anew."""

WRITE_BOUND = 5.0
"""Seconds that the last ends may take to be written."""


class Supervisor:
    """Keeps `processes` workers alive until it is told to stop."""

    def __init__(
        self,
        plan: Plan,
        *,
        processes: int,
        log_level: int | None = None,
        reload: bool = False,
        can_exec: bool = False,
        estate: Estate | None = None,
        signs: Signs = NO_SIGNS,
    ) -> None:
        self._plan = plan
        self._plans = plan.dealt(processes)
        self._log_level = log_level
        self._lease = settings().lease.total_seconds()
        self._timeout_grace = settings().timeout_grace.total_seconds()
        self._children: dict[int, Child] = {}
        # When a vacant place is to be filled, by its number.
        self._vacant: dict[int, float] = dict.fromkeys(range(processes), 0.0)
        self._quick_deaths = 0
        self._succession = Succession(self._children, grace=plan.grace)
        self._idleness = Idleness(plan.idle_timeout, now=clock.monotonic())
        self._began = clock.monotonic()
        # What the boards said of workers that are gone.
        self._counts = Counts()
        self._taken = 0
        self._signals: list[int] = []
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._code = ALL_WRITTEN
        self._reloading = Reloading(look) if reload else None
        self._can_exec = can_exec
        self._exec_asked_at: float | None = None
        self._is_in_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._undertaker = Undertaker(link=Link(plan.alias), inherited=estate.cases if estate else ())
        if estate is not None:
            self._inherit(estate)
        self._upkeep = Upkeep(
            plan,
            members=self._members,
            wanted=processes,
            wake=lambda: wake(list(self._children.values())),
            loops=lambda: self._loops,
            make_loop=self._loop,
            signs=signs,
        )
        self._keeper = keeper = Keeper(boards=self._boards, link=Link(plan.alias))
        chores = Chores(link=Link(plan.alias, patience=1 / 2), duties=duties())
        self._burial = self._loop("undertaker", self._undertaker.tick, on_end=self._undertaker.close)
        self._keeping = self._loop("keeper", keeper.tick, on_end=keeper.close)
        listeners = listening(plan.alias, queues=plan.queue_names, wake=self._upkeep.news, tell=self._upkeep.hear)
        self._loops = [
            self._keeping,
            self._loop("chores", chores.tick, on_end=chores.close),
            *(self._loop("listener", listener.tick, on_end=listener.close) for listener in listeners),
            *self._upkeep.loops,
            self._burial,
        ]

    def _loop(self, name: str, tick: Callable[[], float], *, on_end: Callable[[], None]) -> Loop:
        give_up = partial(self._give_up, f"the {name} has ended")
        return Loop(name, tick, on_end=on_end, on_death=give_up, on_back=self._come_back)

    # -- the main thread

    def run(self) -> int:
        """Work until told to stop, and give the exit code. Signals are heard in the main thread of a program only."""
        _become_subreaper()
        # Only this thread hears signals, so that none can be lost between its last look and an exec.
        hear_later()
        for loop in self._loops:
            loop.start()
        self._upkeep.begin()
        try:
            with self._hearing() as reader:
                while (delay := self.tick()) is not None:
                    ready, _, _ = select.select([reader], [], [], delay)
                    if ready:
                        os.read(reader, 4096)
                return self._finish()
        finally:
            self._upkeep.end()

    @contextmanager
    def _hearing(self) -> Iterator[int]:
        """Note signals while this is open, and give the descriptor on which a byte comes with each."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.set_wakeup_fd(writer) if is_main else -1
        handlers = {number: signal.signal(number, self._hear) for number in HEARD} if is_main else {}
        hear_again()
        try:
            yield reader
        finally:
            if is_main:
                signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)

    def tick(self) -> float | None:
        """Do what is to be done now, and give the seconds until the next look; None when it is over."""
        while self._signals:
            self._obey(self._signals.pop(0))
        self._reap()
        self._upkeep.health.look()
        now = clock.monotonic()
        self._enforce(now)
        self._urge(now)
        self._succession.tick(now, is_complete=not self._vacant and not self._is_stopping)
        self._look_at_limits(now)
        self._look_at_code(now)
        if self._exec_asked_at is not None and self._keeper.renewed_at >= self._exec_asked_at:
            self._exec_again()
        if self._is_stopping or self._code:
            if not self._children:
                return None
        else:
            self._vacant |= dict.fromkeys(self._succession.followed(most=len(self._plans)), now)
            self._spawn(now)
            self._succession.tell_held_back()
            if not self._children and not self._vacant:
                return None
        return LOOK_INTERVAL

    def ask_to_stop(self) -> None:
        """Have workers finish what runs; asked twice, have them stop now."""
        now = clock.monotonic()
        if self._stop_at is None:
            self._stop_at = now + self._plan.grace
            self._upkeep.health.stop()
            self._tell_all("stop")
        else:
            self._stop_at = now

    @property
    def _is_stopping(self) -> bool:
        return self._stop_at is not None

    def _boards(self) -> list[Board]:
        return [child.board for child in list(self._children.values())]

    def _members(self) -> list[Member]:
        return [
            Member(
                # Started anew, the command may have fewer places.
                plan=replace(self._plans[child.place % len(self._plans)], concurrency=child.concurrency),
                identity=child.identity,
                pid=child.pid,
                board=child.board,
                started_at=child.started_at,
            )
            for child in list(self._children.values())
        ]

    # -- signals

    def _hear(self, number: int, _frame: object) -> None:
        self._signals.append(number)

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.ask_to_stop()
        elif number == signal.SIGTTIN:
            self._tell_all("stacks")
        elif number == signal.SIGHUP and self._is_in_terminal:
            # Its window was closed: nobody wants the command to go on out of sight.
            self.ask_to_stop()
        elif number == signal.SIGHUP and not self._can_exec:
            self._succession.replace_one_by_one()
        elif number == signal.SIGHUP and self._exec_asked_at is None:
            _tell("hangup: starting anew, with the code as it is now", logging.INFO)
            self._exec_asked_at = clock.monotonic()
            self._keeper.hurry()
            self._keeping.poke()

    def _tell_all(self, word: str) -> None:
        for child in list(self._children.values()):
            child.say(word)

    def _come_back(self) -> None:
        """Have everything try at once what failed: the database can be used again."""
        for loop in self._loops:
            loop.poke()
        self._tell_all("back")

    # -- from one image of this program to the next

    def _inherit(self, estate: Estate) -> None:
        """Take over the workers of the image before us, and replace them one by one: their code is the old one."""
        for child in estate.children:
            self._children[child.pid] = child
            self._vacant.pop(child.place, None)
        # Nobody else keeps their boards open when they are gone.
        estate.children.clear()
        self._began, self._counts, self._taken = estate.began, estate.counts, estate.taken
        self._succession.replace_one_by_one()

    def _exec_again(self) -> None:
        """Start anew in this process. All leases were renewed a moment ago, so they last until we are there again."""
        self._exec_asked_at = None
        if self._is_stopping:
            return
        hear_later()
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(EXEC_BOUND)
        hear_once_more(self._signals)
        exec_again(
            Estate(
                children=list(self._children.values()),
                cases=self._undertaker.cases,
                began=self._began,
                counts=self._counts + self._undertaker.counts,
                taken=self._taken,
            )
        )

    # -- birth and death

    def _spawn(self, now: float) -> None:
        for place in [place for place, moment in self._vacant.items() if moment <= now]:
            del self._vacant[place]
            plan = replace(self._plans[place], held_back=self._succession.held_back(place))
            child = Child.spawn(plan, place=place, lease=self._lease, log_level=self._log_level)
            self._children[child.pid] = child
            self._upkeep.beat()

    def _reap(self) -> None:
        """Take note of every child process that has ended; some are orphans of jobs, which came to us."""
        while (ended := _reaped(self._end_group)) is not None:
            pid, status = ended
            if (child := self._children.pop(pid, None)) is not None:
                self._mourn(child, status)

    def _end_group(self, pid: int) -> None:
        """End what a worker's jobs started and left behind."""
        if (child := self._children.get(pid)) is not None:
            child.kill_group()

    def _mourn(self, child: Child, status: int) -> None:
        # A process that ended itself, as told or since it couldn't confirm its leases, isn't to blame on a job.
        is_unconfirmed = clock.monotonic() >= child.board.confirmed_until - self._lease / 8
        was_told = child.is_killed or status == NOT_ALL_WRITTEN
        child.is_killed = was_told or is_unconfirmed
        self._heed(child.board)
        self._counts += child.board.counts
        self._taken += child.board.taken
        self._undertaker.receive(Death(child=child, status=status))
        self._burial.poke()
        self._upkeep.beat()
        is_planned = status == ALL_WRITTEN
        if not is_planned:
            message = f"worker {child.identity} {'was ended' if was_told else 'died'}: {describe(status)}"
            level = logging.WARNING if was_told else logging.ERROR
            _tell(message, level)
        is_drained = is_planned and self._plan.drain and not child.board.is_leaving
        # After it was started anew, the command may have fewer places.
        is_wanted = child.place < len(self._plans)
        if self._is_stopping or is_drained or child.is_followed or not is_wanted:
            return
        self._vacant[child.place] = clock.monotonic() + self._pause_after(child, is_planned=is_planned)

    def _pause_after(self, child: Child, *, is_planned: bool) -> float:
        lived = clock.monotonic() - child.started_at
        if is_planned or child.is_killed or child.board.claimed_at or lived > QUICK_DEATH:
            self._quick_deaths = 0
            return 0.0
        self._quick_deaths += 1
        if self._quick_deaths >= MOST_QUICK_DEATHS and self._reloading is None:
            self._give_up(f"{self._quick_deaths} workers in a row died at once")
        return min(0.1 * 2.0**self._quick_deaths, LONGEST_PAUSE)

    def _give_up(self, because: str) -> None:
        """Stop at once, with an exit code that says that this can't work."""
        self._code = CANNOT_WORK
        self._stop_at = clock.monotonic()
        _tell(f"{because}, so this can't work", logging.ERROR)

    # -- what can't be left to the workers themselves

    def _enforce(self, now: float) -> None:
        """Kill a worker whose body doesn't stop after its deadline, or that holds leases which can't be confirmed."""
        for child in self._children.values():
            running = [entry for entry in child.board.entries() if entry.is_running]
            overdue = [e.lease for e in running if e.deadline and now >= e.deadline + self._timeout_grace]
            if overdue and not child.is_killed:
                child.timed_out.update(overdue)
                child.kill()
            elif running and now >= child.board.confirmed_until - self._lease / 8:
                child.kill()

    def _urge(self, now: float) -> None:
        """Once the grace is over, have workers stop at once, and kill those that don't."""
        if self._stop_at is None or now < self._stop_at:
            return
        if self._kill_at is None:
            self._kill_at = now + LAST_WORD
            self._tell_all("now")
        elif now >= self._kill_at:
            for child in self._children.values():
                if not child.is_killed:
                    child.kill()

    def _look_at_limits(self, now: float) -> None:
        """End the command when nothing was to do for long."""
        if not self._is_stopping and self._idleness.is_over(self._boards(), now=now, gone=self._taken):
            _tell(f"nothing to do for {self._plan.idle_timeout:g} s: stopping", logging.INFO)
            self.ask_to_stop()
        for board in self._boards():
            self._heed(board)

    def _heed(self, board: Board) -> None:
        """Drop a memory limit below what a worker takes before its first job."""
        if board.needed and self._plan.max_memory is not None:
            _tell(too_low(self._plan, board.needed), logging.WARNING)
            self._plan = replace(self._plan, max_memory=None)
            self._plans = [replace(plan, max_memory=None) for plan in self._plans]

    def _look_at_code(self, now: float) -> None:
        """Replace all workers when the code has changed; those that can't live wait for that."""
        if self._reloading is not None and (path := self._reloading.changed(now)) is not None:
            _tell(f"{path} has changed: replacing the workers", logging.INFO)
            self._succession.replace_all(now)
            self._vacant = dict.fromkeys(self._vacant, now)

    def _finish(self) -> int:
        """Write what is still to be written, within a bound, and end the loops."""
        give_up = clock.monotonic() + WRITE_BOUND
        self._burial.poke()
        # The loop alone speaks to the database, which may not answer.
        while not self._undertaker.is_idle and clock.monotonic() < give_up:
            threading.Event().wait(0.02)
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(max(0.0, give_up - clock.monotonic()))
        counts = self._counts + self._undertaker.counts
        _tell(summary(counts, seconds=clock.monotonic() - self._began), logging.INFO)
        if not self._undertaker.is_idle:
            return NOT_ALL_WRITTEN
        has_failed = self._plan.drain and self._plan.fail_on_error and counts.failed
        return JOB_FAILED if has_failed and self._code == ALL_WRITTEN else self._code


def _tell(message: str, level: int) -> None:
    signals.tell(signals.odd, None, message=message, exception=None, level=level)


def _reaped(end_group: Callable[[int], None]) -> tuple[int, int] | None:
    """Reap one child that has ended and give its process id with its exit code; None where there is none.

    `end_group` is called before, as long as nobody else can get the process id. Where the system can't look without
    reaping (macOS before Python 3.13), it is called right after.
    """
    try:
        if not hasattr(os, "waitid"):
            pid, status = os.waitpid(-1, os.WNOHANG)
            end_group(pid)
        else:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            end_group(ended.si_pid)
            pid, status = os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _become_subreaper() -> None:
    """Have orphans of jobs come to us, on Linux, so that they are reaped."""
    with suppress(OSError, AttributeError):
        libc: Callable[..., int] = ctypes.CDLL(None).prctl
        libc(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
