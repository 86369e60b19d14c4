"""Workers that go on after their time: what they write late, and what they do while nobody confirms their leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import JobLost
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim
from django_jobs.stores import lives
from django_jobs.worker.board import Board, Flag
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from django_jobs.worker.seat import Seats, ThreadSeat
from django_jobs.worker.watch import Watch
from tests.declaring import declared
from tests.factories import claim_one, failure, place_of, queue_job, read, seconds, write
from tests.lifecycle.hearing import Heard, connection, words
from tests.worker.conftest import make_board

PATIENCE = 20.0

LATE: list[Outcome] = [
    Succeeded(result='"late"'),
    Failed(failure=failure()),
    GaveUp(failure=failure()),
    Retried(failure=failure(), delay=seconds(0)),
    Snoozed(delay=seconds(0)),
    Cancelled(reason="late"),
    Released(started=True),
    Released(started=False),
]


def waits_again(job_id: int) -> None:
    assert read(job_id).state == "READY"


def runs_elsewhere(job_id: int) -> None:
    assert claim_one(worker="worker-2").id == job_id


def has_succeeded_elsewhere(job_id: int) -> None:
    lifecycle.settle(connection(), [(claim_one(worker="worker-2"), Succeeded(result='"first"'))])


def has_failed_elsewhere(job_id: int) -> None:
    lifecycle.settle(connection(), [(claim_one(worker="worker-2"), Failed(failure=failure()))])


def was_cancelled_while_it_ran_elsewhere(job_id: int) -> None:
    claim_one(worker="worker-2")
    lifecycle.cancel([job_id])


def was_deleted(job_id: int) -> None:
    lifecycle.delete([job_id])


MEANWHILE = [
    waits_again,
    runs_elsewhere,
    has_succeeded_elsewhere,
    has_failed_elsewhere,
    was_cancelled_while_it_ran_elsewhere,
    was_deleted,
]

every_course = pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda course: course.__name__)


@pytest.fixture
def zombie(frozen: FrozenClock) -> Claim:
    """Give the claim of a worker that stood still past its lease, after which the job was taken back."""
    job_id = queue_job()
    write(job_id, unique_key="customer-5")
    claim = claim_one()
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1
    return claim


def table() -> list[dict[str, Any]]:
    return list(Job.objects.order_by("pk").values())


@pytest.mark.django_db
@every_course
@pytest.mark.parametrize("outcome", LATE, ids=lambda outcome: type(outcome).__name__)
def test_o06_a_late_end_touches_nothing_and_is_told_as_lost(
    zombie: Claim, heard: list[Heard], outcome: Outcome, meanwhile: Callable[[int], None]
) -> None:
    meanwhile(zombie.id)
    before = table()
    heard.clear()
    assert lifecycle.settle(connection(), [(zombie, outcome)]) == []
    # No row was written, added or freed of its key; no end was told.
    assert table() == before
    assert words(heard) == ["job_lost"]
    assert heard[0].said["claim"] == zombie


@pytest.mark.django_db
def test_o06_a_late_failure_is_lost_though_the_job_was_failed_by_its_lapse(
    frozen: FrozenClock, heard: list[Heard]
) -> None:
    queue_job(max_attempts=1)
    zombie = claim_one()
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    before = table()
    assert (before[0]["state"], before[0]["token"]) == ("FAILED", zombie.token)
    heard.clear()
    assert lifecycle.settle(connection(), [(zombie, Failed(failure=failure()))]) == []
    assert table() == before
    assert words(heard) == ["job_lost"]


@pytest.mark.django_db
@every_course
def test_o06_a_late_beat_renews_nothing_and_flags_the_job_as_lost(
    zombie: Claim, meanwhile: Callable[[int], None]
) -> None:
    meanwhile(zombie.id)
    before = table()
    board = make_board()
    board.take([zombie.lease])
    assert lifecycle.renew(connection(), [zombie.lease]) == {}
    Keeper(boards=lambda: [board], link=Here("default")).tick()
    assert table() == before
    assert [entry.flags for entry in board.entries()] == [Flag.LOST]


@pytest.mark.django_db
@every_course
def test_o06_a_zombie_lets_nothing_go_and_gives_nothing_back(zombie: Claim, meanwhile: Callable[[int], None]) -> None:
    meanwhile(zombie.id)
    before = table()
    lifecycle.disown(connection(), "worker-1", [zombie.token])
    assert lifecycle.release(connection(), [zombie]) == []
    assert lifecycle.bury(connection(), "worker-1", running=[zombie.lease], failure=failure(kind="crash")) == 0
    assert table() == before


@pytest.mark.django_db
def test_o06_a_zombie_cannot_end_what_a_neighbour_of_its_own_process_runs(zombie: Claim, heard: list[Heard]) -> None:
    """The same worker claimed the job again: only the token tells the two runs apart."""
    again = claim_one()
    assert (again.id, again.token != zombie.token) == (zombie.id, True)
    before = table()
    heard.clear()
    lifecycle.settle(connection(), [(zombie, Succeeded())])
    assert table() == before
    lifecycle.settle(connection(), [(again, Succeeded())])
    assert words(heard) == ["job_lost", "job_finished"]


class Here(Link):
    """A loop's link that uses the connection of the test, within its transaction; it can be cut."""

    is_cut = False

    @contextmanager
    def connected(self) -> Iterator[BaseDatabaseWrapper]:
        if self.is_cut:
            raise OperationalError("the database is away")
        yield connection()


class Host:
    """A worker process by its parts, ticked by hand, with the links to the database in the test's hands."""

    def __init__(self) -> None:
        self.board: Board = make_board(lease=60.0)
        seats = Seats()
        self.watch = Watch(board=self.board, seats=seats, lease=60.0, ends_itself=False)
        self.link = Here("default")
        self.keeper = Keeper(boards=lambda: [self.board], link=self.link)
        self.crew = Crew(
            plan=Plan(alias="default", identity="worker-1", concurrency=2, poll=1.0),
            board=self.board,
            seats=seats,
            link=self.link,
            may_claim=lambda: self.watch.may_claim,
        )

    def begin(self) -> threading.Thread:
        """Claim the one job that is due and run it in a thread."""
        self.crew.turn()
        claim = self.crew._next()
        assert claim is not None
        thread = threading.Thread(target=lambda: self.crew.perform(claim, ThreadSeat()))
        thread.start()
        return thread


@pytest.mark.django_db
def test_o10_a_worker_that_cannot_confirm_its_leases_stops_claims_nothing_and_is_fenced(
    frozen: FrozenClock, heard: list[Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else nobody would take the job on SQLite: the process that has it in hand lives.
    monkeypatch.setattr(lives, "is_there", lambda *_: False)
    entered, raised = threading.Event(), []

    def body() -> None:
        entered.set()
        give_up = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < give_up:
                time.sleep(0.01)
        except JobLost as error:
            raised.append(type(error))
            raise

    with declared(body) as performer:
        job = performer.later()
        host = Host()
        running = host.begin()
        assert entered.wait(PATIENCE)

        # The database is away: the beat fails, and confirms nothing.
        host.link.is_cut = True
        frozen.advance(seconds(44.9))
        with pytest.raises(OperationalError):
            host.keeper.tick()
        host.watch.tick()
        assert running.is_alive()
        frozen.advance(seconds(0.1))
        host.watch.tick()
        running.join(PATIENCE)
        assert raised == [JobLost]

        # Its lease lapses, and another worker takes the job and more comes in.
        frozen.advance(seconds(16))
        lifecycle.reclaim(connection())
        other = claim_one(worker="worker-2")
        waiting = queue_job()
        before = read(job.pk)
        heard.clear()

        # The database is back, before the leases are confirmed: the end is fenced, and nothing is claimed.
        host.link.is_cut = False
        host.crew.turn()
        assert words(heard) == ["job_lost"]
        assert read(job.pk).token == other.token == before.token
        assert read(job.pk).errors == before.errors
        assert read(waiting).state == "READY"

        # Confirmed again, it works as before.
        host.keeper.tick()
        host.crew.turn()
        assert (read(waiting).state, read(waiting).worker) == ("RUNNING", "worker-1")
        lifecycle.settle(connection(), [(other, Succeeded())])
        assert place_of(job.pk).value == "SUCCESSFUL"


@pytest.mark.django_db
def test_o10_an_idle_worker_without_confirmation_asks_the_database_for_nothing(frozen: FrozenClock) -> None:
    queue_job()
    host = Host()
    frozen.advance(seconds(45))
    host.crew.turn()
    assert Job.objects.get().state == "READY"
    host.keeper.tick()
    host.crew.turn()
    assert Job.objects.get().state == "RUNNING"
