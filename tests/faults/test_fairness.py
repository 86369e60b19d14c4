"""Jobs that wait while others, of a higher priority or of a flooded queue, keep coming."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections

from django_jobs import lifecycle, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer
from django_jobs.records import WorkerLife
from django_jobs.vitals import Limits, QueueSeen, problems
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared

BUSY = WorkerLife(
    identity="worker-1", host="shop-1", pid=7, queues=("default",), slots=1, versions={}, age=600.0, claim_age=1.0
)
"""A worker that is alive, and has nothing but jobs of a higher priority to do."""

ran: list[str] = []


def run(what: str) -> None:
    ran.append(what)


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    ran.clear()
    with declared(run) as performer:
        yield performer


# -- O75


@pytest.mark.django_db
def test_o75_a_higher_priority_goes_first_for_as_long_as_it_comes(performer: AnyPerformer, frozen: FrozenClock) -> None:
    performer.later("low")
    for number in range(60):
        frozen.advance(timedelta(seconds=10))
        performer.using(priority=10).later(f"high {number}")
        work_one()
    work_one()
    assert ran == [*(f"high {number}" for number in range(60)), "low"]


@pytest.mark.django_db
def test_o75_for_how_long_the_oldest_job_has_been_due_is_seen_whatever_its_priority(
    performer: AnyPerformer, frozen: FrozenClock
) -> None:
    low = performer.later("low")
    frozen.advance(timedelta(minutes=10))
    for number in range(60):
        performer.using(priority=10).later(f"high {number}")
    oldest = Job.objects.due().order_by("run_at").first()
    assert oldest is not None
    assert oldest.pk == low.pk
    queue = QueueSeen(name="default", oldest=(frozen.instant - oldest.run_at).total_seconds())
    lifecycle.beat(connections["default"], [BUSY])
    workers = lifecycle.workers(connections["default"])
    assert problems(workers, [queue], limits=Limits(max_wait=timedelta(minutes=5))) == [
        "a job in queue default has waited for 10 min, longer than 5 min"
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("slots", [1, 4])
def test_o75_of_two_queues_of_one_priority_each_gets_its_turn_though_one_is_flooded(
    performer: AnyPerformer, slots: int
) -> None:
    performer.using(queue="flooded").later_many([("flooded",)] * 80)
    performer.using(queue="calm").later_many([("calm",)] * 3)
    assert Process(Plan(alias="default", concurrency=slots, drain=True)).run() == 0
    assert (ran.count("calm"), len(ran)) == (3, 83)
    # Each turn is for as many jobs as there are free slots.
    assert ran[: 10 * slots].count("calm") == 3


@pytest.mark.django_db(transaction=True)
def test_o75_of_three_queues_no_one_waits_for_more_than_a_round(performer: AnyPerformer) -> None:
    for queue in ("a", "b", "c"):
        performer.using(queue=queue).later_many([(queue,)] * 10)
    assert Process(Plan(alias="default", concurrency=1, drain=True)).run() == 0
    assert [sorted(ran[place : place + 3]) for place in range(0, 30, 3)] == [["a", "b", "c"]] * 10


@pytest.mark.django_db(transaction=True)
def test_o75_a_flooded_queue_of_a_higher_priority_is_held_back_by_a_cap(performer: AnyPerformer) -> None:
    """The remedy for who wants a share for the rest: one slot of two, here."""
    performer.using(queue="flooded", priority=10).later_many([("flooded",)] * 40)
    performer.using(queue="calm").later_many([("calm",)] * 3)
    assert Process(Plan(alias="default", concurrency=2, caps={"flooded": 1}, drain=True)).run() == 0
    assert len(ran) == 43
    assert ran[:20].count("calm") == 3
