"""Keeper, chores, board and loop, by their ticks."""

from __future__ import annotations

import os
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import override_settings

from django_jobs import clock, lifecycle, signals
from django_jobs.models import Job
from django_jobs.records import Lease
from django_jobs.stores import store_for
from django_jobs.worker.board import Board, Flag
from django_jobs.worker.chores import Chores, Duty, duties
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.loop import Loop
from django_jobs.worker.setback import pause_after
from tests.factories import claim_one, locked, queue_job, seconds
from tests.stores.filling import fill
from tests.system.processes import until
from tests.worker.conftest import make_board

MINUTE = timedelta(minutes=1)


def board_of(*leases: Lease, started: bool = True) -> Board:
    board = make_board()
    board.take(leases)
    for lease in leases:
        if started:
            board.start(lease, timeout=None)
    return board


def keeper_of(*boards: Board) -> Keeper:
    return Keeper(boards=lambda: boards, link=Link("default"))


@pytest.mark.django_db(transaction=True)
class TestKeeper:
    def test_it_renews_exactly_what_the_boards_hold(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        queue_job()
        mine, leaked = claim_one(), claim_one()
        frozen.advance(seconds(30))
        keeper = keeper_of(board_of(mine.lease))
        keeper.tick()
        keeper.close()
        assert Job.objects.get(pk=mine.id).lease_expires_at == frozen.instant + MINUTE
        assert Job.objects.get(pk=leaked.id).lease_expires_at == frozen.instant + seconds(30)

    def test_it_confirms_the_boards_for_a_lease_from_before_the_statement(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        board = board_of(claim_one().lease)
        frozen.advance(seconds(30))
        keeper = keeper_of(board)
        keeper.tick()
        keeper.close()
        assert board.confirmed_until == 90.0

    def test_it_renews_each_quarter_of_a_lease(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        claim = claim_one()
        keeper = keeper_of(board_of(claim.lease))
        renewed = []
        for _ in range(32):
            keeper.tick()
            renewed.append(Job.objects.get(pk=claim.id).lease_expires_at)
            frozen.advance(seconds(1))
        keeper.close()
        assert len(set(renewed)) == 3

    def test_with_jobs_in_hand_it_looks_each_second_whether_one_was_cancelled(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        claim = claim_one()
        board = board_of(claim.lease)
        keeper = keeper_of(board)
        assert keeper.tick() == 1.0
        lifecycle.cancel([claim.id])
        frozen.advance(seconds(1))
        keeper.tick()
        keeper.close()
        assert [entry.flags for entry in board.entries()] == [Flag.CANCELLED]

    def test_it_flags_what_was_taken_away(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        stale = claim_one()
        frozen.advance(seconds(61))
        lifecycle.reclaim(connections["default"])
        claim_one()
        board = board_of(stale.lease)
        keeper = keeper_of(board)
        keeper.tick()
        keeper.close()
        assert [entry.flags for entry in board.entries()] == [Flag.LOST]

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
    def test_a_locked_row_is_renewed_as_soon_as_it_is_free_and_starves_no_other(
        self, frozen: clock.FrozenClock
    ) -> None:
        queue_job()
        queue_job()
        stuck, free = claim_one(), claim_one()
        board = board_of(stuck.lease, free.lease)
        keeper = keeper_of(board)
        frozen.advance(seconds(30))
        with locked(stuck.id):
            assert keeper.tick() == 0.2
            assert Job.objects.get(pk=free.id).lease_expires_at == frozen.instant + MINUTE
        frozen.advance(seconds(1))
        keeper.tick()
        keeper.close()
        assert Job.objects.get(pk=stuck.id).lease_expires_at == frozen.instant + MINUTE
        assert [entry.flags for entry in board.entries()] == [Flag.NONE, Flag.NONE]

    def test_without_an_answer_nothing_is_confirmed(
        self, frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: Any) -> None:
            raise OperationalError("away")

        queue_job()
        board = board_of(claim_one().lease)
        monkeypatch.setattr(lifecycle, "renew", away)
        frozen.advance(seconds(30))
        keeper = keeper_of(board)
        with pytest.raises(OperationalError):
            keeper.tick()
        assert board.confirmed_until == 60.0

    @override_settings(DJANGO_JOBS={"TIMEOUT_GRACE": "5s"})
    def test_where_nobody_kills_it_a_body_that_does_not_stop_is_not_renewed(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        queue_job()
        stuck, other = claim_one(), claim_one()
        board = make_board()
        board.take([stuck.lease, other.lease])
        board.start(stuck.lease, timeout=10.0)
        board.start(other.lease, timeout=None)
        keeper = Keeper(boards=lambda: [board], link=Link("default"), leaves_stuck=True)
        left = []
        for wait in (14.9, 15.0, 15.0):
            frozen.advance(seconds(wait))
            keeper.tick()
            left.append([Job.objects.get(pk=claim.id).lease_expires_at - frozen.instant for claim in (stuck, other)])
            if len(left) == 2:
                board.end(stuck.lease)
        keeper.close()
        # Once it has ended after all it is renewed until that is written.
        assert left == [[MINUTE, MINUTE], [seconds(45), MINUTE], [MINUTE, MINUTE]]

    def test_with_empty_hands_it_asks_the_database_nothing(self) -> None:
        link = Link("default")
        Keeper(boards=lambda: [make_board()], link=link).tick()
        assert link._connection is None


@pytest.mark.django_db(transaction=True)
class TestDoubt:
    """A lease that isn't held any more: our own write whose answer was lost, or somebody else's doing?"""

    def flags_after(self, board: Board) -> Flag:
        keeper = keeper_of(board)
        keeper.tick()
        keeper.close()
        [entry] = board.entries()
        return entry.flags

    def test_what_was_confirmed_all_the_time_nobody_else_can_have_had(self, frozen: clock.FrozenClock) -> None:
        lease = Lease(id=10**9, token=1)
        board = board_of(lease)
        frozen.advance(seconds(59))
        assert self.flags_after(board) == Flag.LOST
        assert board.doubted == set()

    def test_what_was_unconfirmed_for_a_while_is_doubted(self, frozen: clock.FrozenClock) -> None:
        lease = Lease(id=10**9, token=1)
        board = board_of(lease)
        frozen.advance(seconds(60))
        assert board.doubted == {lease}
        assert self.flags_after(board) == Flag.LOST | Flag.DOUBTED
        assert board.confirmed_until == 120.0
        assert board.doubted == {lease}

    def test_what_is_still_held_after_all_is_not(self, frozen: clock.FrozenClock) -> None:
        queue_job()
        board = board_of(claim_one().lease)
        frozen.advance(seconds(61))
        assert self.flags_after(board) == Flag.NONE
        assert board.doubted == set()


class TestBoard:
    def test_one_that_was_closed_can_still_be_read_by_who_looks_at_it_just_now(self) -> None:
        board = Board.create(2, lease=60.0)
        fd = board.fd
        assert fd is not None
        board.take([Lease(id=1, token=2)])
        board.close()
        assert [entry.lease for entry in board.entries()] == [Lease(id=1, token=2)]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)

    def test_both_sides_see_the_same_entries(self) -> None:
        worker = Board.create(2, lease=60.0)
        assert worker.fd is not None
        supervisor = Board.attach(os.dup(worker.fd))
        lease = Lease(id=2**62, token=2**62 + 1)
        worker.take([lease])
        worker.start(lease, timeout=30.0)
        [entry] = supervisor.entries()
        assert (entry.lease, entry.is_running) == (lease, True)
        assert entry.deadline == pytest.approx(entry.started + 30.0)
        supervisor.flag(lease, Flag.CANCELLED)
        assert worker.entries()[0].flags == Flag.CANCELLED
        worker.end(lease)
        assert not supervisor.entries()[0].is_running
        worker.drop([lease])
        assert supervisor.entries() == []
        supervisor.close()
        worker.close()

    def test_a_place_is_clean_for_the_next_job(self) -> None:
        board = make_board(1)
        first, second = Lease(id=1, token=1), Lease(id=2, token=2)
        board.take([first])
        board.start(first, timeout=1.0)
        board.flag(first, Flag.LOST)
        board.drop([first])
        board.take([second])
        [entry] = board.entries()
        assert (entry.lease, entry.started, entry.deadline, entry.flags) == (second, 0.0, 0.0, Flag.NONE)

    def test_room_says_how_many_more_fit(self) -> None:
        board = make_board(2)
        lease = Lease(id=1, token=1)
        assert board.room == 2
        board.take([lease])
        assert board.room == 1
        board.drop([lease, lease])
        assert board.room == 2

    def test_what_is_closed_can_still_be_read(self) -> None:
        # The supervisor's loops may be at it when the undertaker is through with it.
        board = Board.create(1, lease=60.0)
        board.take([Lease(id=7, token=5)])
        board.close()
        board.confirm(10.0)
        assert ([entry.lease.id for entry in board.entries()], board.claimed_at) == ([7], 0.0)
        board.close()

    def test_a_flag_for_a_claim_of_another_token_is_lost(self) -> None:
        board = board_of(Lease(id=1, token=1))
        board.flag(Lease(id=1, token=2), Flag.LOST)
        assert board.entries()[0].flags == Flag.NONE

    def test_what_is_dropped_twice_or_never_was_there_does_not_matter(self) -> None:
        board = make_board()
        board.drop([Lease(id=1, token=2)])
        assert board.entries() == []


@pytest.mark.django_db(transaction=True)
class TestChores:
    def test_each_duty_comes_at_its_interval(self, frozen: clock.FrozenClock) -> None:
        done: list[str] = []

        def do(name: str) -> Any:
            return lambda connection: done.append(name) or 0

        table = (Duty(name="often", interval=10, do=do("often")), Duty(name="seldom", interval=60, do=do("seldom")))
        chores = Chores(link=Link("default"), duties=table)
        assert chores.tick() == 10.0
        frozen.advance(seconds(10))
        assert chores.tick() == 10.0
        frozen.advance(seconds(50))
        chores.tick()
        chores.close()
        assert done == ["often", "seldom", "often", "often", "seldom"]

    def test_a_duty_that_finds_as_much_as_it_takes_comes_again_after_the_others_and_a_pause_as_long_as_it_took(
        self, frozen: clock.FrozenClock
    ) -> None:
        done: list[str] = []
        found = [10, 10, 9]

        def often(_: Any) -> int:
            done.append("often")
            return 10

        def backlog(_: Any) -> int:
            done.append("backlog")
            frozen.advance(seconds(2))
            return found.pop(0)

        table = (Duty(name="often", interval=1, do=often), Duty(name="backlog", interval=60, do=backlog, full=10))
        chores = Chores(link=Link("default"), duties=table)
        delays = [chores.tick()]
        for _ in range(4):
            frozen.advance(seconds(1))
            delays.append(chores.tick())
        chores.close()
        assert done == ["often", "backlog", "often", "often", "backlog", "often", "often", "backlog"]
        # The other was due while it took its time.
        assert delays == [0.0, 1.0, 0.0, 1.0, 0.0]

    def test_expired_jobs_of_any_number_end_in_rounds(self, frozen: clock.FrozenClock) -> None:
        fill(store_for("default"), connections["default"], expired=2_500)
        chores = Chores(link=Link("default"), duties=duties())
        delays = [chores.tick() for _ in range(3)]
        chores.close()
        assert delays == [0.0, 0.0, 15.0]
        assert Job.objects.filter(state="CANCELLED").count() == 2_500

    def test_a_duty_that_fails_does_not_keep_the_others_from_theirs(self, frozen: clock.FrozenClock) -> None:
        done: list[str] = []

        def fails(_: Any) -> int:
            raise OperationalError("away")

        def works(_: Any) -> int:
            done.append("works")
            return 0

        table = (Duty(name="fails", interval=10, do=fails), Duty(name="works", interval=10, do=works))
        chores = Chores(link=Link("default"), duties=table)
        with pytest.raises(OperationalError, match="away"):
            chores.tick()
        chores.close()
        assert done == ["works"]

    def test_after_a_failure_no_round_is_good_until_the_database_answers(
        self, frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_: Any) -> int:
            raise OperationalError("away")

        chores = Chores(link=Link("default"), duties=(Duty(name="fails", interval=10, do=fails),))
        with pytest.raises(OperationalError):
            chores.tick()
        with monkeypatch.context() as patch:
            patch.setattr(lifecycle, "pulse", fails)
            for _ in range(2):
                with pytest.raises(OperationalError):
                    chores.tick()
        assert chores.tick() == 10.0
        chores.close()

    def test_reclaim_holds_off_for_a_quarter_lease_after_the_start_and_after_an_error(
        self, frozen: clock.FrozenClock
    ) -> None:
        done: list[float] = []
        broken = [False]

        def reclaim(_: Any) -> int:
            done.append(frozen.elapsed)
            return 0

        def other(_: Any) -> int:
            if broken[0]:
                raise OperationalError("away")
            return 0

        table = (
            Duty(name="reclaim", interval=5, do=reclaim, hold=15),
            Duty(name="other", interval=1, do=other),
        )
        chores = Chores(link=Link("default"), duties=table)
        for second in range(60):
            broken[0] = second == 20
            if broken[0]:
                with pytest.raises(OperationalError):
                    chores.tick()
            else:
                chores.tick()
            frozen.advance(seconds(1))
        chores.close()
        assert done == [15.0, 20.0, 35.0, 40.0, 45.0, 50.0, 55.0]

    def test_the_duties_bring_back_lapsed_jobs_end_expired_and_prune_finished_ones(
        self, frozen: clock.FrozenClock
    ) -> None:
        lapsed = queue_job(queue="a")
        claim_one()
        expired = queue_job(queue="b", expires=seconds(30))
        pruned = queue_job(queue="c", keep=10.0)
        from django_jobs.outcomes import Succeeded

        lifecycle.settle(connections["default"], [(claim_one(queues=("c",)), Succeeded())])
        chores = Chores(link=Link("default"), duties=duties())
        frozen.advance(seconds(61))
        chores.tick()
        frozen.advance(seconds(3))
        chores.tick()
        chores.close()
        assert dict(Job.objects.values_list("pk", "state")) == {lapsed: "READY", expired: "CANCELLED"}
        assert pruned not in (lapsed, expired)


class TestLoop:
    def test_a_round_gives_the_delay_that_its_tick_said(self) -> None:
        assert Loop("test", lambda: 2.5).turn() == 2.5

    def test_bad_rounds_are_told_and_wait_longer_and_longer(self) -> None:
        told: list[str] = []

        def hear(*, message: str, **_: Any) -> None:
            told.append(message)

        def fails() -> float:
            raise ValueError("bad round")

        signals.odd.connect(hear)
        try:
            loop = Loop("test", fails)
            delays = [loop.turn() for _ in range(8)]
        finally:
            signals.odd.disconnect(hear)
        assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
        assert told[0] == "test: a round failed (1 in a row): ValueError('bad round')"
        assert len(told) == 8

    def test_a_round_that_raises_what_is_no_exception_is_a_bad_round_too(self) -> None:
        def exits() -> float:
            raise SystemExit

        assert Loop("test", exits).turn() == 0.1

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_loop_that_can_not_go_on_says_so(self) -> None:
        deaths: list[bool] = []

        def exits(**_: Any) -> float:
            raise KeyboardInterrupt

        signals.odd.connect(exits)
        try:
            loop = Loop("test", exits, on_death=lambda: deaths.append(True))
            loop.start()
            assert loop.join(10.0)
        finally:
            signals.odd.disconnect(exits)
        assert deaths == [True]

    def test_a_good_round_ends_the_count_of_bad_ones(self) -> None:
        outcomes = iter([ValueError("bad"), 1.0, ValueError("bad")])

        def tick() -> float:
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        loop = Loop("test", tick)
        assert [loop.turn() for _ in range(3)] == [0.1, 1.0, 0.1]

    def test_the_first_good_round_after_the_database_was_away_says_that_it_is_back(self) -> None:
        said: list[str] = []
        outcomes = iter([1.0, OperationalError("away"), OperationalError("away"), 1.0, 1.0, ValueError("bad"), 1.0])

        def tick() -> float:
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        loop = Loop("test", tick, on_back=lambda: said.append("back"))
        heard = []
        for _ in range(7):
            loop.turn()
            heard.append(len(said))
        assert heard == [0, 0, 0, 1, 1, 1, 1]

    def test_a_pause_never_overflows(self) -> None:
        assert pause_after(10_000) == 5.0

    def test_one_that_is_under_way_or_was_to_begin_is_late_after_its_time(self, frozen: clock.FrozenClock) -> None:
        begun, gate = Event(), Event()

        def tick() -> float:
            begun.set()
            gate.wait(20.0)
            return 30.0

        loop = Loop("test", tick)
        assert not loop.is_late(1e9, 60.0)
        loop.start()
        assert begun.wait(20.0)
        assert (loop.is_late(60.0, 60.0), loop.is_late(60.1, 60.0)) == (False, True)
        gate.set()
        until(lambda: not loop.is_late(90.0, 60.0), what="the round is over")
        assert loop.is_late(90.1, 60.0)
        loop.stop()
        assert loop.join(20.0)

    def test_it_ends_when_told_and_cleans_up(self) -> None:
        ended: list[bool] = []
        loop = Loop("test", lambda: 60.0, on_end=lambda: ended.append(True))
        loop.start()
        loop.stop()
        assert loop.join(10.0)
        assert ended == [True]
