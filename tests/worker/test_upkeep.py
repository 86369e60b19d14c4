"""Lookout, beat and health of a command, wired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.signs import Signs
from django_jobs.worker.upkeep import Upkeep
from tests.factories import claim_one, failure, queue_job, seconds


class Room:
    def __init__(self, signs: Signs) -> None:
        self.woken = 0
        self.upkeep = Upkeep(
            Plan(alias="default"),
            members=list,
            wanted=0,
            wake=self.wake,
            loops=lambda: self.upkeep.loops,
            make_loop=Loop,
            signs=signs,
        )

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "heartbeat"


@pytest.fixture
def room(file: Path) -> Iterator[Room]:
    room = Room(Signs.opened(file=str(file)))
    room.upkeep.begin()
    yield room
    room.upkeep.end()


def bury() -> None:
    lifecycle.bury(connections["default"], "worker-1", running=[], failure=failure(kind="crash", reason="it died"))


def test_news_wakes_the_crews(room: Room) -> None:
    room.upkeep.news()
    assert room.woken == 1


@pytest.mark.django_db
def test_jobs_of_a_dead_worker_wake_the_others_at_once(room: Room) -> None:
    queue_job()
    claim_one()
    bury()
    assert room.woken == 1
    bury()
    assert room.woken == 1


@pytest.mark.django_db
def test_jobs_whose_lease_ran_out_wake_the_crews_at_once(room: Room, frozen: FrozenClock) -> None:
    queue_job()
    claim_one()
    lifecycle.reclaim(connections["default"])
    assert room.woken == 0
    frozen.advance(seconds(61))
    lifecycle.reclaim(connections["default"])
    assert room.woken == 1


@pytest.mark.django_db
def test_at_the_end_nobody_is_woken_and_the_signs_are_gone(room: Room, file: Path) -> None:
    assert file.exists()
    room.upkeep.end()
    assert not file.exists()
    queue_job()
    claim_one()
    bury()
    assert room.woken == 0


def test_before_the_first_beat_it_is_not_ready(room: Room) -> None:
    room.upkeep.health.look()
    room.upkeep.hear(is_hearing=True)
    assert room.upkeep.health.answer("/live") == "ok"
    assert room.upkeep.health.answer("/ready") == "database"
