"""Why a job doesn't run, in plain words, from what was seen: each reason by itself, and those that come together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs.explaining import JobSeen, PauseSeen, explain, gone
from django_jobs.records import WorkerSeen
from django_jobs.states import State
from tests.factories import NOON


def worker(**changes: Any) -> WorkerSeen:
    defaults: dict[str, Any] = {
        "identity": "web1:41:a", "host": "web1", "pid": 41, "queues": (), "slots": 8, "age": 600.0, "beat_age": 2.0,
        "claim_age": 1.0, "in_hand": 3,
    }  # fmt: skip
    return WorkerSeen(**{**defaults, **changes})


def before(seconds: float) -> Any:
    return NOON - timedelta(seconds=seconds)


def after(seconds: float) -> Any:
    return NOON + timedelta(seconds=seconds)


def seen(**changes: Any) -> JobSeen:
    defaults: dict[str, Any] = {
        "now": NOON, "id": 7, "name": "shop.greet", "queue": "mail", "state": State.READY, "run_at": before(3),
        "attempts": 0, "max_attempts": 5, "workers": (worker(),),
    }  # fmt: skip
    return JobSeen(**{**defaults, **changes})


# -- a job that waits


def test_a_job_that_is_not_due_says_when_it_is() -> None:
    assert explain(seen(run_at=after(180))) == ["It is not due: it may start in 3 min, at 2026-03-01 12:03:00 UTC."]


def test_a_job_that_will_be_tried_again_says_why_and_when() -> None:
    error = {"exception": "builtins.ValueError", "reason": "no such\ncustomer"}
    assert explain(seen(run_at=after(15), attempts=2, error=error)) == [
        (
            "It waits for another attempt after 2 of 5, in 15 s, at 2026-03-01 12:00:15 UTC. "
            "The last one ended with: ValueError: no such customer."
        )
    ]
    assert explain(seen(run_at=after(15), attempts=2)) == [
        "It waits for another attempt after 2 of 5, in 15 s, at 2026-03-01 12:00:15 UTC."
    ]


def test_a_job_that_has_expired_will_never_start() -> None:
    assert explain(seen(expires_at=before(5), workers=())) == [
        "It expired 5.0 s ago, before it could start; the next look at its queue cancels it."
    ]
    assert explain(seen(expires_at=NOON))[0].startswith("It expired 0.0 s ago")
    assert "expired" not in explain(seen(expires_at=after(1)))[0]


def test_a_paused_queue_is_named_with_who_and_why() -> None:
    pause = PauseSeen(since=before(600), by="ann", reason="the server moves")
    assert explain(seen(pause=pause)) == [
        'Queue mail has been paused for 10 min by ann: the server moves. It goes on with queues["mail"].resume().'
    ]
    broken = PauseSeen(since=before(600), by="a\nnn", reason="the server\n\nmoves")
    assert explain(seen(pause=broken)) == [
        'Queue mail has been paused for 10 min by a nn: the server moves. It goes on with queues["mail"].resume().'
    ]
    assert explain(seen(pause=PauseSeen(since=before(600), by="", reason=""))) == [
        'Queue mail has been paused for 10 min. It goes on with queues["mail"].resume().'
    ]


@pytest.mark.parametrize("workers", [(), (worker(beat_age=31.0),)], ids=["none", "silent"])
def test_no_worker_is_alive(workers: tuple[WorkerSeen, ...]) -> None:
    assert explain(seen(workers=workers)) == ["No worker is alive. Start one: python manage.py runjobs"]


def test_no_live_worker_serves_the_queue() -> None:
    alive = (worker(queues=("mail", "bulk")), worker(queues=("bulk",)), worker(queues=("emial",), beat_age=99.0))
    assert explain(seen(queue="emial", workers=alive)) == [
        (
            "No live worker serves queue emial; those that are alive serve bulk, mail. Was queue mail meant? "
            "Start one: python manage.py runjobs -q emial"
        )
    ]
    assert explain(seen(queue="reports", workers=(worker(queues=("mail",)),))) == [
        (
            "No live worker serves queue reports; those that are alive serve mail. "
            "Start one: python manage.py runjobs -q reports"
        )
    ]


def test_a_name_that_this_process_does_not_know_is_told_beside_the_rest() -> None:
    unknown, line = explain(seen(is_known=False))
    assert unknown.startswith("No performer is named shop.greet in this process. ")
    assert line.startswith("It has been due for 3.0 s.")


def test_jobs_before_it_and_the_room_there_is_are_counted() -> None:
    both = (worker(in_hand=8), worker(in_hand=1, slots=2, queues=("mail",)), worker(queues=("bulk",), in_hand=100))
    assert explain(seen(ahead=17, workers=both)) == [
        (
            "It has been due for 3.0 s. Before it come 17 due jobs of its queue, and the workers that serve queue mail "
            "have 9 jobs in hand and 10 slots."
        )
    ]


@pytest.mark.parametrize(
    ("ahead", "words"), [(1, "1 due job"), (1_000, "1,000 due jobs"), (1_001, "more than 1,000 due jobs")]
)
def test_the_count_of_jobs_before_it_has_a_bound(ahead: int, words: str) -> None:
    assert f"Before it come {words} of its queue" in explain(seen(ahead=ahead))[0]


def test_all_slots_may_be_taken_by_other_queues() -> None:
    assert explain(seen(workers=(worker(in_hand=8),))) == [
        (
            "It has been due for 3.0 s. Before it come no due jobs of its queue, and the workers that serve queue mail "
            "have 8 jobs in hand and 8 slots."
        )
    ]


def test_with_nothing_in_its_way_it_says_so() -> None:
    assert explain(seen()) == [
        (
            "It has been due for 3.0 s. Nothing is in its way: the workers that serve queue mail have 3 jobs in hand "
            "and 8 slots, and one of them claims it as soon as it looks."
        )
    ]


def test_a_suspect_waits_for_an_idle_worker() -> None:
    [reason] = explain(seen(is_alone=True))
    assert "It is suspected of having killed its process, so it runs by itself" in reason


def test_what_hinders_a_job_is_told_before_its_time_has_come_too() -> None:
    reasons = explain(seen(run_at=after(180), pause=PauseSeen(since=NOON, by="", reason=""), workers=()))
    assert [reason.split()[0:3] for reason in reasons] == [
        ["It", "is", "not"], ["Queue", "mail", "has"], ["No", "worker", "is"],
    ]  # fmt: skip


# -- a job that somebody holds


def running(**changes: Any) -> JobSeen:
    defaults: dict[str, Any] = {
        "state": State.RUNNING, "worker": "web1:41:a", "attempts": 1, "started_at": before(120), "timeout": 300.0,
        "lease_expires_at": after(45),
    }  # fmt: skip
    return seen(**{**defaults, **changes})


def test_a_running_job_says_where_since_when_and_until_when() -> None:
    assert explain(running()) == [
        "It is running: attempt 1 of 5 began 2 min ago on worker web1:41:a.",
        "Its time limit of 5 min ends it in 3 min.",
        "It is leased until 2026-03-01 12:00:45 UTC, for 45 s more.",
    ]


def test_a_job_without_a_time_limit_has_none_to_tell() -> None:
    assert len(explain(running(timeout=None))) == 2


def test_a_time_limit_that_is_over_is_told() -> None:
    assert explain(running(timeout=60.0))[1] == "Its time limit of 60 s was over 60 s ago."


def test_a_lease_that_has_run_out_is_taken_back_by_whoever_is_alive() -> None:
    assert explain(running(lease_expires_at=before(30)))[2] == (
        "Its lease ran out 30 s ago, so the next look of any worker's command takes it back."
    )
    assert explain(running(lease_expires_at=before(30), workers=()))[2] == (
        "Its lease ran out 30 s ago, so the next look of any worker's command takes it back. No worker is alive. "
        "Start one: python manage.py runjobs"
    )


def test_a_cancelled_job_whose_body_may_still_be_running_says_so() -> None:
    error = {"reason": "the customer left"}
    assert explain(running(state=State.CANCELLED, finished_at=before(1), error=error)) == [
        (
            "It was cancelled 1.0 s ago: the customer left. Its body may still be running on worker web1:41:a, and is "
            "being stopped. It is leased until 2026-03-01 12:00:45 UTC, for 45 s more."
        )
    ]


# -- a job that has ended


def ended(state: State, **changes: Any) -> JobSeen:
    return seen(**{"state": state, "attempts": 5, "finished_at": before(180), **changes})


def test_each_end_says_when_and_why() -> None:
    error = {"exception": "shop.errors.NoCustomer", "reason": "no such customer"}
    assert explain(ended(State.SUCCESSFUL)) == ["It has succeeded, 3 min ago, in attempt 5."]
    assert explain(ended(State.FAILED, error=error)) == [
        "It failed for good 3 min ago, after attempt 5 of 5: NoCustomer: no such customer.",
        "It runs again with retry().",
    ]
    assert explain(ended(State.CANCELLED, error={"reason": "superseded by #9"})) == [
        "It was cancelled 3 min ago: superseded by #9."
    ]


def test_a_key_that_another_job_holds_keeps_it_from_being_retried() -> None:
    last = "Job 9 holds its key now, so it can't be retried beside that one."
    assert explain(ended(State.FAILED, key_holder=9))[-1] == last
    assert explain(ended(State.CANCELLED, key_holder=9))[-1] == last


def test_a_row_that_is_gone_says_so() -> None:
    assert gone(7) == "Job 7 is no longer here: it was deleted, or its keeping was over."


# -- rows of the low level


def test_a_pushed_row_waits_for_a_consumer_and_needs_no_worker() -> None:
    assert explain(seen(name="", workers=(), is_known=False)) == [
        "It has been due for 3.0 s, and waits for a consumer: take('mail') gives it out when its turn has come."
    ]


def test_a_pushed_row_heeds_a_pause() -> None:
    assert explain(seen(name="", workers=(), pause=PauseSeen(since=before(60), by="", reason=""))) == [
        'Queue mail has been paused for 60 s. It goes on with queues["mail"].resume().'
    ]


def test_a_pushed_row_that_was_cancelled_may_still_be_in_a_consumers_hands() -> None:
    cancelled = running(name="", worker="take:mail", state=State.CANCELLED, finished_at=before(1))
    assert explain(cancelled) == [
        (
            "It was cancelled 1.0 s ago. A consumer may still be at it, and hears of that from its next word. "
            "It is leased until 2026-03-01 12:00:45 UTC, for 45 s more."
        )
    ]


def test_a_pushed_row_that_was_taken_or_is_dead_speaks_of_consumers() -> None:
    assert explain(running(name="", timeout=None)) == [
        "A consumer took it 2 min ago, in attempt 1.",
        "It is leased until 2026-03-01 12:00:45 UTC, for 45 s more.",
    ]
    assert explain(running(name="", timeout=None, lease_expires_at=before(30)))[1] == (
        "Its lease ran out 30 s ago, so the next take('mail') brings it back."
    )
    assert explain(ended(State.FAILED, name="", error={"reason": "bad payload"}))[0] == (
        "It died 3 min ago, after 5 attempts: bad payload."
    )
