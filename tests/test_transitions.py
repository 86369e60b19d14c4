from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from django_jobs import transitions
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim, Failure, HeldRow, Lease
from django_jobs.states import FINISHED, State
from django_jobs.transitions import MOVES, Change, Place

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BROKEN = Failure(kind="error", reason="no such customer")
LAPSE = Failure(kind="lapse", reason="the lease ran out")


def instants(*, first: datetime = NOON, started: datetime = NOON) -> tuple[datetime | None, ...]:
    return NOON, NOON, first, started, None


def claim(**changes: Any) -> Claim:
    defaults: dict[str, Any] = {
        "lease": Lease(id=7, token=99), "name": "shop.greet", "queue": "default", "priority": 0, "args": "[]",
        "kwargs": "{}", "meta": "{}", "attempt": 2, "max_attempts": 3, "crashes": 1, "max_crashes": 3,
        "alone": False, "restart": True, "timeout": 300.0, "keep": 60.0,
        "schedule": None, "waiting_key": None, "on_failure": "", "instants": instants(),
    }  # fmt: skip
    return Claim(**{**defaults, **changes})


def held(**changes: Any) -> HeldRow:
    defaults: dict[str, Any] = {
        "id": 7, "token": 99, "state": State.RUNNING, "worker": "worker-1", "name": "shop.greet", "queue": "default",
        "attempts": 2, "max_attempts": 9, "crashes": 0, "max_crashes": 3, "alone": False, "restart": True,
    }  # fmt: skip
    return HeldRow(**{**defaults, **changes})


def change(**changes: Any) -> Change:
    """Give the change that leaves everything as `claim()` has it."""
    defaults: dict[str, Any] = {
        "lease": Lease(id=7, token=99), "state": State.READY, "attempts": 2, "max_attempts": 3, "crashes": 1,
        "alone": False, "delay": None, "failure": None, "result": None, "gone": False,
    }  # fmt: skip
    return Change(**{**defaults, **changes})


# -- settle


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Succeeded(), change(state=State.SUCCESSFUL)),
        (Succeeded(result="[1]"), change(state=State.SUCCESSFUL, result="[1]")),
        (Failed(failure=BROKEN), change(state=State.FAILED, failure=BROKEN)),
        (GaveUp(failure=BROKEN), change(state=State.FAILED, failure=BROKEN)),
        (Retried(failure=BROKEN, delay=timedelta(seconds=5)), change(delay=timedelta(seconds=5), failure=BROKEN)),
        (Snoozed(delay=timedelta(seconds=5), reason="closed"), change(delay=timedelta(seconds=5), attempts=1)),
        (
            Cancelled(reason="sold out"),
            change(state=State.CANCELLED, failure=Failure(kind="cancelled", reason="sold out")),
        ),
        (Released(started=True), change(attempts=1)),
        (Released(started=False), change(attempts=1)),
    ],
)
def test_every_outcome_has_its_change(outcome: Outcome, expected: Change) -> None:
    assert transitions.settle(claim(), outcome) == expected


def test_retried_on_the_last_attempt_is_failed_and_not_delayed() -> None:
    outcome = Retried(failure=BROKEN, delay=timedelta(seconds=5))
    decided = transitions.settle(claim(attempt=3), outcome)
    assert decided == change(state=State.FAILED, attempts=3, failure=BROKEN)


def test_retried_beyond_the_last_attempt_is_failed() -> None:
    decided = transitions.settle(claim(attempt=9), Retried(failure=BROKEN, delay=timedelta(seconds=5)))
    assert (decided.state, decided.attempts) == (State.FAILED, 9)


def test_snoozing_the_last_attempt_leaves_it() -> None:
    decided = transitions.settle(claim(attempt=3), Snoozed(delay=timedelta(seconds=5)))
    assert (decided.state, decided.attempts, decided.max_attempts) == (State.READY, 2, 3)


def test_patience_grants_one_attempt_more_within_an_hour_of_the_first_start() -> None:
    late = claim(attempt=3, instants=instants(started=NOON + timedelta(minutes=59, seconds=59)))
    decided = transitions.settle(late, Retried(failure=BROKEN, delay=timedelta(seconds=5), patient=True))
    assert decided == change(attempts=3, max_attempts=4, delay=timedelta(seconds=5), failure=BROKEN)


def test_patience_ends_after_an_hour() -> None:
    late = claim(attempt=3, instants=instants(started=NOON + timedelta(hours=1)))
    decided = transitions.settle(late, Retried(failure=BROKEN, delay=timedelta(seconds=5), patient=True))
    assert decided == change(state=State.FAILED, attempts=3, failure=BROKEN)


def test_patience_changes_nothing_while_attempts_are_left() -> None:
    decided = transitions.settle(claim(), Retried(failure=BROKEN, delay=timedelta(seconds=5), patient=True))
    assert decided == change(delay=timedelta(seconds=5), failure=BROKEN)


@pytest.mark.parametrize("outcome", [Succeeded(), Succeeded(result="[1]")])
def test_a_success_with_no_keeping_goes(outcome: Outcome) -> None:
    assert transitions.settle(claim(keep=0.0), outcome).gone


@pytest.mark.parametrize("keep", [None, 0.001, 60.0])
def test_a_success_that_is_kept_stays(keep: float | None) -> None:
    assert not transitions.settle(claim(keep=keep), Succeeded()).gone


@pytest.mark.parametrize("outcome", [Failed(failure=BROKEN), GaveUp(failure=BROKEN), Cancelled()])
def test_no_keeping_is_for_successes_only(outcome: Outcome) -> None:
    assert not transitions.settle(claim(keep=0.0), outcome).gone


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(), Failed(failure=BROKEN), GaveUp(failure=BROKEN), Cancelled(), Snoozed(delay=timedelta(0)),
        Released(), Retried(failure=BROKEN, delay=timedelta(0)),
    ],
)  # fmt: skip
def test_no_end_of_a_run_forgets_crashes(outcome: Outcome) -> None:
    decided = transitions.settle(claim(crashes=2, alone=True), outcome)
    assert (decided.crashes, decided.alone) == (2, True)


# -- release


def test_a_started_job_that_must_not_start_twice_is_interrupted() -> None:
    decided = transitions.release(claim(restart=False), started=True)
    reason = "the worker stopped while this ran, and restart=False forbids a second start"
    interrupted = Failure(kind="interrupted", reason=reason)
    assert decided == change(state=State.FAILED, failure=interrupted)


def test_what_has_not_started_may_always_start() -> None:
    assert transitions.release(claim(restart=False), started=False) == change(attempts=1)


# -- reclaim


def test_dying_alone_counts_as_attempt_and_crash() -> None:
    decided = transitions.reclaim(held(), failure=LAPSE)
    expected = change(max_attempts=9, crashes=1, delay=timedelta(0), failure=LAPSE)
    assert decided == expected


def test_o11_one_short_of_its_last_crash_a_job_runs_alone_however_it_got_there() -> None:
    """Else a death that it shared would be one more than it may have."""
    second = transitions.reclaim(held(crashes=1), failure=LAPSE)
    assert second == change(max_attempts=9, crashes=2, alone=True, delay=timedelta(seconds=15), failure=LAPSE)


@pytest.mark.parametrize("max_crashes", [1, 2, 3, 5])
@pytest.mark.parametrize("pattern", range(32))
def test_o11_a_job_that_kills_its_process_does_so_max_crashes_times_at_the_most(max_crashes: int, pattern: int) -> None:
    """Whichever of its deaths have witnesses; a job that runs alone has none."""
    row = held(max_attempts=20, max_crashes=max_crashes, attempts=0)
    deaths = 0
    while True:
        deaths += 1
        is_shared = bool(pattern >> deaths & 1) and not row.alone
        decided = transitions.reclaim(replace(row, attempts=row.attempts + 1), failure=LAPSE, shared=is_shared)
        if decided.state is State.FAILED:
            break
        row = replace(row, attempts=decided.attempts, crashes=decided.crashes, alone=decided.alone)
    assert deaths <= max(max_crashes, 2)


def test_dying_alone_at_the_last_crash_fails() -> None:
    decided = transitions.reclaim(held(crashes=2), failure=LAPSE)
    assert decided == change(state=State.FAILED, max_attempts=9, crashes=3, failure=LAPSE)


def test_dying_alone_at_the_last_attempt_fails() -> None:
    decided = transitions.reclaim(held(attempts=9), failure=LAPSE)
    assert decided == change(state=State.FAILED, attempts=9, max_attempts=9, crashes=1, failure=LAPSE)


def test_a_shared_death_is_a_crash_but_no_attempt() -> None:
    decided = transitions.reclaim(held(), failure=LAPSE, shared=True)
    assert decided == change(attempts=1, max_attempts=9, crashes=1, delay=timedelta(0), failure=LAPSE)


def test_shared_deaths_stop_one_short_of_failing_and_mark_the_job() -> None:
    second = transitions.reclaim(held(crashes=1), failure=LAPSE, shared=True)
    third = transitions.reclaim(held(crashes=2, alone=True), failure=LAPSE, shared=True)
    assert [(decided.state, decided.crashes, decided.alone) for decided in (second, third)] == [
        (State.READY, 2, True),
        (State.READY, 2, True),
    ]


def test_a_shared_death_never_fails_a_job_on_its_last_attempt() -> None:
    decided = transitions.reclaim(held(attempts=9), failure=LAPSE, shared=True)
    assert (decided.state, decided.attempts) == (State.READY, 8)


def test_where_one_crash_is_the_limit_the_first_shared_death_marks_the_job() -> None:
    decided = transitions.reclaim(held(max_crashes=1), failure=LAPSE, shared=True)
    assert (decided.state, decided.crashes, decided.alone) == (State.READY, 0, True)


def test_a_job_that_runs_alone_and_dies_fails_by_its_crashes() -> None:
    decided = transitions.reclaim(held(crashes=2, alone=True), failure=LAPSE)
    assert (decided.state, decided.crashes) == (State.FAILED, 3)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_what_had_not_started_comes_back_uncounted_and_blameless(shared: bool, restart: bool) -> None:
    row = held(crashes=1, restart=restart)
    decided = transitions.reclaim(row, failure=LAPSE, started=False, shared=shared)
    assert decided == change(attempts=1, max_attempts=9)


@pytest.mark.parametrize("shared", [True, False])
def test_a_lapsed_job_that_must_not_start_twice_is_interrupted(shared: bool) -> None:
    decided = transitions.reclaim(held(crashes=1, restart=False), failure=LAPSE, shared=shared)
    reason = "the lease ran out; restart=False forbids a second start"
    interrupted = Failure(kind="interrupted", reason=reason)
    assert decided == change(state=State.FAILED, max_attempts=9, failure=interrupted)


@pytest.mark.parametrize(
    ("crashes_before", "hold"),
    [(0, 0), (1, 15), (2, 30), (3, 60), (4, 120), (7, 960), (8, 1_920), (9, 3_600), (10, 3_600), (900, 3_600)],
)
def test_the_first_death_comes_back_at_once_and_later_ones_wait_longer(crashes_before: int, hold: int) -> None:
    row = held(crashes=crashes_before, max_crashes=1_000, max_attempts=1_000)
    for shared in (True, False):
        assert transitions.reclaim(row, failure=LAPSE, shared=shared).delay == timedelta(seconds=hold)


# -- the table of moves


def test_every_verb_has_its_moves() -> None:
    assert sorted(MOVES) == [
        "cancel", "claim", "delete", "enqueue", "expire", "fire", "let go", "prune", "reclaim", "release", "renew",
        "reschedule", "retry", "settle",
    ]  # fmt: skip


def moves_from(*places: Place) -> set[tuple[str, str]]:
    return {(verb, to.value) for verb, moves in MOVES.items() for start, to in moves if start in places}


def test_a_succeeded_job_only_goes() -> None:
    assert moves_from(Place.SUCCESSFUL) == {("prune", "absent"), ("delete", "absent")}


def test_a_failed_or_cancelled_job_goes_or_is_retried() -> None:
    expected = {("prune", "absent"), ("delete", "absent"), ("retry", "READY")}
    assert moves_from(Place.FAILED) == expected
    assert moves_from(Place.CANCELLED) == expected


def test_a_stopping_job_can_only_be_let_go() -> None:
    expected = {("renew", "STOPPING"), ("let go", "CANCELLED"), ("reclaim", "CANCELLED")}
    assert moves_from(Place.STOPPING) == expected


def test_nobody_but_a_claim_starts_a_job() -> None:
    starts = {verb for verb, moves in MOVES.items() for start, to in moves if to is Place.RUNNING is not start}
    assert starts == {"claim"}


def test_a_held_job_is_neither_deleted_nor_pruned_nor_retried() -> None:
    taken = {verb for verb, _ in moves_from(Place.RUNNING, Place.STOPPING)}
    assert taken.isdisjoint({"delete", "prune", "retry", "claim", "expire", "reschedule"})


def test_a_job_that_is_gone_comes_back_by_a_new_insert_only() -> None:
    assert moves_from(Place.ABSENT) == {("enqueue", "READY"), ("fire", "READY")}


# -- any sequence of verbs


@dataclass
class Row:
    """As much of a row as the constraints speak of."""

    state: State = State.READY
    token: int | None = None
    worker: str | None = None
    lease: bool = False
    finished: bool = False
    attempts: int = 0
    max_attempts: int = 3
    crashes: int = 0
    max_crashes: int = 3
    alone: bool = False
    restart: bool = True
    keep: float | None = 60.0
    tokens: list[int] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place.STOPPING if self.state is State.CANCELLED and self.worker else Place(self.state.value)


OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Succeeded(), Failed(failure=BROKEN), GaveUp(failure=BROKEN), Cancelled(), Snoozed(delay=timedelta(0)),
        Retried(failure=BROKEN, delay=timedelta(0)), Retried(failure=BROKEN, delay=timedelta(0), patient=True),
        Released(started=True), Released(started=False),
    ]
)  # fmt: skip


class AnyLife(RuleBasedStateMachine):
    """A job's life by the real transitions, over a row in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.row: Row | None = Row()
        self.clock = NOON
        self.first_start: datetime | None = None

    def held_row(self) -> Row:
        assert self.row is not None
        return self.row

    def moved(self, verb: str, before: Place) -> None:
        after = self.row.place if self.row else Place.ABSENT
        assert (before, after) in MOVES[verb], f"{verb} moved a job from {before} to {after}"

    def apply(self, verb: str, decided: Change) -> None:
        row, before = self.held_row(), Place.RUNNING
        assert decided.lease.token == row.token
        if decided.gone:
            self.row = None
        else:
            row.state, row.attempts, row.max_attempts = decided.state, decided.attempts, decided.max_attempts
            row.crashes, row.alone = decided.crashes, decided.alone
            row.worker, row.lease, row.finished = None, False, decided.state in FINISHED
        self.moved(verb, before)

    def claim_of(self) -> Claim:
        row = self.held_row()
        assert row.token is not None
        assert self.first_start is not None
        return claim(
            lease=Lease(7, row.token), attempt=row.attempts, max_attempts=row.max_attempts, crashes=row.crashes,
            max_crashes=row.max_crashes, alone=row.alone, restart=row.restart, keep=row.keep,
            instants=instants(first=self.first_start, started=self.clock),
        )  # fmt: skip

    def is_at(self, *places: Place) -> bool:
        return (self.row.place if self.row else Place.ABSENT) in places

    @rule(
        max_attempts=st.integers(1, 4),
        max_crashes=st.integers(1, 4),
        restart=st.booleans(),
        keep=st.sampled_from([0.0, 60.0, None]),
    )
    @precondition(lambda self: self.is_at(Place.ABSENT))
    def enqueue(self, max_attempts: int, max_crashes: int, restart: bool, keep: float | None) -> None:
        self.row = Row(max_attempts=max_attempts, max_crashes=max_crashes, restart=restart, keep=keep)
        self.first_start = None
        self.moved("enqueue", Place.ABSENT)

    @rule(later=st.sampled_from([timedelta(0), timedelta(minutes=10), timedelta(hours=2)]))
    @precondition(lambda self: self.is_at(Place.READY))
    def claim(self, later: timedelta) -> None:
        row = self.held_row()
        self.clock += later
        self.first_start = self.first_start or self.clock
        row.tokens.append(len(row.tokens) + 1)
        row.state, row.token, row.worker, row.lease = State.RUNNING, row.tokens[-1], "worker-1", True
        row.attempts += 1
        self.moved("claim", Place.READY)

    @rule(outcome=OUTCOMES)
    @precondition(lambda self: self.is_at(Place.RUNNING))
    def settle(self, outcome: Outcome) -> None:
        self.apply("settle", transitions.settle(self.claim_of(), outcome))

    @rule(started=st.booleans())
    @precondition(lambda self: self.is_at(Place.RUNNING))
    def release(self, started: bool) -> None:
        self.apply("release", transitions.release(self.claim_of(), started=started))

    @rule(started=st.booleans(), shared=st.booleans())
    @precondition(lambda self: self.is_at(Place.RUNNING))
    def reclaim(self, started: bool, shared: bool) -> None:
        row = self.held_row()
        crashes, attempts = row.crashes, row.attempts
        found = held(
            token=row.token, attempts=row.attempts, max_attempts=row.max_attempts, crashes=row.crashes,
            max_crashes=row.max_crashes, alone=row.alone, restart=row.restart,
        )  # fmt: skip
        self.apply("reclaim", transitions.reclaim(found, failure=LAPSE, started=started, shared=shared))
        if shared and row.restart:
            assert row.state is State.READY, "neighbours of a poison job live"
        assert crashes <= row.crashes <= row.max_crashes
        assert row.attempts in (attempts, attempts - 1)

    @rule()
    @precondition(lambda self: self.is_at(Place.READY, Place.RUNNING))
    def cancel(self) -> None:
        row, before = self.held_row(), self.held_row().place
        row.state, row.finished = State.CANCELLED, True
        self.moved("cancel", before)

    @rule()
    @precondition(lambda self: self.is_at(Place.STOPPING))
    def let_go(self) -> None:
        self.held_row().worker, self.held_row().lease = None, False
        self.moved("let go", Place.STOPPING)

    @rule()
    @precondition(lambda self: self.is_at(Place.READY, Place.FAILED, Place.CANCELLED))
    def retry(self) -> None:
        row, before = self.held_row(), self.held_row().place
        row.state, row.finished, row.crashes, row.alone = State.READY, False, 0, False
        row.max_attempts = max(row.max_attempts, row.attempts + 1)
        self.first_start = None
        self.moved("retry", before)

    @rule(verb=st.sampled_from(["prune", "delete"]))
    @precondition(lambda self: self.is_at(Place.SUCCESSFUL, Place.FAILED, Place.CANCELLED))
    def go(self, verb: str) -> None:
        before = self.held_row().place
        self.row = None
        self.moved(verb, before)

    @invariant()
    def the_constraints_hold(self) -> None:
        row = self.row
        if row is None:
            return
        if row.state is State.RUNNING:
            assert row.token
            assert row.worker
            assert row.lease
        if row.worker:
            assert row.state in (State.RUNNING, State.CANCELLED)
        assert row.finished == (row.state in FINISHED)
        assert row.attempts >= 0
        assert row.crashes >= 0

    @invariant()
    def a_waiting_job_has_an_attempt_left(self) -> None:
        if self.row and self.row.state is State.READY:
            assert self.row.attempts < self.row.max_attempts


AnyLife.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAnyLife = AnyLife.TestCase


def test_the_table_of_moves_can_fail() -> None:
    life = AnyLife()
    life.row = replace(Row(), state=State.SUCCESSFUL, finished=True)
    with pytest.raises(AssertionError, match=r"retry moved a job from Place.SUCCESSFUL to Place.READY"):
        life.retry()


@pytest.mark.parametrize(("attempts", "state"), [(1, "READY"), (2, "READY"), (3, "FAILED"), (4, "FAILED")])
def test_a_pushed_row_that_is_put_back_waits_as_long_as_an_attempt_is_left(attempts: int, state: str) -> None:
    assert transitions.put_back(attempts, max_attempts=3).value == state


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 15), (2, 30), (3, 60), (9, 3_600), (10**6, 3_600)])
def test_a_pushed_row_that_cannot_be_read_stays_back_for_ever_longer(attempts: int, seconds: int) -> None:
    assert transitions.hold_of_unreadable(attempts) == timedelta(seconds=seconds)
