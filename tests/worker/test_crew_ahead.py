"""What a crew claims ahead of its free slots: what is known to be short, and not for long if it isn't after all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from django_jobs import clock
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.worker.crew import LONGEST_HOLD, LONGEST_WAIT, Crew
from django_jobs.worker.pace import ENOUGH, FIRST_AHEAD, SHORT, TINY
from django_jobs.worker.seat import ThreadSeat
from tests.factories import locked, seconds
from tests.system.processes import until
from tests.worker.conftest import make_board
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]


def know_as_short(crew: Crew, *queues: str, took: float = 0.0) -> None:
    for queue in queues or ("default",):
        for _ in range(ENOUGH):
            crew._pace.note(queue, took)


def queue_notes(count: int, queue: str = "default", priority: int = 0) -> None:
    jobs.note.using(queue=queue, priority=priority).later_many((n,) for n in range(count))


def in_todo(crew: Crew) -> dict[str, int]:
    return Counter(claim.queue for claim in crew._todo)


def states() -> dict[str, int]:
    return Counter(Job.objects.values_list("state", flat=True))


class TestClaims:
    """The steps, one after the other in the test's thread."""

    def test_short_jobs_are_claimed_ahead_once_they_have_shown_that_they_are(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock
    ) -> None:
        queue_notes(100)
        crew, sizes = make_crew(board=make_board(500)), []
        for _ in range(40):
            before = len(crew._todo)
            claim = crew._next()
            assert claim is not None
            if len(crew._todo) >= before:
                sizes.append(len(crew._todo) + 1)
            crew.perform(claim, ThreadSeat())
        assert sizes[:8] == [3, 3, 3, 3, 3, 3, 3 + FIRST_AHEAD, 3 + 2 * FIRST_AHEAD]
        assert len(jobs.noted) == 40

    def test_jobs_of_a_queue_that_is_not_known_go_back_as_far_as_no_slot_is_free_for_them(
        self, make_crew: MakeCrew
    ) -> None:
        queue_notes(3 + FIRST_AHEAD, "unknown", priority=1)
        queue_notes(10)
        crew = make_crew()
        know_as_short(crew)
        crew.turn()
        assert in_todo(crew) == {"unknown": 3}
        crew.turn()
        assert in_todo(crew) == {"unknown": 3, "default": 10}
        assert states() == {"RUNNING": 13, "READY": FIRST_AHEAD}
        assert set(Job.objects.values_list("attempts", "state")) == {(0, "READY"), (1, "RUNNING")}

    def test_of_a_queue_that_is_known_to_be_long_no_more_is_claimed_than_there_are_free_slots(
        self, make_crew: MakeCrew
    ) -> None:
        queue_notes(10, "slow", priority=1)
        queue_notes(10)
        crew = make_crew()
        know_as_short(crew)
        crew._pace.note("slow", 1.0)
        crew.turn()
        assert in_todo(crew) == {"slow": 3, "default": FIRST_AHEAD}
        assert crew.unwritten == 0

    def test_a_long_queue_of_which_jobs_wait_already_gets_only_the_slots_that_are_left(
        self, make_crew: MakeCrew
    ) -> None:
        queue_notes(2, "slow")
        crew = make_crew()
        know_as_short(crew)
        crew._pace.note("slow", 1.0)
        crew.turn()
        queue_notes(10, "slow", priority=1)
        crew.turn()
        assert in_todo(crew) == {"slow": 3}

    def test_beside_two_queues_that_are_not_known_nothing_is_claimed_ahead(self, make_crew: MakeCrew) -> None:
        queue_notes(10)
        crew = make_crew()
        know_as_short(crew)
        crew._pace.note("slow", 1.0)
        crew._pace.note("slower", 1.0)
        crew.turn()
        assert in_todo(crew) == {"default": 3}

    def test_a_cap_holds_ahead_too(self, make_crew: MakeCrew) -> None:
        queue_notes(10, "mail", priority=1)
        queue_notes(10)
        crew = make_crew(queues={"mail": 2, "default": None})
        know_as_short(crew, "default", "mail")
        crew.turn()
        assert in_todo(crew) == {"mail": 2, "default": 1 + FIRST_AHEAD}

    @pytest.mark.parametrize("bound", [{"most": 50}, {"held_back": 1}], ids=str)
    def test_a_worker_that_is_to_be_replaced_or_that_shares_its_slots_claims_nothing_ahead(
        self, make_crew: MakeCrew, bound: dict[str, int]
    ) -> None:
        queue_notes(10)
        crew = make_crew(held_back=bound.get("held_back", 0))
        crew._most = bound.get("most")
        know_as_short(crew)
        crew.turn()
        assert in_todo(crew) == {"default": 3 - bound.get("held_back", 0)}

    def test_no_more_is_claimed_than_the_board_has_room_for(self, make_crew: MakeCrew) -> None:
        queue_notes(10)
        crew = make_crew(board=make_board(5))
        know_as_short(crew)
        crew.turn()
        assert in_todo(crew) == {"default": 5}

    def test_while_there_is_enough_to_do_nothing_more_is_claimed(self, make_crew: MakeCrew) -> None:
        queue_notes(FIRST_AHEAD)
        crew = make_crew()
        know_as_short(crew)
        crew.turn()
        queue_notes(30)
        crew.turn()
        assert in_todo(crew) == {"default": FIRST_AHEAD}

    def test_with_the_first_signs_that_jobs_are_not_short_what_has_no_slot_goes_back(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock
    ) -> None:
        queue_notes(10)
        crew = make_crew()
        know_as_short(crew)
        crew.turn()
        for _ in range(2):
            claim = crew._next()
            assert claim is not None
            crew._begin(claim, ThreadSeat())
            frozen.advance(seconds(SHORT))
            # An end that was put off by so much would be written first.
            crew._ended_at = clock.monotonic() + 60
            crew._end_on_loop(claim, Succeeded(), None)
        assert len(crew._todo) == 3
        crew.turn()
        assert states() == {"SUCCESSFUL": 2, "RUNNING": 3, "READY": 5}
        assert set(Job.objects.filter(state="READY").values_list("attempts", flat=True)) == {0}

    def test_what_has_waited_for_a_slot_for_a_second_goes_back(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock
    ) -> None:
        queue_notes(FIRST_AHEAD)
        crew = make_crew(concurrency=2)
        know_as_short(crew)
        crew.turn()
        assert crew._next() is not None
        frozen.advance(seconds(LONGEST_HOLD - 0.01))
        look_on(crew)
        assert len(crew._todo) == FIRST_AHEAD - 1
        frozen.advance(seconds(0.01))
        look_on(crew)
        # One slot is free.
        assert len(crew._todo) == 1
        assert not crew._pace.is_short("default")
        crew.turn()
        assert states() == {"RUNNING": 2, "READY": FIRST_AHEAD - 2}

    def test_of_tiny_jobs_another_thread_takes_one_only_where_the_first_is_held_up(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock
    ) -> None:
        queue_notes(10)
        crew = make_crew(concurrency=5)
        know_as_short(crew)
        with ThreadPoolExecutor(1) as first:
            assert first.submit(crew._next).result() is not None
            assert not crew._may_begin()
            assert first.submit(crew._may_begin).result()
            frozen.advance(seconds(LONGEST_WAIT))
            assert crew._next() is not None
            # Whoever comes back then waits for its turn.
            assert not first.submit(crew._may_begin).result()

    @pytest.mark.parametrize("took", [TINY, SHORT])
    def test_jobs_that_are_not_tiny_are_everybodys(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock, took: float
    ) -> None:
        queue_notes(10)
        crew = make_crew(concurrency=5)
        know_as_short(crew, took=took)
        with ThreadPoolExecutor(1) as first:
            assert first.submit(crew._next).result() is not None
            assert crew._may_begin()

    def test_the_thread_of_tiny_jobs_leaves_them_to_others_with_a_turn_or_another_job(
        self, make_crew: MakeCrew, frozen: clock.FrozenClock
    ) -> None:
        queue_notes(2)
        queue_notes(10, "other", priority=-1)
        crew = make_crew(concurrency=9)
        know_as_short(crew)
        with ThreadPoolExecutor(1) as first:
            assert [first.submit(crew._next).result().queue for _ in range(2)] == ["default", "default"]  # type: ignore[union-attr] - it gave both
            assert crew._mover is not None
            taken = first.submit(crew._next).result()
            assert taken is not None
            assert (taken.queue, crew._mover) == ("other", None)


def look_on(crew: Crew) -> None:
    with crew._changed:
        crew._look_on()


class TestTicker:
    """With threads: nothing waits behind a job that turns out not to be short."""

    def test_a_job_behind_one_that_is_not_short_after_all_gets_a_thread_of_its_own(self, make_crew: MakeCrew) -> None:
        crew = make_crew(concurrency=3, poll=3_600.0)
        know_as_short(crew)
        for name in ("one", "two", "three"):
            jobs.pass_gate.later(name)
        crew.start()
        for name in ("one", "two", "three"):
            assert jobs.entered[name].wait(jobs.PATIENCE)

    def test_jobs_that_are_short_but_not_tiny_begin_at_once_in_all_slots(
        self, make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for tick in ("TICK", "COARSE_TICK"):
            monkeypatch.setattr(f"django_jobs.worker.crew.{tick}", 3_600.0)
        crew = make_crew(concurrency=3, poll=3_600.0)
        know_as_short(crew, took=TINY)
        for name in ("one", "two", "three"):
            jobs.pass_gate.later(name)
        crew.start()
        for name in ("one", "two", "three"):
            assert jobs.entered[name].wait(jobs.PATIENCE)

    def test_an_end_is_written_though_its_only_thread_runs_the_next_job(self, make_crew: MakeCrew) -> None:
        crew = make_crew(concurrency=1, poll=3_600.0)
        know_as_short(crew)
        first = jobs.note.later("first")
        jobs.pass_gate.later("second")
        crew.start()
        assert jobs.entered["second"].wait(jobs.PATIENCE)
        until(lambda: Job.objects.get(pk=first.pk).state == "SUCCESSFUL", what="the end is written")

    @pytest.mark.parametrize("queue", ["default", "unknown"])
    def test_what_was_claimed_ahead_goes_to_others_where_the_slots_stay_taken(
        self, make_crew: MakeCrew, queue: str
    ) -> None:
        crew = make_crew(concurrency=1, poll=3_600.0)
        know_as_short(crew)
        long = jobs.pass_gate.using(queue=queue, priority=1).later("long")
        for name in ("one", "two", "three"):
            jobs.note.later(name)
        crew.start()
        assert jobs.entered["long"].wait(jobs.PATIENCE)
        make_crew(identity="another").start()
        until(lambda: len(jobs.noted) == 3, what="the others have run elsewhere")
        assert Job.objects.get(pk=long.pk).worker == "crew"

    def test_what_was_claimed_ahead_goes_back_when_the_crew_closes_though_all_slots_are_taken(
        self, make_crew: MakeCrew
    ) -> None:
        crew = make_crew(concurrency=1, poll=3_600.0)
        know_as_short(crew)
        jobs.pass_gate.later("long")
        jobs.note.later("next")
        crew.start()
        assert jobs.entered["long"].wait(jobs.PATIENCE)
        crew.close()
        until(lambda: Job.objects.filter(state="READY").count() == 1, what="the other is given back")

    @pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
    def test_an_end_whose_row_was_locked_is_written_though_all_slots_are_taken(self, make_crew: MakeCrew) -> None:
        crew = make_crew(concurrency=1, poll=3_600.0)
        know_as_short(crew)
        first = jobs.pass_gate.later("first")
        jobs.pass_gate.later("second")
        crew.start()
        assert jobs.entered["first"].wait(jobs.PATIENCE)
        with locked(first.pk):
            jobs.gates["first"].set()
            assert jobs.entered["second"].wait(jobs.PATIENCE)
            until(lambda: crew._settling.waiting, what="the end waits for the lock")
        until(lambda: Job.objects.get(pk=first.pk).state == "SUCCESSFUL", what="the end is written")

    def test_the_ticker_sleeps_while_nothing_is_in_hand_or_all_that_is_has_its_thread(
        self, make_crew: MakeCrew
    ) -> None:
        crew = make_crew(concurrency=2, poll=3_600.0)
        know_as_short(crew)
        crew.start()
        until(lambda: crew._is_polled and not crew._is_ticking, what="the crew is idle")
        jobs.pass_gate.later("long")
        crew.wake()
        assert jobs.entered["long"].wait(jobs.PATIENCE)
        until(lambda: crew._is_polled and not crew._is_ticking, what="another watches the clock")
