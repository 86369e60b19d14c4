"""Bulk inserts: whatever way the rows go, they are those of single inserts, all of them or none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, DataError, IntegrityError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import NewJob
from django_jobs.stores import base, postgresql, statements
from django_jobs.stores.base import Store
from tests.factories import NOON, new_job, queue_job, read, seconds
from tests.stores.test_insert import THE_JOB, THE_ROW, every_column, ways_to_wait

pytestmark = pytest.mark.django_db

TABLE = Job._meta.db_table

only_postgresql = pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite knows no such thing")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few rows be many."""
    monkeypatch.setattr(base, "MOST_INSERTED", 3)
    monkeypatch.setattr(postgresql, "MOST_COPIED", 3)
    monkeypatch.setattr(postgresql, "BLOCK", 200)


def run(connection: BaseDatabaseWrapper, *statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


# -- what is written

TEXTS = {
    "backslashes": r"\ \\ \N \. \t \n \x41 \101 \\N",
    "null": r"\N",
    "end of data": "\n\\.\n",
    "tabs and lines": "\t a\tb \n c\nd \r e\r\nf",
    "controls": "\x01\x08\x0b\x0c\x1b\x7f\x85\u2028",
    "quotes": "' \" '' %s %(now)s {now} $1",
    "alphabets": "naïve 日本 \N{PILE OF POO} \U0010ffff",
    "nothing": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_every_text_is_kept_in_every_column(store: Store, connection: BaseDatabaseWrapper, text: str) -> None:
    said = json.dumps([text], ensure_ascii=False)
    job = new_job(name=text, queue=text, args=said, kwargs=json.dumps({text: text}), meta=json.dumps({"why": text}))
    for job_id in store.insert_many(connection, [job, new_job(), job])[::2]:
        row = read(job_id)
        assert (row.name, row.queue, row.args) == (text, text, [text])
        assert (row.kwargs, row.meta) == ({text: text}, {"why": text})


def test_json_may_have_lines_and_tabs_between_its_parts(store: Store, connection: BaseDatabaseWrapper) -> None:
    [job_id] = store.insert_many(connection, [new_job(args='[1,\n\t"two",\r\n"\\\\n"]')])
    assert read(job_id).args == [1, "two", "\\n"]


# Neither NUL nor lone surrogates: they are refused before.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(texts, min_size=1, max_size=5))
def test_any_texts_come_back_as_they_were(store: Store, connection: BaseDatabaseWrapper, said: list[str]) -> None:
    jobs = [new_job(queue=text, args=json.dumps([text]), meta=json.dumps({"text": text})) for text in said]
    with transaction.atomic():
        ids = store.insert_many(connection, jobs)
        rows = [read(job_id) for job_id in ids]
    assert [(row.queue, row.args, row.meta) for row in rows] == [(text, [text], {"text": text}) for text in said]


def test_each_job_keeps_what_its_own_draft_says(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    jobs = [
        new_job(priority=-100, timeout=None, keep=None, keep_failed=None, restart=False),
        new_job(priority=100, timeout=0.1, keep=1e-7, keep_failed=1e16, max_attempts=2_147_483_647, max_crashes=1),
        new_job(run_at=NOON + timedelta(microseconds=1), delay=seconds(5), expires=timedelta(microseconds=1)),
        new_job(delay=timedelta(days=1, microseconds=1)),
        new_job(),
    ]
    singly = [every_column(store.insert(connection, job).id) for job in jobs]
    twice = [*jobs, *reversed(jobs)]
    together = [every_column(job_id) for job_id in store.insert_many(connection, twice)]
    assert together == [*singly, *reversed(singly)]


def test_expiry_counts_real_seconds_over_a_change_of_the_clocks(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    moment = datetime(2030, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    job = new_job(run_at=moment, expires=timedelta(hours=1))
    ids = [store.insert(connection, job).id, *store.insert_many(connection, [job])]
    expected = datetime(2030, 10, 27, 1, 30, tzinfo=UTC)
    assert [read(job_id).expires_at for job_id in ids] == [expected, expected]


def test_the_instants_of_rows_are_those_of_the_statement_not_of_the_transaction(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    with transaction.atomic():
        before = store.pulse(connection).now
        ids = store.insert_many(connection, [new_job(), new_job(delay=timedelta(hours=1))])
        after = store.pulse(connection).now
    first, second = (read(job_id) for job_id in ids)
    assert before < first.enqueued_at < after
    assert (first.run_at, second.run_at) == (first.enqueued_at, first.enqueued_at + timedelta(hours=1))
    assert second.enqueued_at == first.enqueued_at


def test_a_column_of_which_nothing_is_said_has_its_own_default(store: Store, connection: BaseDatabaseWrapper) -> None:
    with transaction.atomic():
        run(connection, f"""alter table "{TABLE}" add column extra varchar(10) not null default 'own'""")
        ids = [store.insert(connection, new_job()).id, *store.insert_many(connection, [new_job(), new_job()])]
        with connection.cursor() as cursor:
            cursor.execute(f'select extra from "{TABLE}" where id >= %s', ids[:1])
            assert cursor.fetchall() == [("own",)] * 3
        transaction.set_rollback(True)


@only_postgresql
def test_triggers_and_generated_columns_do_their_part(store: Store, connection: BaseDatabaseWrapper) -> None:
    run(
        connection,
        f'alter table "{TABLE}" add column twice int generated always as (priority * 2) stored',
        """create function raise_priority() returns trigger language plpgsql
        as 'begin new.priority := new.priority + 1; return new; end'""",
        f'create trigger raised before insert on "{TABLE}" for each row execute function raise_priority()',
    )
    ids = [store.insert(connection, new_job()).id, *store.insert_many(connection, [new_job(priority=4)])]
    with connection.cursor() as cursor:
        cursor.execute(f'select priority, twice from "{TABLE}" where id >= %s order by id', ids[:1])
        assert cursor.fetchall() == [(1, 2), (5, 10)]


# -- in parts


def test_rows_of_many_parts_are_in_the_given_order(
    store: Store, connection: BaseDatabaseWrapper, small_parts: None
) -> None:
    jobs = [new_job(args=f'[{n},"{"x" * (n % 5 * 100)}"]', queue=f"queue-{n % 3}") for n in range(10)]
    ids = store.insert_many(connection, jobs)
    assert ids == sorted(set(ids))
    assert [(read(job_id).args[0], read(job_id).queue) for job_id in ids] == [(n, f"queue-{n % 3}") for n in range(10)]
    assert queue_job() == ids[-1] + 1


@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 9])
def test_a_row_that_is_refused_takes_all_others_along_and_leaves_the_transaction_usable(
    connection: BaseDatabaseWrapper, small_parts: None, place: int
) -> None:
    jobs = [new_job() for _ in range(10)]
    jobs[place] = new_job(priority=101)
    with transaction.atomic():
        kept = queue_job()
        with pytest.raises(IntegrityError):
            lifecycle.enqueue_many(jobs, using="default")
        assert list(Job.objects.values_list("pk", flat=True)) == [kept]
        [queued] = lifecycle.enqueue_many([new_job()], using="default")
    assert set(Job.objects.values_list("pk", flat=True)) == {kept, queued.id}


@pytest.mark.django_db(transaction=True)
def test_out_of_a_transaction_a_row_that_is_refused_takes_all_others_along_too(
    connection: BaseDatabaseWrapper, small_parts: None
) -> None:
    jobs = [*(new_job() for _ in range(7)), new_job(priority=-101)]
    with pytest.raises(IntegrityError):
        lifecycle.enqueue_many(jobs, using="default")
    assert not connection.in_atomic_block
    assert Job.objects.count() == 0
    assert len(lifecycle.enqueue_many(jobs[:-1], using="default")) == 7
    assert Job.objects.count() == 7


def test_what_a_savepoint_takes_back_is_gone_and_the_rest_stays(small_parts: None) -> None:
    with transaction.atomic():
        [kept] = lifecycle.enqueue_many([new_job()], using="default")
        with transaction.atomic():
            lifecycle.enqueue_many([new_job() for _ in range(7)], using="default")
            transaction.set_rollback(True)
    assert list(Job.objects.values_list("pk", flat=True)) == [kept.id]


@only_postgresql
def test_what_fails_between_two_rows_is_raised_and_leaves_the_transaction_usable(
    store: Store, connection: BaseDatabaseWrapper, small_parts: None
) -> None:
    class Broken(str):
        __slots__ = ()

        def replace(self, *_: Any) -> str:  # type: ignore[override]
            raise LookupError("while rows are sent")

    draft = new_job().draft
    jobs = [*(new_job(args=f'["{"x" * 300}"]') for _ in range(2)), NewJob(draft, Broken("[]"), "{}")]
    with transaction.atomic():
        kept = queue_job()
        with pytest.raises(LookupError, match=r"^while rows are sent$"):
            lifecycle.enqueue_many(jobs, using="default")
        assert list(Job.objects.values_list("pk", flat=True)) == [kept]


# -- on whose connection


@only_postgresql
def test_copying_is_seen_by_execute_wrappers_and_in_the_log_of_queries(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    seen: list[tuple[str, Any, bool]] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql.split(maxsplit=1)[0], params, many))
        assert context["connection"].alias == "default"
        return execute(sql, params, many, context)

    with CaptureQueriesContext(connection) as logged, connection.execute_wrapper(note):
        store.insert_many(connection, [new_job()])
    assert [(word, many) for word, _, many in seen] == [("with", False), ("copy", False)]
    assert seen[1][1] is None
    assert [query["sql"].split()[0].lower() for query in logged] == ["with", "copy"]


@only_postgresql
def test_a_wrapper_that_forbids_a_statement_forbids_copying(store: Store, connection: BaseDatabaseWrapper) -> None:
    def forbid(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.split(maxsplit=1)[0] == "copy":
            raise PermissionError("no writing here")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(forbid), pytest.raises(PermissionError, match=r"^no writing here$"):
        store.insert_many(connection, [new_job()])
    assert Job.objects.count() == 0


@pytest.fixture
def humble(connection: BaseDatabaseWrapper) -> Callable[..., Any]:
    """Be a user who may do only what is said, for as long as that takes."""

    @contextmanager
    def be_humble(*statements: str) -> Iterator[None]:
        run(connection, "create role humble", *statements, "set local role humble")
        yield
        run(connection, "reset role")

    return be_humble


RIGHTS = (
    f'grant select, insert on "{TABLE}" to humble',
    f'grant usage on sequence "{TABLE}_id_seq" to humble',
)


@only_postgresql
def test_a_user_who_may_only_read_and_insert_can_queue(
    store: Store, connection: BaseDatabaseWrapper, humble: Callable[..., Any]
) -> None:
    with humble(*RIGHTS):
        ids = [store.insert(connection, new_job()).id, *store.insert_many(connection, [new_job(), new_job()])]
    assert list(Job.objects.order_by("pk").values_list("pk", flat=True)) == ids


GUARDED = (
    *RIGHTS,
    f'alter table "{TABLE}" enable row level security',
    f"""create policy open on "{TABLE}" to humble using (true) with check (queue <> 'secret')""",
)


@only_postgresql
def test_where_policies_guard_the_rows_they_are_asked(
    store: Store, connection: BaseDatabaseWrapper, humble: Callable[..., Any], small_parts: None, frozen: FrozenClock
) -> None:
    jobs = [new_job(args=f"[{n}]", delay=seconds(n)) for n in range(7)]
    with humble(*GUARDED):
        ids = store.insert_many(connection, jobs)
        with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
            store.insert_many(connection, [new_job(queue="secret")])
    rows = [read(job_id) for job_id in ids]
    assert [(row.args, row.run_at) for row in rows] == [([n], NOON + timedelta(seconds=n)) for n in range(7)]
    assert Job.objects.count() == 7


@only_postgresql
@ways_to_wait
def test_where_policies_guard_the_rows_they_are_the_same_rows(
    store: Store, connection: BaseDatabaseWrapper, humble: Callable[..., Any], frozen: FrozenClock,
    waits: dict[str, Any], expected: dict[str, Any],
) -> None:  # fmt: skip
    with humble(*GUARDED):
        [job_id] = store.insert_many(connection, [THE_JOB._replace(draft=replace(THE_JOB.draft, **waits))])
    assert every_column(job_id) == THE_ROW | expected


@only_postgresql
@pytest.mark.parametrize(
    "how", [{"server_side_binding": True}, {"server_side_binding": False}, {"prepare_threshold": 0}]
)
@pytest.mark.django_db(transaction=True)
def test_any_way_to_bind_values_will_do(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock, how: dict[str, Any]
) -> None:
    other = connection.copy()
    other.settings_dict = {**other.settings_dict, "OPTIONS": {**other.settings_dict.get("OPTIONS", {}), **how}}
    jobs = [new_job(), new_job(delay=seconds(5), expires=seconds(5), timeout=None), new_job(run_at=NOON, priority=-1)]
    try:
        for _ in range(3):
            singly = [every_column(store.insert(other, job).id) for job in jobs]
            assert [every_column(job_id) for job_id in store.insert_many(other, jobs)] == singly
    finally:
        other.close()


@only_postgresql
def test_the_time_zone_and_the_date_style_of_the_session_do_not_matter(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    run(connection, "set local timezone = 'Asia/Tokyo'", "set local datestyle = 'SQL, DMY'")
    [job_id] = store.insert_many(connection, [new_job(delay=seconds(1), expires=seconds(1))])
    run(connection, "set local timezone = 'UTC'", "set local datestyle = 'ISO, MDY'")
    row = read(job_id)
    assert (row.enqueued_at, row.run_at, row.expires_at) == (NOON, NOON + seconds(1), NOON + seconds(2))


def test_a_number_that_the_column_cannot_hold_is_refused(store: Store, connection: BaseDatabaseWrapper) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("its columns hold any number")
    with pytest.raises(DataError), transaction.atomic():
        store.insert_many(connection, [new_job(max_attempts=2**31)])


def test_copying_names_the_columns_of_the_statement_that_is_planned_in_its_place() -> None:
    def columns(text: str) -> list[str]:
        return [name.strip() for name in text[text.index("(") + 1 : text.index(")")].split(",")]

    assert columns(postgresql.COPY) == columns(statements.INSERT_MANY)
