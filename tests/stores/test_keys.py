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
from django_jobs.records import Key, NewJob
from django_jobs.stores import store_for
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
    take,
    turn_round,
    write,
)
from tests.racing import somebody

pytestmark = pytest.mark.django_db

ENDED = ["SUCCESSFUL", "FAILED", "CANCELLED"]


def insert(store: Store, connection: BaseDatabaseWrapper, key: str, *, waiting: bool = False, **changes: Any) -> int:
    """Queue a job with a key and give its id."""
    [inserted] = store.insert_keyed(connection, [keyed(key, waiting=waiting, **changes)]).values()
    return inserted.id


def keyed(key: str, *, waiting: bool = False, **changes: Any) -> NewJob:
    return new_job(**changes)._replace(**{"waiting_key" if waiting else "unique_key": key})


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
    insert(store, connection, "late", waiting=waiting, expires=seconds(4))
    plain = insert(store, connection, "plain", waiting=waiting)
    insert(store, connection, "other", waiting=waiting)
    frozen.advance(seconds(4))
    found = store.lock_holders(connection, ["late", "plain", "kept"], waiting=waiting)
    assert {key: one.id for key, one in found.items()} == {"kept": kept, "plain": plain}
    run_at = {one.run_at for one in found.values()}
    assert (run_at, found["kept"].expires_at) == ({NOON}, NOON + seconds(5))


def test_what_runs_is_not_locked(store: Store, connection: BaseDatabaseWrapper) -> None:
    run(insert(store, connection, "k"))
    assert store.lock_holders(connection, ["k"], waiting=False) == {}


@both_kinds
def test_what_waits_and_may_still_run_is_replaced(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, *, waiting: bool
) -> None:
    kept = insert(store, connection, "kept", waiting=waiting, expires=seconds(5))
    late = insert(store, connection, "late", waiting=waiting, expires=seconds(4))
    plain = insert(store, connection, "plain", waiting=waiting)
    other = insert(store, connection, "other", waiting=waiting)
    frozen.advance(seconds(4))
    jobs = [
        keyed("plain", waiting=waiting, args="[2]", kwargs='{"two":2}', run_at=NOON - seconds(9), expires=seconds(60)),
        keyed("late", waiting=waiting, args="[3]"),
        keyed("kept", waiting=waiting, args="[4]", delay=seconds(7)),
        keyed("nobody's", waiting=waiting, args="[5]"),
    ]
    replaced = store.replace(connection, jobs, waiting=waiting)
    assert {key: (one.id, one.replaced) for key, one in replaced.items()} == {
        "kept": (kept, True),
        "plain": (plain, True),
    }
    rows = [read(job_id) for job_id in (plain, late, kept, other)]
    assert [(row.args, row.kwargs) for row in rows] == [([2], {"two": 2}), ([1], {}), ([4], {}), ([1], {})]
    assert [row.run_at for row in rows] == [NOON - seconds(9), NOON, NOON + seconds(11), NOON]
    assert [row.expires_at for row in rows] == [NOON + seconds(51), NOON + seconds(4), None, None]


@both_kinds
def test_what_waits_for_longer_than_it_may_is_expired(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, *, waiting: bool
) -> None:
    late = insert(store, connection, "late", waiting=waiting, expires=seconds(4), keep_failed=600.0)
    others = [insert(store, connection, str(moment), waiting=waiting, expires=seconds(moment)) for moment in (4, 5)]
    insert(store, connection, "plain", waiting=waiting)
    frozen.advance(seconds(4))
    assert store.expire_holders(connection, ["5", "late", "plain", "nobody's"], waiting=waiting) == {late}
    row = read(late)
    assert (row.state, row.finished_at, row.prune_at) == ("CANCELLED", NOON + seconds(4), NOON + seconds(604))
    assert [entry["kind"] for entry in row.errors] == ["expired"]
    assert [place_of(job_id) for job_id in others] == [Place.READY, Place.READY]


# -- holders in other hands


def lock(keys: str, *, waiting: bool) -> int:
    connection = connections["default"]
    return len(store_for("default").lock_holders(connection, list(keys), waiting=waiting))


def replace(keys: str, *, waiting: bool) -> int:
    jobs = [keyed(key, waiting=waiting, args="[2]") for key in keys]
    return len(store_for("default").replace(connections["default"], jobs, waiting=waiting))


def expire(keys: str, *, waiting: bool) -> int:
    connection = connections["default"]
    return len(store_for("default").expire_holders(connection, list(keys), waiting=waiting))


every_verb = pytest.mark.parametrize("verb", [lock, replace, expire], ids=lambda verb: verb.__name__)


def insert_for(verb: Callable[..., int], key: str, *, waiting: bool) -> int:
    """Queue a job of which the verb takes hold, and give its id."""
    expires = seconds(0) if verb is expire else None
    return insert(store_for("default"), connections["default"], key, waiting=waiting, expires=expires)


@pytest.mark.django_db(transaction=True)
@both_kinds
@every_verb
def test_holders_are_locked_in_the_order_of_their_ids(
    row_locks: None, verb: Callable[..., int], *, waiting: bool
) -> None:
    ids = [insert_for(verb, key, waiting=waiting) for key in "fedcba"]
    turn_round(ids)
    with somebody() as other:
        with locked(ids[0]), another_connection() as third, third.cursor() as cursor:
            asked = other.starts(lambda: verb("abcdef", waiting=waiting))
            other.waits(asked)
            # It waits for the first one and has none of the others yet.
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = any(%s) for update nowait', [ids[1:]])
            assert len(cursor.fetchall()) == 5
        assert asked.result(timeout=30) == 6


@pytest.mark.django_db(transaction=True)
@both_kinds
@every_verb
def test_who_asks_for_a_holder_does_not_wait_for_those_of_other_keys(
    row_locks: None, verb: Callable[..., int], *, waiting: bool
) -> None:
    insert_for(verb, "k", waiting=waiting)
    with locked(insert_for(verb, "x", waiting=waiting)):
        assert verb("k", waiting=waiting) == 1


def claims_it(job_id: int, verb: Callable[..., int]) -> None:
    """Have a worker claim it, which ends what has expired."""
    claimed = take()
    assert [*claimed.expired, *(claim.id for claim in claimed.claims)] == [job_id]


def changes_its_time(job_id: int, verb: Callable[..., int]) -> None:
    """Have it expire at this very moment, or wait for longer."""
    write(job_id, expires_at=NOON + seconds(1) if verb is expire else NOON)


@pytest.mark.django_db(transaction=True)
@both_kinds
@every_verb
@pytest.mark.parametrize("does", [claims_it, changes_its_time], ids=lambda does: does.__name__)
def test_a_holder_that_was_waited_for_is_judged_as_it_is_then(
    row_locks: None, frozen: FrozenClock, verb: Callable[..., int], does: Callable[..., None], *, waiting: bool
) -> None:
    job_id = insert_for(verb, "k", waiting=waiting)
    with somebody() as other, somebody() as third:
        with other.in_transaction():
            other.does(lambda: does(job_id, verb))
            before = other.does(lambda: Job.objects.values().get(pk=job_id))
            asked = third.starts(lambda: verb("k", waiting=waiting))
            third.waits(asked)
        assert asked.result(timeout=30) == 0
    assert Job.objects.values().get(pk=job_id) == before


# -- insert


@pytest.mark.django_db(transaction=True)
def test_many_are_inserted_in_the_order_of_their_keys_of_either_kind(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None
) -> None:
    """So that two who insert the same ones wait for each other in one direction only."""
    jobs = [keyed("b"), keyed("a", waiting=True), keyed("Z")]
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


def gives_it_time(job_id: int) -> None:
    write(job_id, unique_until=NOON + timedelta(days=70_000))


def retries_it(job_id: int) -> None:
    assert store_for("default").retry(connections["default"], [job_id]) == {job_id}


def retries_and_stops_it(job_id: int) -> None:
    retries_it(job_id)
    stop(job_id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("does", [gives_it_time, retries_it, retries_and_stops_it], ids=lambda does: does.__name__)
def test_a_key_is_not_freed_whose_job_somebody_has_meanwhile_made_its_holder_again(
    store: Store, connection: BaseDatabaseWrapper, row_locks: None, does: Callable[[int], None]
) -> None:
    job_id = insert(store, connection, "k")
    end(job_id, "FAILED", unique_until=NOON - timedelta(days=70_000))
    with somebody() as other, somebody() as third:
        with other.in_transaction():
            other.does(lambda: does(job_id))
            before = other.does(lambda: read(job_id).unique_until)
            asked = third.starts(lambda: store.free(connections["default"], ["k"]))
            third.waits(asked)
        assert asked.result(timeout=30) == 0
    assert read(job_id).unique_until == before


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
