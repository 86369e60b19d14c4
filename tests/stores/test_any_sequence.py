"""Any sequence of verbs on the real rows comes to what a plain model in memory says, and makes only moves of the table.

The model below says in its own words what DESIGN says of each verb; it calls none of the deciding code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from django_jobs import clock, lifecycle, transitions
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import MOVES, Place
from tests.factories import NOON, failure, new_job, request, seconds

LEASE = seconds(60)
GRACE = seconds(5)
TIMEOUT = seconds(300)

COLUMNS = (
    "state", "worker", "token", "attempts", "max_attempts", "crashes", "alone", "run_at", "expires_at", "finished_at",
    "prune_at", "lease_expires_at", "deadline_at", "first_started_at",
)  # fmt: skip

OUTCOMES: list[Outcome] = [
    Succeeded(),
    Succeeded(result='"done"'),
    Failed(failure=failure()),
    GaveUp(failure=failure(kind="gave_up")),
    Cancelled(reason="sold out"),
    Retried(failure=failure(), delay=seconds(0)),
    Retried(failure=failure(), delay=seconds(20)),
    Retried(failure=failure(kind="unknown"), delay=seconds(0), patient=True),
    Snoozed(delay=seconds(20)),
    Released(started=True),
    Released(started=False),
]


@dataclass
class ModelRow:
    """A row as the model has it; the first fields are compared with the database."""

    run_at: datetime
    expires_at: datetime | None
    max_attempts: int
    queue: str
    priority: int
    max_crashes: int
    restart: bool
    keep: float | None
    keep_failed: float | None
    state: str = "READY"
    worker: str | None = None
    token: int | None = None
    attempts: int = 0
    crashes: int = 0
    alone: bool = False
    finished_at: datetime | None = None
    prune_at: datetime | None = None
    lease_expires_at: datetime | None = None
    deadline_at: datetime | None = None
    first_started_at: datetime | None = None
    started_at: datetime = field(default=NOON)

    @property
    def place(self) -> Place:
        return Place.STOPPING if self.state == "CANCELLED" and self.worker else Place(self.state)

    def compared(self) -> tuple[Any, ...]:
        return tuple(getattr(self, column) for column in COLUMNS)

    def end(self, state: str, now: datetime) -> None:
        keep = self.keep if state == "SUCCESSFUL" else self.keep_failed
        self.state, self.finished_at = state, now
        self.prune_at = None if keep is None else now + seconds(keep)

    def free(self) -> None:
        self.worker = self.lease_expires_at = self.deadline_at = None

    def wait(self, run_at: datetime) -> None:
        self.state, self.run_at = "READY", run_at


class AnySequence(RuleBasedStateMachine):
    """Verbs in any order, by live and by outdated claims, on a few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.freezing = clock.freeze(NOON)
        self.clock = self.freezing.__enter__()
        self.connection, self.store = connections["default"], store_for("default")
        self.rows: dict[int, ModelRow] = {}
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        self.freezing.__exit__(None, None, None)
        transaction.set_rollback(True)
        self.atomic.__exit__(None, None, None)

    @property
    def now(self) -> datetime:
        return self.clock.instant

    def check(self, *verbs: str) -> None:
        """Compare the table with the model, and the moves since the last look with the table of moves."""
        found = {row[0]: row[1:] for row in Job.objects.values_list("id", *COLUMNS)}
        assert found == {job_id: row.compared() for job_id, row in self.rows.items()}
        allowed = {move for verb in verbs for move in MOVES[verb]}
        after = {job_id: row.place for job_id, row in self.rows.items()}
        for job_id in self.before.keys() | after.keys():
            move = (self.before.get(job_id, Place.ABSENT), after.get(job_id, Place.ABSENT))
            assert move[0] is move[1] or move in allowed, f"{verbs} moved a job from {move[0]} to {move[1]}"

    def look(self) -> None:
        self.before = {job_id: row.place for job_id, row in self.rows.items()}

    def pick(self, number: int) -> int:
        return sorted(self.rows)[number % len(self.rows)]

    def held_by(self, claim: Claim) -> ModelRow | None:
        row = self.rows.get(claim.id)
        return row if row and row.worker and row.token == claim.token else None

    @rule(delta=st.sampled_from([timedelta(microseconds=1), seconds(5), seconds(30), seconds(61), timedelta(hours=2)]))
    def advance(self, delta: timedelta) -> None:
        self.clock.advance(delta)

    @rule(
        queue=st.sampled_from("ab"),
        priority=st.sampled_from([0, 0, 5]),
        max_attempts=st.integers(1, 3),
        max_crashes=st.integers(1, 3),
        restart=st.sampled_from([True, True, False]),
        keep=st.sampled_from([0.0, 60.0, None]),
        delay=st.sampled_from([seconds(0), seconds(5)]),
        expires=st.sampled_from([None, None, seconds(30)]),
    )
    @precondition(lambda self: len(self.rows) < 5)
    def enqueue(self, delay: timedelta, expires: timedelta | None, **options: Any) -> None:
        self.look()
        options["keep_failed"] = options["keep"]
        inserted = lifecycle.enqueue(
            new_job(**options, delay=delay, expires=expires, timeout=TIMEOUT.total_seconds()), using="default"
        )
        run_at = self.now + delay
        self.rows[inserted.id] = ModelRow(run_at=run_at, expires_at=expires and run_at + expires, **options)
        self.check("enqueue")

    @rule(
        worker=st.sampled_from(["worker-1", "worker-2"]),
        limit=st.integers(1, 3),
        last=st.sampled_from(["", "a"]),
        empty_handed=st.booleans(),
        queues=st.sampled_from([None, ("b", "a"), ("a",)]),
    )
    @precondition(lambda self: self.rows)
    def claim(self, worker: str, limit: int, last: str, empty_handed: bool, queues: tuple[str, ...] | None) -> None:
        self.look()
        asked = request(
            worker=worker,
            limit=limit,
            lease=LEASE,
            grace=GRACE,
            last_queue=last,
            empty_handed=empty_handed,
            queues=queues,
        )
        claimed = lifecycle.claim(self.connection, asked)
        taken = self.expected_claim(limit, last, empty_handed, queues)
        expired = [job_id for job_id in taken if self.is_expired(self.rows[job_id])]
        running = [job_id for job_id in taken if job_id not in expired]
        assert ([claim.id for claim in claimed.claims], claimed.expired) == (running, tuple(sorted(expired)))
        for job_id in expired:
            self.rows[job_id].end("CANCELLED", self.now)
        for claim in claimed.claims:
            row = self.rows[claim.id]
            row.state, row.worker, row.token, row.attempts = "RUNNING", worker, claim.token, row.attempts + 1
            row.lease_expires_at, row.deadline_at = self.now + LEASE, self.now + TIMEOUT + GRACE + LEASE
            row.first_started_at, row.started_at = row.first_started_at or self.now, self.now
            self.claims.append(claim)
        self.check("claim", "expire")

    def is_expired(self, row: ModelRow) -> bool:
        return row.expires_at is not None and row.expires_at <= self.now

    def expected_claim(self, limit: int, last: str, empty_handed: bool, queues: tuple[str, ...] | None) -> list[int]:
        due = [
            (-row.priority, row.queue <= last, row.queue, row.run_at, job_id)
            for job_id, row in self.rows.items()
            if row.state == "READY" and row.run_at <= self.now and (queues is None or row.queue in queues)
            if empty_handed or not row.alone
        ]
        ids = [entry[-1] for entry in sorted(due)][:limit]
        if ids and self.rows[ids[0]].alone:
            return ids[:1]
        first_suspect = next((place for place, job_id in enumerate(ids) if self.rows[job_id].alone), len(ids))
        return ids[:first_suspect]

    @rule(number=st.integers(0, 20), outcome=st.sampled_from(OUTCOMES))
    @precondition(lambda self: self.claims)
    def settle(self, number: int, outcome: Outcome) -> None:
        self.look()
        claim = self.claims[-1 - number % len(self.claims)]
        written = self.store.settle(self.connection, [transitions.settle(claim, outcome)])
        row = self.held_by(claim)
        mine = row is not None and row.state == "RUNNING"
        assert written == ({claim.lease} if mine else set())
        if mine and row is not None:
            self.settled(claim.id, row, outcome)
        self.check("release" if isinstance(outcome, Released) else "settle")

    def settled(self, job_id: int, row: ModelRow, outcome: Outcome) -> None:
        row.free()
        match outcome:
            case Succeeded() if row.keep == 0:
                del self.rows[job_id]
            case Succeeded():
                row.end("SUCCESSFUL", self.now)
            case Failed() | GaveUp():
                row.end("FAILED", self.now)
            case Cancelled():
                row.end("CANCELLED", self.now)
            case Snoozed(delay=delay):
                row.attempts -= 1
                row.wait(self.now + delay)
            case Released(started=True) if not row.restart:
                row.end("FAILED", self.now)
            case Released():
                row.attempts -= 1
                row.wait(row.run_at)
            case Retried():
                self.retried(row, outcome)

    def retried(self, row: ModelRow, outcome: Retried) -> None:
        assert row.first_started_at
        if outcome.patient and row.started_at - row.first_started_at < timedelta(hours=1):
            row.max_attempts = max(row.max_attempts, row.attempts + 1)
        if row.attempts < row.max_attempts:
            row.wait(self.now + outcome.delay)
        else:
            row.end("FAILED", self.now)

    @rule(number=st.integers(0, 20))
    @precondition(lambda self: self.claims)
    def renew(self, number: int) -> None:
        self.look()
        claim = self.claims[-1 - number % len(self.claims)]
        states = lifecycle.renew(self.connection, [claim.lease])
        row = self.held_by(claim)
        assert states == ({claim.lease: State(row.state)} if row else {})
        if row:
            row.lease_expires_at = self.now + LEASE
        self.check("renew")

    @rule(number=st.integers(0, 20))
    @precondition(lambda self: self.claims)
    def let_go(self, number: int) -> None:
        self.look()
        claim = self.claims[-1 - number % len(self.claims)]
        written = self.store.let_go(self.connection, [claim.lease])
        row = self.held_by(claim)
        stopping = row is not None and row.state == "CANCELLED"
        assert written == ({claim.lease} if stopping else set())
        if stopping and row is not None:
            row.free()
        self.check("let go")

    @rule()
    @precondition(lambda self: any(row.worker for row in self.rows.values()))
    def reclaim(self) -> None:
        self.look()
        over = [row for row in self.rows.values() if row.worker and self.is_over(row)]
        # The body of a cancelled one may have been what ended the process.
        neighbours = Counter(row.worker for row in over)
        assert lifecycle.reclaim(self.connection) == len(over)
        for row in over:
            if row.state == "RUNNING":
                self.reclaimed(row, shared=neighbours[row.worker] > 1)
            row.free()
        self.check("reclaim")

    def is_over(self, row: ModelRow) -> bool:
        assert row.lease_expires_at
        assert row.deadline_at
        return min(row.lease_expires_at, row.deadline_at) <= self.now

    def reclaimed(self, row: ModelRow, *, shared: bool) -> None:
        if not row.restart:
            row.end("FAILED", self.now)
            return
        if shared:
            row.attempts -= 1
            row.crashes = min(row.crashes + 1, row.max_crashes - 1)
        else:
            row.crashes += 1
            if row.crashes >= row.max_crashes or row.attempts >= row.max_attempts:
                row.end("FAILED", self.now)
                return
        row.alone = row.crashes == row.max_crashes - 1
        row.wait(self.now + seconds({0: 0, 1: 0, 2: 15}[row.crashes]))

    @rule()
    @precondition(lambda self: any(row.expires_at and row.state == "READY" for row in self.rows.values()))
    def expire(self) -> None:
        self.look()
        expired = [row for row in self.rows.values() if row.state == "READY" and self.is_expired(row)]
        assert lifecycle.expire(self.connection) == len(expired)
        for row in expired:
            row.end("CANCELLED", self.now)
        self.check("expire")

    @rule(number=st.integers(0, 4))
    @precondition(lambda self: self.rows)
    def cancel(self, number: int) -> None:
        self.look()
        job_id = self.pick(number)
        row = self.rows[job_id]
        moves = row.state in ("READY", "RUNNING")
        assert lifecycle.cancel([job_id]) == ([job_id] if moves else [])
        if moves:
            row.end("CANCELLED", self.now)
        self.check("cancel")

    @rule(number=st.integers(0, 4))
    @precondition(lambda self: self.rows)
    def retry(self, number: int) -> None:
        self.look()
        job_id = self.pick(number)
        row = self.rows[job_id]
        moves = row.place in (Place.READY, Place.FAILED, Place.CANCELLED)
        assert lifecycle.retry([job_id]) == ([job_id] if moves else [])
        if moves:
            row.wait(self.now)
            row.finished_at = row.prune_at = row.expires_at = row.first_started_at = None
            row.crashes, row.alone, row.max_attempts = 0, False, max(row.max_attempts, row.attempts + 1)
        self.check("retry")

    @rule(number=st.integers(0, 4))
    @precondition(lambda self: len(self.rows) > 2)
    def delete(self, number: int) -> None:
        self.look()
        job_id = self.pick(number)
        held = self.rows[job_id].worker is not None
        assert lifecycle.delete([job_id]) == ([] if held else [job_id])
        if not held:
            del self.rows[job_id]
        self.check("delete")

    @rule()
    @precondition(lambda self: any(row.prune_at for row in self.rows.values()))
    def prune(self) -> None:
        self.look()
        over = [i for i, row in self.rows.items() if not row.worker and row.prune_at and row.prune_at <= self.now]
        assert lifecycle.prune(self.connection) == len(over)
        for job_id in over:
            del self.rows[job_id]
        self.check("prune")


@pytest.mark.django_db
def test_any_sequence_of_verbs_comes_to_what_the_model_says() -> None:
    run_state_machine_as_test(
        AnySequence,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
