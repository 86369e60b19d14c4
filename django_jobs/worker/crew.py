"""Drive: the threads that run jobs, as leader and followers, and the event loop beside them.

The threads share one deque of claimed jobs and one list of outcomes. One that finds the deque empty takes the baton: it
settles what has ended and claims for the free slots, gives the baton back, and runs jobs like the others. Nobody hands
jobs over; while nothing is due, one thread waits for the next poll and the others wait for it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Event, Thread

from django.db import connections

from django_jobs import clock, lifecycle, runner, signals
from django_jobs.exceptions import Interruption
from django_jobs.lifecycle import Run
from django_jobs.outcomes import Ending, Released
from django_jobs.records import Claim, Claimed, ClaimRequest, Lease
from django_jobs.worker.board import Board
from django_jobs.worker.body import run_in
from django_jobs.worker.event_loop import EventLoop
from django_jobs.worker.link import Link
from django_jobs.worker.plan import OWN_POLL, Plan
from django_jobs.worker.seat import Seat, Seats, ThreadSeat
from django_jobs.worker.setback import Setbacks

SOONEST = 0.05
"""Seconds after which due rows that couldn't be claimed are tried again: somebody locks them. Doubled each time."""

CONFIRMED_LOOK = 1.0
"""Seconds between two looks whether it may claim again."""

LATEST_START = 1.0
"""Seconds after its claim was sent, or an eighth of a lease where that is longer, after which a job isn't started any
more: the keeper hasn't renewed what it couldn't see, and the deadline in the row counts from the claim."""

LOCKED_PAUSE, LONGEST_LOCKED_PAUSE = 0.1, 1.0
"""Seconds until an end whose row somebody locks is tried again, the first time and at the most."""

DISOWN_INTERVAL = 1.0
"""Seconds between two looks for what a claim took whose answer never came: it may still be under way in the server."""


class Crew:
    """Claims, runs and settles with `plan.concurrency` slots; its threads repeat the steps `turn` and `perform`."""

    def __init__(
        self,
        *,
        plan: Plan,
        board: Board,
        seats: Seats,
        link: Link,
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
        # So many jobs are claimed in all; then `on_spent` is called, and the crew is over when they have ended.
        self._most = most
        self._on_spent = on_spent
        self._may_claim = may_claim
        self._on_over = on_over
        # Called in a slot's thread that ends though nobody asked it to.
        self._on_death = on_death
        self._in_hand: dict[Lease, Claim] = {}
        # Tokens of claims without answer, with the moment from which nothing can hold under them any more.
        self._unanswered: dict[int, float] = {}
        self._disown_at = 0.0
        # What ends the life of a claim, by its token.
        self._lives: dict[int, Callable[[], None]] = {}
        self._todo: deque[Claim] = deque()
        self._start_before: dict[Lease, float] = {}
        self._ended: list[Run] = []
        # Ends whose rows somebody locks, and when they are tried again.
        self._locked: list[Run] = []
        self._locked_at = 0.0
        self._locked_pause = LOCKED_PAUSE
        self._running = 0
        self._last_queue = ""
        self._setbacks = Setbacks("crew")
        self._misses = 0
        # Everything above and below is written under this condition's lock, but what the baton's holder alone touches.
        self._changed = Condition()
        self._has_baton = False
        self._is_polled = False
        self._next_turn = 0.0
        self._not_before = 0.0
        self._again_at = 0.0
        self._is_closing = False
        self._is_drained = False
        self._is_spent = False
        self._held_back = plan.held_back
        self._over = Event()
        self._loop = EventLoop()
        self._threads: list[Thread] = []

    # -- from outside

    def start(self) -> None:
        """Start the threads."""
        for number in range(1, self._plan.concurrency + 1):
            thread = Thread(target=self._work, name=f"django_jobs slot {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Claim nothing more and give back what hasn't started; running jobs go on."""
        with self._changed:
            self._is_closing = True
            self._ended += [(claim, Released(started=False)) for claim in self._todo]
            self._todo.clear()
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
            self._changed.notify()

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
            return len(self._ended) + len(self._locked)

    # -- the baton

    def turn(self) -> float:
        """Settle what has ended, claim for the free slots, and give the seconds until the next turn is wanted."""
        with self._changed:
            ended, self._ended = self._ended, []
            again: list[Run] = []
            if self._locked and clock.monotonic() >= self._locked_at:
                again, self._locked = self._locked, []
                ended = again + ended
        try:
            self._disown_unanswered()
            locked = self._settled(ended)
        except BaseException:
            with self._changed:
                # Ends are kept until they can be written.
                self._ended = ended + self._ended
            raise
        self._put_aside(locked, again=again)
        try:
            delay = self._claimed()
        finally:
            self._end_lives()
        return min(delay, max(0.0, self._locked_at - clock.monotonic())) if self._locked else delay

    def _put_aside(self, locked: list[Run], *, again: list[Run]) -> None:
        """Try these ends again in a moment; meanwhile others are written as ever.

        Those that wait already wait no longer because of these, and only those that were tried `again` in vain wait
        longer than the first time: where many workers claim, each turn finds a few rows that somebody locks briefly.
        """
        tried = {claim.lease for claim, _ in again}
        with self._changed:
            if not any(claim.lease in tried for claim, _ in locked) and not self._locked:
                self._locked_pause = LOCKED_PAUSE
            if locked and not self._locked:
                self._locked_at = clock.monotonic() + self._locked_pause
                self._locked_pause = min(2 * self._locked_pause, LONGEST_LOCKED_PAUSE)
            self._locked += locked

    def _end_lives(self) -> None:
        """Leave to the clock whatever somebody may find held under claims of which nothing is in hand any more."""
        in_hand = {lease.token for lease in self._in_hand}.union(self._unanswered)
        for token in self._lives.keys() - in_hand:
            self._lives.pop(token)()

    def _settled(self, ended: list[Run]) -> list[Run]:
        if not ended:
            return []
        with self._link.connected() as connection:
            locked = lifecycle.settle(connection, ended, doubted=self._board.doubted)
        still = {claim.lease for claim, _ in locked}
        written = [claim.lease for claim, _ in ended if claim.lease not in still]
        self._board.drop(written)
        for lease in written:
            self._in_hand.pop(lease, None)
            self._start_before.pop(lease, None)
        return locked

    def _disown_unanswered(self) -> None:
        """Give back what a claim took whose answer never came: nobody would renew it."""
        now = clock.monotonic()
        if not self._unanswered or now < self._disown_at:
            return
        with self._link.connected() as connection:
            lifecycle.disown(connection, self._plan.identity, self._unanswered)
        self._disown_at = now + DISOWN_INTERVAL
        self._unanswered = {token: moment for token, moment in self._unanswered.items() if now < moment}

    def _claimed(self) -> float:
        """Claim for the free slots, and give the seconds until it is worth to claim again."""
        with self._changed:
            held_back = self._held_back
            free = 0 if self._is_closing else self._plan.concurrency - self._running - len(self._todo) - held_back
        free = min(free, self._board.room)
        if self._most is not None:
            free = min(free, self._most - self._board.taken)
        if free < 1 or any(claim.alone for claim in self._in_hand.values()):
            return self._without_room()
        if not self._may_claim():
            return CONFIRMED_LOOK
        in_hand = Counter(claim.queue for claim in self._in_hand.values())
        request = self._plan.request(limit=free, in_hand=in_hand, last_queue=self._last_queue, held_back=held_back)
        if request.queues == ():
            return self._without_room()
        claimed = self._ask(request)
        if claimed.claims:
            self._last_queue = claimed.claims[0].queue
        with self._changed:
            if self._is_closing:
                # The word to close came while the claim was under way.
                self._ended += [(claim, Released(started=False)) for claim in claimed.claims]
            else:
                self._todo.extend(claimed.claims)
            is_empty = not claimed.claims and not claimed.expired
            self._is_drained = self._plan.drain and is_empty and not (in_hand.total() or held_back)
            is_spent = self._most is not None and self._board.taken >= self._most
            is_news = is_spent and not self._is_spent
            self._is_spent = is_spent
        if is_news:
            self._on_spent()
        if is_empty:
            return self._until_next_poll(request)
        self._misses = 0
        # What came back short may have missed rows that somebody held for a moment.
        return 0.0 if len(claimed.claims) < free else self._poll

    @property
    def _poll(self) -> float:
        return OWN_POLL if self._plan.poll is None else self._plan.poll

    def _without_room(self) -> float:
        self._board.note_claim()
        return self._poll

    def _until_next_poll(self, request: ClaimRequest) -> float:
        with self._link.connected() as connection:
            due = lifecycle.next_due(connection, request)
        self._misses = self._misses + 1 if due.now else 0
        again = SOONEST * 2.0 ** min(self._misses - 1, 20) if due.now else self._poll
        return min(self._poll, again, self._poll if due.later is None else max(SOONEST, due.later))

    def _ask(self, request: ClaimRequest) -> Claimed:
        token = lifecycle.new_token()
        lease = request.lease.total_seconds()
        now = clock.monotonic()
        self._unanswered[token] = now + lease
        start_before = now + max(LATEST_START, lease / 8)
        try:
            with self._link.connected() as connection:
                self._lives[token] = lifecycle.begin_life(connection, token)
                claimed = lifecycle.claim(connection, request, token=token)
        except BaseException:
            self._disown_at = 0.0
            raise
        del self._unanswered[token]
        self._board.note_claim()
        self._in_hand.update((claim.lease, claim) for claim in claimed.claims)
        self._start_before.update((claim.lease, start_before) for claim in claimed.claims)
        self._board.take(claim.lease for claim in claimed.claims)
        return claimed

    # -- a thread

    def _work(self) -> None:
        seat = ThreadSeat()
        try:
            while (claim := self._next()) is not None:
                try:
                    self.perform(claim, seat)
                except BaseException as error:  # noqa: BLE001 - a slot must live on, whatever happens around a body
                    seat.leave()
                    self._mend(claim, error)
        except BaseException:
            self._on_death()
            raise
        finally:
            connections.close_all()

    def _mend(self, claim: Claim, error: BaseException) -> None:
        """Have a job end that broke off before its end was noted: nobody else would ever write it."""
        message = f"crew: {claim.name} #{claim.id} broke off outside of its body: {error!r}"
        signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
        self._seats.clear(claim.lease)
        with suppress(KeyError):
            self._board.end(claim.lease)
        self._note_end(claim, runner.broken(claim, error))

    def _next(self) -> Claim | None:
        """Give the next job to run, taking turns with the baton meanwhile; None when the crew is done."""
        with self._changed:
            while True:
                if self._todo:
                    claim = self._todo.popleft()
                    if clock.monotonic() > self._start_before[claim.lease]:
                        self._ended.append((claim, Released(started=False)))
                        continue
                    self._running += 1
                    # Somebody else has to watch the clock now.
                    self._changed.notify()
                    return claim
                if self._is_over():
                    if not self._over.is_set():
                        self._over.set()
                        self._on_over()
                    self._changed.notify_all()
                    return None
                if self._is_turn():
                    self._lead()
                else:
                    self._follow()

    def _is_over(self) -> bool:
        closing = self._is_closing or self._is_drained or self._is_spent
        return closing and not (self._todo or self._running or self._ended or self._locked or self._has_baton)

    def _is_turn(self) -> bool:
        if self._has_baton or clock.monotonic() < self._not_before:
            return False
        return bool(self._ended) or clock.monotonic() >= self._next_turn

    def _lead(self) -> None:
        """Take a turn outside the lock."""
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
        # So many can begin at once; one of those left over watches the clock.
        self._changed.notify(len(self._todo) + 1)

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

    def _follow(self) -> None:
        """Wait for a change; one of those that wait watches the clock."""
        if self._is_polled or self._has_baton:
            self._changed.wait()
            return
        self._is_polled = True
        try:
            moment = max(self._next_turn, self._not_before)
            self._changed.wait(max(0.0, moment - clock.monotonic()))
        finally:
            self._is_polled = False

    # -- a job

    def perform(self, claim: Claim, seat: ThreadSeat) -> None:
        """Run one job in the calling thread's seat, or on the event loop if it is async; its end waits for a turn."""
        if runner.is_async(claim):
            self._loop.run(claim, self._begin, self._end, self._mend)
            return
        self._begin(claim, seat)
        self._end(claim, *run_in(seat, claim))

    def _begin(self, claim: Claim, seat: Seat) -> None:
        self._board.start(claim.lease, timeout=claim.timeout)
        self._seats.seat(claim.lease, seat)

    def _end(self, claim: Claim, ending: Ending, interruption: type[Interruption] | None) -> None:
        self._seats.clear(claim.lease)
        self._board.end(claim.lease)
        if interruption is not None:
            # Also where the body swallowed it, or ended with something else because of it.
            ending = runner.interrupted(claim, interruption, ending)
        self._note_end(claim, ending)

    def _note_end(self, claim: Claim, ending: Ending) -> None:
        with self._changed:
            self._running -= 1
            self._ended.append((claim, ending))
            self._changed.notify()
