"""The duty that fires schedules, and has the rows be as code says, by its looks and the ticks of the chores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_jobs import lifecycle, schedules
from django_jobs.clock import FrozenClock
from django_jobs.lifecycle import scheduling
from django_jobs.models import Job, Schedule, Worker
from django_jobs.performers import AnyPerformer
from django_jobs.records import WorkerLife
from django_jobs.schedules import CodeSet
from django_jobs.worker.beat import Beat, Member
from django_jobs.worker.chores import Chores, Firing, duties
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from tests.declaring import declared
from tests.factories import NOON, queue_job, read, seconds
from tests.worker.conftest import make_board

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("frozen")]


def report(*args: Any, **kwargs: Any) -> None: ...


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    """Declare a schedule of one tick a minute."""
    with declared(report, name="shop.report", schedule="* * * * *") as performer:
        yield performer


@pytest.fixture
def firing(performer: AnyPerformer) -> Firing:
    return Firing()


@pytest.fixture
def chores(performer: AnyPerformer) -> Iterator[Chores]:
    made = Chores(link=Link("default"), duties=duties())
    yield made
    made.close()


def look(firing: Firing) -> int:
    return firing.look(connections["default"])


def release(name: str) -> CodeSet:
    """Give another release, whose only schedule has this name."""
    own = schedules.code_set()
    [one] = own.schedules
    return CodeSet(owner=own.owner, hash=name, schedules=(dataclasses.replace(one, name=name),))


def beat(code: CodeSet) -> None:
    life = WorkerLife(
        identity=code.hash, host="h", pid=1, queues=(), slots=1, versions={"schedules": code.said}, age=1.0,
        claim_age=1.0,
    )  # fmt: skip
    lifecycle.beat(connections["default"], [life])


def counting() -> list[str]:
    return sorted(Schedule.objects.filter(removed=False).values_list("name", flat=True))


# -- its looks


def test_the_first_look_writes_what_code_declares_and_finds_the_first_tick(firing: Firing) -> None:
    assert look(firing) == 0
    assert Schedule.objects.values_list("name", "next_at").get() == ("shop.report", NOON + seconds(60))
    assert firing.pause() == 20.0


def test_the_pause_ends_with_the_next_tick(firing: Firing, frozen: FrozenClock) -> None:
    look(firing)
    frozen.advance(seconds(59.75))
    assert look(firing) == 0
    assert firing.pause() == 0.25
    frozen.advance(seconds(0.25))
    assert look(firing) == 1
    assert firing.pause() == 20.0


def test_a_release_that_waits_looks_every_half_minute_and_fires_what_counts_meanwhile(
    firing: Firing, frozen: FrozenClock
) -> None:
    other = release("other")
    schedules.declare(connections["default"], schedules.code_set())
    schedules.declare(connections["default"], other)
    found = []
    for second in range(0, 190, 5):
        # The other's last worker is gone after half a minute.
        if second <= 30:
            beat(other)
        look(firing)
        found.append((second, counting()))
        frozen.advance(seconds(5))
    # At 150 s its last sign is just two minutes old.
    assert [second for second, names in found if names == ["shop.report"]] == [180, 185]
    assert Job.objects.filter(schedule="other").count() == 2


def test_it_is_told_once_that_another_release_counts_now(
    firing: Firing, frozen: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """In a deploy that is as it should be; of two projects that are called the same, it isn't."""
    look(firing)
    other = release("other")
    schedules.declare(connections["default"], other)
    for _ in range(10):
        frozen.advance(seconds(30))
        beat(other)
        look(firing)
    told = [record.message for record in caplog.records if "another release" in record.message]
    assert told == [
        (
            "another release of tests declares other schedules, and these count now; where it is another project, give "
            "each a name by the setting DJANGO_JOBS['OWNER']"
        )
    ]


def test_a_release_that_counts_looks_every_minute_whether_it_still_does(firing: Firing, frozen: FrozenClock) -> None:
    """A deploy that is taken back leaves the old workers running, and the rows as the new release wanted them."""
    look(firing)
    frozen.advance(seconds(121))
    schedules.declare(connections["default"], release("other"))
    assert counting() == ["other"]
    look(firing)
    assert counting() == ["other"]
    # Nobody of the other release has ever beaten, but for two minutes it might.
    frozen.advance(seconds(120))
    look(firing)
    assert counting() == ["other"]
    frozen.advance(seconds(30))
    look(firing)
    assert counting() == ["shop.report"]


# -- among the chores


def test_the_chores_wake_for_the_next_tick(chores: Chores, frozen: FrozenClock) -> None:
    chores.tick()
    frozen.advance(seconds(59.9))
    assert chores.tick() == pytest.approx(0.1)
    frozen.advance(seconds(0.1))
    chores.tick()
    assert Job.objects.values_list("schedule", "tick").get() == ("shop.report", NOON + seconds(60))


@pytest.mark.parametrize("verb", ["declare", "fire_due"])
def test_a_failure_keeps_no_other_duty_from_its_turn_and_is_made_up_for_in_the_next_round(
    chores: Chores, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def fails(*_: Any) -> None:
        raise OperationalError("away")

    expired = queue_job(expires=seconds(0))
    frozen.advance(seconds(1))
    with monkeypatch.context() as patch:
        patch.setattr(schedules, verb, fails)
        with pytest.raises(OperationalError, match="away"):
            chores.tick()
    assert read(expired).state == "CANCELLED"
    # Nobody knows how soon there would have been something to fire.
    assert 0 < chores.tick() <= 1.0
    frozen.advance(seconds(1))
    chores.tick()
    assert Schedule.objects.get().next_at == NOON + seconds(60)


def test_more_schedules_than_are_read_at_a_time_fire_at_once(
    chores: Chores, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "MOST_LOOKED_AT", 10)
    Schedule.objects.bulk_create(
        Schedule(name=f"{number}", cron="* * * * *", performer="shop.report") for number in range(25)
    )
    delays = [chores.tick() for _ in range(3)]
    assert delays[:2] == [0.0, 0.0]
    frozen.advance(seconds(60))
    for _ in range(3):
        chores.tick()
    assert Job.objects.values("schedule").distinct().count() == Job.objects.count() == 26


# -- what others are told


def test_a_worker_says_which_set_of_schedules_its_release_declares(performer: AnyPerformer) -> None:
    member = Member(
        plan=Plan(alias="default", concurrency=2), identity="firing", pid=7, board=make_board(), started_at=0.0
    )
    beat = Beat(link=Link("default"), members=lambda: [member])
    beat.tick()
    said = Worker.objects.get().versions["schedules"]
    beat.close()
    code = schedules.code_set()
    assert said == code.said == f"tests {code.hash}"
    assert len(code.hash) == 64
