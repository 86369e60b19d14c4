"""What a statement costs must not depend on how many rows there are, nor on what the database knows of them.

The work that a plan took is counted, never its time. On small tables PostgreSQL may well read all there is; there the
count alone says whether that is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock
from django_jobs.progress import Progress
from django_jobs.records import Lease, Places
from django_jobs.states import State
from django_jobs.stores import pushed
from django_jobs.stores.base import Store
from django_jobs.transitions import Change
from tests.factories import failure, new_job, request, seconds
from tests.stores.filling import analyze, empty, fill
from tests.stores.plans import (
    COMPILED_ABOVE,
    TABLE,
    Plan,
    Statement,
    explained,
    generic_plan_of,
    plan_of,
    prepared,
    statements_of,
    undone,
)

pytestmark = pytest.mark.django_db

ROUND = 1_000

FEW = {"running": 20, "lapsed": 20, "stopping": 10, "taken": 20, "let_lapse": 20}


def counts_of(rows: int) -> dict[str, int]:
    """Say what a table of so many rows holds: most is kept, or for later; the rest has to be dealt with."""
    twentieth = rows // 20
    return {
        "kept": 4 * twentieth,
        "future": 3 * twentieth,
        "pushed": twentieth,
        "pushed_later": twentieth,
        "dead": twentieth,
        "unique": 2 * twentieth,
        "waiting": 2 * twentieth,
        "freed": twentieth,
        "overdue": twentieth,
        "prunable": 2 * twentieth,
        "due": twentieth,
        "expired": twentieth,
    }


# -- what the database knows

STATISTICS: dict[str, Callable[[Store, BaseDatabaseWrapper, int], None]] = {}


def statistics(prepare: Callable[[Store, BaseDatabaseWrapper, int], None]) -> Callable[..., None]:
    STATISTICS[prepare.__name__] = prepare
    return prepare


def fill_table(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill(store, connection, **counts_of(rows), **(FEW if rows else {}))


@statistics
def never(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill_table(store, connection, rows)


@statistics
def of_an_empty_table(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    analyze(connection)
    fill_table(store, connection, rows)


@statistics
def of_a_table_that_was_emptied(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    """Pages are there, and no rows: whatever is asked for, PostgreSQL believes the whole table to be as cheap."""
    fill(store, connection, kept=1_000)
    with connection.cursor() as cursor:
        cursor.execute(f'delete from "{TABLE}"')
    analyze(connection)
    fill_table(store, connection, rows)


@statistics
def when_all_were_due(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill(store, connection, due=1_000)
    analyze(connection)
    fill_table(store, connection, rows)


@statistics
def when_all_were_running(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill(store, connection, running=1_000)
    analyze(connection)
    fill_table(store, connection, rows)


@statistics
def when_all_had_ended(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill(store, connection, kept=1_000)
    analyze(connection)
    fill_table(store, connection, rows)


@statistics
def fresh(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill_table(store, connection, rows)
    analyze(connection)


@statistics
def of_a_full_table_that_is_empty_now(store: Store, connection: BaseDatabaseWrapper, rows: int) -> None:
    fill_table(store, connection, 10_000)
    analyze(connection)
    empty(connection)
    fill_table(store, connection, rows)


# -- the statements


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A statement, the indexes by which it may find its rows, and the work it may take: pages, or thousands of steps.

    `may_sort` is whether it may look at more rows than it wants; one that `is_rare` may be compiled.
    """

    name: str
    call: Callable[[], Any]
    pages: int
    steps: int
    by: tuple[str, ...] = ("id",)
    may_sort: bool = True
    is_rare: bool = False


def verbs(store: Store, connection: BaseDatabaseWrapper) -> Iterator[Verb]:
    """Give the verbs that loops call again and again, about rows that are in the table."""
    asked = {
        "all": request(limit=100),
        "one": request(limit=1, empty_handed=False),
        "named queues": request(limit=100, queues=("q0", "q1", "q2")),
        "caps": request(limit=100, queues=("q0", "q1"), rooms={"q0": 4}),
        "names": request(limit=100, queues=("q0", "q1", "q2"), names=("shop.greet",)),
    }
    for kind, each in asked.items():
        yield Verb(
            name=f"claim {kind}", call=lambda each=each: store.claim(connection, each, 1), by=("django_jobs_claim",),
            pages=3_000, steps=300,
        )  # fmt: skip
        yield Verb(
            name=f"next_due {kind}", call=lambda each=each: store.next_due(connection, each), by=("django_jobs_claim",),
            pages=200, steps=10,
        )  # fmt: skip
    last = {"queue": "q0", "priority": 0, "run_at": clock.now()}
    yield Verb(
        name="ahead", call=lambda: store.ahead(connection, 10**12, **last, limit=ROUND), by=("django_jobs_claim",),
        pages=3_000, steps=100,
    )  # fmt: skip
    held, stopping = leases(connection, "RUNNING"), leases(connection, "CANCELLED")
    for name, state, gone, why in [
        ("succeed", State.SUCCESSFUL, False, None),
        ("succeed and go", State.SUCCESSFUL, True, None),
        ("change", State.READY, False, failure()),
    ]:
        changes = [
            Change(lease=lease, state=state, attempts=1, max_attempts=3, crashes=0, alone=False, gone=gone, failure=why)
            for lease in held
        ]
        yield Verb(
            name=name, call=lambda changes=changes: store.settle(connection, changes), pages=1_500, steps=20,
            by=("id", "django_jobs_held"),
        )  # fmt: skip
    yield Verb(
        name="reclaim", call=lambda: store.reclaim(connection, changes), by=("id", "django_jobs_held"), pages=1_500,
        steps=20,
    )  # fmt: skip
    yield Verb(
        name="renew", call=lambda: store.renew(connection, held, lease=seconds(60)), by=("id", "django_jobs_held"),
        pages=1_500, steps=10,
    )  # fmt: skip
    reports = {lease: Progress(3, 10, "reading") for lease in held}
    yield Verb(
        name="report", call=lambda: store.report(connection, reports), by=("id", "django_jobs_held"), pages=1_500,
        steps=10,
    )  # fmt: skip
    yield Verb(
        name="let go",
        call=lambda: store.let_go(connection, stopping),
        by=("id", "django_jobs_held"),
        pages=500,
        steps=10,
    )
    yield Verb(
        name="let go lapsed", call=lambda: store.let_go_lapsed(connection, stopping), by=("id", "django_jobs_held"),
        pages=500, steps=10,
    )  # fmt: skip
    yield Verb(name="peek", call=lambda: store.peek(connection, [lease.id for lease in held]), pages=200, steps=5)
    yield Verb(
        name="held by", call=lambda: store.held_by(connection, "w1"), by=("django_jobs_held",), pages=100, steps=5
    )
    yield Verb(
        name="lapsed", call=lambda: store.lapsed(connection, limit=ROUND), by=("django_jobs_held",), pages=1_500,
        steps=50, may_sort=False,
    )  # fmt: skip
    yield Verb(
        name="expire", call=lambda: store.expire(connection, limit=ROUND), by=("django_jobs_expiry",), pages=20_000,
        steps=500, may_sort=False,
    )  # fmt: skip
    yield Verb(
        name="prune", call=lambda: store.prune(connection, limit=ROUND), by=("django_jobs_prune",), pages=10_000,
        steps=200, may_sort=False,
    )  # fmt: skip
    yield Verb(
        name="prune one", call=lambda: store.prune(connection, limit=1, only=10**12), pages=100, steps=5,
    )  # fmt: skip
    yield Verb(
        name="workers", call=lambda: store.workers(connection), by=("django_jobs_held",), pages=100, steps=5,
        is_rare=True,
    )  # fmt: skip
    for many in (1, 30):
        yield from verbs_on_keys(store, connection, many)
    yield from verbs_on_pushed_rows(store, connection)


def verbs_on_pushed_rows(store: Store, connection: BaseDatabaseWrapper) -> Iterator[Verb]:
    """Give the verbs of the low level, about rows that lie in the queues of jobs."""
    held = leases(connection, "RUNNING")[0]
    yield Verb(
        name="take",
        call=lambda: pushed.take(store, connection, "q0", token=1, lease=seconds(60), consumer="web1:1"),
        by=("django_jobs_take",), pages=100, steps=5,
    )  # fmt: skip
    yield Verb(
        name="take where none is due",
        call=lambda: pushed.take(store, connection, "q9", token=1, lease=seconds(60), consumer="web1:1"),
        by=("django_jobs_take",), pages=100, steps=5,
    )  # fmt: skip
    yield Verb(
        name="bring back", call=lambda: pushed.bring_back(store, connection, "q0", limit=ROUND),
        by=("django_jobs_held",), pages=500, steps=10,
    )  # fmt: skip
    yield Verb(name="ack", call=lambda: pushed.ack(store, connection, held), pages=100, steps=5)
    yield Verb(
        name="put back",
        call=lambda: pushed.put_back(store, connection, held, failure=failure(), delay=seconds(5), max_attempts=9),
        pages=100, steps=5,
    )  # fmt: skip
    yield Verb(
        name="fail",
        call=lambda: pushed.fail(store, connection, held, queue="q0", failure=failure(), max_attempts=9),
        pages=100, steps=5,
    )  # fmt: skip
    yield Verb(
        name="extend", call=lambda: pushed.extend(store, connection, held, lasting=seconds(60)), pages=100, steps=5,
        by=("id", "django_jobs_held"),
    )  # fmt: skip
    yield Verb(
        name="dead", call=lambda: pushed.dead(store, connection, "q0", limit=ROUND), by=("django_jobs_trouble",),
        pages=1_500, steps=50,
    )  # fmt: skip
    yield Verb(
        name="stats", call=lambda: pushed.stats(store, connection), by=("django_jobs_take",), pages=200_000,
        steps=5_000, is_rare=True,
    )  # fmt: skip


def verbs_on_keys(store: Store, connection: BaseDatabaseWrapper, many: int) -> Iterator[Verb]:
    """Give the verbs that ask who holds keys, so many of them, and those that wait or move for their sake."""
    unique, waiting, overdue = ([f"{kind}{n + 20}" for n in range(many)] for kind in "uwo")
    asking: dict[str, Any] = {"pages": 100 + 40 * many, "steps": 20 + many // 3}
    moving: dict[str, Any] = {"pages": 100 + 60 * many, "steps": 20 + many // 3}
    for kind, keys in (("unique", unique), ("waiting", waiting)):
        is_waiting = kind == "waiting"
        jobs = [new_job()._replace(**{f"{kind}_key": key}) for key in keys]
        calls: dict[str, Callable[[], Any]] = {
            "lock": partial(store.lock_holders, connection, keys, waiting=is_waiting),
            "find": partial(store.find_holders, connection, keys, waiting=is_waiting),
            "expire": partial(store.expire_holders, connection, keys, waiting=is_waiting),
            "replace": partial(store.replace, connection, jobs, waiting=is_waiting),
        }
        for name, call in calls.items():
            yield Verb(name=f"{name} {many} {kind}", call=call, by=(f"django_jobs_{kind}",), **moving)
    for name, call in {
        "find busy": partial(store.find_busy, connection, unique),
        "free": partial(store.free, connection, overdue),
        "free in vain": partial(store.free, connection, unique),
    }.items():
        yield Verb(name=f"{name} {many}", call=call, by=("django_jobs_unique",), **asking)
    for kind, column in (("failed", "finished_at"), ("keyed", "unique_key"), ("overdue", "unique_until")):
        ids = ids_of(connection, column, many)
        for name, call in {
            "retry": partial(store.retry, connection, ids),
            "keys": partial(store.keys, connection, ids),
            "reschedule": partial(store.reschedule, connection, ids, Places(priority=1)),
            "forward": partial(store.forward, connection, dict.fromkeys(ids)),
        }.items():
            yield Verb(name=f"{name} {many} {kind}", call=call, **moving)
        yield Verb(name=f"key holder {kind}", call=partial(store.key_holder, connection, ids[0]), pages=50, steps=5)
    held = leases(connection, "RUNNING")
    changes = [
        Change(
            lease=lease, state=State.CANCELLED, attempts=1, max_attempts=3, crashes=0, alone=False, failure=failure(),
            superseded_by=rival,
        )
        for lease, rival in zip(held, ids_of(connection, "waiting_key", len(held)), strict=False)
    ]  # fmt: skip
    for name, verb in (("supersede", store.settle), ("supersede lapsed", store.reclaim)):
        yield Verb(
            name=name, call=partial(verb, connection, changes), pages=1_500, steps=20, by=("id", "django_jobs_held")
        )


def ids_of(connection: BaseDatabaseWrapper, column: str, count: int) -> list[int]:
    """Give the ids of so many rows that have something in a column, some of them ended and some waiting."""
    with connection.cursor() as cursor:
        found: list[int] = []
        for state in ("FAILED", "READY"):
            cursor.execute(
                f"select id from django_jobs_job where {column} is not null and state = %s order by id limit %s",
                [state, (count + 1) // 2],
            )
            found += [job_id for (job_id,) in cursor.fetchall()]
    return sorted(found)[:count] or [10**12]


def leases(connection: BaseDatabaseWrapper, state: str) -> list[Lease]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select id, token from django_jobs_job where state = %s and worker is not null order by id limit 30",
            [state],
        )
        found = [Lease(id=job_id, token=token) for job_id, token in cursor.fetchall()]
    return found or [Lease(id=10**12, token=1)]


def wrong(
    verb: Verb, plan: Plan, connection: BaseDatabaseWrapper, *, is_big: bool, is_prepared: bool = False
) -> Iterator[str]:
    """Say what a plan does that it shouldn't. Statements are only prepared in sessions that compile nothing."""
    found = f"{verb.name}: {{}}, by {sorted(plan.indexes)}, work {plan.work:,}, cost {plan.cost:,.0f}"
    if plan.work > (verb.steps if connection.vendor == "sqlite" else verb.pages):
        yield found.format("too much work")
    if plan.cost > COMPILED_ABOVE and not (verb.is_rare or is_prepared):
        yield found.format("it would be compiled")
    if connection.vendor == "sqlite" or is_big:
        if plan.scans:
            yield found.format("it reads the whole table")
        if plan.indexes.isdisjoint(verb.by):
            yield found.format(f"not by {verb.by}")
    if plan.sorts and not verb.may_sort:
        yield found.format("it sorts all that it might find")


def wrongs(store: Store, connection: BaseDatabaseWrapper, *, is_big: bool, only: Iterable[Verb] | None = None) -> str:
    """Look at the plans of all verbs, or `only` some, and say what is wrong with them, a line each."""
    ways = [plan_of] if connection.vendor == "sqlite" else [plan_of, generic_plan_of]
    return "\n".join(
        f"{way.__name__} {text}"
        for verb in (verbs(store, connection) if only is None else only)
        for statement in statements_of(connection, verb.call)
        if TABLE in statement[0]
        for way in ways
        for text in wrong(
            verb, way(connection, statement), connection, is_big=is_big, is_prepared=way is generic_plan_of
        )
    )


@pytest.mark.parametrize("known", STATISTICS)
@pytest.mark.parametrize("rows", [0, 1_000])
def test_on_a_small_table_no_statement_takes_long_whatever_is_known_of_it(
    store: Store, connection: BaseDatabaseWrapper, rows: int, known: str
) -> None:
    empty(connection)
    STATISTICS[known](store, connection, rows)
    assert wrongs(store, connection, is_big=False) == ""


def test_among_a_million_rows_each_statement_finds_its_own_by_its_index_with_stale_and_fresh_statistics(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    empty(connection)
    of_an_empty_table(store, connection, 1_000_000)
    assert wrongs(store, connection, is_big=True) == ""
    analyze(connection)
    assert wrongs(store, connection, is_big=True) == ""


def test_a_plan_that_was_made_while_the_table_was_empty_serves_a_full_one(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    """Workers that started before there were any jobs keep such plans until statistics are gathered."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite plans anew when it gathers statistics, and looks at no others")
    empty(connection)
    plans = [
        (verb, prepared(connection, f"ours{number}", statement))
        for number, verb in enumerate(verbs(store, connection))
        for statement in statements_of(connection, verb.call)
    ]
    for _, execute in plans:
        explained(connection, execute)
    fill_table(store, connection, 100_000)
    found = [
        text
        for verb, execute in plans
        for text in wrong(verb, again(connection, execute), connection, is_big=True, is_prepared=True)
    ]
    assert "\n".join(found) == ""


def again(connection: BaseDatabaseWrapper, execute: Statement) -> Plan:
    with undone(connection):
        return explained(connection, execute)


def test_among_many_rows_where_there_were_none_when_statistics_were_gathered_each_statement_finds_its_own(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    """A burst comes to a queue that had been worked off: for a minute or so the server believes it to be empty."""
    empty(connection)
    of_a_table_that_was_emptied(store, connection, 20_000)
    assert wrongs(store, connection, is_big=True) == ""


@pytest.mark.parametrize("known", STATISTICS)
def test_a_thousand_keys_are_looked_up_one_by_one_whatever_is_known_of_them(
    store: Store, connection: BaseDatabaseWrapper, known: str
) -> None:
    empty(connection)
    STATISTICS[known](store, connection, 20_000)
    assert wrongs(store, connection, is_big=True, only=verbs_on_keys(store, connection, ROUND)) == ""


@pytest.mark.parametrize("known", STATISTICS)
def test_pushed_rows_are_found_among_jobs_of_the_same_queues_whatever_is_known_of_either(
    store: Store, connection: BaseDatabaseWrapper, known: str
) -> None:
    empty(connection)
    STATISTICS[known](store, connection, 20_000)
    assert wrongs(store, connection, is_big=True, only=verbs_on_pushed_rows(store, connection)) == ""


@pytest.mark.soak
@pytest.mark.parametrize("known", STATISTICS)
def test_among_a_million_rows_each_statement_finds_its_own_by_its_index_whatever_is_known_of_them(
    store: Store, connection: BaseDatabaseWrapper, known: str
) -> None:
    empty(connection)
    STATISTICS[known](store, connection, 1_000_000)
    assert wrongs(store, connection, is_big=True) == ""
