"""The lookout, by its ticks: one look for all workers, and when the next one comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.worker.link import Link
from django_jobs.worker.lookout import Lookout
from django_jobs.worker.plan import Plan
from tests.factories import claim_one, queue_job, seconds

pytestmark = pytest.mark.django_db(transaction=True)


class Room:
    """A lookout, and how often it woke the crews."""

    def __init__(self, **plan: Any) -> None:
        self.woken = 0
        self.lookout = Lookout(link=Link("default"), plan=Plan(alias="default", **plan), wake=self.wake)

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def make_room() -> Iterator[Any]:
    rooms: list[Room] = []

    def make(**plan: Any) -> Room:
        rooms.append(Room(**plan))
        return rooms[-1]

    yield make
    for room in rooms:
        room.lookout.close()


@pytest.fixture
def room(make_room: Any, frozen: FrozenClock) -> Room:
    made: Room = make_room()
    return made


def test_it_looks_each_second_and_where_the_database_is_heard_each_five(room: Room, frozen: FrozenClock) -> None:
    assert room.lookout.tick() == 1.0
    room.lookout.hear(is_hearing=True)
    frozen.advance(seconds(1))
    assert room.lookout.tick() == 5.0
    room.lookout.hear(is_hearing=False)
    frozen.advance(seconds(5))
    assert room.lookout.tick() == 1.0
    assert room.woken == 0


def test_it_looks_as_often_as_it_is_told_to(make_room: Any, frozen: FrozenClock) -> None:
    room = make_room(poll=7.5)
    assert room.lookout.tick() == 7.5
    room.lookout.hear(is_hearing=True)
    frozen.advance(seconds(7.5))
    assert room.lookout.tick() == 7.5


def test_it_wakes_the_crews_when_a_job_falls_due_and_not_before(room: Room, frozen: FrozenClock) -> None:
    room.lookout.hear(is_hearing=True)
    queue_job(delay=seconds(3.5))
    assert room.lookout.tick() == pytest.approx(3.5, abs=0.001)
    assert room.woken == 0
    frozen.advance(seconds(3.5))
    room.lookout.tick()
    assert room.woken == 1


def test_what_stays_due_is_looked_at_again_and_ever_more_seldom(room: Room, frozen: FrozenClock) -> None:
    """Somebody locks it, or it waits for room."""
    room.lookout.hear(is_hearing=True)
    queue_job()
    delays = []
    for _ in range(8):
        delays.append(room.lookout.tick())
        frozen.advance(seconds(delays[-1]))
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    assert room.woken == 8
    claim_one()
    room.lookout.tick()
    queue_job()
    frozen.advance(seconds(5))
    assert room.lookout.tick() == pytest.approx(0.2)


def test_what_stays_due_does_not_hide_what_falls_due(room: Room, frozen: FrozenClock) -> None:
    room.lookout.hear(is_hearing=True)
    queue_job(queue="crowded")
    for _ in range(8):
        frozen.advance(seconds(room.lookout.tick()))
    queue_job(queue="free", delay=seconds(2))
    assert room.lookout.tick() == pytest.approx(2.0, abs=0.001)


def test_news_is_looked_at_ten_times_a_second_at_the_most(room: Room, frozen: FrozenClock) -> None:
    """However often the listener hears of something new."""
    room.lookout.tick()
    queue_job()
    frozen.advance(seconds(0.04))
    assert room.lookout.tick() == pytest.approx(0.06)
    assert room.woken == 0
    frozen.advance(seconds(0.06))
    room.lookout.tick()
    assert room.woken == 1


def test_after_a_failure_no_look_is_good_until_the_database_answers(
    room: Room, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "next_due", away)
        for _ in range(3):
            with pytest.raises(OperationalError):
                room.lookout.tick()
            frozen.advance(seconds(0.01))
    assert room.lookout.tick() == 1.0


def test_queues_that_the_command_does_not_serve_wake_nobody(make_room: Any, frozen: FrozenClock) -> None:
    room = make_room(queues={"mail": None})
    queue_job(queue="other")
    assert room.lookout.tick() == 1.0
    assert room.woken == 0


@override_settings(DJANGO_JOBS={"UNKNOWN_JOBS": "leave"})
def test_jobs_that_workers_leave_alone_wake_nobody(room: Room) -> None:
    queue_job(name="nobody.knows")
    assert room.lookout.tick() == 1.0
    assert room.woken == 0
