"""A crew with its threads: jobs wait at gates that the test opens; nothing here waits for time to pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model

from django_jobs.models import Job
from django_jobs.records import Lease
from django_jobs.worker.crew import Crew
from django_jobs.worker.seat import Seat, Seats
from tests.worker.conftest import make_board
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]

PATIENCE = 20.0


def test_a_drain_runs_everything_exactly_once(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(300))
    crew = make_crew(concurrency=4, drain=True)
    crew.start()
    assert crew.wait(PATIENCE)
    assert sorted(map(int, map(str, jobs.noted))) == list(range(300))
    assert Job.objects.filter(state="SUCCESSFUL").count() == 300


def test_jobs_run_side_by_side_up_to_the_slots(make_crew: MakeCrew) -> None:
    for name in ("one", "two", "three"):
        jobs.pass_gate.later(name)
    crew = make_crew(concurrency=2)
    crew.start()
    assert jobs.entered["one"].wait(PATIENCE)
    assert jobs.entered["two"].wait(PATIENCE)
    assert crew.running == 2
    assert not jobs.entered["three"].is_set()
    jobs.gates["one"].set()
    assert jobs.entered["three"].wait(PATIENCE)


def test_the_end_of_a_job_is_written_while_its_neighbours_still_run(make_crew: MakeCrew) -> None:
    slow, quick = jobs.pass_gate.later("slow"), jobs.pass_gate.later("quick")
    crew = make_crew(concurrency=2, poll=60.0)
    crew.start()
    assert jobs.entered["slow"].wait(PATIENCE)
    assert jobs.entered["quick"].wait(PATIENCE)
    jobs.pass_gate.later("next")
    jobs.gates["quick"].set()
    # The slot is only filled again after the end of `quick` was written.
    assert jobs.entered["next"].wait(PATIENCE)
    assert Job.objects.get(pk=quick.pk).state == "SUCCESSFUL"
    assert Job.objects.get(pk=slow.pk).state == "RUNNING"


def test_async_jobs_share_one_loop_and_take_slots(make_crew: MakeCrew) -> None:
    for name in ("one", "two", "three"):
        jobs.pass_gate_async.later(name)
    crew = make_crew(concurrency=2)
    crew.start()
    assert jobs.entered["one"].wait(PATIENCE)
    assert jobs.entered["two"].wait(PATIENCE)
    assert not jobs.entered["three"].is_set()
    jobs.gates["two"].set()
    assert jobs.entered["three"].wait(PATIENCE)


def test_an_async_job_reaches_the_database(make_crew: MakeCrew) -> None:
    get_user_model().objects.create(username="ada")
    job = jobs.count_users.later()
    crew = make_crew(drain=True)
    crew.start()
    assert crew.wait(PATIENCE)
    job.refresh_from_db()
    assert (job.state, job.result) == ("SUCCESSFUL", 1)


def test_o89_an_async_job_may_call_sync_code_from_many_tasks(make_crew: MakeCrew) -> None:
    ids = [jobs.gather_sync_calls.later(20).pk for _ in range(4)]
    crew = make_crew(concurrency=4, drain=True)
    crew.start()
    assert crew.wait(PATIENCE)
    assert set(Job.objects.filter(pk__in=ids).values_list("state", "result")) == {("SUCCESSFUL", 20)}


def test_a_failing_job_leaves_its_slot_alive(make_crew: MakeCrew) -> None:
    jobs.explode.later()
    jobs.note.later("after")
    crew = make_crew(concurrency=1, drain=True)
    crew.start()
    assert crew.wait(PATIENCE)
    assert jobs.noted == ["after"]


def test_o04_two_workers_share_the_queue_and_neither_hoards(make_crew: MakeCrew) -> None:
    for n in range(4):
        jobs.pass_gate.later(f"{n}")
    boards = [make_board(), make_board()]
    crews = [make_crew(board=board, concurrency=1, identity=f"crew {n}") for n, board in enumerate(boards)]
    for crew in crews:
        crew.start()
    assert jobs.entered["0"].wait(PATIENCE)
    assert jobs.entered["1"].wait(PATIENCE)
    assert [len(board.entries()) for board in boards] == [1, 1]
    assert Job.objects.filter(state="READY").count() == 2


def test_closing_waits_for_running_jobs_and_writes_their_ends(make_crew: MakeCrew) -> None:
    job = jobs.pass_gate.later("last")
    crew = make_crew()
    crew.start()
    assert jobs.entered["last"].wait(PATIENCE)
    crew.close()
    assert not crew.wait(0.0)
    jobs.gates["last"].set()
    assert crew.wait(PATIENCE)
    assert Job.objects.get(pk=job.pk).state == "SUCCESSFUL"


class BadOnce(Seats):
    """Raises what no code of ours expects, the first time that a body is to be seated, or has ended."""

    def __init__(self, *, when: str) -> None:
        super().__init__()
        self.when = when

    def seat(self, lease: Lease, seat: Seat) -> None:
        self._fail("seat")
        super().seat(lease, seat)

    def clear(self, lease: Lease) -> None:
        self._fail("clear")
        super().clear(lease)

    def _fail(self, when: str) -> None:
        if self.when == when:
            self.when = ""
            raise SystemExit(when)


@pytest.mark.parametrize("when", ["seat", "clear"])
@pytest.mark.parametrize("is_async", [False, True], ids=["a thread", "a task"])
def test_o07_a_slot_lives_on_when_something_breaks_around_a_body(
    make_crew: MakeCrew, when: str, is_async: bool
) -> None:
    job = (jobs.pass_gate_async if is_async else jobs.pass_gate).later("first")
    jobs.gates["first"].set()
    crew = make_crew(concurrency=1, seats=BadOnce(when=when), drain=True)
    jobs.note.later("second")
    crew.start()
    assert crew.wait(PATIENCE)
    assert jobs.noted == ["second"]
    job.refresh_from_db()
    # It is tried again, and doesn't stay in hand for ever.
    assert (job.state, job.attempts, job.worker) == ("READY", 1, None)
    assert job.errors[0]["reason"] == when
