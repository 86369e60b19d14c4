"""The statements of the low level, on every dialect."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.records import Lease
from django_jobs.states import State
from django_jobs.stores import pushed
from django_jobs.stores.base import Store
from django_jobs.stores.pushed import Counts
from tests.factories import NOON, failure, queue_job, read, run_job, seconds, take, write
from tests.pushing import push_row, take_row, taken_row

pytestmark = pytest.mark.django_db


def bring_back(store: Store, connection: BaseDatabaseWrapper, queue: str = "mail", *, limit: int = 10) -> set[int]:
    return set(pushed.bring_back(store, connection, queue, limit=limit))


def put_back(store: Store, connection: BaseDatabaseWrapper, lease: Lease, *, delay: float = 0) -> bool:
    return pushed.put_back(store, connection, lease, failure=failure(), delay=seconds(delay), max_attempts=9)


def fail(store: Store, connection: BaseDatabaseWrapper, lease: Lease, queue: str = "mail") -> bool:
    return pushed.fail(store, connection, lease, queue=queue, failure=failure(), max_attempts=2)


def dead_row(store: Store, connection: BaseDatabaseWrapper, queue: str = "mail") -> int:
    row = taken_row(queue)
    assert fail(store, connection, row.lease, queue)
    return row.lease.id


def order_of(queue: str = "mail") -> list[int]:
    ids = []
    while (row := take_row(queue)) is not None:
        ids.append(row.lease.id)
    return ids


# -- take


def test_a_row_is_taken_under_a_token_for_the_length_of_a_lease(frozen: FrozenClock) -> None:
    row_id = push_row(args='["hello"]', max_attempts=4)
    frozen.advance(seconds(5))
    row = take_row(lease=30, token=71)
    assert row is not None
    assert (row.lease, row.queue, row.args) == (Lease(row_id, 71), "mail", '["hello"]')
    assert (row.attempts, row.max_attempts, row.error) == (1, 4, "")
    assert (row.run_at, row.lease_expires_at) == (NOON, NOON + seconds(35))
    job = read(row_id)
    assert (job.state, job.token, job.worker, job.last_worker) == ("RUNNING", 71, "take:mail", "web1:41")
    assert (job.attempts, job.lease_expires_at, job.deadline_at) == (1, NOON + seconds(35), None)
    assert (job.first_started_at, job.started_at) == (NOON + seconds(5), NOON + seconds(5))


def test_the_first_start_stays_and_the_latest_is_told(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row = taken_row()
    put_back(store, connection, row.lease)
    frozen.advance(seconds(9))
    take_row(token=8)
    job = read(row.lease.id)
    assert (job.first_started_at, job.started_at, job.attempts) == (NOON, NOON + seconds(9), 2)


def test_rows_come_by_their_time_and_then_by_their_ids(frozen: FrozenClock) -> None:
    late, first, second = push_row(), push_row(), push_row()
    write(first, run_at=NOON - seconds(5))
    write(second, run_at=NOON - seconds(5))
    assert order_of() == [first, second, late]


def test_what_was_rescheduled_to_a_higher_priority_comes_first(frozen: FrozenClock) -> None:
    ids = {priority: push_row(priority=priority) for priority in (0, -100, 7, 100)}
    assert order_of() == [ids[100], ids[7], ids[0], ids[-100]]


def test_a_higher_priority_that_is_not_due_holds_nothing_up(frozen: FrozenClock) -> None:
    push_row(priority=7, delay=seconds(60))
    lowest, next_one = push_row(), push_row(priority=3)
    assert order_of() == [next_one, lowest]


def test_a_row_is_taken_at_its_moment_and_not_before(frozen: FrozenClock) -> None:
    row_id = push_row(delay=seconds(60))
    frozen.advance(seconds(59.999))
    assert take_row() is None
    frozen.advance(seconds(0.001))
    assert order_of() == [row_id]


def test_nothing_is_taken_from_another_queue() -> None:
    push_row("letters")
    push_row("post", priority=5)
    assert take_row("mail") is None
    push_row("mail", delay=seconds(60))
    assert take_row("mail") is None


def test_a_performers_job_is_not_taken() -> None:
    queue_job(queue="mail")
    queue_job(queue="mail", priority=3)
    assert take_row() is None
    pushed_id = push_row()
    assert order_of() == [pushed_id]


@pytest.mark.parametrize("state", ["SUCCESSFUL", "FAILED", "CANCELLED"])
def test_a_finished_row_is_not_taken(state: str) -> None:
    write(push_row(), state=state, finished_at=NOON)
    write(push_row(priority=4), state=state, finished_at=NOON)
    assert take_row() is None


def test_a_taken_row_is_not_taken_again_however_long_its_lease_is_over(frozen: FrozenClock) -> None:
    taken_row()
    taken_row(priority=5)
    frozen.advance(timedelta(days=1))
    assert take_row() is None


def test_nothing_is_taken_from_a_paused_queue(frozen: FrozenClock) -> None:
    row_id = push_row()
    Queue.objects.create(name="mail", paused_at=NOON)
    assert take_row() is None
    Queue.objects.update(paused_at=None)
    assert order_of() == [row_id]


def test_the_pause_of_another_queue_holds_nothing_up() -> None:
    row_id = push_row()
    Queue.objects.create(name="letters", paused_at=NOON)
    assert order_of() == [row_id]


# -- bring back


def test_a_row_comes_back_at_the_end_of_its_lease_and_not_before(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row = taken_row(lease=60, run_at=NOON - seconds(5))
    frozen.advance(seconds(59.999))
    assert bring_back(store, connection) == set()
    frozen.advance(seconds(0.001))
    assert pushed.bring_back(store, connection, "mail", limit=10) == {row.lease.id: State.READY}
    job = read(row.lease.id)
    assert (job.state, job.worker, job.lease_expires_at) == ("READY", None, None)
    assert (job.attempts, job.run_at, job.finished_at) == (1, NOON - seconds(5), None)
    [entry] = job.errors
    assert (entry["kind"], entry["reason"]) == ("lapse", "the lease ran out while a consumer had this")


def test_why_it_came_back_is_told_to_who_takes_it_next(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row = taken_row()
    assert put_back(store, connection, row.lease)
    again = take_row(lease=60, token=8)
    assert again is not None
    assert again.error == "no such customer"
    frozen.advance(seconds(60))
    bring_back(store, connection)
    third = take_row(token=9)
    assert third is not None
    assert (third.error, third.attempts) == ("the lease ran out while a consumer had this", 3)


def test_what_was_cancelled_is_held_no_more_once_its_lease_is_over(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row = taken_row()
    store.cancel(connection, [row.lease.id], reason="")
    frozen.advance(seconds(60))
    assert pushed.bring_back(store, connection, "mail", limit=10) == {row.lease.id: State.CANCELLED}
    job = read(row.lease.id)
    assert (job.state, job.worker, job.lease_expires_at) == ("CANCELLED", None, None)
    assert [entry["kind"] for entry in job.errors] == ["cancelled"]


def test_rows_of_another_queue_and_jobs_of_workers_stay(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    other, job = taken_row("letters"), run_job(queue="mail")
    frozen.advance(timedelta(days=1))
    assert bring_back(store, connection) == set()
    assert (read(other.lease.id).state, read(job.id).state) == ("RUNNING", "RUNNING")


def test_so_many_come_back_at_once_and_no_more_those_first_that_lapsed_first(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    long, short, middle = (taken_row(lease=lease).lease.id for lease in (60, 40, 50))
    frozen.advance(seconds(60))
    assert bring_back(store, connection, limit=2) == {short, middle}
    assert bring_back(store, connection, limit=2) == {long}


# -- ack, put back, fail, extend


def test_an_acked_row_is_gone(store: Store, connection: BaseDatabaseWrapper) -> None:
    row, other = taken_row(), taken_row(token=7)
    assert pushed.ack(store, connection, row.lease)
    assert list(Job.objects.values_list("pk", flat=True)) == [other.lease.id]
    assert not pushed.ack(store, connection, row.lease)


def test_a_row_that_is_put_back_waits_for_its_delay(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row = taken_row()
    assert put_back(store, connection, row.lease, delay=30)
    job = read(row.lease.id)
    assert (job.state, job.run_at, job.worker, job.lease_expires_at) == ("READY", NOON + seconds(30), None, None)
    assert (job.attempts, job.max_attempts, job.finished_at) == (1, 9, None)
    assert [(entry["kind"], entry["reason"]) for entry in job.errors] == [("error", "no such customer")]


def test_a_dead_row_stays_for_ever(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job = read(dead_row(store, connection))
    assert (job.state, job.worker, job.lease_expires_at, job.max_attempts) == ("FAILED", None, None, 2)
    assert (job.finished_at, job.prune_at) == (NOON, None)
    assert [entry["reason"] for entry in job.errors] == ["no such customer"]


def test_a_lease_is_extended_from_now_on(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    row = taken_row(lease=60)
    frozen.advance(seconds(10))
    held = pushed.extend(store, connection, row.lease, lasting=seconds(20))
    assert held == NOON + seconds(30)
    assert read(row.lease.id).lease_expires_at == NOON + seconds(30)


def test_a_cancelled_row_is_not_kept_any_longer(store: Store, connection: BaseDatabaseWrapper) -> None:
    row = taken_row()
    store.cancel(connection, [row.lease.id], reason="")
    before = read(row.lease.id).lease_expires_at
    assert pushed.extend(store, connection, row.lease, lasting=seconds(999)) is None
    assert read(row.lease.id).lease_expires_at == before


@pytest.mark.parametrize("verb", ["ack", "put back", "fail", "extend"])
@pytest.mark.parametrize("now", ["another's", "back", "cancelled and let go", "another row of the claim"])
def test_nothing_is_written_by_who_holds_the_row_no_more(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, verb: str, now: str
) -> None:
    row = taken_row(lease=60)
    lease = row.lease
    match now:
        case "another's":
            frozen.advance(seconds(60))
            bring_back(store, connection)
            take_row(token=8)
        case "back":
            frozen.advance(seconds(60))
            bring_back(store, connection)
        case "cancelled and let go":
            store.cancel(connection, [lease.id], reason="")
            store.let_go(connection, [lease])
        case _:
            lease = Lease(taken_row(token=8).lease.id, lease.token)
    before = Job.objects.filter(pk=lease.id).values().get()
    match verb:
        case "ack":
            assert not pushed.ack(store, connection, lease)
        case "put back":
            assert not put_back(store, connection, lease)
        case "fail":
            assert not fail(store, connection, lease)
        case _:
            assert pushed.extend(store, connection, lease, lasting=seconds(20)) is None
    assert Job.objects.filter(pk=lease.id).values().get() == before


@pytest.mark.parametrize("verb", ["ack", "put back", "fail"])
def test_a_cancelled_row_comes_to_no_other_end(store: Store, connection: BaseDatabaseWrapper, verb: str) -> None:
    row = taken_row()
    store.cancel(connection, [row.lease.id], reason="")
    match verb:
        case "ack":
            assert not pushed.ack(store, connection, row.lease)
        case "put back":
            assert not put_back(store, connection, row.lease)
        case _:
            assert not fail(store, connection, row.lease)
    assert read(row.lease.id).state == "CANCELLED"


# -- stats, dead


def test_each_queue_is_counted_by_what_its_rows_do(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    for _ in range(2):
        dead_row(store, connection)
    for _ in range(3):
        taken_row()
    for _ in range(4):
        push_row(delay=seconds(0.001))
    for _ in range(5):
        push_row()
    push_row("letters")
    dead_row(store, connection, "post")
    assert pushed.stats(store, connection) == {
        "mail": Counts(ready=5, waiting=4, taken=3, dead=2),
        "letters": Counts(ready=1, waiting=0, taken=0, dead=0),
        "post": Counts(ready=0, waiting=0, taken=0, dead=1),
    }


def test_jobs_of_performers_and_rows_that_were_cancelled_are_not_counted(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    run_job(queue="mail")
    write(run_job(queue="mail").id, worker="takeaway:41:0f")
    write(run_job(queue="mail").id, state="FAILED", worker=None, finished_at=NOON, fingerprint="z" * 40)
    write(push_row(), state="SUCCESSFUL", finished_at=NOON, fingerprint="z" * 40)
    queue_job(queue="mail")
    store.cancel(connection, [taken_row().lease.id], reason="")
    store.cancel(connection, [push_row()], reason="")
    assert pushed.stats(store, connection) == {}


def test_the_fingerprints_of_failures_come_before_those_of_dead_rows(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    """In whichever order the database puts texts: that tells the ones from the others in the index of failed rows."""
    dead = dead_row(store, connection)
    failed = [run_job(queue="mail").id for _ in range(3)]
    for job_id, fingerprint in zip(failed, ("f" * 40, "0" * 40, "9a" * 20), strict=True):
        write(job_id, name="", state="FAILED", worker=None, finished_at=NOON, fingerprint=fingerprint)
    assert Job.objects.filter(state="FAILED", fingerprint__gt="pushed").get().pk == dead
    assert pushed.stats(store, connection)["mail"].dead == 1


def test_a_taken_row_is_counted_as_taken_until_somebody_brings_it_back(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    taken_row()
    frozen.advance(timedelta(days=1))
    assert pushed.stats(store, connection)["mail"] == Counts(ready=0, waiting=0, taken=1, dead=0)
    bring_back(store, connection)
    assert pushed.stats(store, connection)["mail"] == Counts(ready=1, waiting=0, taken=0, dead=0)


def test_the_dead_of_a_queue_are_told_the_oldest_first(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    rows = [taken_row(args='["x"]', run_at=NOON - seconds(9)) for _ in range(3)]
    frozen.advance(seconds(3))
    for row in reversed(rows):
        fail(store, connection, row.lease)
    dead_row(store, connection, "letters")
    found = list(pushed.dead(store, connection, "mail", limit=10))
    assert [one.id for one in found] == [row.lease.id for row in rows]
    assert (found[0].queue, found[0].args, found[0].attempts) == ("mail", '["x"]', 1)
    assert (found[0].error, found[0].run_at, found[0].died_at) == (
        "no such customer",
        NOON - seconds(9),
        NOON + seconds(3),
    )
    assert [one.id for one in pushed.dead(store, connection, "mail", limit=2)] == [row.lease.id for row in rows[:2]]


def test_a_dead_row_that_was_retried_is_dead_no_more(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    row_id = dead_row(store, connection)
    store.retry(connection, [row_id])
    assert list(pushed.dead(store, connection, "mail", limit=10)) == []
    assert pushed.stats(store, connection) == {"mail": Counts(ready=1, waiting=0, taken=0, dead=0)}
    row = take_row()
    assert row is not None
    assert (row.lease.id, row.attempts, row.max_attempts, row.error) == (row_id, 2, 2, "no such customer")


# -- what workers do


def test_no_verb_of_workers_meets_a_pushed_row(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    waiting, lapsed = push_row(), taken_row("letters")
    cancelled = taken_row("post")
    store.cancel(connection, [cancelled.lease.id], reason="")
    frozen.advance(timedelta(days=400))
    assert take().claims == ()
    assert store.lapsed(connection, limit=10) == []
    assert store.expire(connection, limit=10) == set()
    assert store.prune(connection, limit=10) == 0
    assert [read(row_id).state for row_id in (waiting, lapsed.lease.id, cancelled.lease.id)] == [
        "READY",
        "RUNNING",
        "CANCELLED",
    ]
    assert read(cancelled.lease.id).worker == "take:post"
