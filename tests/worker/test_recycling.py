from __future__ import annotations

import pytest

from django_jobs.records import Lease
from django_jobs.worker.board import Board
from django_jobs.worker.plan import Plan
from django_jobs.worker.recycling import MB, Idleness, Limits, Recycling, memory_in_use, too_low
from tests.worker.conftest import make_board


def plan(**limits: float) -> Plan:
    return Plan(alias="default", identity="w", **limits)  # type: ignore[arg-type]


class TestLimits:
    def test_without_limits_nothing_is_drawn(self) -> None:
        assert Limits.drawn(plan()) == Limits()

    @pytest.mark.parametrize(
        ("drawn", "limits"),
        [
            (0.0, Limits(jobs=90, memory=1000 * MB, runtime=90.0)),
            (0.5, Limits(jobs=100, memory=950 * MB, runtime=100.0)),
            (1.0, Limits(jobs=110, memory=900 * MB, runtime=110.0)),
        ],
    )
    def test_they_differ_by_a_tenth_and_memory_is_never_above_what_was_said(self, drawn: float, limits: Limits) -> None:
        found = Limits.drawn(plan(max_jobs=100, max_memory=1000, max_runtime=100.0), draw=lambda: drawn)
        assert found.jobs == limits.jobs
        assert found.memory == pytest.approx(limits.memory)
        assert found.runtime == pytest.approx(limits.runtime)

    @pytest.mark.parametrize("drawn", [0.0, 1.0])
    def test_one_job_is_one_job(self, drawn: float) -> None:
        assert Limits.drawn(plan(max_jobs=1), draw=lambda: drawn).jobs == 1


class TestRecycling:
    def test_without_limits_it_is_never_due_and_nobody_needs_to_look(self) -> None:
        recycling = Recycling(Limits(), now=100.0, memory=50 * MB)
        assert not recycling.is_needed
        assert recycling.due(now=1e9, memory=10**12) is None

    def test_it_is_due_after_its_run_time(self) -> None:
        recycling = Recycling(Limits(runtime=60.0), now=100.0, memory=50 * MB)
        assert recycling.is_needed
        assert recycling.due(now=159.9, memory=0) is None
        assert recycling.due(now=160.0, memory=0) == "it has worked for 60 s"

    def test_it_is_due_above_its_memory(self) -> None:
        recycling = Recycling(Limits(memory=100 * MB), now=100.0, memory=50 * MB)
        assert recycling.due(now=200.0, memory=99 * MB) is None
        assert recycling.due(now=200.0, memory=101 * MB) == "it takes 101 MB"

    def test_o15_a_limit_that_every_first_job_passes_does_not_cost_a_process_per_job(self) -> None:
        recycling = Recycling(Limits(memory=100 * MB), now=100.0, memory=99 * MB)
        assert recycling.due(now=109.9, memory=101 * MB) is None
        assert recycling.due(now=110.0, memory=101 * MB) is not None

    def test_o15_a_limit_below_the_idle_size_is_no_limit_and_one_line_says_so(self) -> None:
        recycling = Recycling(Limits(memory=10 * MB), now=100.0, memory=50 * MB)
        assert recycling.is_memory_too_low
        assert not recycling.is_needed
        assert recycling.due(now=1e9, memory=10**12) is None
        assert too_low(plan(max_memory=10), 50 * MB) == (
            "--max-memory 10: a worker process takes 50 MB before its first job, so this limit isn't used; give more"
        )

    def test_memory_is_that_of_this_process(self) -> None:
        before = memory_in_use()
        ballast = b"x" * (64 * MB)
        after = memory_in_use()
        assert 5 * MB < before < after
        assert after - before > 32 * MB
        assert len(ballast) == 64 * MB


class TestIdleness:
    def idle_board(self, claimed_at: float) -> Board:
        board = make_board()
        board._floats[3] = claimed_at
        return board

    def test_without_a_timeout_nothing_is_ever_over(self) -> None:
        assert not Idleness(None, now=0.0).is_over([self.idle_board(1.0)], now=1e9)

    def test_it_is_over_when_claims_were_answered_with_nothing_for_that_long(self) -> None:
        idleness = Idleness(10.0, now=100.0)
        board = self.idle_board(101.0)
        assert not idleness.is_over([board], now=109.9)
        assert idleness.is_over([board], now=110.0)

    def test_a_worker_that_got_no_answer_yet_is_not_idle(self) -> None:
        idleness = Idleness(10.0, now=100.0)
        assert not idleness.is_over([self.idle_board(101.0), self.idle_board(0.0)], now=200.0)
        assert not idleness.is_over([], now=200.0)

    def test_a_job_in_hand_or_one_that_came_and_went_begins_the_time_anew(self) -> None:
        idleness = Idleness(10.0, now=100.0)
        board = self.idle_board(101.0)
        board.take([Lease(id=1, token=1)])
        assert not idleness.is_over([board], now=150.0)
        board.drop([Lease(id=1, token=1)])
        board._floats[3] = 150.1
        assert not idleness.is_over([board], now=159.9)
        assert idleness.is_over([board], now=160.0)
        board.take([Lease(id=2, token=2)])
        board.drop([Lease(id=2, token=2)])
        board._floats[3] = 160.1
        assert not idleness.is_over([board], now=170.0)
        assert idleness.is_over([board], now=180.0)
