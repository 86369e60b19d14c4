"""What the stores know of a loop's own connections, and of their own statements."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.stores import statements
from django_jobs.stores.base import Store

COMPOSED = {"CLAIM", "NEXT_DUE"}
FRAGMENTS = {"WALK", "EVERY_QUEUE", "NAMED_QUEUES", "NOT_ALONE", "SOME_NAMES", "HELD_COLUMNS"}


pytestmark = pytest.mark.django_db


def test_the_database_takes_every_statement_of_ours(store: Store, connection: BaseDatabaseWrapper) -> None:
    assert store.refused(connection) is None


def test_no_statement_is_left_out_of_that() -> None:
    texts = {name for name, value in vars(statements).items() if re.fullmatch("[A-Z_]+", name) and type(value) is str}
    assert {name for name in texts if not name.startswith("_")} == COMPOSED | FRAGMENTS | set(statements.WHOLE)


@pytest.mark.django_db(transaction=True)
def test_the_first_statement_that_is_refused_is_named(store: Store, connection: BaseDatabaseWrapper) -> None:
    with connection.schema_editor() as editor:
        editor.execute(f'alter table "{Job._meta.db_table}" rename column prune_at to pruned_at')
    try:
        refused = store.refused(connection)
    finally:
        with connection.schema_editor() as editor:
            editor.execute(f'alter table "{Job._meta.db_table}" rename column pruned_at to prune_at')
    assert refused is not None
    name, error = refused
    assert name == "CLAIM"
    assert "prune_at" in str(error)


def test_nothing_happens_to_a_row_when_statements_are_tried(store: Store, connection: BaseDatabaseWrapper) -> None:
    from tests.factories import queue_job

    job_id = queue_job()
    before = Job.objects.values().get(pk=job_id)
    store.refused(connection)
    assert Job.objects.values().get() == before


def test_the_pulse_tells_the_database_s_time(store: Store, connection: BaseDatabaseWrapper) -> None:
    pulse = store.pulse(connection)
    assert abs(pulse.now - clock.now()) < timedelta(minutes=5)
    if connections["default"].vendor == "sqlite":
        assert pulse.server_start is None
    else:
        assert pulse.server_start is not None
        assert pulse.server_start < pulse.now
        assert store.pulse(connection).server_start == pulse.server_start


def test_the_pulse_is_frozen_with_the_clock(
    store: Store, connection: BaseDatabaseWrapper, frozen: clock.FrozenClock
) -> None:
    assert store.pulse(connection).now == frozen.instant
