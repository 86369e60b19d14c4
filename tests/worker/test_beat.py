"""The rows of a command's workers, by the ticks of its beat."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.db import OperationalError, connections

import django_jobs
from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Worker
from django_jobs.records import Lease
from django_jobs.worker.beat import BEAT_INTERVAL, Beat, Member
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from tests.factories import NOON, claim_one, queue_job, seconds
from tests.worker.conftest import make_board

pytestmark = pytest.mark.django_db(transaction=True)


def member(identity: str = "web1:7:ab", *, concurrency: int = 2, **changes: Any) -> Member:
    plan = Plan(alias="default", identity=identity, concurrency=concurrency, queues={"mail": None, "default": 2})
    return Member(**{"plan": plan, "identity": identity, "pid": 7, "board": make_board(), "started_at": 0.0} | changes)


class Room:
    def __init__(self) -> None:
        self.members: list[Member] = []
        self.beat = Beat(link=Link("default"), members=lambda: self.members)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.beat.close()


def rows() -> list[str]:
    return list(Worker.objects.order_by("identity").values_list("identity", flat=True))


def test_a_worker_is_written_as_soon_as_it_is_there(room: Room, frozen: FrozenClock) -> None:
    room.members = [member()]
    assert room.beat.tick() == BEAT_INTERVAL == 10.0
    row = Worker.objects.get()
    assert (row.identity, row.host, row.pid) == ("web1:7:ab", socket.gethostname(), 7)
    assert (row.queues, row.slots) == (["mail", "default"], 2)
    assert (row.started_at, row.beat_at, row.claimed_at) == (NOON, NOON, None)
    assert row.versions.keys() == {"django_jobs", "django", "python", "schedules"}
    assert row.versions["django"] == django.get_version()
    assert row.versions["django_jobs"] == django_jobs.__version__


def test_a_process_without_supervisor_is_a_member_itself(room: Room) -> None:
    plan = Plan(alias="default")
    room.members = [Member.this_process(plan, make_board())]
    room.beat.tick()
    row = Worker.objects.get()
    assert (row.identity, row.pid, row.queues) == (plan.identity, os.getpid(), [])


def test_each_beat_says_when_a_claim_was_last_answered(room: Room, frozen: FrozenClock) -> None:
    room.members = [member()]
    frozen.advance(seconds(7))
    room.members[0].board.note_claim()
    frozen.advance(seconds(3))
    room.beat.tick()
    row = Worker.objects.get()
    assert (row.beat_at, row.claimed_at) == (NOON + seconds(10), NOON + seconds(7))


def test_one_without_room_has_no_claim_to_make(room: Room, frozen: FrozenClock) -> None:
    board = make_board()
    room.members = [member(board=board)]
    board.take([Lease(id=1, token=1), Lease(id=2, token=2)])
    frozen.advance(seconds(3_600))
    room.beat.tick()
    assert Worker.objects.get().claimed_at == NOON + seconds(3_600)
    board.drop([Lease(id=1, token=1)])
    room.beat.tick()
    assert Worker.objects.get().claimed_at is None


def test_the_row_of_one_who_is_gone_goes(room: Room) -> None:
    stays, goes = member("stays"), member("goes")
    room.members = [stays, goes]
    room.beat.tick()
    room.members = [stays, member("new")]
    room.beat.tick()
    assert rows() == ["new", "stays"]


def test_at_the_end_all_rows_go(room: Room) -> None:
    room.members = [member("a"), member("b")]
    room.beat.tick()
    lifecycle.beat(connections["default"], [member("another command's").life()])
    room.beat.close()
    assert rows() == ["another command's"]


def test_rows_that_could_not_be_deleted_are_deleted_later(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.members = [member("goes")]
    room.beat.tick()
    room.members = []
    sign_off = lifecycle.sign_off

    def away(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(lifecycle, "sign_off", away)
    with pytest.raises(OperationalError):
        room.beat.tick()
    monkeypatch.setattr(lifecycle, "sign_off", sign_off)
    room.beat.tick()
    assert rows() == []


def test_a_database_that_is_away_at_the_end_keeps_nobody(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.members = [member()]
    room.beat.tick()

    def away(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(lifecycle, "sign_off", away)
    room.beat.close()
    assert rows() == ["web1:7:ab"]


def test_it_says_when_the_database_last_answered(
    room: Room, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert room.beat.answered_at == 0.0
    frozen.advance(seconds(5))
    room.members = [member()]
    room.beat.tick()
    assert room.beat.answered_at == 5.0

    def away(*_: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(lifecycle, "beat", away)
    frozen.advance(seconds(10))
    with pytest.raises(OperationalError):
        room.beat.tick()
    assert room.beat.answered_at == 5.0


def test_o01b_a_workers_row_that_somebody_deletes_changes_nothing(room: Room, frozen: FrozenClock) -> None:
    """Its jobs stay its own: only leases and boards say who holds what."""
    job = queue_job()
    claim = claim_one(worker="web1:7:ab")
    board = make_board()
    board.take([claim.lease])
    board.start(claim.lease, timeout=None)
    room.members = [member(board=board)]
    keeper = Keeper(boards=lambda: [board], link=Link("default"))
    chores = Chores(link=Link("default"), duties=duties())
    for tick in (room.beat.tick, keeper.tick, chores.tick):
        tick()
    Worker.objects.all().delete()
    for _ in range(60):
        frozen.advance(seconds(5))
        for tick in (keeper.tick, chores.tick):
            tick()
    row = Job.objects.get(pk=job)
    assert (row.state, row.attempts, row.token) == ("RUNNING", 1, claim.token)
    room.beat.tick()
    assert rows() == ["web1:7:ab"]
    keeper.close()
    chores.close()
