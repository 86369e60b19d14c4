from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Inserted, NewJob, Queued
from django_jobs.stores.base import Store
from tests.factories import NOON, new_job, queue_job, read, seconds

pytestmark = pytest.mark.django_db


def every_column(job_id: int) -> dict[str, object]:
    row = read(job_id)
    return {field.attname: getattr(row, field.attname) for field in Job._meta.concrete_fields if field.name != "id"}


THE_ROW = {
    "name": "shop.greet",
    "queue": "bulk",
    "priority": -7,
    "args": [1, "two"],
    "kwargs": {"three": 3},
    "state": "READY",
    "run_at": NOON,
    "expires_at": None,
    "attempts": 0,
    "max_attempts": 5,
    "crashes": 0,
    "max_crashes": 2,
    "alone": False,
    "restart": False,
    "timeout": 30.5,
    "keep": 60.0,
    "keep_failed": 120.0,
    "on_failure": "shop.hear",
    "enqueued_at": NOON,
    "first_started_at": None,
    "started_at": None,
    "finished_at": None,
    "prune_at": None,
    "token": None,
    "lease_expires_at": None,
    "deadline_at": None,
    "worker": None,
    "last_worker": None,
    "unique_key": None,
    "unique_until": None,
    "waiting_key": None,
    "errors": [],
    "fingerprint": None,
    "result": None,
    "progress": None,
    "meta": {"language": "de"},
    "schedule": None,
    "tick": None,
}

THE_JOB = new_job(
    queue="bulk",
    priority=-7,
    args='[1,"two"]',
    kwargs='{"three":3}',
    max_attempts=5,
    max_crashes=2,
    restart=False,
    timeout=30.5,
    keep=60.0,
    keep_failed=120.0,
    meta='{"language":"de"}',
    on_failure="shop.hear",
)


def test_insert_writes_what_the_job_says_and_leaves_the_rest_empty(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    inserted = store.insert(connection, THE_JOB)
    assert every_column(inserted.id) == THE_ROW


def test_insert_many_writes_the_same_row(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    [job_id] = store.insert_many(connection, [THE_JOB])
    assert every_column(job_id) == THE_ROW


ways_to_wait = pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({"delay": seconds(90)}, {"run_at": NOON + seconds(90)}),
        ({"run_at": NOON - seconds(90)}, {"run_at": NOON - seconds(90)}),
        ({"expires": seconds(0)}, {"expires_at": NOON}),
        ({"delay": seconds(5), "expires": seconds(5)}, {"run_at": NOON + seconds(5), "expires_at": NOON + seconds(10)}),
        (
            {"run_at": NOON + seconds(9), "expires": seconds(5)},
            {"run_at": NOON + seconds(9), "expires_at": NOON + seconds(14)},
        ),
    ],
)


@ways_to_wait
def test_a_job_that_waits_or_expires_is_the_same_row_but_for_that(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, waits: dict[str, Any], expected: dict[str, Any]
) -> None:
    job = NewJob(replace(THE_JOB.draft, **waits), THE_JOB.args, THE_JOB.kwargs)
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    assert [every_column(job_id) for job_id in ids] == [THE_ROW | expected] * 2


@ways_to_wait
@pytest.mark.parametrize(
    ("key", "held"),
    [
        ({"unique_key": "k"}, {"unique_key": "k", "unique_until": NOON + seconds(30)}),
        ({"waiting_key": "k"}, {"waiting_key": "k"}),
    ],
    ids=["unique", "waiting"],
)
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
def test_a_job_with_a_key_is_the_same_row_but_for_that(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, waits: dict[str, Any],
    expected: dict[str, Any], key: dict[str, str], held: dict[str, Any], others: int,
) -> None:  # fmt: skip
    job = NewJob(replace(THE_JOB.draft, unique_for=30.0, **waits), THE_JOB.args, THE_JOB.kwargs, **key)
    inserted = store.insert_keyed(connection, [*[new_job()._replace(unique_key="other")] * others, job])
    assert job.key is not None
    assert every_column(inserted[job.key].id) == THE_ROW | expected | held


def test_no_limits_are_null(store: Store, connection: BaseDatabaseWrapper) -> None:
    job = new_job(timeout=None, keep=None, keep_failed=None)
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    rows = Job.objects.filter(pk__in=ids).values_list("timeout", "keep", "keep_failed")
    assert list(rows) == [(None, None, None), (None, None, None)]


def test_insert_tells_what_the_database_decided(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job = new_job(delay=seconds(90), expires=timedelta(hours=1))
    inserted = store.insert(connection, job)
    assert inserted == Inserted(
        id=inserted.id,
        enqueued_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        run_at=datetime(2026, 3, 1, 12, 1, 30, tzinfo=UTC),
        expires_at=datetime(2026, 3, 1, 13, 1, 30, tzinfo=UTC),
    )


def test_a_delay_counts_from_the_insert(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job = new_job(delay=timedelta(days=1, microseconds=1))
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    expected = datetime(2026, 3, 2, 12, 0, 0, 1, tzinfo=UTC)
    assert [read(job_id).run_at for job_id in ids] == [expected, expected]


def test_expiry_counts_from_the_moment_it_may_first_run(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job = new_job(run_at=datetime(2030, 5, 1, tzinfo=UTC), delay=seconds(5), expires=timedelta(hours=2))
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    expected = datetime(2030, 5, 1, 2, tzinfo=UTC)
    assert [read(job_id).expires_at for job_id in ids] == [expected, expected]


@pytest.mark.parametrize(
    ("run_at", "expected"),
    [
        (datetime(2030, 7, 1, 14, tzinfo=ZoneInfo("Europe/Paris")), datetime(2030, 7, 1, 12, tzinfo=UTC)),
        (
            datetime(2030, 7, 1, 12, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
            datetime(2030, 7, 1, 21, 30, tzinfo=UTC),
        ),
        # The hour that comes twice when summer time ends: each of the two is kept.
        (datetime(2030, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris")), datetime(2030, 10, 27, 0, 30, tzinfo=UTC)),
        (
            datetime(2030, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Paris")),
            datetime(2030, 10, 27, 1, 30, tzinfo=UTC),
        ),
    ],
)
def test_a_moment_in_any_zone_is_kept(
    store: Store, connection: BaseDatabaseWrapper, run_at: datetime, expected: datetime
) -> None:
    job = new_job(run_at=run_at)
    inserted = store.insert(connection, job)
    [second] = store.insert_many(connection, [job])
    assert [inserted.run_at, read(inserted.id).run_at, read(second).run_at] == [expected, expected, expected]


@pytest.mark.parametrize("micros", [0, 1, 999_999, 123_456])
def test_instants_are_exact_to_the_microsecond(store: Store, connection: BaseDatabaseWrapper, micros: int) -> None:
    instant = NOON.replace(microsecond=micros)
    with clock.freeze(instant):
        inserted = store.insert(connection, new_job(delay=timedelta(microseconds=2)))
    row = read(inserted.id)
    assert (inserted.enqueued_at, row.enqueued_at) == (instant, instant)
    assert (inserted.run_at, row.run_at) == (instant + timedelta(microseconds=2),) * 2


def test_each_insert_of_a_transaction_has_its_own_instant(store: Store, connection: BaseDatabaseWrapper) -> None:
    with transaction.atomic():
        first, second = (store.insert(connection, new_job()).enqueued_at for _ in range(2))
    assert first < second


def test_insert_many_gives_ids_in_the_order_of_the_jobs(store: Store, connection: BaseDatabaseWrapper) -> None:
    ids = store.insert_many(connection, [new_job(args=f"[{n}]") for n in range(5)])
    assert [read(job_id).args for job_id in ids] == [[0], [1], [2], [3], [4]]
    assert ids == sorted(ids)


def test_any_number_of_jobs_is_inserted_in_the_given_order() -> None:
    queued = lifecycle.enqueue_many([new_job(args=f"[{n}]") for n in range(2_500)], using="default")
    args = dict(Job.objects.values_list("pk", "args"))
    assert [args[one.id] for one in queued] == [[n] for n in range(2_500)]
    assert queued[0] == Queued(id=queued[0].id, duplicate=False)


def test_no_jobs_are_no_rows() -> None:
    assert lifecycle.enqueue_many([], using="default") == []
    assert Job.objects.count() == 0


def test_a_bulk_call_inserts_all_or_nothing() -> None:
    jobs = [new_job() for _ in range(1_500)]
    jobs[-1] = new_job(priority=101)
    with pytest.raises(IntegrityError):
        lifecycle.enqueue_many(jobs, using="default")
    assert Job.objects.count() == 0


def test_a_bulk_call_that_fails_leaves_the_callers_transaction_usable() -> None:
    with transaction.atomic():
        queue_job(args='["kept"]')
        with pytest.raises(IntegrityError):
            lifecycle.enqueue_many([new_job(priority=101)], using="default")
        assert [job.args for job in Job.objects.all()] == [["kept"]]


def test_large_arguments_are_split_over_several_statements() -> None:
    text = "x" * 3_000_000
    queued = lifecycle.enqueue_many([new_job(args=f'["{n}{text}"]') for n in range(4)], using="default")
    assert [read(one.id).args[0][0] for one in queued] == ["0", "1", "2", "3"]


def test_the_first_rows_a_table_ever_had_may_be_a_bulk_call(connection: BaseDatabaseWrapper) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite keeps its sequences in a table, which knows nothing of ours before the first row")
    with connection.cursor() as cursor:
        cursor.execute("delete from sqlite_sequence where name = %s", [Job._meta.db_table])
    queued = lifecycle.enqueue_many([new_job(args=f"[{n}]") for n in range(3)], using="default")
    assert [one.id for one in queued] == [1, 2, 3]
    Job.objects.all().delete()
    assert queue_job() == 4


def test_single_and_bulk_inserts_share_one_sequence(store: Store, connection: BaseDatabaseWrapper) -> None:
    first = queue_job()
    bulk = store.insert_many(connection, [new_job(), new_job()])
    last = queue_job()
    assert [*bulk, last] == [first + 1, first + 2, first + 3]


def test_ids_of_deleted_jobs_never_come_back(store: Store, connection: BaseDatabaseWrapper) -> None:
    before = [queue_job(), *store.insert_many(connection, [new_job(), new_job()])]
    assert store.delete(connection, before) == set(before)
    after = [queue_job(), *store.insert_many(connection, [new_job()]), queue_job()]
    assert after == [before[-1] + 1, before[-1] + 2, before[-1] + 3]


def test_a_text_of_every_alphabet_is_kept(store: Store, connection: BaseDatabaseWrapper) -> None:
    text = "naïve 日本 \N{PILE OF POO} %s %(now)s {now} ' \" \\ \t"
    job = new_job(queue=text, name=text)
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    assert [(read(job_id).name, read(job_id).queue) for job_id in ids] == [(text, text), (text, text)]
