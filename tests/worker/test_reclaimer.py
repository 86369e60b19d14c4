"""When what lapsed is taken back, look by look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Pulse
from django_jobs.worker.reclaimer import Reclaimer
from tests.factories import claim_one, locked, queue_job, seconds

pytestmark = pytest.mark.django_db(transaction=True)

HELD_OFF = "nothing is reclaimed for 15 s, so that those who live can renew"


class Server:
    """What the database says of itself, for the test to change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock_is_ahead = timedelta(0)
        self.restarts = timedelta(0)
        real = lifecycle.pulse

        def pulse(connection: Any) -> Pulse:
            now = real(connection).now + self.clock_is_ahead
            return Pulse(server_start=datetime(2026, 1, 1, tzinfo=UTC) + self.restarts, now=now)

        monkeypatch.setattr(lifecycle, "pulse", pulse)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def lapsed_job(frozen: FrozenClock) -> int:
    job_id = queue_job()
    claim_one()
    frozen.advance(seconds(61))
    return job_id


def look(reclaimer: Reclaimer) -> int:
    return reclaimer.look(connections["default"])


def test_a_lapsed_job_is_taken_back_at_the_second_look(frozen: FrozenClock) -> None:
    reclaimer, job_id = Reclaimer(), lapsed_job(frozen)
    assert [look(reclaimer), look(reclaimer), look(reclaimer)] == [0, 1, 0]
    assert Job.objects.get(pk=job_id).state == "READY"


def test_one_that_was_renewed_between_two_looks_is_left(frozen: FrozenClock) -> None:
    queue_job()
    claim = claim_one()
    frozen.advance(seconds(61))
    reclaimer = Reclaimer()
    look(reclaimer)
    lifecycle.renew(connections["default"], [claim.lease])
    assert look(reclaimer) == 0
    frozen.advance(seconds(61))
    # Lapsed again, and by itself: that is a first look, too.
    assert [look(reclaimer), look(reclaimer)] == [0, 1]


@pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
def test_after_somebody_locked_the_row_its_keeper_has_a_look_s_time_to_renew(frozen: FrozenClock) -> None:
    queue_job()
    claim = claim_one()
    reclaimer = Reclaimer()
    with locked(claim.id):
        frozen.advance(seconds(300))
        assert [look(reclaimer), look(reclaimer)] == [0, 0]
    assert look(reclaimer) == 0
    lifecycle.renew(connections["default"], [claim.lease])
    assert look(reclaimer) == 0
    assert Job.objects.get(pk=claim.id).state == "RUNNING"


def test_after_a_restart_of_the_server_nothing_is_taken_back_for_a_quarter_lease(
    frozen: FrozenClock, server: Server, odd: list[str]
) -> None:
    reclaimer = Reclaimer()
    look(reclaimer)
    lapsed_job(frozen)
    server.restarts = timedelta(days=1)
    assert [look(reclaimer) for _ in range(3)] == [0, 0, 0]
    frozen.advance(seconds(14.9))
    assert [look(reclaimer), look(reclaimer)] == [0, 0]
    frozen.advance(seconds(0.1))
    assert [look(reclaimer), look(reclaimer)] == [0, 1]
    assert odd == [f"the database server was restarted, or is another one: {HELD_OFF}"]


@pytest.mark.parametrize("jump", [300, -300])
def test_when_the_database_s_clock_jumps_nothing_is_taken_back_for_a_quarter_lease(
    frozen: FrozenClock, server: Server, odd: list[str], jump: int
) -> None:
    reclaimer = Reclaimer()
    look(reclaimer)
    lapsed_job(frozen)
    server.clock_is_ahead = timedelta(seconds=jump)
    assert [look(reclaimer) for _ in range(3)] == [0, 0, 0]
    frozen.advance(seconds(15))
    assert [look(reclaimer), look(reclaimer)] == [0, 1]
    assert odd == [f"the database's clock went {61 + jump:.1f} s while 61.0 s passed here: {HELD_OFF}"]


def test_a_clock_that_is_only_a_little_off_is_believed(frozen: FrozenClock, server: Server, odd: list[str]) -> None:
    reclaimer = Reclaimer()
    look(reclaimer)
    lapsed_job(frozen)
    server.clock_is_ahead = timedelta(seconds=7)
    assert [look(reclaimer), look(reclaimer)] == [0, 1]
    assert odd == []


def test_time_that_a_look_itself_takes_is_no_drift(
    frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch, odd: list[str]
) -> None:
    real = lifecycle.pulse

    def slow(connection: Any) -> Pulse:
        pulse = real(connection)
        frozen.advance(seconds(30))
        return pulse

    monkeypatch.setattr(lifecycle, "pulse", slow)
    reclaimer = Reclaimer()
    look(reclaimer)
    lapsed_job(frozen)
    assert [look(reclaimer), look(reclaimer)] == [0, 1]
    assert odd == []
