from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from textwrap import dedent
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections
from django.test import override_settings

from django_jobs import every, performers, schedules
from django_jobs.clock import FrozenClock
from django_jobs.models import Schedule
from tests.declaring import declared

Jobs = Callable[..., str]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def report(size: int = 1) -> None: ...


def heartbeat() -> None: ...


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave out what the apps of the suite declare."""
    monkeypatch.setattr("django_jobs.performers.scheduling._entries", {})
    with override_settings(DJANGO_JOBS={"TIME_ZONE": "Europe/Paris", "OWNER": "shop"}):
        yield


def look() -> None:
    """Have the code's schedules be written, and fire, as any worker's chore does."""
    schedules.declare(connections["default"], schedules.code_set())
    schedules.fire_due(connections["default"])


def shown(text: str) -> str:
    return dedent(text).removeprefix("\n")


def test_without_schedules_it_says_how_one_comes_to_be(jobs: Jobs) -> None:
    assert jobs("schedules") == shown("""
        There are no schedules. A job has one of its own by

            @job(schedule="0 9 * * *", time_zone="Europe/Paris")
            def report(): ...

        or by `every("0 9 * * *", report, args=(…), name="…")` beside it. docs/schedules.md says more.
    """)
    assert jobs("schedules", "--json") == "[]\n"


@pytest.fixture
def shop(frozen: FrozenClock) -> Iterator[None]:
    """Have schedules of every kind: one that fires, one that is disabled, removed, bad, another project's, unwritten."""
    with ExitStack() as until_the_end:
        until_the_end.enter_context(declared(heartbeat, name="shop.heartbeat", schedule="* * * * *"))
        performer = until_the_end.enter_context(declared(report, name="shop.report", queue="reports"))
        with declared(report, name="shop.old", schedule="@daily"):
            look()
        every("0 3 * * *", performer, name="nightly", args=(5,))
        every(timedelta(minutes=10), performer, name="often")
        look()
        Schedule.objects.get(name="often").disable()
        made: dict[str, Any] = {"cron": "0 0 1 1 *", "performer": "billing.close", "queue": "money"}
        Schedule.objects.create(name="books", owner="billing", origin="code", **made)
        Schedule.objects.create(name="by hand", **{**made, "cron": "0 9 * * MON"}, skipped=1234)
        Schedule.objects.create(name="bad", **made)
        Schedule.objects.filter(name="bad").update(cron="61 * * * *")
        frozen.advance(timedelta(minutes=1))
        look()
        frozen.advance(timedelta(seconds=30))
        every("0 0 * * *", performer, name="unwritten", time_zone="Asia/Tokyo")
        yield


@pytest.mark.usefixtures("shop")
def test_schedules_are_listed_in_columns_with_what_is_to_be_known_of_each(jobs: Jobs) -> None:
    assert jobs("schedules") == shown("""
    """)
