"""What the shop does by the clock. The timetable is the demo's alone: the settings of the suite don't look for it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connections
from django.test import Client

from django_jobs import schedules
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Schedule
from django_jobs.testing import perform, run_jobs
from example_project.shop import jobs
from example_project.shop.models import Order, Product

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[2]


def test_the_demo_has_a_nightly_report_and_a_heartbeat(tmp_path: Path) -> None:
    program = """
        import django

        django.setup()
        from django.core.checks import run_checks
        from django_jobs.performers import declared

        for one in declared():
            print(one.name, one.performer, one.cron, one.time_zone or "-", one.missed, one.overlap)
        print([message.id for message in run_checks(tags=["django_jobs"])])
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", dedent(program)],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DATABASE_URL": f"sqlite:///{tmp_path / 'shop.sqlite3'}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "shop.heartbeat shop.heartbeat * * * * * - skip skip",
        "shop.nightly_report shop.nightly_report 0 3 * * * Europe/Paris once allow",
        "[]",
    ], done.stderr


@pytest.fixture
def product() -> Product:
    return Product.objects.create(sku="TEA-1", name="Black tea", price=Decimal("5.20"))


def order(product: Product, placed_at: datetime) -> Order:
    customer, _ = User.objects.get_or_create(username="ada@example.com", email="ada@example.com")
    placed = Order.objects.create(customer=customer, product=product, quantity=2, price=product.price)
    Order.objects.filter(pk=placed.pk).update(placed_at=placed_at)
    return placed


def fire() -> None:
    schedules.fire_due(connections["default"])


def test_the_nightly_report_is_of_the_day_before_its_tick_however_late_it_runs(
    product: Product, frozen: FrozenClock
) -> None:
    User.objects.create_user("boss", "boss@example.com", is_staff=True)
    Schedule.objects.create(name="nightly", cron="0 3 * * *", time_zone="Europe/Paris", performer="shop.nightly_report")
    fire()
    tick = datetime(2026, 3, 2, 2, tzinfo=UTC)
    for placed_at in (tick - timedelta(hours=25), tick - timedelta(hours=1), tick + timedelta(hours=1)):
        order(product, placed_at)
    frozen.advance(timedelta(hours=20))
    fire()
    assert run_jobs().jobs[0].result == 1
    [message] = mail.outbox
    assert (message.subject, message.to) == ("1 orders until 2026-03-02", ["boss@example.com"])
    assert message.body == "2 of Black tea\n"


def test_the_heartbeat_counts_receipts_that_are_still_to_be_sent(product: Product) -> None:
    order(product, datetime(2026, 3, 1, tzinfo=UTC))
    assert perform(jobs.heartbeat) == 1


def test_the_heartbeat_beats_each_minute_and_is_seen_on_the_first_page(client: Client, frozen: FrozenClock) -> None:
    Schedule.objects.create(name="shop.heartbeat", cron="* * * * *", time_zone="UTC", performer="shop.heartbeat")
    fire()
    for _ in range(3):
        frozen.advance(timedelta(minutes=1))
        fire()
        assert run_jobs().succeeded == 1
    assert list(Job.objects.order_by("pk").values_list("tick", flat=True)) == [
        datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in (1, 2, 3)
    ]
    page = client.get("/example/").content.decode()
    assert "By the clock" in page
    assert "Every minute" in page


def test_without_schedules_the_first_page_says_nothing_of_them(client: Client) -> None:
    assert "By the clock" not in client.get("/example/").content.decode()
