"""The setting OBSERVE: what watches statements is told of each, by its name, and breaks none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.test import override_settings

from django_jobs import lifecycle
from django_jobs.outcomes import Succeeded
from django_jobs.stores import statements, store_for
from tests.factories import claim_one, new_job, queue_job, request, run_job

pytestmark = pytest.mark.django_db

Told = list[tuple[str, float, int | None]]


@pytest.fixture
def told() -> Iterator[Told]:
    heard: Told = []
    with override_settings(DJANGO_JOBS={"OBSERVE": lambda *what: heard.append(what)}):
        yield heard


def names(told: Told) -> list[str]:
    return [name for name, _, _ in told]


def test_each_statement_is_told_by_its_name_with_its_duration_and_its_rows(told: Told) -> None:
    queue_job()
    queue_job()
    claimed = lifecycle.claim(connections["default"], request(limit=5))
    lifecycle.settle(connections["default"], [(claim, Succeeded()) for claim in claimed.claims])
    assert [(name, rows) for name, _, rows in told] == [("INSERT", 1), ("INSERT", 1), ("CLAIM", 2), ("SUCCEED", 2)]
    assert all(0.0 <= seconds < 60.0 for _, seconds, _ in told)


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(queues=("mail",)),
        request(empty_handed=False),
        request(names=("shop.greet",)),
        request(rooms={"mail": 2}),
    ],
    ids=["all", "queues", "busy", "names", "rooms"],
)
def test_a_claim_and_its_outlook_have_one_name_in_all_their_forms(told: Told, asked: Any) -> None:
    lifecycle.claim(connections["default"], asked)
    lifecycle.next_due(connections["default"], asked)
    assert names(told) == ["CLAIM", "NEXT_DUE"]


def test_statements_of_a_dialect_have_names_too(told: Told) -> None:
    lifecycle.enqueue_many([new_job()], using="default")
    lifecycle.listen(connections["default"])
    dialects = {"postgresql": ["DRAW_IDS", "COPY", "LISTEN"], "sqlite": ["DRAW_IDS", "INSERT_MANY", "VERSION"]}
    assert names(told) == dialects[connections["default"].vendor]


def test_the_rows_of_a_bulk_call_are_counted_and_none_where_it_failed(told: Told) -> None:
    lifecycle.enqueue_many([new_job(), new_job()], using="default")
    with pytest.raises(DatabaseError):
        lifecycle.enqueue_many([new_job(priority=101)], using="default")
    rows = [rows for name, _, rows in told if name in ("COPY", "INSERT_MANY")]
    assert rows == ([2, None] if connections["default"].vendor == "postgresql" else [0, None])


def test_every_statement_that_verbs_run_has_a_name(told: Told) -> None:
    store, connection = store_for("default"), connections["default"]
    job = queue_job()
    claim = claim_one()
    lifecycle.renew(connection, [claim.lease])
    lifecycle.cancel([job])
    lifecycle.settle(connection, [(claim, Succeeded())])
    lifecycle.retry([job])
    lifecycle.delete([job])
    for chore in (lifecycle.reclaim, lifecycle.expire, lifecycle.prune, lifecycle.sweep, lifecycle.workers):
        chore(connection)
    store.queues(connection, [job])
    store.states(connection, [job])
    assert "OTHER" not in names(told)
    assert {name for name in names(told) if name != "NOTIFY"} <= set(vars(statements))


@pytest.mark.django_db(transaction=True)
def test_one_that_passes_over_a_locked_file_is_told_once_too(told: Told) -> None:
    claim = run_job()
    del told[:]
    lifecycle.renew(connections["default"], [claim.lease])
    assert [(name, rows) for name, _, rows in told if name == "RENEW"] == [("RENEW", 1)]
    with transaction.atomic():
        lifecycle.renew(connections["default"], [claim.lease])
    assert names(told).count("RENEW") == 2


def test_a_statement_that_fails_is_told_without_rows(told: Told) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        store_for("default").run(connections["default"], "select nothing from nowhere", {})
    assert [(name, rows) for name, _, rows in told] == [("OTHER", None)]


def test_an_observer_that_raises_breaks_no_statement_and_is_logged_once(odd: list[str]) -> None:
    def observe(name: str, seconds: float, rows: int | None) -> None:
        raise RuntimeError("no room for figures")

    with override_settings(DJANGO_JOBS={"OBSERVE": observe}):
        queue_job()
        queue_job()
        assert claim_one()
    assert len(odd) == 1
    assert "OBSERVE" in odd[0]
    assert "no room for figures" in odd[0]


def test_a_store_that_nobody_watches_runs_its_statements_by_itself() -> None:
    assert "run" not in vars(store_for("default"))
    with override_settings(DJANGO_JOBS={"OBSERVE": lambda *_: None}):
        assert "run" in vars(store_for("default"))
    assert "run" not in vars(store_for("default"))
