"""Drive: a crew's claims: what is in hand, since when, and what becomes of a claim whose answer never came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from django_jobs import clock, lifecycle
from django_jobs.records import Claim, Claimed, ClaimRequest, Lease
from django_jobs.worker.board import Board
from django_jobs.worker.link import Link
from django_jobs.worker.plan import OWN_POLL, Plan

SOONEST = 0.05
"""Seconds after which due rows that couldn't be claimed are tried again: somebody locks them. Doubled each time."""

LATEST_START = 1.0
"""Seconds after its claim was sent, or an eighth of a lease where that is longer, after which a job isn't started any
more: the keeper hasn't renewed what it couldn't see, and the deadline in the row counts from the claim."""

DISOWN_INTERVAL = 1.0
"""Seconds between two looks for what a claim took whose answer never came: it may still be under way in the server."""


class Claiming:
    """Claims jobs for one worker. Called by one thread at a time; `sent_at` and `is_late` by any."""

    def __init__(self, *, plan: Plan, board: Board, link: Link) -> None:
        self._plan = plan
        self._board = board
        self._link = link
        self._in_hand: dict[Lease, Claim] = {}
        # By token: when each claim was sent, and what ends its life.
        self._sent_at: dict[int, float] = {}
        self._lives: dict[int, Callable[[], None]] = {}
        # Tokens of claims without answer, with the moment from which nothing can hold under them any more.
        self._unanswered: dict[int, float] = {}
        self._disown_at = 0.0
        self._last_queue = ""
        self._misses = 0
        self._latest_start = LATEST_START

    # -- what is in hand

    @property
    def queues(self) -> Counter[str]:
        """How many jobs of each queue are in hand."""
        return Counter(claim.queue for claim in self._in_hand.values())

    @property
    def has_alone(self) -> bool:
        """Whether a job is in hand that may have no others beside it."""
        return any(claim.alone for claim in self._in_hand.values())

    def sent_at(self, claim: Claim) -> float:
        """When the statement was sent that claimed this job, in monotonic seconds."""
        return self._sent_at[claim.token]

    def is_late(self, claim: Claim, *, now: float) -> bool:
        """Whether a claim is too old for its job to start."""
        return now > self._sent_at[claim.token] + self._latest_start

    def forget(self, leases: Iterable[Lease]) -> None:
        """Note that nothing more is owed to these."""
        for lease in leases:
            self._in_hand.pop(lease, None)

    def end_lives(self) -> None:
        """Leave to the clock whatever somebody may find held under claims of which nothing is in hand any more."""
        in_hand = {lease.token for lease in self._in_hand}.union(self._unanswered)
        for token in self._lives.keys() - in_hand:
            self._sent_at.pop(token, None)
            self._lives.pop(token)()

    # -- what is asked of the database

    def request(
        self, *, limit: int, in_hand: Mapping[str, int], held_back: int, at_most: Mapping[str, int]
    ) -> ClaimRequest:
        """Ask for so many jobs beside those in hand, of some queues `at_most` so many."""
        return self._plan.request(
            limit=limit, in_hand=in_hand, last_queue=self._last_queue, held_back=held_back, at_most=at_most
        )

    def ask(self, request: ClaimRequest) -> Claimed:
        """Send a claim, and note on the board what it gives."""
        token = lifecycle.new_token()
        lease = request.lease.total_seconds()
        now = clock.monotonic()
        self._latest_start = max(LATEST_START, lease / 8)
        self._unanswered[token] = now + lease
        try:
            with self._link.connected() as connection:
                self._lives[token] = lifecycle.begin_life(connection, token)
                claimed = lifecycle.claim(connection, request, token=token)
        except BaseException:
            self._disown_at = 0.0
            raise
        del self._unanswered[token]
        self._sent_at[token] = now
        self._board.note_claim()
        self._in_hand.update((claim.lease, claim) for claim in claimed.claims)
        self._board.take(claim.lease for claim in claimed.claims)
        if claimed.claims:
            self._last_queue = claimed.claims[0].queue
        if claimed.claims or claimed.expired:
            self._misses = 0
        return claimed

    def disown_unanswered(self) -> None:
        """Give back what a claim took whose answer never came: nobody would renew it."""
        now = clock.monotonic()
        if not self._unanswered or now < self._disown_at:
            return
        with self._link.connected() as connection:
            lifecycle.disown(connection, self._plan.identity, self._unanswered)
        self._disown_at = now + DISOWN_INTERVAL
        self._unanswered = {token: moment for token, moment in self._unanswered.items() if now < moment}

    @property
    def poll(self) -> float:
        """Seconds until it looks for jobs of which nobody told it."""
        return OWN_POLL if self._plan.poll is None else self._plan.poll

    def until_next(self, request: ClaimRequest) -> float:
        """Give the seconds until it is worth to claim again, after a claim that gave nothing."""
        with self._link.connected() as connection:
            due = lifecycle.next_due(connection, request)
        self._misses = self._misses + 1 if due.now else 0
        again = SOONEST * 2.0 ** min(self._misses - 1, 20) if due.now else self.poll
        return min(self.poll, again, self.poll if due.later is None else max(SOONEST, due.later))
