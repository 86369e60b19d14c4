"""Each migration after the first can be taken back, and applied again over what is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

from django_jobs import schedules
from django_jobs.models import Job, Schedule, ScheduleSet
from django_jobs.schedules import CodeSet
from tests.factories import queue_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def migrated() -> Iterator[None]:
    """Have all be applied again at the end."""
    yield
    migrate("django_jobs")


def migrate(*where: str) -> None:
    call_command("migrate", *where, verbosity=0)


def tables() -> set[str]:
    return {name for name in connection.introspection.table_names() if name.startswith("django_jobs_")}


@pytest.mark.usefixtures("migrated")
def test_the_sets_of_schedules_go_and_come_back_and_nothing_else_does() -> None:
    schedule = Schedule.objects.create(name="nightly", cron="0 3 * * *", performer="shop.report")
    first = queue_job()
    ScheduleSet.objects.create(owner="shop", hash="b", counts_since="2026-01-01T00:00:00Z")
    before = tables()
    migrate("django_jobs", "0001")
    assert before - tables() == {"django_jobs_scheduleset"}
    assert Schedule.objects.get() == schedule
    migrate("django_jobs")
    assert tables() == before
    assert not ScheduleSet.objects.exists()
    # Whoever starts next takes over, as where there never was a set.
    assert schedules.declare(connection, CodeSet(owner="shop", hash="b", schedules=())) is True
    assert ScheduleSet.objects.values_list("owner", "hash").get() == ("shop", "b")
    assert Job.objects.get().pk == first < queue_job()
