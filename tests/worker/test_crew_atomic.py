"""Atomic jobs in a crew: what their own transactions wrote is told, and never written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction

from django_jobs import runner
from django_jobs.exceptions import JobLost, JobTimeout
from django_jobs.models import Job
from django_jobs.outcomes import InDoubt, Succeeded
from django_jobs.testing import drain
from django_jobs.worker.board import Flag
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.seat import Seats, ThreadSeat
from django_jobs.worker.watch import Watch
from tests.factories import another_connection
from tests.lifecycle.conftest import heard  # noqa: F401 - a fixture
from tests.lifecycle.hearing import Heard, words
from tests.system.processes import until
from tests.worker.conftest import make_board
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]

PATIENCE = 20.0


def work(crew: Crew) -> None:
    """Run the next job here, as a thread of the crew would."""
    claim = crew._next()
    assert claim is not None
    crew.perform(claim, ThreadSeat())


def groups() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def test_a_committed_end_is_told_once_and_leaves_the_board(make_crew: MakeCrew, heard: list[Heard]) -> None:  # noqa: F811
    job = jobs.write_atomically.later("done")
    board = make_board()
    crew = make_crew(board=board)
    work(crew)
    job.refresh_from_db()
    assert (job.state, groups(), crew.unwritten, len(board.entries())) == ("SUCCESSFUL", ["done"], 1, 1)
    assert "job_finished" not in words(heard)
    crew.turn()
    assert (crew.unwritten, board.entries()) == (0, [])
    [told] = [one for one in heard if one.signal == "job_finished"]
    assert (told.said["outcome"], told.said["change"].gone) == (Succeeded(), False)


def test_a_crew_writes_the_ends_of_all_kinds_of_jobs_in_one_turn(make_crew: MakeCrew) -> None:
    written, plain, failed = jobs.write_atomically.later("done"), jobs.note.later(1), jobs.explode.later()
    crew = make_crew(concurrency=3)
    for _ in range(3):
        work(crew)
    crew.turn()
    for job, state in ((written, "SUCCESSFUL"), (plain, "SUCCESSFUL"), (failed, "FAILED")):
        job.refresh_from_db()
        assert job.state == state
    assert crew.unwritten == 0


def test_atomic_jobs_side_by_side_are_all_done_once(make_crew: MakeCrew) -> None:
    jobs.write_atomically.later_many((f"{number:03}",) for number in range(60))
    crew = make_crew(concurrency=4, drain=True)
    crew.start()
    assert crew.wait(PATIENCE)
    assert groups() == [f"{number:03}" for number in range(60)]
    assert Job.objects.filter(state="SUCCESSFUL", attempts=1).count() == 60


def test_an_interruption_that_comes_after_the_commit_changes_nothing(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    seats = Seats()
    run = runner.run

    def strike_after(claim: Any, seat: Any, **options: Any) -> Any:
        ending = run(claim, seat, **options)
        assert not seats.interrupt(claim.lease, JobTimeout)
        assert not seats.interrupt(claim.lease, JobLost)
        return ending

    monkeypatch.setattr(runner, "run", strike_after)
    job = jobs.write_atomically.later("done")
    crew = make_crew(seats=seats)
    work(crew)
    crew.turn()
    job.refresh_from_db()
    assert (job.state, job.errors, groups()) == ("SUCCESSFUL", [], ["done"])


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_crew_finds_out_what_a_lost_answer_meant(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    through = connection.commit

    def lose_the_answer() -> None:
        if is_committed:
            through()
        connection.connection.close()
        raise OperationalError("no answer")

    job = jobs.write_atomically.later("done")
    crew = make_crew()
    crew.turn()
    monkeypatch.setattr(connection, "commit", lose_the_answer)
    work(crew)
    monkeypatch.undo()
    connection.close()
    assert [type(ending) for _, ending in crew._ended] == [InDoubt]
    crew.turn()
    job.refresh_from_db()
    assert crew.unwritten == 0
    assert (job.state, job.attempts, groups()) == (("SUCCESSFUL", 1, ["done"]) if is_committed else ("READY", 1, []))


def test_the_board_holds_what_is_in_doubt_until_it_is_known(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite commits in this process: there is no answer to be lost")
    left: list[Any] = []

    def hang() -> None:
        left.append(connection.connection)
        connection.connection = None
        raise OperationalError("no answer")

    job = jobs.write_atomically.later("done")
    board = make_board()
    crew = make_crew(board=board, concurrency=1)
    crew.turn()
    monkeypatch.setattr(connection, "commit", hang)
    work(crew)
    monkeypatch.undo()
    keeper = Keeper(boards=lambda: [board], link=Link("default"))
    keeper.tick()
    # Its row is locked, which isn't lost.
    assert [entry.flags for entry in board.entries()] == [Flag.NONE]
    for _ in range(3):
        crew.turn()
        assert (crew.unwritten, len(board.entries())) == (1, 1)
    left[0].commit()
    left[0].close()
    until(lambda: crew.turn() >= 0.0 and not crew.unwritten, what="what was in doubt is known")
    keeper.close()
    job.refresh_from_db()
    assert (job.state, crew.unwritten, board.entries()) == ("SUCCESSFUL", 0, [])


@pytest.mark.parametrize("fails", [False, True])
def test_on_sqlite_no_lease_is_lost_while_a_body_keeps_the_file(make_crew: MakeCrew, fails: bool) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has many writers")
    jobs.write_and_pass_gate.later("long", fails)
    board = make_board()
    seats = Seats()
    crew = make_crew(board=board, seats=seats, concurrency=2)
    keeper = Keeper(boards=lambda: [board], link=Link("default"))
    watch = Watch(board=board, seats=seats, lease=60.0, ends_itself=False)
    neighbour = jobs.pass_gate.later("neighbour")
    crew.start()
    assert jobs.entered["long"].wait(PATIENCE)
    assert jobs.entered["neighbour"].wait(PATIENCE)
    before = board.confirmed_until
    keeper.tick()
    assert board.confirmed_until > before
    assert [entry.flags for entry in board.entries()] == [Flag.NONE, Flag.NONE]
    watch.tick()
    assert watch.may_claim
    jobs.gates["long"].set()
    until(lambda: Job.objects.named("tests.yard.write_and_pass_gate").running().count() == 0, what="the long one ends")
    lease_before = Job.objects.get(pk=neighbour.pk).lease_expires_at
    # What couldn't be renewed is renewed at the next tick, long before the next quarter.
    keeper.tick()
    keeper.close()
    assert Job.objects.get(pk=neighbour.pk).lease_expires_at > lease_before
    jobs.gates["neighbour"].set()
    assert groups() == ([] if fails else ["long"])


def test_run_jobs_counts_atomic_jobs_and_keeps_to_the_tests_transaction() -> None:
    with transaction.atomic():
        jobs.write_atomically.later_many([("done",), ("done",)])
        drained = drain()
        assert (drained.succeeded, drained.retried) == (1, 1)
        assert [job.state for job in drained.jobs] == ["SUCCESSFUL", "READY"]
        with another_connection() as other, other.cursor() as cursor:
            cursor.execute("select count(*) from auth_group")
            assert (cursor.fetchone()[0], groups()) == (0, ["done"])
        transaction.set_rollback(True)
    assert groups() == []
