"""Pruning of backlogs: in rounds, only what has ended, each state at its age, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import GaveUp, Retried, Succeeded
from django_jobs.performers import AnyPerformer
from django_jobs.stores import store_for
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.link import Link
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.factories import claim_one, failure, queue_job, run_job, seconds
from tests.lifecycle.hearing import Heard, connection, settle
from tests.stores.filling import fill
from tests.system.processes import until

HOUR = timedelta(hours=1)


@pytest.fixture
def chores() -> Iterator[Chores]:
    chores = Chores(link=Link("default"), duties=duties())
    yield chores
    chores.close()


def left() -> int:
    """Count the rows that may be pruned."""
    return Job.objects.failed().count()


# -- O80: which rows go


@pytest.mark.django_db
def test_o80_each_state_has_an_age_of_its_own_and_only_what_has_ended_goes(frozen: FrozenClock) -> None:
    keeping = {"keep": 3_600.0, "keep_failed": 7_200.0}
    kept_for_ever = run_job(keep=None, keep_failed=None)
    settle(kept_for_ever, Succeeded())
    succeeded, failed, retrying, stopping, running = (run_job(**keeping) for _ in range(5))
    settle(succeeded, Succeeded())
    settle(failed, GaveUp(failure=failure()))
    settle(retrying, Retried(failure=failure(), delay=seconds(0)))
    cancelled, waiting = queue_job(**keeping), queue_job(**keeping)
    later = queue_job(delay=timedelta(days=9), **keeping)
    lifecycle.cancel([cancelled, stopping.id])

    def gone() -> set[int]:
        lifecycle.prune(connection())
        return ids - set(Job.objects.values_list("pk", flat=True))

    ids = set(Job.objects.values_list("pk", flat=True))
    frozen.advance(HOUR - seconds(1))
    assert gone() == set()
    frozen.advance(seconds(1))
    assert gone() == {succeeded.id}
    frozen.advance(HOUR)
    assert gone() == {succeeded.id, failed.id, cancelled}
    frozen.advance(timedelta(days=1_000))
    assert ids - gone() == {retrying.id, stopping.id, running.id, waiting, later, kept_for_ever.id}


# -- how they go


@pytest.mark.django_db(transaction=True)
def test_o80_a_backlog_goes_in_rounds_of_a_thousand_and_is_told_of_once(
    frozen: FrozenClock, chores: Chores, heard: list[Heard]
) -> None:
    fill(store_for("default"), connection(), prunable=2_500, kept=5, future=5, due=5)
    delays, lefts = [], []
    for _ in range(3):
        delays.append(chores.tick())
        lefts.append(left())
    assert lefts == [1_500, 500, 0]
    # Where a round comes back full the next one is due at once; then it is reclaim's turn, after its holding off.
    assert delays == [0.0, 0.0, 15.0]
    assert [one for one in heard if one.signal == "jobs_pruned"] == [Heard("jobs_pruned", None, {"count": 2_500})]
    assert Job.objects.count() == 15


@pytest.mark.django_db(transaction=True)
def test_o80_a_backlog_keeps_no_lapsed_job_from_coming_back(frozen: FrozenClock, chores: Chores) -> None:
    queue_job(queue="aside")
    claim = claim_one()
    frozen.advance(seconds(61))
    fill(store_for("default"), connection(), prunable=8_000)
    # Nobody is judged in a quarter of a lease after the start, nor at the first look.
    frozen.advance(seconds(15))
    chores.tick()
    frozen.advance(seconds(2.5))
    chores.tick()
    assert Job.objects.get(pk=claim.id).state == "READY"
    assert left() == 6_000


@pytest.mark.django_db(transaction=True)
def test_o80_pruning_stops_between_two_rounds_and_another_process_goes_on(chores: Chores) -> None:
    fill(store_for("default"), connection(), prunable=4_500)
    rounds = 0

    def observe(name: str, duration: float, rows: int | None) -> None:
        nonlocal rounds
        rounds += name == "PRUNE"
        if rounds == 2:
            loop.stop()

    loop = Loop("chores", chores.tick)
    with override_settings(DJANGO_JOBS={"OBSERVE": observe}):
        loop.start()
        assert loop.join(60.0)
    assert (rounds, left()) == (2, 2_500)
    other = Chores(link=Link("default"), duties=duties())
    for _ in range(3):
        other.tick()
        other._due["prune"] = 0.0
    other.close()
    assert left() == 0


@pytest.mark.django_db(transaction=True)
def test_o80_what_somebody_refers_to_stays_and_the_rest_goes_in_rounds_too(
    frozen: FrozenClock, chores: Chores, heard: list[Heard]
) -> None:
    fill(store_for("default"), connection(), prunable=1_100)
    longest_kept = Job.objects.latest("pk").pk
    with connection().cursor() as cursor:
        cursor.execute(f'create table note (job_id bigint not null references "{Job._meta.db_table}" (id))')
        try:
            cursor.execute("insert into note (job_id) values (%s)", [longest_kept])
            # The first round finds that they can't go all at once.
            lefts = [chores.tick() == 0.0 and left() for _ in range(2)]
            chores.tick()
        finally:
            cursor.execute("drop table note")
    assert lefts == [1_100, 100]
    assert list(Job.objects.values_list("pk", flat=True)) == [longest_kept]
    [told] = [one.said["message"] for one in heard if one.signal == "odd"]
    assert told.startswith(f"job {longest_kept} can't be pruned, since something refers to it: ")
    assert [one.said for one in heard if one.signal == "jobs_pruned"] == [{"count": 1_099}]


# -- with workers on


def do_nothing() -> None:
    pass


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(do_nothing) as performer:
        yield performer


def check_with_workers_on(chores: Chores, performer: AnyPerformer, *, backlog: int, count: int) -> None:
    fill(store_for("default"), connection(), prunable=backlog, kept=100, future=100)
    jobs = [queued.id for queued in performer.using(queue="work").later_many([()] * count)]
    loop = Loop("chores", chores.tick)
    loop.start()
    try:
        assert Process(Plan(alias="default", concurrency=2, queues={"work": None}, drain=True)).run() == 0
        while count_left := left():
            until(lambda count_left=count_left: left() < count_left, what=f"fewer than {count_left} rows are left")
    finally:
        loop.stop()
        assert loop.join(60.0)
    assert Job.objects.filter(pk__in=jobs, state="SUCCESSFUL", attempts=1).count() == count
    assert Job.objects.count() == 200 + count


@pytest.mark.django_db(transaction=True)
def test_o80_workers_go_on_while_a_backlog_is_pruned(chores: Chores, performer: AnyPerformer) -> None:
    check_with_workers_on(chores, performer, backlog=10_000, count=200)


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_o80_workers_go_on_while_two_million_rows_are_pruned(chores: Chores, performer: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"LEASE": "10m"}):
        check_with_workers_on(chores, performer, backlog=2_000_000, count=20_000)


@pytest.mark.django_db(transaction=True)
def test_o80_a_person_s_prune_within_a_transaction_is_theirs_to_roll_back() -> None:
    fill(store_for("default"), connection(), prunable=1_500)
    with transaction.atomic():
        assert Job.objects.prune() == 1_500
        transaction.set_rollback(True)
    assert left() == 1_500
    assert Job.objects.prune() == 1_500
    assert connections["default"].in_atomic_block is False
