"""A crew's claims: what the board says of them, how they go on after a fault, and when the next one comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Claimed, ClaimRequest
from django_jobs.worker.board import Board
from django_jobs.worker.crew import Crew
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from django_jobs.worker.seat import Seats
from django_jobs.worker.watch import Watch
from tests.factories import locked, queue_job, seconds
from tests.system.processes import until
from tests.worker.conftest import make_board
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]


class Claims:
    """Stands in for `lifecycle.claim`, and raises as often as the test says."""

    def __init__(self) -> None:
        self.failures_left = 0
        self.failed = 0
        self.claim = lifecycle.claim

    def __call__(self, connection: Any, request: ClaimRequest, *, token: int | None = None) -> Claimed:
        if self.failures_left:
            self.failures_left -= 1
            self.failed += 1
            raise RuntimeError("no database's error")
        return self.claim(connection, request, token=token)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Claims:
    claims = Claims()
    monkeypatch.setattr(lifecycle, "claim", claims)
    return claims


class TestO07:
    """A worker that is alive, and whose claims fail, doesn't stay like that, and doesn't look well meanwhile."""

    def test_o07_after_a_claim_that_raised_it_goes_on_by_itself(
        self, make_crew: MakeCrew, claims: Claims, odd: list[str]
    ) -> None:
        jobs.note.later("done")
        claims.failures_left = 1
        crew = make_crew()
        crew.start()
        until(lambda: jobs.noted == ["done"], what="the job runs")
        assert claims.failed == 1
        [message] = [message for message in odd if message.startswith("crew: ")]
        assert message == 'crew: a round failed (1 in a row): RuntimeError("no database\'s error")'

    def test_o07_while_its_claims_raise_it_beats_but_no_claim_is_noted(
        self, make_crew: MakeCrew, claims: Claims
    ) -> None:
        board = make_board()
        watch = Watch(board=board, seats=Seats(), lease=60.0, ends_itself=False)
        claims.failures_left = 1_000_000
        crew = make_crew(board=board)
        crew.start()
        until(lambda: claims.failed >= 3, what="some claims have failed")
        watch.tick()
        assert board.beat_at
        assert not board.claimed_at
        claims.failures_left = 0
        until(lambda: board.claimed_at, what="a claim is answered again")

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no connections that can be cut")
    def test_o07_an_idle_crew_whose_connection_was_cut_claims_again(self, make_crew: MakeCrew) -> None:
        crew = make_crew(poll=3_600.0)
        board = crew._board
        crew.start()
        until(lambda: board.claimed_at, what="the crew is idle")
        cut(crew)
        jobs.note.later("after")
        crew.wake()
        until(lambda: jobs.noted == ["after"], what="the job runs")


def cut(crew: Crew) -> None:
    """End the crew's connection as a restart of the server does."""
    wrapper = crew._link._connection
    assert wrapper is not None
    assert wrapper.connection is not None
    with connections["default"].cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 10000)", [wrapper.connection.info.backend_pid])


class TestNotes:
    """The board says when a claim was answered, or that there was no room for one."""

    def test_an_answer_is_noted_whether_it_brought_jobs_or_not(self, make_crew: MakeCrew, frozen: FrozenClock) -> None:
        crew = make_crew()
        frozen.advance(seconds(5))
        crew.turn()
        assert crew._board.claimed_at == 5.0
        jobs.note.later(1)
        frozen.advance(seconds(5))
        crew.turn()
        assert crew._board.claimed_at == 10.0

    def test_full_hands_are_noted(self, make_crew: MakeCrew, frozen: FrozenClock) -> None:
        jobs.note.later_many([(1,), (2,)])
        crew = make_crew(concurrency=2)
        crew.turn()
        frozen.advance(seconds(5))
        crew.turn()
        assert crew._board.claimed_at == 5.0

    def test_full_caps_are_noted(self, make_crew: MakeCrew, frozen: FrozenClock) -> None:
        jobs.note.using(queue="mail").later_many([(1,), (2,)])
        crew = make_crew(concurrency=2, queues={"mail": 1})
        crew.turn()
        frozen.advance(seconds(5))
        crew.turn()
        assert crew._board.claimed_at == 5.0

    def test_a_job_that_runs_alone_is_noted(self, make_crew: MakeCrew, frozen: FrozenClock) -> None:
        job = jobs.note.later(1)
        Job.objects.filter(pk=job.pk).update(alone=True)
        crew = make_crew(concurrency=2)
        crew.turn()
        frozen.advance(seconds(5))
        crew.turn()
        assert crew._board.claimed_at == 5.0

    def test_one_that_may_not_claim_notes_nothing_and_looks_each_second_whether_it_may(
        self, frozen: FrozenClock
    ) -> None:
        board: Board = make_board()
        crew = Crew(
            plan=Plan(alias="default", poll=60.0), board=board, seats=Seats(), link=Link("default"),
            may_claim=lambda: False,
        )  # fmt: skip
        frozen.advance(seconds(5))
        assert crew.turn() == 1.0
        assert board.claimed_at == 0.0


class TestPolls:
    def test_an_idle_crew_looks_by_itself_as_its_plan_says(self, make_crew: MakeCrew) -> None:
        assert make_crew(poll=None).turn() == 15.0
        assert make_crew(poll=30.0).turn() == 30.0

    def test_it_looks_again_when_the_next_job_falls_due(self, make_crew: MakeCrew, frozen: FrozenClock) -> None:
        queue_job(delay=seconds(4))
        assert make_crew(poll=30.0).turn() == pytest.approx(4.0, abs=0.001)

    def test_a_backlog_that_waits_for_room_makes_nobody_look_without_end(
        self, make_crew: MakeCrew, frozen: FrozenClock
    ) -> None:
        jobs.note.using(queue="mail").later_many([(1,), (2,)])
        crew = make_crew(poll=30.0, concurrency=2, caps={"mail": 1})
        crew.turn()
        assert [crew.turn() for _ in range(3)] == [30.0] * 3

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
    def test_a_due_row_that_somebody_locks_is_tried_again_and_ever_more_seldom(self, make_crew: MakeCrew) -> None:
        job = jobs.note.later(1)
        crew = make_crew(poll=1.0)
        with locked(job.pk):
            assert [crew.turn() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        crew.turn()
        assert [claim.id for claim in crew._todo] == [job.pk]
