"""The steps of a crew, one after the other in the test's thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import override_settings

from django_jobs import clock, lifecycle, signals
from django_jobs.models import Job, Queue
from django_jobs.outcomes import Succeeded
from django_jobs.records import Claim
from django_jobs.worker.crew import Crew
from django_jobs.worker.seat import ThreadSeat
from tests.factories import locked, seconds
from tests.worker.conftest import make_board
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]


def states() -> dict[str, int]:
    return {
        state: count
        for state in ("READY", "RUNNING", "SUCCESSFUL", "FAILED", "CANCELLED")
        if (count := Job.objects.filter(state=state).count())
    }


def claimed(crew: Crew) -> list[Claim]:
    return list(crew._todo)


def work(crew: Crew) -> Claim:
    """Run the next job here, as a thread of the crew would."""
    claim = crew._next()
    assert claim is not None
    crew.perform(claim, ThreadSeat())
    return claim


def test_a_turn_claims_no_more_than_the_free_slots(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(10))
    crew = make_crew(concurrency=3)
    crew.turn()
    assert len(claimed(crew)) == 3
    assert states() == {"READY": 7, "RUNNING": 3}


def test_a_job_that_could_not_be_started_for_long_is_given_back_uncounted_and_claimed_anew(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    """Nobody renewed it while its answer was on the way, and the deadline in its row counts from the claim."""
    jobs.note.later(1)
    crew = make_crew(poll=60.0)
    crew.turn()
    [late] = claimed(crew)
    frozen.advance(timedelta(seconds=8))
    claim = crew._next()
    assert claim is not None
    assert claim.token != late.token
    assert (claim.attempt, claim.started_at) == (1, frozen.instant)
    assert jobs.noted == []


def test_a_job_in_hand_takes_its_slot_from_the_next_claim(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(10))
    crew = make_crew(concurrency=3)
    crew.turn()
    crew.turn()
    assert len(claimed(crew)) == 3
    crew._running += 1
    crew._todo.popleft()
    crew.turn()
    assert len(claimed(crew)) == 2


def test_an_ended_job_is_settled_before_its_slot_is_filled_again(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(4))
    crew = make_crew(concurrency=1)
    first = work(crew)
    assert crew.unwritten == 1
    second = work(crew)
    assert (Job.objects.get(pk=first.id).state, Job.objects.get(pk=second.id).state) == ("SUCCESSFUL", "RUNNING")
    assert jobs.noted == [0, 1]


def test_the_board_knows_what_is_in_hand_until_its_end_is_written(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    board = make_board()
    crew = make_crew(board=board)
    claim = work(crew)
    [entry] = board.entries()
    assert entry.lease == claim.lease
    assert entry.started
    assert entry.ended
    crew.turn()
    assert board.entries() == []


def test_an_end_whose_row_others_may_have_used_up_is_not_told_as_ours(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    jobs.note.using(keep=0).later(1)
    crew = make_crew(poll=60.0)
    work(crew)
    frozen.advance(timedelta(seconds=61))
    Job.objects.all()._raw_delete("default")
    told: list[str] = []
    finished, lost = (lambda **_: told.append("finished")), (lambda **_: told.append("lost"))
    signals.job_finished.connect(finished)
    signals.job_lost.connect(lost)
    crew.turn()
    signals.job_finished.disconnect(finished)
    signals.job_lost.disconnect(lost)
    assert told == ["lost"]


def test_a_claim_that_came_back_short_is_followed_by_another_at_once(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    crew = make_crew(concurrency=3, poll=5.0)
    assert crew.turn() == 0.0
    assert crew.turn() == 5.0


def test_a_claim_that_met_only_expired_jobs_is_followed_by_another_at_once(make_crew: MakeCrew) -> None:
    jobs.note.using(expires=0).later(1)
    crew = make_crew(concurrency=3, poll=5.0)
    assert crew.turn() == 0.0
    assert states() == {"CANCELLED": 1}


def test_with_all_slots_taken_nothing_is_asked_for(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(2))
    crew = make_crew(concurrency=2, poll=5.0)
    assert crew.turn() == 5.0


def test_a_cap_holds_over_several_turns(make_crew: MakeCrew) -> None:
    jobs.note.using(queue="mail", priority=1).later_many((n,) for n in range(5))
    jobs.note.later_many((n,) for n in range(5))
    crew = make_crew(queues={"mail": 2, "default": None}, concurrency=4)
    crew.turn()
    assert sorted(claim.queue for claim in claimed(crew)) == ["default", "default", "mail", "mail"]
    for claim in [claim for claim in claimed(crew) if claim.queue == "default"]:
        crew._todo.remove(claim)
        crew._running += 1
        crew.perform(claim, ThreadSeat())
    crew.turn()
    assert sorted(claim.queue for claim in claimed(crew)) == ["default", "default", "mail", "mail"]


def test_a_worker_whose_only_queue_is_at_its_cap_asks_for_nothing(make_crew: MakeCrew) -> None:
    jobs.note.using(queue="mail").later_many((n,) for n in range(5))
    crew = make_crew(queues={"mail": 1}, concurrency=4)
    crew.turn()
    crew.turn()
    assert [claim.queue for claim in claimed(crew)] == ["mail"]


def test_a_cap_holds_where_every_queue_is_served(make_crew: MakeCrew) -> None:
    jobs.note.using(queue="mail").later_many((n,) for n in range(5))
    jobs.note.later_many((n,) for n in range(2))
    crew = make_crew(caps={"mail": 1}, concurrency=4)
    crew.turn()
    crew.turn()
    assert sorted(claim.queue for claim in claimed(crew)) == ["default", "default", "mail"]


def test_queues_that_are_not_served_are_left_alone(make_crew: MakeCrew) -> None:
    jobs.note.using(queue="other").later(1)
    crew = make_crew(queues={"default": None})
    crew.turn()
    assert states() == {"READY": 1}


def test_paused_queues_are_left_alone(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    Queue.objects.create(name="default", paused_at=datetime(2026, 1, 1, tzinfo=UTC))
    make_crew().turn()
    assert states() == {"READY": 1}


def test_queues_of_one_priority_take_turns(make_crew: MakeCrew) -> None:
    for queue in ("a", "b", "c"):
        jobs.note.using(queue=queue).later_many((queue,) for _ in range(3))
    crew = make_crew(concurrency=1)
    for _ in range(6):
        work(crew)
    assert jobs.noted == ["a", "b", "c", "a", "b", "c"]


def test_an_alone_job_is_run_by_itself(make_crew: MakeCrew) -> None:
    alone = jobs.note.later("alone")
    Job.objects.filter(pk=alone.pk).update(alone=True)
    jobs.note.later_many((n,) for n in range(3))
    crew = make_crew(concurrency=3)
    crew.turn()
    assert [claim.id for claim in claimed(crew)] == [alone.pk]
    crew.turn()
    assert [claim.id for claim in claimed(crew)] == [alone.pk]


def test_an_end_that_cannot_be_written_is_kept_until_it_can(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes away between a body's end and its settle."""
    job = jobs.note.later(1)
    crew = make_crew()
    work(crew)
    settle = lifecycle.settle

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("the server went away")

    monkeypatch.setattr(lifecycle, "settle", away)
    with pytest.raises(OperationalError):
        crew.turn()
    assert crew.unwritten == 1
    monkeypatch.setattr(lifecycle, "settle", settle)
    crew.turn()
    assert crew.unwritten == 0
    assert Job.objects.get(pk=job.pk).state == "SUCCESSFUL"


def test_a_connection_that_broke_is_replaced_at_the_next_turn(make_crew: MakeCrew) -> None:
    crew = make_crew()
    crew.turn()
    connection = crew._link._connection
    assert connection is not None
    assert connection.connection is not None
    connection.connection.close()
    with pytest.raises(Exception, match="closed"):
        crew.turn()
    crew._link.close()
    jobs.note.later(1)
    crew.turn()
    assert len(claimed(crew)) == 1


@pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
def test_an_end_whose_row_somebody_locks_waits_without_holding_up_others(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    stuck, free, later = (jobs.note.later(n) for n in (1, 2, 3))
    crew = make_crew(concurrency=3, poll=5.0)
    work(crew)
    crew.perform(crew._todo.popleft(), ThreadSeat())
    with locked(stuck.pk):
        assert crew.turn() == 0.1
        assert Job.objects.get(pk=free.pk).state == "SUCCESSFUL"
        assert Job.objects.get(pk=stuck.pk).state == "RUNNING"
        # Until it is tried again, others are written as ever.
        crew._ended.append((crew._todo.popleft(), Succeeded()))
        crew.turn()
        assert Job.objects.get(pk=later.pk).state == "SUCCESSFUL"
        assert crew.unwritten == 1
    frozen.advance(seconds(0.1))
    crew.turn()
    assert Job.objects.get(pk=stuck.pk).state == "SUCCESSFUL"


@pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
def test_an_end_that_waits_for_a_lock_is_tried_again_in_time_though_others_come_to_wait(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    first, second, third = (jobs.note.later(n) for n in (1, 2, 3))
    crew = make_crew(concurrency=3, poll=5.0)
    work(crew)
    with locked(second.pk), locked(third.pk):
        with locked(first.pk):
            assert crew.turn() == pytest.approx(0.1)
        for moment in (0.06, 0.12):
            frozen.advance(seconds(0.06))
            crew._ended.append((crew._todo.popleft(), Succeeded()))
            delay = crew.turn()
            is_written = Job.objects.get(pk=first.pk).state == "SUCCESSFUL"
            assert is_written is (moment > 0.1)
        # What was tried again in vain waits longer.
        assert delay == pytest.approx(0.2)
    frozen.advance(seconds(0.201))
    crew.turn()
    assert states() == {"SUCCESSFUL": 3}


@pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no row locks")
def test_an_end_whose_row_stays_locked_is_tried_ever_more_seldom(
    make_crew: MakeCrew, frozen: clock.FrozenClock
) -> None:
    job = jobs.note.later(1)
    crew = make_crew(concurrency=1, poll=5.0)
    work(crew)
    delays = []
    with locked(job.pk):
        for _ in range(6):
            delays.append(crew.turn())
            frozen.advance(seconds(delays[-1] + 0.001))
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_o25_what_a_claim_took_whose_answer_was_lost_comes_back_uncounted(
    make_crew: MakeCrew, frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.note.later(1)
    crew = make_crew()
    claim = lifecycle.claim

    def lose_answer(*args: Any, **named: Any) -> None:
        claim(*args, **named)
        raise OperationalError("the connection broke before the answer came")

    monkeypatch.setattr(lifecycle, "claim", lose_answer)
    with pytest.raises(OperationalError):
        crew.turn()
    assert states() == {"RUNNING": 1}
    monkeypatch.setattr(lifecycle, "claim", claim)
    crew.turn()
    [again] = claimed(crew)
    assert (again.id, again.attempt) == (job.pk, 1)


def test_o25_a_claim_that_commits_after_its_connection_broke_is_found_too(
    make_crew: MakeCrew, frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may go on with a statement whose client has left."""
    crew = make_crew(concurrency=1)
    claim = lifecycle.claim
    late: list[Callable[[], object]] = []

    def lose(connection: Any, request: Any, *, token: int) -> None:
        late.append(lambda: claim(connections["default"], request, token=token))
        raise OperationalError("the connection broke")

    monkeypatch.setattr(lifecycle, "claim", lose)
    with pytest.raises(OperationalError):
        crew.turn()
    monkeypatch.setattr(lifecycle, "claim", claim)
    crew.turn()
    job = jobs.note.later(1)
    late[0]()
    assert states() == {"RUNNING": 1}
    crew.turn()
    assert claimed(crew) == []
    frozen.advance(seconds(1))
    crew.turn()
    [again] = claimed(crew)
    assert (again.id, again.attempt) == (job.pk, 1)
    # Once the lease of the lost claim is over nothing can hold under it any more.
    frozen.advance(seconds(60))
    crew.turn()
    assert crew._claiming._unanswered == {}


def test_a_word_that_the_database_is_back_ends_the_pause(
    make_crew: MakeCrew, frozen: clock.FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("the server went away")

    crew = make_crew()
    claim = lifecycle.claim
    monkeypatch.setattr(lifecycle, "claim", away)
    with crew._changed:
        crew._lead()
        assert not crew._is_turn()
    monkeypatch.setattr(lifecycle, "claim", claim)
    crew.come_back()
    with crew._changed:
        assert crew._is_turn()


def test_closing_gives_back_what_has_not_started_uncounted(make_crew: MakeCrew) -> None:
    jobs.note.later_many((n,) for n in range(3))
    crew = make_crew(concurrency=3)
    crew.turn()
    crew.close()
    crew.turn()
    assert states() == {"READY": 3}
    assert set(Job.objects.values_list("attempts", flat=True)) == {0}
    assert jobs.noted == []


def test_a_closed_crew_claims_nothing(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    crew = make_crew()
    crew.close()
    crew.turn()
    assert states() == {"READY": 1}


def test_a_draining_crew_is_over_when_nothing_is_due(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    jobs.note.after(hours=1).later(2)
    crew = make_crew(drain=True)
    work(crew)
    assert crew._next() is None
    assert states() == {"READY": 1, "SUCCESSFUL": 1}


def test_a_run_whose_surroundings_break_is_that_jobs_failure(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_jobs import runner

    def breaks(claim: Claim, seat: ThreadSeat, **options: object) -> None:
        raise OperationalError("the connection broke while it was tidied")

    job = jobs.note.later(1)
    crew = make_crew()
    crew.turn()
    monkeypatch.setattr(runner, "run", breaks)
    work(crew)
    crew.turn()
    job.refresh_from_db()
    assert (job.state, job.errors[0]["reason"]) == ("READY", "the connection broke while it was tidied")


@override_settings(DJANGO_JOBS={"UNKNOWN_JOBS": "leave"})
def test_jobs_without_performer_can_be_left_alone(make_crew: MakeCrew) -> None:
    from django_jobs import enqueue, named

    enqueue([named("nobody.knows"), jobs.note.prepare(1)])
    crew = make_crew()
    crew.turn()
    assert [claim.name for claim in claimed(crew)] == ["tests.yard.note"]


def test_a_lease_lasts_from_the_claim(make_crew: MakeCrew) -> None:
    jobs.note.later(1)
    with clock.freeze(clock.now() + timedelta(days=1)) as frozen:
        make_crew().turn()
        [job] = Job.objects.all()
        assert job.lease_expires_at == frozen.instant + timedelta(seconds=60)
        assert job.deadline_at == frozen.instant + timedelta(seconds=300 + 5 + 60)
