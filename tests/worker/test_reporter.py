"""How far bodies are comes into their rows: half a second later, and when they have ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings

from django_jobs import Attempt, clock, current_attempt
from django_jobs.exceptions import JobCancelled
from django_jobs.models import Job
from django_jobs.outcomes import Committed, Succeeded
from django_jobs.progress import Progress
from django_jobs.records import Claim
from django_jobs.testing import live_worker
from django_jobs.worker import reporter as module
from django_jobs.worker.crew import Crew
from django_jobs.worker.link import Link
from django_jobs.worker.reporter import Reporter
from django_jobs.worker.seat import Seats, ThreadSeat
from tests.declaring import declared
from tests.factories import locked, read, run_job, seconds
from tests.stores.refusing import allow_progress, refuse_progress
from tests.system.processes import until

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]

PATIENCE = 20.0

on_postgresql = pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
on_sqlite = pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="PostgreSQL locks rows, not files")


class Bench:
    """A reporter whose ticks the test calls, and claims whose bodies it is told of."""

    def __init__(self) -> None:
        self.seats = Seats()
        self.link = Link("default")
        self.reporter = Reporter(link=self.link, seats=self.seats)

    def begin(self, **changes: Any) -> Claim:
        claim = run_job(**changes)
        self.seats.seat(claim.lease, ThreadSeat())
        return claim

    def end(self, claim: Claim) -> None:
        self.reporter.end(claim.lease)
        self.seats.clear(claim.lease)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.reporter.close()


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """Give the names of the statements that run."""
    names: list[str] = []
    with override_settings(DJANGO_JOBS={"OBSERVE": lambda name, *_: names.append(name)}):
        yield names


def said(job_id: int) -> tuple[Any, Any, Any] | None:
    found = read(job_id).progress
    return None if found is None else (found["done"], found["total"], found["message"])


# -- a tick


def test_a_tick_writes_what_was_noted_last(bench: Bench) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1, 9))
    bench.reporter.note(claim, Progress(2, 9, "two"))
    assert bench.reporter.tick() == 0.5
    assert said(claim.id) == (2, 9, "two")


def test_each_value_is_written_once_and_all_jobs_by_one_statement(bench: Bench, ran: list[str]) -> None:
    claims = [bench.begin() for _ in range(3)]
    del ran[:]
    for claim in claims:
        bench.reporter.note(claim, Progress(claim.id))
    for _ in range(3):
        bench.reporter.tick()
    assert ran.count("REPORT") == 1
    bench.reporter.note(claims[0], Progress(7))
    for _ in range(3):
        bench.reporter.tick()
    assert ran.count("REPORT") == 2
    assert [said(claim.id) for claim in claims] == [(7, None, ""), *((claim.id, None, "") for claim in claims[1:])]


def test_where_nobody_says_anything_nothing_is_asked(bench: Bench, ran: list[str]) -> None:
    claim = bench.begin()
    del ran[:]
    bench.reporter.tick()
    bench.end(claim)
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert ran == []
    assert bench.link._connection is None


def test_the_connection_is_given_back_when_nobody_has_reported_for_ten_seconds(
    bench: Bench, frozen: clock.FrozenClock
) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    bench.reporter.tick()
    frozen.advance(seconds(9.9))
    bench.reporter.tick()
    assert bench.link._connection is not None
    frozen.advance(seconds(0.1))
    bench.reporter.tick()
    assert bench.link._connection is None
    bench.reporter.note(claim, Progress(2))
    bench.reporter.tick()
    assert said(claim.id) == (2, None, "")


@on_postgresql
def test_a_row_that_somebody_locks_is_tried_again_at_the_next_tick(bench: Bench) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    with locked(claim.id):
        bench.reporter.tick()
    assert said(claim.id) is None
    bench.reporter.tick()
    assert said(claim.id) == (1, None, "")


def test_a_run_that_lost_its_lease_writes_nothing(bench: Bench) -> None:
    claim = bench.begin()
    Job.objects.filter(pk=claim.id).update(token=claim.token + 1)
    bench.reporter.note(claim, Progress(1))
    bench.reporter.tick()
    bench.end(claim)
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert said(claim.id) is None


def test_a_thread_that_outlives_its_body_is_not_heard(bench: Bench, ran: list[str]) -> None:
    claim = bench.begin()
    bench.end(claim)
    bench.reporter.note(claim, Progress(1))
    bench.reporter.tick()
    assert "REPORT" not in ran
    assert bench.reporter._noted == {}


# -- the end of a body


def test_the_last_value_is_written_when_the_body_has_ended(bench: Bench) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    bench.reporter.tick()
    bench.reporter.note(claim, Progress(2))
    bench.end(claim)
    bench.reporter.tick()
    assert said(claim.id) == (1, None, "")
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert said(claim.id) == (2, None, "")


def test_what_is_written_already_is_not_written_again_at_the_end(bench: Bench, ran: list[str]) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    bench.reporter.tick()
    bench.end(claim)
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert ran.count("REPORT") == 1


def test_what_was_committed_with_an_atomic_job_is_not_written_again(bench: Bench, ran: list[str]) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    bench.end(claim)
    bench.reporter.write_last(connection, [(claim, Committed(success=Succeeded()))])
    bench.reporter.forget([claim.lease])
    assert "REPORT" not in ran
    assert bench.reporter._last == {}


def test_the_last_value_comes_after_an_older_one_that_is_just_being_written(bench: Bench) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(1))
    begun, go_on = threading.Event(), threading.Event()
    with bench.link.connected() as own:

        def wait(execute: Any, *arguments: Any) -> Any:
            begun.set()
            assert go_on.wait(PATIENCE)
            return execute(*arguments)

        own.execute_wrappers.append(wait)
    ticking = threading.Thread(target=bench.reporter.tick)
    ticking.start()
    assert begun.wait(PATIENCE)
    bench.reporter.note(claim, Progress(2))
    bench.end(claim)
    ending = threading.Timer(0.2, go_on.set)
    ending.start()
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    for thread in (ticking, ending):
        thread.join(PATIENCE)
    assert said(claim.id) == (2, None, "")


def test_the_end_is_not_kept_waiting_for_long_by_a_write_that_gets_no_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.05)
    claim = bench.begin()
    bench.reporter.note(claim, Progress(2))
    bench.end(claim)
    with bench.reporter._writing:
        bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert said(claim.id) == (2, None, "")


def test_where_the_database_is_away_the_last_value_is_kept_for_the_next_try(bench: Bench) -> None:
    claim = bench.begin()
    bench.reporter.note(claim, Progress(2))
    bench.end(claim)
    with pytest.raises(OperationalError), connection.execute_wrapper(away):
        bench.reporter.write_last(connection, [(claim, Succeeded())])
    bench.reporter.write_last(connection, [(claim, Succeeded())])
    assert said(claim.id) == (2, None, "")


def away(*_: Any) -> None:
    raise OperationalError("the server closed the connection unexpectedly")


@contextmanager
def refused(*, of: int | None = None) -> Iterator[None]:
    refuse_progress(connection, of=of)
    try:
        yield
    finally:
        allow_progress(connection)


def test_a_value_that_the_database_refuses_keeps_no_other_from_being_written(
    bench: Bench, ran: list[str], odd: list[str]
) -> None:
    claims = [bench.begin() for _ in range(3)]
    for claim in claims:
        bench.reporter.note(claim, Progress(claim.id))
    with refused(of=claims[1].id):
        bench.reporter.tick()
        del ran[:]
        bench.reporter.tick()
    assert "REPORT" not in ran
    assert [said(claim.id) for claim in claims] == [(claims[0].id, None, ""), None, (claims[2].id, None, "")]
    assert len(odd) == 1
    assert odd[0].startswith(f"the progress of jobs {claims[1].id} can't be written, and is left:")


# -- in a crew


def work(crew: Crew) -> None:
    """Run the next job here, as a thread of the crew would."""
    claim = crew._next()
    assert claim is not None
    crew.perform(claim, ThreadSeat())


def count_to(number: int, fails: bool = False) -> None:
    attempt = current_attempt()
    assert attempt is not None
    for done in range(number + 1):
        attempt.progress(done, number, f"line {done}")
    if fails:
        raise RuntimeError("after that")


@pytest.mark.parametrize(("fails", "state"), [(False, "SUCCESSFUL"), (True, "FAILED")])
def test_the_last_value_is_written_just_before_the_end_and_no_other(
    make_crew: MakeCrew, ran: list[str], fails: bool, state: str
) -> None:
    with declared(count_to, max_attempts=1) as performer:
        job = performer.later(500, fails)
        crew = make_crew()
        work(crew)
        crew.turn()
    assert (read(job.pk).state, said(job.pk)) == (state, (500, 500, "line 500"))
    settle = "CHANGE" if fails else "SUCCEED"
    assert [name for name in ran if name in ("REPORT", settle)] == ["REPORT", settle]


def test_a_crew_forgets_what_it_has_written(make_crew: MakeCrew) -> None:
    with declared(count_to) as performer:
        performer.later(1)
        crew = make_crew()
        work(crew)
        assert len(crew._reporter._last) == 1
        crew.turn()
    assert (crew._reporter._last, crew._reporter._noted) == ({}, {})


def test_progress_that_a_database_refuses_is_lost_and_told_and_the_job_succeeds(
    make_crew: MakeCrew, odd: list[str]
) -> None:
    with declared(count_to) as performer, refused():
        job = performer.later(1)
        crew = make_crew()
        work(crew)
        crew.turn()
    assert (read(job.pk).state, said(job.pk)) == ("SUCCESSFUL", None)
    assert len(odd) == 1
    assert odd[0].startswith(f"the progress of jobs {job.pk} can't be written, and is left:")


@on_postgresql
def test_an_end_whose_row_somebody_locks_brings_its_last_value_when_it_is_written(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    with declared(count_to) as performer:
        job = performer.later(1)
        crew = make_crew()
        work(crew)
        with locked(job.pk):
            crew.turn()
        assert (read(job.pk).state, said(job.pk)) == ("RUNNING", None)
        frozen.advance(seconds(0.1))
        crew.turn()
    assert (read(job.pk).state, said(job.pk)) == ("SUCCESSFUL", (1, 1, "line 1"))


# -- a worker beside the test


class Gates:
    """Where a body stands, and when it goes on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)

    async def await_(self) -> None:
        self.reached.set()
        for _ in range(int(PATIENCE * 100)):
            if self.opened.is_set():
                return
            await asyncio.sleep(0.01)
        raise AssertionError


@pytest.fixture
def gates() -> Iterator[Gates]:
    made = Gates()
    yield made
    made.opened.set()


def test_of_a_body_that_falls_silent_the_last_value_is_seen_while_it_runs(gates: Gates) -> None:
    def body(attempt: Attempt) -> None:
        for done in range(1, 4):
            attempt.progress(done, 3)
        gates.wait()
        attempt.progress(3, 3, "at the end")

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        job = performer.later()
        until(lambda: said(job.pk) == (3, 3, ""), what="the progress is seen")
        assert read(job.pk).state == "RUNNING"
        gates.opened.set()
        worker.wait()
    assert said(job.pk) == (3, 3, "at the end")


def test_however_often_a_body_says_something_it_is_written_twice_a_second(ran: list[str]) -> None:
    def body(attempt: Attempt) -> None:
        end = clock.monotonic() + 1.2
        while clock.monotonic() < end:
            attempt.progress(clock.monotonic())

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        performer.later()
        worker.wait()
    # Two or three ticks fall into this time, and the end.
    assert 2 <= ran.count("REPORT") <= 4


def test_an_async_body_says_how_far_it_is(gates: Gates) -> None:
    async def body(attempt: Attempt) -> None:
        attempt.progress(1, 2, "async")
        await gates.await_()
        await sync_to_async(attempt.progress)(2, 2, "from a thread")

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        job = performer.later()
        until(lambda: said(job.pk) == (1, 2, "async"), what="the progress is seen")
        gates.opened.set()
        worker.wait()
    assert said(job.pk) == (2, 2, "from a thread")


def test_a_thread_that_the_body_started_says_it(gates: Gates) -> None:
    def body(attempt: Attempt) -> None:
        thread = threading.Thread(target=attempt.progress, args=(1, 2))
        thread.start()
        thread.join(PATIENCE)
        gates.wait()

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        job = performer.later()
        until(lambda: said(job.pk) == (1, 2, ""), what="the progress is seen")
        gates.opened.set()
        worker.wait()


@on_postgresql
@pytest.mark.parametrize("atomic", [True, False], ids=["an atomic job", "a block of its own"])
def test_from_within_a_transaction_it_is_seen_at_once(gates: Gates, atomic: bool) -> None:
    def body(attempt: Attempt) -> None:
        with transaction.atomic():
            Group.objects.create(name="made")
            attempt.progress(1, 2)
            gates.wait()
        attempt.progress(2, 2)

    with declared(body, takes_attempt=True, atomic=atomic) as performer, live_worker() as worker:
        job = performer.later()
        until(lambda: said(job.pk) == (1, 2, ""), what="the progress is seen")
        assert not Group.objects.exists()
        gates.opened.set()
        worker.wait()
    assert (read(job.pk).state, said(job.pk), Group.objects.count()) == ("SUCCESSFUL", (2, 2, ""), 1)


@on_sqlite
def test_on_sqlite_a_body_in_a_transaction_keeps_it_back_until_that_ends_and_nobody_is_held_up(gates: Gates) -> None:
    def body(attempt: Attempt) -> None:
        with transaction.atomic():
            Group.objects.create(name="made")
            attempt.progress(1, 2)
            gates.reached.set()
            # Long enough that the reporter has tried, and given up.
            threading.Event().wait(2.0)
        gates.wait()

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        job = performer.later()
        assert gates.reached.wait(PATIENCE)
        assert said(job.pk) is None
        until(lambda: said(job.pk) == (1, 2, ""), what="the progress is seen")
        assert read(job.pk).state == "RUNNING"
        gates.opened.set()
        worker.wait()
    assert read(job.pk).state == "SUCCESSFUL"


def test_a_body_that_is_cancelled_leaves_what_it_said_last(gates: Gates) -> None:
    def body(attempt: Attempt) -> None:
        with suppress(JobCancelled):
            while True:
                attempt.progress(1, 2)
                gates.reached.set()
                threading.Event().wait(0.01)
        attempt.progress(2, 2, "tidied up")

    with declared(body, takes_attempt=True) as performer, live_worker() as worker:
        job = performer.later()
        assert gates.reached.wait(PATIENCE)
        job.cancel()
        worker.wait()
    assert (read(job.pk).state, said(job.pk)) == ("CANCELLED", (2, 2, "tidied up"))


# -- an atomic job's own transaction


def test_the_last_value_of_an_atomic_job_is_committed_with_its_end(make_crew: MakeCrew, ran: list[str]) -> None:
    with declared(count_to, atomic=True) as performer:
        job = performer.later(3)
        crew = make_crew()
        work(crew)
        assert (read(job.pk).state, said(job.pk)) == ("SUCCESSFUL", (3, 3, "line 3"))
        crew.turn()
    assert [name for name in ran if name in ("REPORT", "SUCCEED")] == ["REPORT", "SUCCEED"]


def test_the_last_value_of_an_atomic_job_that_is_rolled_back_is_written_with_its_failure(make_crew: MakeCrew) -> None:
    with declared(count_to, atomic=True, max_attempts=1) as performer:
        job = performer.later(3, True)
        crew = make_crew()
        work(crew)
        assert said(job.pk) is None
        crew.turn()
    assert (read(job.pk).state, said(job.pk)) == ("FAILED", (3, 3, "line 3"))


@on_postgresql
def test_an_atomic_jobs_row_that_is_locked_for_a_moment_gets_both(make_crew: MakeCrew) -> None:
    with declared(count_to, atomic=True) as performer:
        job = performer.later(3)
        crew = make_crew()
        claim = crew._next()
        assert claim is not None
        is_locked = threading.Event()

        def lock_for_a_moment() -> None:
            with locked(job.pk):
                is_locked.set()
                threading.Event().wait(0.3)
            connection.close()

        locking = threading.Thread(target=lock_for_a_moment)
        locking.start()
        assert is_locked.wait(PATIENCE)
        crew.perform(claim, ThreadSeat())
        locking.join(PATIENCE)
    assert (read(job.pk).state, said(job.pk)) == ("SUCCESSFUL", (3, 3, "line 3"))
