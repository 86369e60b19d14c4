"""Who holds a key, who is found by it, and what is freed, row by row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Key
from django_jobs.stores.base import Store
from django_jobs.transitions import Place
from tests.factories import (
    NOON,
    another_connection,
    claim_one,
    locked,
    new_job,
    place_of,
    queue_job,
    read,
    seconds,
    turn_round,
    write,
)
from tests.racing import somebody

pytestmark = pytest.mark.django_db

ENDED = ["SUCCESSFUL", "FAILED", "CANCELLED"]


def insert(store: Store, connection: BaseDatabaseWrapper, key: str, *, waiting: bool = False, **changes: Any) -> int:
    """Queue a job with a key and give its id."""
    job = new_job(**changes)._replace(**{"waiting_key" if waiting else "unique_key": key})
    [inserted] = store.insert_keyed(connection, [job]).values()
    return inserted.id


def end(job_id: int, state: str = "SUCCESSFUL", **columns: Any) -> None:
    write(job_id, state=state, finished_at=NOON, **columns)


def run(job_id: int) -> None:
    assert claim_one().id == job_id


def stop(job_id: int) -> None:
    run(job_id)
    write(job_id, state="CANCELLED", finished_at=NOON)


def keep(job_id: int) -> None:
    end(job_id, unique_until=NOON + timedelta(days=1))


def wait(job_id: int) -> None:
    assert place_of(job_id) is Place.READY


HOLDING: list[Callable[[int], None]] = [wait, run, stop, keep]

every_holder = pytest.mark.parametrize("holds", HOLDING, ids=lambda holds: holds.__name__)
both_kinds = pytest.mark.parametrize("waiting", [False, True], ids=["unique", "waiting"])


@every_holder
def test_a_unique_key_is_held_by_what_waits_runs_stops_or_is_kept(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, holds: Callable[[int], None]
) -> None:
    job_id = insert(store, connection, "k")
    holds(job_id)
    insert(store, connection, "other")
    [(key, found)] = store.find_holders(connection, ["k", "free"], waiting=False).items()
    assert (key, found.id, found.duplicate) == ("k", job_id, True)
    busy = store.find_busy(connection, ["k", "other"])
    assert [one.id for one in busy.values()] == ([] if holds is wait else [job_id])
    assert store.insert_keyed(connection, [new_job()._replace(unique_key="k")]) == {}


@pytest.mark.parametrize("state", ENDED)
def test_what_has_ended_holds_no_key(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, state: str
) -> None:
    for waiting in (False, True):
        end(insert(store, connection, "k", waiting=waiting), state)
        assert store.find_holders(connection, ["k"], waiting=waiting) == {}
        assert store.lock_holders(connection, ["k"], waiting=waiting) == {}
    assert store.find_busy(connection, ["k"]) == {}


def test_a_waiting_key_is_held_by_what_waits_alone(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = insert(store, connection, "k", waiting=True)
    assert store.find_holders(connection, ["k"], waiting=True)["k"].id == job_id
    run(job_id)
    assert store.find_holders(connection, ["k"], waiting=True) == {}
    assert insert(store, connection, "k", waiting=True) != job_id


@both_kinds
def test_what_waits_and_may_still_run_is_locked(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, *, waiting: bool
) -> None:
    kept = insert(store, connection, "kept", waiting=waiting, expires=seconds(5))
    late = insert(store, connection, "late", waiting=waiting, expires=seconds(4))
    plain = insert(store, connection, "plain", waiting=waiting)
    insert(store, connection, "other", waiting=waiting)
    frozen.advance(seconds(4))
    found = store.lock_holders(connection, ["late", "plain", "kept"], waiting=waiting)
    assert {key: one.id for key, one in found.items()} == {"kept": kept, "plain": plain}
    assert store.expire_holders(connection, ["late", "kept", "plain"], waiting=waiting) == {late}
    run_at = {one.run_at for one in found.values()}
    assert (run_at, found["kept"].expires_at) == ({NOON}, NOON + seconds(5))


def test_what_runs_is_not_locked(store: Store, connection: BaseDatabaseWrapper) -> None:
    run(insert(store, connection, "k"))
    assert store.lock_holders(connection, ["k"], waiting=False) == {}


@pytest.mark.django_db(transaction=True)
@both_kinds
def test_holders_are_locked_in_the_order_of_their_ids(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, *, waiting: bool
) -> None:
    ids = [insert(store, connection, key, waiting=waiting) for key in "fedcba"]
    turn_round(ids)
    with somebody() as other:
        with locked(ids[0]), another_connection() as third, third.cursor() as cursor:
            asked = other.starts(lambda: store.lock_holders(connections["default"], list("abcdef"), waiting=waiting))
            other.waits(asked)
            # It waits for the first one and has none of the others yet.
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = any(%s) for update nowait', [ids[1:]])
            assert len(cursor.fetchall()) == 5
        assert len(asked.result(timeout=30)) == 6


# -- insert


@pytest.mark.django_db(transaction=True)
def test_many_are_inserted_in_the_order_of_their_keys_of_either_kind(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    """So that two who insert the same ones wait for each other in one direction only."""
    jobs = [new_job()._replace(**key) for key in ({"unique_key": "b"}, {"waiting_key": "a"}, {"unique_key": "Z"})]
    with somebody() as other, somebody() as third, connection.cursor() as cursor:
        with other.in_transaction():
            other.does(lambda: insert(store, connections["default"], "a", waiting=True))
            asked = third.starts(lambda: store.insert_keyed(connections["default"], jobs))
            third.waits(asked)
            # It waits for the second one, has the first, and not yet the last.
            cursor.execute("set lock_timeout = '100ms'")
            insert(store, connection, "b")
            with pytest.raises(OperationalError, match="lock timeout"):
                insert(store, connection, "Z")
            cursor.execute("reset lock_timeout")
        assert list(asked.result(timeout=30)) == [Key("Z", is_waiting=False)]


# -- free


@pytest.mark.parametrize("state", ENDED)
def test_a_key_is_freed_whose_job_has_ended_and_whose_time_is_over(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, state: str
) -> None:
    one, other = (insert(store, connection, key) for key in ("k", "other"))
    for job_id in (one, other):
        end(job_id, state, unique_until=NOON)
    assert store.free(connection, ["k", "nobody's"]) == 1
    assert [read(job_id).unique_until for job_id in (one, other)] == [None, NOON]


def test_a_key_is_not_freed_before_its_time(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    end(insert(store, connection, "k"), unique_until=NOON + seconds(0.001))
    assert store.free(connection, ["k"]) == 0


@pytest.mark.parametrize("holds", [wait, run, stop], ids=lambda holds: holds.__name__)
def test_a_key_is_not_freed_while_its_job_may_run(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, holds: Callable[[int], None]
) -> None:
    job_id = insert(store, connection, "k")
    holds(job_id)
    write(job_id, unique_until=NOON)
    assert store.free(connection, ["k"]) == 0
    assert read(job_id).unique_until == NOON


@pytest.mark.django_db(transaction=True)
def test_keys_are_freed_in_the_order_of_their_jobs_ids(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    ids = [insert(store, connection, key) for key in "fedcba"]
    for job_id in reversed(ids):
        end(job_id, unique_until=NOON - timedelta(days=70_000))
    with somebody() as other:
        with locked(ids[0]), another_connection() as third, third.cursor() as cursor:
            asked = other.starts(lambda: store.free(connections["default"], list("abcdef")))
            other.waits(asked)
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = any(%s) for update nowait', [ids[1:]])
            assert len(cursor.fetchall()) == 5
        assert asked.result(timeout=30) == 6


@pytest.mark.django_db(transaction=True)
def test_a_key_is_not_freed_that_somebody_has_meanwhile_given_more_time(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    job_id, until = insert(store, connection, "k"), NOON + timedelta(days=70_000)
    end(job_id, unique_until=NOON - timedelta(days=70_000))
    with somebody() as other, somebody() as third:
        with other.in_transaction():
            other.does(lambda: write(job_id, unique_until=until))
            asked = third.starts(lambda: store.free(connections["default"], ["k"]))
            third.waits(asked)
        assert asked.result(timeout=30) == 0
    assert read(job_id).unique_until == until


# -- forward


def test_only_what_waits_for_longer_is_brought_forward(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    later, sooner, other = (queue_job(delay=seconds(delay)) for delay in (60, 5, 60))
    running = queue_job()
    run(running)
    write(running, run_at=NOON + seconds(60))
    delays = dict.fromkeys((running, later, sooner), seconds(10))
    assert store.forward(connection, delays) == {later}
    moments = [(read(job_id).run_at - NOON).total_seconds() for job_id in (later, sooner, other, running)]
    assert moments == [10, 5, 60, 60]
    assert store.forward(connection, {later: None}) == {later}
    assert read(later).run_at == NOON
    assert store.forward(connection, {later: None}) == set()


# -- who holds the key of another


@every_holder
def test_the_holder_of_a_jobs_unique_key_is_named(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, holds: Callable[[int], None]
) -> None:
    insert(store, connection, "before")
    first = insert(store, connection, "k", priority=5)
    end(first)
    second = insert(store, connection, "k", priority=5)
    insert(store, connection, "after")
    assert store.key_holder(connection, second) is None
    holds(second)
    assert store.key_holder(connection, first) == second
    assert store.key_holder(connection, second) is None


def test_the_holder_of_a_jobs_waiting_key_is_named(store: Store, connection: BaseDatabaseWrapper) -> None:
    first = insert(store, connection, "k", waiting=True)
    end(first)
    assert store.key_holder(connection, first) is None
    second = insert(store, connection, "k", waiting=True)
    insert(store, connection, "other", waiting=True)
    assert store.key_holder(connection, first) == second
    assert store.key_holder(connection, second) is None
    run(second)
    assert store.key_holder(connection, first) is None


def test_the_keys_of_jobs_are_read(store: Store, connection: BaseDatabaseWrapper) -> None:
    ids = [insert(store, connection, "k"), insert(store, connection, "k", waiting=True), queue_job()]
    insert(store, connection, "other")
    assert store.keys(connection, ids) == [Key("k", is_waiting=False), Key("k", is_waiting=True)]


# -- retry


@every_holder
def test_a_job_whose_unique_key_another_holds_is_not_retried(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, holds: Callable[[int], None]
) -> None:
    first = insert(store, connection, "k", priority=5)
    end(first, "FAILED")
    second = insert(store, connection, "k", priority=5)
    free = insert(store, connection, "free")
    end(free, "FAILED")
    holds(second)
    assert store.retry(connection, [first, free]) == {free}


def test_a_job_whose_waiting_key_another_holds_is_not_retried(store: Store, connection: BaseDatabaseWrapper) -> None:
    first = insert(store, connection, "k", waiting=True, priority=5)
    end(first, "FAILED")
    second = insert(store, connection, "k", waiting=True, priority=5)
    free = insert(store, connection, "free", waiting=True)
    end(free, "FAILED")
    assert store.retry(connection, [first, free]) == {free}
    run(second)
    assert store.retry(connection, [first]) == {first}


@both_kinds
def test_of_several_with_one_key_the_oldest_that_may_move_is_retried(
    store: Store, connection: BaseDatabaseWrapper, *, waiting: bool
) -> None:
    ids: dict[str, list[int]] = {}
    for key in ("a", "b"):
        for state in ("SUCCESSFUL", "FAILED", "CANCELLED"):
            job_id = insert(store, connection, key, waiting=waiting)
            end(job_id, state)
            ids.setdefault(key, []).append(job_id)
    plain = [queue_job(), queue_job()]
    for job_id in plain:
        end(job_id, "FAILED")
    assert store.retry(connection, [*ids["a"], *ids["b"], *plain]) == {ids["a"][1], ids["b"][1], *plain}


@both_kinds
def test_a_job_that_waits_is_retried_before_older_ones_with_its_key(
    store: Store, connection: BaseDatabaseWrapper, *, waiting: bool
) -> None:
    ended = insert(store, connection, "k", waiting=waiting)
    end(ended, "FAILED")
    waits = insert(store, connection, "k", waiting=waiting, delay=seconds(60))
    assert store.retry(connection, [ended, waits]) == {waits}


def test_a_stopping_job_stands_in_no_ones_way_but_by_its_key(store: Store, connection: BaseDatabaseWrapper) -> None:
    stopping = insert(store, connection, "k", waiting=True)
    stop(stopping)
    ended = insert(store, connection, "k", waiting=True)
    end(ended, "FAILED")
    assert store.retry(connection, [stopping, ended]) == {ended}
