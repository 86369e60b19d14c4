"""Drive: the threads that run jobs, as leader and followers, and the event loop beside them.

The threads share one deque of claimed jobs and one list of outcomes. One that finds the deque empty takes the baton: it
settles what has ended and claims anew, gives the baton back, and runs jobs like the others. Nobody hands jobs over:
where jobs are known to be tiny one thread runs them all, and a ticker wakes another when it is held up; where they
aren't, each thread that begins one wakes the next. While nothing is due, one thread waits for the next poll and the
others wait for it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Condition, Event, RLock, Thread, get_ident
from types import MappingProxyType
from typing import NamedTuple

from django.db import connections

from django_jobs import clock, lifecycle, runner, signals
from django_jobs.exceptions import Interruption
from django_jobs.lifecycle import Run
from django_jobs.outcomes import Ending, Released
from django_jobs.records import Claim
from django_jobs.worker.board import Board
from django_jobs.worker.body import run_in
from django_jobs.worker.claiming import Claiming
from django_jobs.worker.event_loop import EventLoop
from django_jobs.worker.link import Link
from django_jobs.worker.pace import SHORT, Pace
from django_jobs.worker.plan import Plan
from django_jobs.worker.reporter import Reporter
from django_jobs.worker.seat import Seat, Seats, ThreadSeat
from django_jobs.worker.setback import Setbacks
from django_jobs.worker.settling import Settling

CONFIRMED_LOOK = 1.0
"""Seconds between two looks whether it may claim again."""

TICK, COARSE_TICK = 0.002, 0.05
"""Seconds between two looks of the ticker while work is in hand, and while nothing can be done for it just now."""

LONGEST_WAIT = 0.001
"""Seconds after which jobs that wait behind a tiny one get another thread."""

LATEST_SETTLE = 0.005
"""Seconds after which an end is written though there are jobs to run."""

LONGEST_HOLD = 1.0
"""Seconds after its claim in which a job for which there is no free slot goes back: others may have one."""


class _Wanted(NamedTuple):
    """How many jobs to claim, of some queues at most so many; whether that is more than can begin at once."""

    jobs: int
    at_most: Mapping[str, int] = MappingProxyType({})
    is_ahead: bool = False


NOTHING = _Wanted(jobs=0)


class _Done(NamedTuple):
    """What a run came to, and the seconds of its body."""

    claim: Claim
    ending: Ending
    seconds: float


class Crew:
    """Claims, runs and settles with `plan.concurrency` slots; its threads repeat the steps `turn` and `perform`."""

    def __init__(
        self,
        *,
        plan: Plan,
        board: Board,
        seats: Seats,
        link: Link,
        reporter: Reporter | None = None,
        most: int | None = None,
        may_claim: Callable[[], bool] = lambda: True,
        on_spent: Callable[[], None] = lambda: None,
        on_over: Callable[[], None] = lambda: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._board = board
        self._seats = seats
        self._link = link
        # Without a loop that ticks, what bodies noted is written when they have ended.
        self._reporter = reporter or Reporter(link=Link(plan.alias), seats=seats)
        # So many jobs are claimed in all; then `on_spent` is called, and the crew is over when they have ended.
        self._most = most
        self._on_spent = on_spent
        self._may_claim = may_claim
        self._on_over = on_over
        # Called in a thread of the crew that ends though nobody asked it to.
        self._on_death = on_death
        # The baton's holder alone uses these two.
        self._claiming = Claiming(plan=plan, board=board, link=link)
        self._settling = Settling(board=board, link=link, reporter=self._reporter)
        # What follows is read and written under this lock.
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._work_in_hand = Condition(self._lock)
        self._todo: deque[Claim] = deque()
        self._moved_at = 0.0
        # The thread that runs tiny jobs: two would take the interpreter from each other.
        self._mover: int | None = None
        self._ended: list[Run] = []
        self._ended_at = 0.0
        self._pace = Pace()
        self._running = 0
        self._waiting = 0
        self._setbacks = Setbacks("crew")
        self._has_baton = False
        self._is_ticking = False
        self._is_polled = False
        self._polled_until = 0.0
        self._next_turn = 0.0
        self._not_before = 0.0
        self._again_at = 0.0
        self._is_closing = False
        self._is_drained = False
        self._is_spent = False
        self._held_back = plan.held_back
        self._over = Event()
        self._loop = EventLoop(report=self._reporter.note)
        self._threads: list[Thread] = []

    # -- from outside

    def start(self) -> None:
        """Start the threads."""
        slots = [(self._work, f"django_jobs slot {number}") for number in range(1, self._plan.concurrency + 1)]
        for target, name in [*slots, (self._tick, "django_jobs ticker")]:
            thread = Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Claim nothing more and give back what hasn't started; running jobs go on."""
        with self._changed:
            self._is_closing = True
            self._give_back(list(self._todo))
            self._changed.notify_all()

    def wake(self) -> None:
        """Look for jobs at once, and once more a moment later: a waker stays silent for that long after a wake."""
        with self._changed:
            self._next_turn = 0.0
            self._again_at = clock.monotonic() + lifecycle.SILENCE
            self._changed.notify()

    def come_back(self) -> None:
        """Try at once what failed: the database answers others again."""
        with self._changed:
            self._not_before = self._next_turn = 0.0
            self._changed.notify()

    def hold_back(self, count: int) -> None:
        """Leave so many slots free, and as much of each cap: others still use them."""
        with self._changed:
            self._held_back = count
            self._next_turn = 0.0
            # Those that waited for a slot may have one now.
            self._changed.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Wait until all is done after `close`, or drained, and tell whether that came within `timeout` seconds."""
        return self._over.wait(timeout)

    def stop(self) -> None:
        """End the event loop and close the connection, when no thread needs them any more."""
        for thread in self._threads:
            thread.join(timeout=1.0)
        self._loop.stop()
        # A connection that another thread still uses must not be closed: SQLite's would take the process with it.
        if not any(thread.is_alive() for thread in self._threads):
            self._link.close()

    @property
    def running(self) -> int:
        """How many bodies run now."""
        with self._changed:
            return self._running

    @property
    def unwritten(self) -> int:
        """How many ends aren't in the database yet."""
        with self._changed:
            return len(self._ended) + self._settling.waiting

    # -- the baton

    def turn(self) -> float:
        """Settle what has ended, claim anew, and give the seconds until the next turn is wanted."""
        with self._changed:
            ended, self._ended = self._ended, []
        try:
            self._claiming.disown_unanswered()
            written = self._settling.settle(ended)
        except BaseException:
            with self._changed:
                # Ends are kept until they can be written.
                self._ended = ended + self._ended
            raise
        self._claiming.forget(written)
        try:
            delay = self._claimed()
        finally:
            self._claiming.end_lives()
        return min(delay, self._settling.due_in)

    def _claimed(self) -> float:
        """Claim for the free slots, and ahead of them, and give the seconds until it is worth to claim again."""
        in_hand = self._claiming.queues
        with self._changed:
            held_back = self._held_back
            wanted = self._wanted(in_hand)
        if wanted.jobs < 1 or self._claiming.has_alone:
            return self._without_room()
        if not self._may_claim():
            return CONFIRMED_LOOK
        request = self._claiming.request(
            limit=wanted.jobs, in_hand=in_hand, held_back=held_back, at_most=wanted.at_most
        )
        if request.queues == ():
            return self._without_room()
        claimed = self._claiming.ask(request)
        is_empty = not claimed.claims and not claimed.expired
        with self._changed:
            self._take_in(claimed.claims, wanted)
            self._is_drained = self._plan.drain and is_empty and not (in_hand.total() or held_back)
            is_spent = self._most is not None and self._board.taken >= self._most
            is_news = is_spent and not self._is_spent
            self._is_spent = is_spent
        if is_news:
            self._on_spent()
        if is_empty:
            return self._claiming.until_next(request)
        # What came back short may have missed rows that somebody held for a moment.
        return 0.0 if len(claimed.claims) < wanted.jobs else self._claiming.poll

    def _without_room(self) -> float:
        self._board.note_claim()
        return self._claiming.poll

    # -- what is claimed and hasn't begun, under the lock

    @property
    def _free(self) -> int:
        return self._plan.concurrency - self._running - self._held_back

    def _wanted(self, in_hand: Counter[str]) -> _Wanted:
        """Say what to claim: what can begin at once, and ahead of that what is known to be short."""
        free, waiting = self._free, len(self._todo)
        if self._is_closing:
            return NOTHING
        limit = free
        if self._most is None and not self._held_back:
            limit = self._pace.limit(free, in_hand)
        if waiting >= max(free, limit // 2):
            # There is enough to do, and nobody has to wait for the next claim.
            return NOTHING
        count = min(limit - waiting, self._board.room)
        if self._most is not None:
            count = min(count, self._most - self._board.taken)
        if limit == free:
            return _Wanted(jobs=count)
        unsure = self._pace.unsure(in_hand)
        room = free - sum(claim.queue in unsure for claim in self._todo)
        return _Wanted(jobs=count, at_most=dict.fromkeys(unsure, max(room, 0)), is_ahead=True)

    def _take_in(self, claims: Collection[Claim], wanted: _Wanted) -> None:
        if claims and not self._todo:
            self._moved_at = clock.monotonic()
        self._todo.extend(claims)
        if self._is_closing:
            # The word to close came while the claim was under way.
            self._give_back(claims)
        elif wanted.is_ahead:
            if len(claims) >= wanted.jobs:
                self._pace.filled()
            self._give_back_excess()

    def _give_back(self, claims: Collection[Claim]) -> None:
        given = {claim.lease for claim in claims}
        if not given:
            return
        self._todo = deque(claim for claim in self._todo if claim.lease not in given)
        for claim in claims:
            self._note_ended(claim, Released(started=False))
        self._want_ticks()

    def _give_back_excess(self) -> None:
        """Give back what isn't known to be short and has no free slot to go to."""
        unsure = [claim for claim in self._todo if not self._pace.is_short(claim.queue)]
        self._give_back(unsure[max(self._free, 0) :])

    def _note_ended(self, claim: Claim, ending: Ending) -> None:
        if not self._ended:
            self._ended_at = clock.monotonic()
        self._ended.append((claim, ending))

    # -- a thread

    def _work(self) -> None:
        seat = ThreadSeat()
        done: _Done | None = None
        try:
            while (claim := self._next(done)) is not None:
                try:
                    done = self._performed(claim, seat)
                except BaseException as error:  # noqa: BLE001 - a slot must live on, whatever happens around a body
                    seat.leave()
                    done = self._mended(claim, error)
        except BaseException:
            self._on_death()
            raise
        finally:
            connections.close_all()

    def _mended(self, claim: Claim, error: BaseException) -> _Done:
        """Give the end of a job that broke off before its end was noted: nobody else would ever write it."""
        message = f"crew: {claim.name} #{claim.id} broke off outside of its body: {error!r}"
        signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
        self._reporter.end(claim.lease)
        self._seats.clear(claim.lease)
        with suppress(KeyError):
            self._board.end(claim.lease)
        return _Done(claim, runner.broken(claim, error), SHORT)

    def _next(self, done: _Done | None = None) -> Claim | None:
        """Give the next job to run after the one that is done, taking turns with the baton meanwhile.

        None when the crew is done.
        """
        # A condition's own `with` takes twice as long as that of its lock.
        with self._lock:
            if done is not None:
                self._note_end(done)
            while True:
                if self._todo and self._free > 0 and not self._is_settle_due():
                    if not self._may_begin():
                        self._stand_by()
                    elif (claim := self._begun()) is not None:
                        return claim
                elif self._is_over():
                    if not self._over.is_set():
                        self._over.set()
                        self._on_over()
                    self._changed.notify_all()
                    self._work_in_hand.notify_all()
                    return None
                elif self._is_turn():
                    self._lead()
                else:
                    self._follow()

    def _may_begin(self) -> bool:
        """Whether the next job is this thread's: of tiny ones only if no other thread runs these and gets on."""
        if self._mover is None or self._mover == get_ident() or not self._pace.is_tiny(self._todo[0].queue):
            return True
        return clock.monotonic() >= self._moved_at + LONGEST_WAIT

    def _begun(self) -> Claim | None:
        """Take the next job; None where it has waited for too long."""
        claim = self._todo.popleft()
        now = self._moved_at = clock.monotonic()
        if self._claiming.is_late(claim, now=now):
            self._note_ended(claim, Released(started=False))
            return None
        self._running += 1
        if self._pace.is_tiny(claim.queue):
            self._mover = get_ident()
            self._want_ticks()
            return claim
        self._stop_moving()
        if self._todo or self._ended:
            self._want_ticks()
        # Another begins the next one, or has to watch the clock now.
        self._changed.notify()
        return claim

    def _stop_moving(self) -> None:
        if self._mover == get_ident():
            self._mover = None

    def _is_over(self) -> bool:
        closing = self._is_closing or self._is_drained or self._is_spent
        return closing and not (self._todo or self._running or self._ended or self._has_baton or self._settling.waiting)

    def _is_turn(self) -> bool:
        if self._has_baton or clock.monotonic() < self._not_before:
            return False
        return bool(self._ended) or clock.monotonic() >= self._next_turn

    def _is_settle_due(self) -> bool:
        if not self._ended or self._has_baton:
            return False
        now = clock.monotonic()
        return now >= self._ended_at + LATEST_SETTLE and now >= self._not_before

    def _lead(self) -> None:
        """Take a turn outside the lock."""
        self._stop_moving()
        self._has_baton = True
        began = clock.monotonic()
        self._changed.release()
        try:
            delay = self._guarded_turn()
        finally:
            self._changed.acquire()
            self._has_baton = False
        self._next_turn = clock.monotonic() + delay
        if began < self._again_at:
            # A wake came after this turn's claim may have read the rows.
            self._next_turn = min(self._next_turn, self._again_at)
        if self._settling.waiting:
            self._want_ticks()
        if others := sum(not self._pace.is_tiny(claim.queue) for claim in self._todo):
            # So many can begin at once; one of those left over watches the clock.
            self._changed.notify(others + 1)
        elif self._is_polled and self._next_moment < self._polled_until:
            # Who watches the clock has to look at it anew.
            self._changed.notify_all()

    def _guarded_turn(self) -> float:
        try:
            delay = self.turn()
        except BaseException as error:  # noqa: BLE001 - a bad turn must not end the crew, whatever it raised
            delay = self._setbacks.note(error)
            self._not_before = clock.monotonic() + delay
            return delay
        self._setbacks.over()
        self._not_before = 0.0
        return delay

    @property
    def _next_moment(self) -> float:
        return max(self._next_turn, self._not_before)

    def _follow(self) -> None:
        """Wait for a change; one of those that wait watches the clock."""
        self._stop_moving()
        self._waiting += 1
        try:
            if self._is_polled or self._has_baton:
                self._changed.wait()
                return
            self._is_polled = True
            self._polled_until = self._next_moment
            try:
                self._changed.wait(max(0.0, self._polled_until - clock.monotonic()))
            finally:
                self._is_polled = False
        finally:
            self._waiting -= 1

    def _stand_by(self) -> None:
        """Wait for a change; the thread that runs tiny jobs watches the clock, and the ticker that thread."""
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    # -- the ticker

    def _tick(self) -> None:
        try:
            with self._changed:
                while not self._over.is_set():
                    if self._is_quiet():
                        self._is_ticking = False
                        self._work_in_hand.wait()
                    else:
                        self._work_in_hand.wait(COARSE_TICK if self._is_stuck() else TICK)
                        self._look_on()
        except BaseException:
            self._on_death()
            raise

    def _want_ticks(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._work_in_hand.notify()

    def _is_quiet(self) -> bool:
        is_watched = self._is_polled or self._has_baton or not self._waiting
        return is_watched and not (self._todo or self._ended or self._settling.waiting)

    def _is_stuck(self) -> bool:
        """Whether nothing can be done soon for what is in hand."""
        if clock.monotonic() < self._not_before:
            return True
        return not self._ended and not (self._todo and self._free > 0)

    def _look_on(self) -> None:
        """See that nothing waits for long behind a job that turns out not to be short."""
        now = clock.monotonic()
        if self._todo and now >= self._claiming.sent_at(self._todo[0]) + LONGEST_HOLD:
            excess = list(self._todo)[max(self._free, 0) :]
            if excess:
                self._pace.stumbled()
                self._give_back(excess)
        is_held_up = now >= self._moved_at + LONGEST_WAIT
        is_waiting = bool(self._todo) and self._free > 0 and is_held_up
        is_watched = self._is_polled or self._has_baton or (bool(self._todo) and not is_held_up)
        if not is_watched or is_waiting or self._is_settle_due():
            if self._waiting:
                self._changed.notify()
            elif self._is_turn() and (self._is_settle_due() or self._settling.due_in <= 0.0):
                # All slots run jobs.
                self._lead()

    # -- a job

    def perform(self, claim: Claim, seat: ThreadSeat) -> None:
        """Run one job in the calling thread's seat, or on the event loop if it is async; its end waits for a turn."""
        if (done := self._performed(claim, seat)) is not None:
            with self._changed:
                self._note_end(done)

    def _performed(self, claim: Claim, seat: ThreadSeat) -> _Done | None:
        """Run one job, and give its end; None for an async one, which ends later."""
        if runner.is_async(claim):
            self._loop.run(claim, self._begin, self._end_on_loop, self._mend_on_loop)
            return None
        self._begin(claim, seat)
        return self._done(claim, *run_in(seat, claim, report=self._reporter.note))

    def _begin(self, claim: Claim, seat: Seat) -> None:
        self._board.start(claim.lease, timeout=claim.timeout)
        self._seats.seat(claim.lease, seat)

    def _done(self, claim: Claim, ending: Ending, interruption: type[Interruption] | None) -> _Done:
        self._reporter.end(claim.lease)
        self._seats.clear(claim.lease)
        seconds = self._board.end(claim.lease)
        if interruption is not None:
            # Also where the body swallowed it, or ended with something else because of it.
            ending = runner.interrupted(claim, interruption, ending)
        return _Done(claim, ending, seconds)

    def _note_end(self, done: _Done) -> None:
        """Have an end written by the next turn, under the lock.

        A slot's thread takes that turn, or begins the next job, itself.
        """
        self._running -= 1
        self._note_ended(done.claim, done.ending)
        self._pace.note(done.claim.queue, done.seconds)
        if done.seconds >= SHORT and self._todo:
            self._give_back_excess()

    def _end_on_loop(self, claim: Claim, ending: Ending, interruption: type[Interruption] | None) -> None:
        self._note_end_on_loop(self._done(claim, ending, interruption))

    def _mend_on_loop(self, claim: Claim, error: BaseException) -> None:
        self._note_end_on_loop(self._mended(claim, error))

    def _note_end_on_loop(self, done: _Done) -> None:
        with self._changed:
            self._note_end(done)
            # The first end has somebody come, who takes along those that end until then.
            if len(self._ended) == 1 or self._todo:
                self._changed.notify()
