"""What a command says of itself, judged by boards and clocks; nothing here asks a database."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from django_jobs import clock
from django_jobs.clock import FrozenClock
from django_jobs.records import Lease
from django_jobs.worker.beat import Beat, Member
from django_jobs.worker.health import Health
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.signs import HeartbeatFile, Signs
from tests.factories import seconds
from tests.worker.conftest import make_board


class FakeBeat:
    answered_at = 0.0


class FakeLoop:
    """A loop that is late when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lateness = 0.0

    def is_late(self, now: float, bound: float) -> bool:
        return self.lateness > bound


class Room:
    """A command with workers that beat and claim, as long as the test lets them, and a database that answers."""

    def __init__(self, count: int = 1, *, file: HeartbeatFile | None = None, poll: float = 15.0) -> None:
        self.loops = {name: FakeLoop(name) for name in ("keeper", "chores")}
        self.beat = FakeBeat()
        self.members = [self.member(f"w{number}", poll) for number in range(count)]
        self.silent: set[str] = set()
        self.claimless: set[str] = set()
        self.is_database_there = True
        self.health = Health(
            members=lambda: list(self.members),
            wanted=count,
            loops=lambda: cast("list[Loop]", list(self.loops.values())),
            beat=cast("Beat", self.beat),
            signs=Signs(file=file),
        )

    def member(self, identity: str, poll: float = 15.0) -> Member:
        plan = Plan(alias="default", identity=identity, concurrency=2, poll=poll)
        return Member(plan=plan, identity=identity, pid=7, board=make_board(), started_at=clock.monotonic())

    def go_on(self, frozen: FrozenClock, count: float) -> None:
        """Let time pass; whoever can does what it does in it."""
        frozen.advance(seconds(count))
        for member in self.members:
            if member.identity not in self.silent:
                member.board.beat()
            if member.identity not in self.silent | self.claimless and self.is_database_there:
                member.board.note_claim()
        if self.is_database_there:
            self.beat.answered_at = clock.monotonic()
        self.health.look()

    def words(self) -> tuple[str | None, ...]:
        return tuple(self.health.answer(path) for path in ("/live", "/ready", "/started"))


@pytest.fixture
def room(frozen: FrozenClock) -> Room:
    return Room()


@pytest.fixture
def working(room: Room, frozen: FrozenClock) -> Room:
    room.health.hear()
    room.go_on(frozen, 1)
    assert room.words() == ("ok", "ok", "ok")
    return room


WELL = ("ok", "ok", "ok")


def test_it_has_started_when_every_worker_has_come_up(frozen: FrozenClock) -> None:
    room = Room(2)
    room.health.hear()
    room.silent = {"w0", "w1"}
    room.go_on(frozen, 1)
    assert room.words() == ("ok", "starting", "starting")
    room.silent = {"w1"}
    room.go_on(frozen, 1)
    assert room.words() == ("ok", "starting", "starting")
    room.silent = set()
    room.go_on(frozen, 1)
    assert room.words() == WELL


def test_once_started_it_has_started(working: Room, frozen: FrozenClock) -> None:
    working.members = []
    working.go_on(frozen, 100)
    assert working.health.answer("/started") == "ok"


def test_it_is_not_ready_before_it_is_known_whether_it_hears_of_new_jobs(room: Room, frozen: FrozenClock) -> None:
    room.go_on(frozen, 1)
    assert room.words() == ("ok", "listening", "ok")
    room.health.hear()
    assert room.words() == WELL


def test_where_nothing_is_heard_it_polls_and_is_ready(room: Room, frozen: FrozenClock) -> None:
    for _ in range(11):
        room.go_on(frozen, 1)
    assert room.words() == WELL


def test_a_database_that_does_not_answer_makes_it_unready_and_leaves_it_alive(
    working: Room, frozen: FrozenClock
) -> None:
    working.is_database_there = False
    working.go_on(frozen, 30)
    assert working.words() == WELL
    working.go_on(frozen, 1)
    assert working.words() == ("ok", "database", "ok")
    working.is_database_there = True
    working.go_on(frozen, 1)
    assert working.words() == WELL


def test_o07_a_worker_that_beats_but_claims_nothing_makes_it_unready_and_is_told_of_once(
    working: Room, frozen: FrozenClock, odd: list[str]
) -> None:
    working.claimless = {"w0"}
    for _ in range(45):
        working.go_on(frozen, 1)
    assert (working.words(), odd) == (WELL, [])
    for _ in range(30):
        working.go_on(frozen, 1)
        assert working.words() == ("ok", "workers", "ok")
    assert odd == ["worker w0 is alive and has room for jobs, but its claims get no answer"]
    working.claimless = set()
    for _ in range(5):
        working.go_on(frozen, 1)
        assert working.words() == WELL
    assert odd[1:] == ["worker w0 is well again"]


def test_a_worker_that_looks_seldom_has_longer_to_claim(frozen: FrozenClock) -> None:
    room = Room(poll=3_600.0)
    room.health.hear()
    room.go_on(frozen, 1)
    room.claimless = {"w0"}
    room.go_on(frozen, 3_630)
    assert room.words() == WELL
    room.go_on(frozen, 1)
    assert room.words() == ("ok", "workers", "ok")


def test_a_worker_without_room_has_nothing_to_claim(working: Room, frozen: FrozenClock) -> None:
    board = working.members[0].board
    board.take([Lease(id=1, token=1), Lease(id=2, token=2)])
    working.claimless = {"w0"}
    for _ in range(3_600):
        working.go_on(frozen, 1)
    assert working.words() == WELL
    board.drop([Lease(id=1, token=1)])
    working.go_on(frozen, 45)
    assert working.words() == WELL
    working.go_on(frozen, 1)
    assert working.words() == ("ok", "workers", "ok")


def test_a_worker_that_shows_no_life_makes_it_unready(working: Room, frozen: FrozenClock, odd: list[str]) -> None:
    """It may be stopped, or a job holds its interpreter: its deadline, and its lease, are for others to see to."""
    working.silent = {"w0"}
    working.go_on(frozen, 30)
    assert working.words() == WELL
    working.go_on(frozen, 1)
    assert working.words() == ("ok", "workers", "ok")
    assert odd == ["worker w0 shows no sign of life"]


def test_a_body_that_does_not_stop_makes_its_worker_unready(working: Room, frozen: FrozenClock, odd: list[str]) -> None:
    """A supervisor has killed it by then; in the one-process form nobody can."""
    lease = Lease(id=1, token=1)
    board = working.members[0].board
    board.take([lease])
    board.start(lease, timeout=10.0)
    working.go_on(frozen, 25)
    assert working.words() == WELL
    working.go_on(frozen, 1)
    assert working.words() == ("ok", "workers", "ok")
    board.end(lease)
    working.go_on(frozen, 1)
    assert working.words() == WELL
    assert odd == [
        "worker w0 has a body that doesn't stop though its time is over: only its process's end frees that slot",
        "worker w0 is well again",
    ]


def test_a_worker_that_is_being_replaced_has_its_time(working: Room, frozen: FrozenClock) -> None:
    working.members = []
    working.go_on(frozen, 5)
    assert working.words() == WELL
    working.members = [working.member("w1")]
    working.silent = {"w1"}
    working.go_on(frozen, 20)
    assert working.words() == WELL
    working.go_on(frozen, 11)
    assert working.words() == ("ok", "workers", "ok")


def test_one_of_whose_workers_none_is_left_is_unready(working: Room, frozen: FrozenClock) -> None:
    working.members = []
    working.go_on(frozen, 31)
    assert working.words() == ("ok", "workers", "ok")


def test_one_that_stops_is_not_ready_and_tells_nothing_of_its_workers(
    working: Room, frozen: FrozenClock, odd: list[str]
) -> None:
    working.health.stop()
    working.silent = {"w0"}
    working.go_on(frozen, 40)
    assert working.words() == ("ok", "stopping", "ok")
    assert odd == []


def test_one_whose_main_loop_does_not_turn_is_not_alive(working: Room, frozen: FrozenClock) -> None:
    frozen.advance(seconds(30))
    assert working.words() == WELL
    frozen.advance(seconds(1))
    assert working.words() == ("stuck", "stuck", "ok")


@pytest.mark.parametrize(("name", "bound"), [("keeper", 60.0), ("chores", 600.0)])
def test_one_of_whose_loops_one_is_stuck_is_not_alive(working: Room, name: str, bound: float) -> None:
    working.loops[name].lateness = bound
    assert working.words() == WELL
    working.loops[name].lateness = bound + 0.1
    assert working.words() == ("stuck", "stuck", "ok")


def test_there_are_no_other_paths(working: Room) -> None:
    assert [working.health.answer(path) for path in ("/", "", "/metrics", "/live/", "/LIVE")] == [None] * 5


class TestHeartbeatFile:
    """Touched as long as a new start would be of no use."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "heartbeat"

    @pytest.fixture
    def room(self, frozen: FrozenClock, path: Path) -> Room:
        room = Room(file=HeartbeatFile(str(path)))
        room.health.hear()
        return room

    def is_touched(self, room: Room, frozen: FrozenClock, path: Path) -> bool:
        path.unlink(missing_ok=True)
        room.go_on(frozen, 1)
        return path.exists()

    def test_while_all_is_well(self, room: Room, frozen: FrozenClock, path: Path) -> None:
        assert self.is_touched(room, frozen, path)

    def test_o07_not_while_a_worker_beats_but_claims_nothing(self, room: Room, frozen: FrozenClock, path: Path) -> None:
        room.claimless = {"w0"}
        room.go_on(frozen, 1)
        for _ in range(60):
            room.go_on(frozen, 1)
        assert not self.is_touched(room, frozen, path)
        room.claimless = set()
        assert self.is_touched(room, frozen, path)

    def test_not_while_a_body_does_not_stop(self, room: Room, frozen: FrozenClock, path: Path) -> None:
        lease = Lease(id=1, token=1)
        board = room.members[0].board
        board.take([lease])
        board.start(lease, timeout=10.0)
        room.go_on(frozen, 25)
        assert not self.is_touched(room, frozen, path)
        board.end(lease)
        assert self.is_touched(room, frozen, path)

    def test_also_while_the_database_is_away(self, room: Room, frozen: FrozenClock, path: Path) -> None:
        room.is_database_there = False
        for _ in range(300):
            room.go_on(frozen, 1)
        assert self.is_touched(room, frozen, path)

    def test_also_while_a_job_holds_the_interpreter_of_its_worker(
        self, room: Room, frozen: FrozenClock, path: Path
    ) -> None:
        room.silent = {"w0"}
        room.go_on(frozen, 300)
        assert self.is_touched(room, frozen, path)

    def test_not_while_a_loop_is_stuck(self, room: Room, frozen: FrozenClock, path: Path) -> None:
        room.loops["keeper"].lateness = 100.0
        assert not self.is_touched(room, frozen, path)
