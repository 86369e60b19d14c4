"""What dead processes held comes back at once; answers that never came; what is due next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import backoff, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.outcomes import Succeeded
from django_jobs.records import Claim, Due, Lease
from django_jobs.states import State
from django_jobs.transitions import Place
from tests.factories import (
    NOON,
    claim_one,
    failure,
    locked,
    place_of,
    queue_job,
    queue_jobs,
    read,
    request,
    run_job,
    seconds,
    take,
    write,
)
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db

DIED = "the worker process dead:7:ab died while this ran: signal SIGKILL"


def bury(
    *, running: Sequence[Claim] = (), ended: Sequence[Claim] = (), timed_out: Sequence[Claim] = (), **more: Any
) -> int:
    return lifecycle.bury(
        connection(),
        "worker-1",
        running=[claim.lease for claim in running],
        ended=[claim.lease for claim in ended],
        timed_out=[claim.lease for claim in timed_out],
        failure=failure(kind="crash", reason=DIED, exception=""),
        **more,
    )


def counts(job_id: int) -> tuple[str, int, int]:
    row = read(job_id)
    return row.state, row.attempts, row.crashes


def kinds(job_id: int) -> list[str]:
    return [entry["kind"] for entry in read(job_id).errors]


class TestBury:
    def test_what_waited_to_start_comes_back_uncounted(self, frozen: FrozenClock) -> None:
        claim = run_job()
        frozen.advance(seconds(5))
        assert bury() == 1
        row = read(claim.id)
        assert counts(claim.id) == ("READY", 0, 0)
        assert (row.run_at, row.worker, row.errors) == (NOON, None, [])

    def test_the_only_one_that_ran_is_counted_and_may_run_again_at_once(self, frozen: FrozenClock) -> None:
        claim = run_job()
        frozen.advance(seconds(5))
        assert bury(running=[claim]) == 1
        row = read(claim.id)
        assert counts(claim.id) == ("READY", 1, 1)
        assert (row.run_at, row.alone) == (NOON + seconds(5), False)
        assert [(entry["kind"], entry["reason"]) for entry in row.errors] == [("crash", DIED)]

    def test_after_its_second_crash_a_job_is_held_off(self, frozen: FrozenClock) -> None:
        claim = run_job()
        bury(running=[claim])
        again = claim_one()
        assert again.id == claim.id
        bury(running=[again])
        assert counts(claim.id) == ("READY", 2, 2)
        assert read(claim.id).run_at == NOON + seconds(15)

    def test_at_its_last_crash_a_job_fails(self, frozen: FrozenClock) -> None:
        claim = run_job(max_attempts=20)
        write(claim.id, crashes=2)
        bury(running=[claim])
        assert counts(claim.id) == ("FAILED", 1, 3)

    def test_a_crash_on_the_last_attempt_fails_the_job(self, frozen: FrozenClock) -> None:
        claim = run_job(max_attempts=1)
        bury(running=[claim])
        assert counts(claim.id) == ("FAILED", 1, 1)

    def test_one_that_waited_beside_it_makes_the_death_no_shared_one(self, frozen: FrozenClock) -> None:
        queue_jobs(2)
        running, waiting = take().claims
        assert bury(running=[running]) == 2
        assert counts(running.id) == ("READY", 1, 1)
        assert counts(waiting.id) == ("READY", 0, 0)

    def test_a_shared_death_counts_for_nobody_as_an_attempt(self, frozen: FrozenClock) -> None:
        queue_jobs(2)
        claims = take().claims
        assert bury(running=claims) == 2
        assert [counts(claim.id) for claim in claims] == [("READY", 0, 1), ("READY", 0, 1)]
        assert [kinds(claim.id) for claim in claims] == [["crash"], ["crash"]]
        assert [read(claim.id).alone for claim in claims] == [False, False]
        assert [read(claim.id).run_at for claim in claims] == [NOON, NOON]

    def test_shared_deaths_bring_a_job_one_short_of_its_last_crash_and_then_it_runs_alone(
        self, frozen: FrozenClock
    ) -> None:
        queue_jobs(3)
        claims = take().claims
        for claim, crashes in zip(claims, (0, 1, 2), strict=True):
            write(claim.id, crashes=crashes)
        bury(running=claims)
        assert [counts(claim.id) for claim in claims] == [("READY", 0, 1), ("READY", 0, 2), ("READY", 0, 2)]
        assert [read(claim.id).alone for claim in claims] == [False, True, True]
        assert [read(claim.id).run_at - NOON for claim in claims] == [seconds(0), seconds(15), seconds(15)]

    def test_a_job_that_must_not_start_twice_fails_as_interrupted(self, frozen: FrozenClock) -> None:
        queue_jobs(3, restart=False)
        first, second, waiting = take().claims
        bury(running=[first, second])
        assert [counts(claim.id) for claim in (first, second)] == [("FAILED", 1, 0), ("FAILED", 1, 0)]
        [entry] = read(first.id).errors
        assert (entry["kind"], entry["reason"]) == ("interrupted", f"{DIED}; restart=False forbids a second start")
        assert counts(waiting.id) == ("READY", 0, 0)

    def test_where_the_process_was_ended_for_anothers_sake_nobody_is_blamed(self, frozen: FrozenClock) -> None:
        queue_jobs(2)
        claims = take().claims
        frozen.advance(seconds(5))
        assert bury(running=claims, is_blamed=False) == 2
        assert [counts(claim.id) for claim in claims] == [("READY", 0, 0), ("READY", 0, 0)]
        assert [kinds(claim.id) for claim in claims] == [[], []]
        assert [read(claim.id).run_at for claim in claims] == [NOON, NOON]

    def test_one_that_must_not_start_twice_fails_also_where_nobody_is_blamed(self, frozen: FrozenClock) -> None:
        claim = run_job(restart=False)
        bury(running=[claim], is_blamed=False)
        assert counts(claim.id) == ("FAILED", 1, 0)
        assert kinds(claim.id) == ["interrupted"]

    @pytest.mark.parametrize("is_blamed", [True, False])
    def test_what_had_ended_unwritten_comes_back_uncounted(self, frozen: FrozenClock, is_blamed: bool) -> None:
        claim = run_job()
        assert bury(ended=[claim], is_blamed=is_blamed) == 1
        assert counts(claim.id) == ("READY", 0, 0)
        assert kinds(claim.id) == []

    @pytest.mark.parametrize("is_blamed", [True, False])
    def test_one_that_must_not_start_twice_fails_also_where_it_had_ended_unwritten(
        self, frozen: FrozenClock, is_blamed: bool
    ) -> None:
        claim = run_job(restart=False)
        assert bury(ended=[claim], is_blamed=is_blamed) == 1
        assert counts(claim.id) == ("FAILED", 1, 0)
        assert kinds(claim.id) == ["interrupted"]

    def test_a_cancelled_job_is_let_go(self, heard: list[Heard]) -> None:
        claim = run_job()
        lifecycle.cancel([claim.id])
        assert place_of(claim.id) is Place.STOPPING
        assert bury(running=[claim]) == 1
        assert place_of(claim.id) is Place.CANCELLED
        assert counts(claim.id) == ("CANCELLED", 1, 0)
        assert heard == [Heard("jobs_reclaimed", None, {"changes": [], "let_go": [claim.id], "because": DIED})]

    def test_what_others_have_reclaimed_and_run_meanwhile_stays_theirs(
        self, heard: list[Heard], frozen: FrozenClock
    ) -> None:
        queue_jobs(2)
        claims = take(worker="dead").claims
        frozen.advance(seconds(61))
        lifecycle.reclaim(connection())
        again = claim_one(worker="alive")
        before = list(Job.objects.order_by("id").values())
        heard.clear()
        assert bury(running=claims) == 0
        assert list(Job.objects.order_by("id").values()) == before
        assert read(again.id).worker == "alive"
        assert heard == []

    def test_what_has_ended_and_been_written_stays_as_it_is(self, heard: list[Heard]) -> None:
        claim = run_job()
        settle(claim, Succeeded())
        heard.clear()
        assert bury() == 0
        assert counts(claim.id) == ("SUCCESSFUL", 1, 0)
        assert heard == []

    def test_nothing_in_hand_is_nothing_to_bury(self, heard: list[Heard]) -> None:
        assert bury() == 0
        assert heard == []

    def test_it_is_told_once_with_all_changes_and_the_cause(self, heard: list[Heard], frozen: FrozenClock) -> None:
        queue_jobs(3)
        running, waiting, late = take().claims
        bury(running=[running], timed_out=[late])
        [told] = heard
        assert (told.signal, told.said["because"], told.said["let_go"]) == ("jobs_reclaimed", DIED, [])
        assert {change.lease: change.state for change in told.said["changes"]} == {
            running.lease: State.READY,
            waiting.lease: State.READY,
            late.lease: State.READY,
        }


class TestTimedOut:
    @override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(77)})
    def test_it_is_counted_and_waits_as_the_backoff_of_the_settings_says(self, frozen: FrozenClock) -> None:
        claim = run_job()
        assert bury(timed_out=[claim], is_blamed=False) == 1
        row = read(claim.id)
        assert counts(claim.id) == ("READY", 1, 0)
        assert row.run_at == NOON + seconds(77)
        [entry] = row.errors
        assert (entry["kind"], entry["exception"], entry["reason"]) == (
            "timeout",
            "django_jobs.exceptions.JobTimeout",
            "timed out, and went on until its process was killed",
        )

    @override_settings(DJANGO_JOBS={"BACKOFF": backoff.linear(10)})
    def test_the_backoff_is_asked_with_the_attempt(self, frozen: FrozenClock) -> None:
        claim = run_job()
        write(claim.id, attempts=2)
        bury(timed_out=[claim])
        assert read(claim.id).run_at == NOON + seconds(20)

    def test_a_users_backoff_is_never_called_and_ours_serves(self, frozen: FrozenClock) -> None:
        asked = []

        def choose(attempt: int) -> int:
            asked.append(attempt)
            return 5_000

        claim = run_job()
        with override_settings(DJANGO_JOBS={"BACKOFF": choose}):
            bury(timed_out=[claim])
        assert asked == []
        assert seconds(13.5) <= read(claim.id).run_at - NOON <= seconds(16.5)

    def test_on_the_last_attempt_the_job_fails(self, frozen: FrozenClock) -> None:
        claim = run_job(max_attempts=1)
        bury(timed_out=[claim])
        assert counts(claim.id) == ("FAILED", 1, 0)
        assert kinds(claim.id) == ["timeout"]

    def test_its_neighbours_come_back_uncounted(self, frozen: FrozenClock) -> None:
        queue_jobs(3)
        late, running, waiting = take().claims
        bury(timed_out=[late], running=[running], is_blamed=False)
        assert [counts(claim.id) for claim in (late, running, waiting)] == [
            ("READY", 1, 0),
            ("READY", 0, 0),
            ("READY", 0, 0),
        ]


class TestDisown:
    def test_what_an_unanswered_claim_took_comes_back_uncounted(self, heard: list[Heard], frozen: FrozenClock) -> None:
        job_id = queue_job()
        lifecycle.claim(connection(), request(worker="mine"), token=77)
        frozen.advance(seconds(5))
        lifecycle.disown(connection(), "mine", [77])
        assert counts(job_id) == ("READY", 0, 0)
        assert (read(job_id).run_at, read(job_id).errors) == (NOON, [])
        assert words(heard) == []

    def test_it_comes_back_even_if_it_must_not_start_twice(self) -> None:
        job_id = queue_job(restart=False)
        lifecycle.claim(connection(), request(worker="mine"), token=77)
        lifecycle.disown(connection(), "mine", [77])
        assert place_of(job_id) is Place.READY

    def test_other_claims_and_other_workers_keep_theirs(self) -> None:
        first, second, third = queue_jobs(3)
        lifecycle.claim(connection(), request(worker="mine", limit=1), token=77)
        lifecycle.claim(connection(), request(worker="mine", limit=1), token=78)
        lifecycle.claim(connection(), request(worker="another", limit=1), token=77)
        lifecycle.disown(connection(), "mine", iter([77]))
        assert [place_of(job_id) for job_id in (first, second, third)] == [Place.READY, Place.RUNNING, Place.RUNNING]

    def test_all_rows_of_several_tokens_come_back(self) -> None:
        ids = queue_jobs(4)
        lifecycle.claim(connection(), request(worker="mine", limit=2), token=77)
        lifecycle.claim(connection(), request(worker="mine", limit=2), token=78)
        lifecycle.disown(connection(), "mine", iter([77, 78]))
        assert [place_of(job_id) for job_id in ids] == [Place.READY] * 4

    def test_one_that_was_cancelled_meanwhile_is_let_go(self) -> None:
        job_id = queue_job()
        lifecycle.claim(connection(), request(worker="mine"), token=77)
        lifecycle.cancel([job_id])
        lifecycle.disown(connection(), "mine", [77])
        assert place_of(job_id) is Place.CANCELLED

    def test_a_claim_that_took_nothing_has_nothing_to_give_back(self) -> None:
        lifecycle.disown(connection(), "mine", [77])
        assert Job.objects.count() == 0


class TestTokens:
    def test_tokens_are_above_nothing_fit_the_column_and_differ(self) -> None:
        tokens = [lifecycle.new_token() for _ in range(1000)]
        assert len(set(tokens)) == 1000
        assert min(tokens) > 0
        assert max(tokens) < 2**63


class TestLooking:
    def test_stopping_are_those_that_were_cancelled_and_are_held(self) -> None:
        queue_jobs(4)
        running, stopping, stopped, finished = take().claims
        lifecycle.cancel([stopping.id, stopped.id])
        settle(stopped, Succeeded())
        settle(finished, Succeeded())
        leases = [claim.lease for claim in (running, stopping, stopped, finished)]
        assert lifecycle.stopping(connection(), leases) == [stopping.lease]

    def test_what_another_claim_holds_is_not_ours_to_stop(self) -> None:
        claim = run_job()
        lifecycle.cancel([claim.id])
        assert lifecycle.stopping(connection(), [Lease(id=claim.id, token=claim.token + 1)]) == []
        assert lifecycle.stopping(connection(), []) == []

    def test_still_held_are_running_and_stopping_ones_under_the_same_token(self) -> None:
        queue_jobs(3)
        running, stopping, finished = take().claims
        lifecycle.cancel([stopping.id])
        settle(finished, Succeeded())
        leases = [claim.lease for claim in (running, stopping, finished)]
        others = [Lease(id=running.id, token=running.token + 1), Lease(id=10**9, token=1)]
        assert lifecycle.still_held(connection(), [*leases, *others]) == {running.lease, stopping.lease}

    @pytest.mark.django_db(transaction=True)
    def test_a_row_that_somebody_locks_is_still_held_though_it_could_not_be_renewed(self) -> None:
        if not connection().features.has_select_for_update_skip_locked:
            pytest.skip("this database has no row locks")
        claim = run_job()
        with locked(claim.id):
            assert lifecycle.renew(connection(), [claim.lease]) == {}
            assert lifecycle.still_held(connection(), [claim.lease]) == {claim.lease}


NOTHING = Due(now=False, later=None)


def next_due(*queues: str, **said: Any) -> Due:
    return lifecycle.next_due(connection(), request(queues=queues or None, **said))


def due_in(count: float, *, now: bool = False) -> Due:
    return Due(now=now, later=pytest.approx(count, abs=0.001))


class TestNextDue:
    def test_where_nothing_waits_nothing_is_due(self, frozen: FrozenClock) -> None:
        run_job()
        settle(run_job(), Succeeded())
        assert next_due() == NOTHING
        assert next_due("aside") == NOTHING

    def test_what_may_run_now_is_due(self, frozen: FrozenClock) -> None:
        queue_job()
        assert next_due() == Due(now=True, later=None)

    def test_what_is_due_does_not_hide_when_the_next_one_will_be(self, frozen: FrozenClock) -> None:
        queue_job()
        frozen.advance(seconds(90))
        queue_job(delay=seconds(10))
        queue_job(queue="b", delay=seconds(5))
        assert next_due() == due_in(5.0, now=True)
        assert next_due("default") == due_in(10.0, now=True)

    def test_what_the_request_could_not_take_does_not_count(self, frozen: FrozenClock) -> None:
        write(queue_job(queue="a"), alone=True)
        queue_job(queue="b", name="nobody.knows")
        queue_job(queue="c", delay=seconds(40))
        assert next_due("a", empty_handed=False) == NOTHING
        assert next_due("a").now
        assert next_due("b", names=("shop.greet",)) == NOTHING
        assert next_due("b", names=("nobody.knows",)).now
        assert next_due("a", "c", rooms={"a": 0}) == due_in(40.0)
        assert next_due(rooms={"a": 0, "b": 0, "c": 0}) == NOTHING
        assert next_due("a", rooms={"a": 1}).now

    def test_it_is_the_nearest_of_all_queues_and_priorities(self, frozen: FrozenClock) -> None:
        queue_job(queue="a", priority=5, delay=seconds(100))
        queue_job(queue="a", priority=0, delay=seconds(30.5))
        queue_job(queue="a", priority=-5, delay=timedelta(days=40))
        queue_job(queue="b", priority=9, delay=seconds(60))
        assert next_due() == due_in(30.5)
        assert next_due("a", "b") == due_in(30.5)
        frozen.advance(seconds(10))
        assert next_due() == due_in(20.5)

    def test_queues_that_are_not_served_do_not_count(self, frozen: FrozenClock) -> None:
        queue_job(queue="a", delay=seconds(30))
        queue_job(queue="b", delay=seconds(60))
        assert next_due("b") == due_in(60.0)
        assert next_due("c") == NOTHING

    def test_paused_queues_do_not_count(self, frozen: FrozenClock) -> None:
        queue_job(queue="a", delay=seconds(30))
        queue_job(queue="b", delay=seconds(60))
        Queue.objects.create(name="a", paused_at=NOON)
        assert next_due() == due_in(60.0)
        assert next_due("a") == NOTHING
        Queue.objects.update(paused_at=None)
        assert next_due() == due_in(30.0)


def test_what_the_dead_process_claimed_without_living_to_see_it_comes_back_uncounted() -> None:
    """Its claim was committed after the last word on its board."""
    unseen = run_job()
    assert bury(running=[]) == 1
    assert counts(unseen.id) == ("READY", 0, 0)


def test_what_other_workers_hold_is_left_to_them() -> None:
    queue_job()
    theirs = claim_one(worker="worker-2")
    assert bury(running=[theirs]) == 0
    assert place_of(theirs.id) is Place.RUNNING
