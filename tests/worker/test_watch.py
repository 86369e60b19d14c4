"""A worker's eye on its board, by its ticks."""

from __future__ import annotations

import faulthandler
from dataclasses import dataclass, field

import pytest

from django_jobs.clock import FrozenClock
from django_jobs.exceptions import Interruption, JobCancelled, JobLost, JobTimeout
from django_jobs.records import Lease
from django_jobs.worker.board import Board, Flag
from django_jobs.worker.seat import Seats
from django_jobs.worker.watch import Watch
from tests.factories import seconds
from tests.worker.conftest import make_board

FIRST, SECOND = Lease(id=1, token=11), Lease(id=2, token=22)


@dataclass
class RecordingSeat:
    """A seat that notes what its body was interrupted with."""

    told: list[type[Interruption]] = field(default_factory=list)

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        self.told.append(kind)
        return True


class Room:
    """A board with a lease of 60 s from now, the seats of its jobs, and their watch."""

    def __init__(self) -> None:
        self.board: Board = make_board(lease=60.0)
        self.seats = Seats()
        self.watch = Watch(board=self.board, seats=self.seats, lease=60.0, ends_itself=False)

    def begin(self, lease: Lease, *, timeout: float | None = None) -> RecordingSeat:
        seat = RecordingSeat()
        self.board.take([lease])
        self.board.start(lease, timeout=timeout)
        self.seats.seat(lease, seat)
        return seat


@pytest.fixture
def room(frozen: FrozenClock) -> Room:
    return Room()


def test_a_body_past_its_deadline_is_timed_out_and_its_neighbour_is_not(room: Room, frozen: FrozenClock) -> None:
    seat, neighbour = room.begin(FIRST, timeout=10.0), room.begin(SECOND, timeout=30.0)
    frozen.advance(seconds(9.999))
    room.watch.tick()
    assert seat.told == []
    frozen.advance(seconds(0.001))
    room.watch.tick()
    assert (seat.told, neighbour.told) == ([JobTimeout], [])


def test_a_body_without_timeout_goes_on(room: Room, frozen: FrozenClock) -> None:
    seat = room.begin(FIRST)
    frozen.advance(seconds(44))
    room.watch.tick()
    assert seat.told == []


def test_a_job_that_has_ended_or_not_begun_is_left_alone(room: Room, frozen: FrozenClock) -> None:
    ended, waiting = room.begin(FIRST, timeout=1.0), RecordingSeat()
    room.board.end(FIRST)
    room.board.take([SECOND])
    room.seats.seat(SECOND, waiting)
    for lease in (FIRST, SECOND):
        room.board.flag(lease, Flag.LOST)
    frozen.advance(seconds(10))
    room.watch.tick()
    assert (ended.told, waiting.told) == ([], [])


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (Flag.CANCELLED, JobCancelled),
        (Flag.LOST, JobLost),
        (Flag.CANCELLED | Flag.LOST, JobLost),
    ],
)
def test_what_the_board_says_of_a_job_reaches_its_body_alone(room: Room, flag: Flag, kind: type[Interruption]) -> None:
    seat, neighbour = room.begin(FIRST), room.begin(SECOND)
    room.board.flag(FIRST, flag)
    room.watch.tick()
    assert (seat.told, neighbour.told) == ([kind], [])


def test_a_cancelled_body_past_its_deadline_is_cancelled(room: Room, frozen: FrozenClock) -> None:
    seat = room.begin(FIRST, timeout=1.0)
    room.board.flag(FIRST, Flag.CANCELLED)
    frozen.advance(seconds(2))
    room.watch.tick()
    assert seat.told == [JobCancelled]


def test_leases_unconfirmed_for_three_quarters_of_their_time_are_lost(room: Room, frozen: FrozenClock) -> None:
    first, second = room.begin(FIRST), room.begin(SECOND, timeout=1.0)
    frozen.advance(seconds(44.9))
    assert room.watch.may_claim
    frozen.advance(seconds(0.1))
    assert not room.watch.may_claim
    room.watch.tick()
    assert (first.told, second.told) == ([JobLost], [JobLost])


def test_leases_that_are_confirmed_again_let_the_worker_claim_again(room: Room, frozen: FrozenClock) -> None:
    frozen.advance(seconds(50))
    assert not room.watch.may_claim
    room.board.confirm(110.0)
    seat = room.begin(FIRST)
    room.watch.tick()
    assert room.watch.may_claim
    assert seat.told == []


def test_losing_everything_interrupts_every_body_and_ends_claiming(room: Room) -> None:
    first, second = room.begin(FIRST), room.begin(SECOND, timeout=10.0)
    room.watch.lose_everything()
    assert not room.watch.may_claim
    room.watch.tick()
    assert (first.told, second.told) == ([JobLost], [JobLost])


def test_each_look_is_a_beat(room: Room, frozen: FrozenClock) -> None:
    frozen.advance(seconds(7))
    room.watch.tick()
    assert room.board.beat_at == 7.0


def test_an_idle_worker_looks_away_for_a_second(room: Room) -> None:
    assert room.watch.tick() == 1.0


def test_an_idle_worker_that_may_not_claim_looks_more_often(room: Room) -> None:
    room.watch.lose_everything()
    assert room.watch.tick() == 0.2


def test_while_a_body_runs_nobody_looks_away_for_longer_than_a_fifth_of_a_second(room: Room) -> None:
    room.begin(FIRST)
    room.begin(SECOND, timeout=100.0)
    assert room.watch.tick() == 0.2


def test_the_next_look_comes_with_the_nearest_deadline(room: Room, frozen: FrozenClock) -> None:
    room.begin(FIRST, timeout=10.0)
    room.begin(SECOND, timeout=20.0)
    frozen.advance(seconds(9.95))
    assert room.watch.tick() == pytest.approx(0.05)


def test_a_deadline_that_is_over_makes_nobody_look_without_end(room: Room, frozen: FrozenClock) -> None:
    room.begin(FIRST, timeout=10.0)
    frozen.advance(seconds(11))
    assert room.watch.tick() == 0.2
    room.begin(SECOND, timeout=0.1)
    assert room.watch.tick() == pytest.approx(0.1)


class TestEndingItself:
    """By a timer in C; here only noted, in seconds from now."""

    @pytest.fixture
    def armed(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """Give the timer that runs, if there is one."""
        timer: list[float] = []

        def arm(seconds: float, **how: bool) -> None:
            assert how == {"exit": True}
            timer[:] = [seconds]

        monkeypatch.setattr(faulthandler, "dump_traceback_later", arm)
        monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", timer.clear)
        return timer

    @pytest.fixture
    def supervised(self, room: Room, armed: list[float]) -> Room:
        room.watch = Watch(board=room.board, seats=room.seats, lease=60.0, ends_itself=True)
        return room

    def test_it_comes_at_seven_eighths_of_an_unconfirmed_lease(
        self, supervised: Room, armed: list[float], frozen: FrozenClock
    ) -> None:
        supervised.begin(FIRST)
        supervised.watch.tick()
        assert armed == []
        frozen.advance(seconds(30))
        supervised.watch.tick()
        assert armed == [22.5]
        frozen.advance(seconds(20))
        supervised.watch.tick()
        assert armed == [2.5]

    def test_what_is_confirmed_again_goes_on(self, supervised: Room, armed: list[float], frozen: FrozenClock) -> None:
        supervised.begin(FIRST)
        frozen.advance(seconds(50))
        supervised.watch.tick()
        supervised.board.confirm(110.0)
        supervised.watch.tick()
        assert armed == []

    def test_o33_ends_that_only_wait_to_be_written_are_not_taken_along(
        self, supervised: Room, armed: list[float], frozen: FrozenClock
    ) -> None:
        supervised.begin(FIRST)
        supervised.begin(SECOND)
        frozen.advance(seconds(50))
        supervised.board.end(FIRST)
        supervised.watch.tick()
        assert armed == [2.5]
        supervised.board.end(SECOND)
        supervised.watch.tick()
        assert armed == []

    def test_a_claim_whose_body_may_yet_begin_keeps_the_timer_running(
        self, supervised: Room, armed: list[float], frozen: FrozenClock
    ) -> None:
        supervised.board.take([FIRST])
        frozen.advance(seconds(50))
        supervised.watch.tick()
        assert armed == [2.5]

    def test_an_idle_worker_that_may_still_claim_is_ready_and_looks_often(
        self, supervised: Room, armed: list[float], frozen: FrozenClock
    ) -> None:
        frozen.advance(seconds(40))
        assert supervised.watch.tick() == 0.2
        assert armed == [12.5]
        frozen.advance(seconds(5))
        supervised.watch.tick()
        assert armed == []


def test_disarming_what_was_never_armed_does_nothing(room: Room) -> None:
    room.watch.disarm()
    assert room.watch.may_claim
