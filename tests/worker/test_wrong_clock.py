"""O08: hosts whose clocks are wrong. On PostgreSQL every instant in a row is the server's, so they don't matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.utils import timezone

from django_jobs import clock, lifecycle
from django_jobs.models import Job, Worker
from django_jobs.outcomes import Retried
from django_jobs.worker.beat import Beat, Member
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.lookout import Lookout
from django_jobs.worker.plan import Plan
from tests.factories import claim_one, failure, queue_job, read, run_job, seconds, write
from tests.worker.conftest import make_board

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connections["default"].vendor == "sqlite", reason="SQLite has no clock of its own: one host, one clock, as said"
    ),
]

MakeCrew = Callable[..., Crew]

SOON = timedelta(seconds=30)
"""Far less than the clock is wrong, far more than a test takes."""


@pytest.fixture(params=[300, -300], ids=["5 min ahead", "5 min behind"], autouse=True)
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> timedelta:
    """Have this process believe another time of day; durations it measures right."""
    off = timedelta(seconds=request.param)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + off.total_seconds())
    for home in (clock, timezone):
        monkeypatch.setattr(home, "now", lambda: datetime.now(UTC) + off)
    return off


def of_the_server(instant: datetime | None) -> timedelta:
    """Say how far an instant is from the server's present."""
    assert instant is not None
    with connections["default"].cursor() as cursor:
        cursor.execute("select statement_timestamp()")
        [now] = cursor.fetchone()
    return instant - now.astimezone(UTC)


def is_about(instant: datetime | None, wanted: timedelta = timedelta(0)) -> bool:
    return abs(of_the_server(instant) - wanted) < SOON


def test_o08_the_clock_of_this_process_is_wrong(wrong_clock: timedelta) -> None:
    assert is_about(clock.now(), wrong_clock)


def test_o08_a_job_is_due_when_the_server_says_so(make_crew: MakeCrew) -> None:
    now, later = queue_job(), queue_job(delay=seconds(120))
    assert is_about(read(now).enqueued_at)
    assert is_about(read(later).run_at, seconds(120))
    crew = make_crew(poll=3_600.0)
    delay = crew.turn()
    assert [claim.id for claim in crew._todo] == [now]
    assert delay == 0.0
    lookout = Lookout(link=Link("default"), plan=Plan(alias="default", poll=3_600.0), wake=lambda: None)
    assert 90.0 < lookout.tick() <= 120.0
    lookout.close()


def test_o08_a_lease_lasts_by_the_servers_clock_and_nobody_takes_it_early(make_crew: MakeCrew) -> None:
    claim = run_job()
    assert is_about(read(claim.id).lease_expires_at, seconds(60))
    chores = Chores(link=Link("default"), duties=tuple(duty for duty in duties() if duty.name == "reclaim"))
    chores._due["reclaim"] = 0.0
    chores.tick()
    chores.close()
    assert read(claim.id).state == "RUNNING"
    write(claim.id, lease_expires_at=datetime.now(UTC) + seconds(1_000))
    board = make_board()
    board.take([claim.lease])
    keeper = Keeper(boards=lambda: [board], link=Link("default"))
    keeper.tick()
    keeper.close()
    assert is_about(read(claim.id).lease_expires_at, seconds(60))
    write(claim.id, lease_expires_at=datetime.now(UTC) - seconds(1))
    lifecycle.reclaim(connections["default"])
    assert read(claim.id).state == "READY"


def test_o08_a_retry_comes_after_its_delay_by_the_servers_clock() -> None:
    claim = run_job()
    lifecycle.settle(connections["default"], [(claim, Retried(failure=failure(), delay=seconds(90)))])
    row = read(claim.id)
    assert is_about(row.run_at, seconds(90))
    [error] = row.errors
    assert is_about(datetime.fromisoformat(error["at"]))


def test_o08_a_retry_by_hand_is_due_at_once() -> None:
    job = queue_job(delay=seconds(3_600))
    lifecycle.retry([job])
    assert claim_one().id == job
    assert is_about(Job.objects.get(pk=job).started_at)


def test_o08_a_worker_beats_by_the_servers_clock_and_nobody_thinks_it_dead() -> None:
    plan = Plan(alias="default", concurrency=2)
    beat = Beat(link=Link("default"), members=lambda: [Member.this_process(plan, make_board())])
    beat.tick()
    row = Worker.objects.get()
    assert is_about(row.beat_at)
    assert is_about(row.started_at)
    [seen] = lifecycle.workers(connections["default"])
    assert 0.0 <= seen.beat_age < SOON.total_seconds()
    lifecycle.sweep(connections["default"])
    assert Worker.objects.exists()
    beat.close()
