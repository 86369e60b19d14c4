"""The rows that say which workers are alive: no job depends on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Worker
from django_jobs.records import WorkerLife, WorkerSeen
from django_jobs.stores.base import Store
from tests.factories import NOON, queue_job, seconds, take

pytestmark = pytest.mark.django_db


def life(identity: str = "web1:7:ab", **changes: Any) -> WorkerLife:
    defaults: dict[str, Any] = {
        "host": "web1",
        "pid": 7,
        "queues": ("default", "mail"),
        "slots": 4,
        "versions": {"django": "5.2"},
        "age": 0.0,
        "claim_age": None,
    }
    return WorkerLife(identity=identity, **{**defaults, **changes})


def about(count: float) -> Any:
    return pytest.approx(count, abs=0.001)


def test_a_worker_is_written_as_it_says(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    store.beat(connection, [life(age=12.5, claim_age=3.25)])
    row = Worker.objects.get()
    assert (row.identity, row.host, row.pid, row.slots) == ("web1:7:ab", "web1", 7, 4)
    assert (row.queues, row.versions) == (["default", "mail"], {"django": "5.2"})
    assert (row.started_at, row.claimed_at, row.beat_at) == (NOON - seconds(12.5), NOON - seconds(3.25), NOON)


def test_one_statement_beats_for_all(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    store.beat(connection, [life("b"), life("a", queues=(), claim_age=0.0)])
    frozen.advance(seconds(10))
    store.beat(connection, [life("b", age=10.0, claim_age=2.0), life("a", age=10.0), life("c")])
    rows = {row.identity: (row.started_at, row.claimed_at, row.beat_at) for row in Worker.objects.all()}
    later = NOON + seconds(10)
    assert rows == {
        "a": (NOON, None, later),
        "b": (NOON, later - seconds(2), later),
        "c": (later, None, later),
    }


def test_a_row_that_went_missing_comes_back_with_the_next_beat(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    store.beat(connection, [life()])
    Worker.objects.all().delete()
    frozen.advance(seconds(10))
    store.beat(connection, [life(age=10.0)])
    assert Worker.objects.get().started_at == NOON


def test_beating_for_nobody_writes_nothing(store: Store, connection: BaseDatabaseWrapper) -> None:
    store.beat(connection, [])
    assert not Worker.objects.exists()


def test_signing_off_deletes_those_rows_only(store: Store, connection: BaseDatabaseWrapper) -> None:
    store.beat(connection, [life("a"), life("b"), life("c")])
    assert store.sign_off(connection, ["a", "c", "nobody"]) == {"a", "c"}
    assert [row.identity for row in Worker.objects.all()] == ["b"]


def test_sweeping_deletes_who_has_not_beaten_for_so_long(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    store.beat(connection, [life("old")])
    frozen.advance(seconds(1))
    store.beat(connection, [life("young")])
    frozen.advance(timedelta(hours=1) - seconds(1.001))
    assert lifecycle.sweep(connection) == 0
    frozen.advance(seconds(0.001))
    assert lifecycle.sweep(connection) == 1
    assert [row.identity for row in Worker.objects.all()] == ["young"]


def test_they_are_read_with_ages_and_what_they_hold(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    queue_job()
    queue_job()
    take(worker="busy")
    store.beat(connection, [life("idle")])
    store.beat(connection, [life("busy", age=60.0, claim_age=5.0, queues=())])
    frozen.advance(seconds(4))
    near = {"age": about(64.0), "beat_age": about(4.0), "claim_age": about(9.0)}
    common: dict[str, Any] = {"host": "web1", "pid": 7, "slots": 4}
    assert lifecycle.workers(connection) == [
        WorkerSeen(identity="busy", queues=(), in_hand=2, **near, **common),
        WorkerSeen(
            identity="idle",
            queues=("default", "mail"),
            age=about(4.0),
            beat_age=about(4.0),
            claim_age=None,
            in_hand=0,
            **common,
        ),
    ]


@pytest.mark.parametrize("age", [0.0, 0.001, 59.999, 60.0, 3_599.5, 86_400.0, 4_000_000.123])
def test_an_age_is_taken_off_to_the_millisecond(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, age: float
) -> None:
    store.beat(connection, [life(age=age)])
    assert Worker.objects.get().started_at == NOON - seconds(age)
