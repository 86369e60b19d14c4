"""What is said of workers and queues, by what was seen of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs.records import WorkerSeen
from django_jobs.vitals import Limits, QueueSeen, Trouble, problems, trouble_of


def seen(identity: str = "web1:7:ab", **changes: Any) -> WorkerSeen:
    defaults: dict[str, Any] = {
        "host": "web1",
        "pid": 7,
        "queues": (),
        "slots": 4,
        "age": 3_600.0,
        "beat_age": 5.0,
        "claim_age": 8.0,
        "in_hand": 0,
    }
    return WorkerSeen(identity=identity, **{**defaults, **changes})


@pytest.mark.parametrize(
    ("beat_age", "claim_age", "trouble"),
    [
        (0.0, 0.0, None),
        (30.0, 45.0, None),
        (30.1, 45.0, Trouble.SILENT),
        (30.0, 45.1, Trouble.CLAIMLESS),
        (30.1, 45.1, Trouble.SILENT),
    ],
)
def test_a_worker_is_judged_by_its_beat_and_by_its_claims(
    beat_age: float, claim_age: float, trouble: Trouble | None
) -> None:
    assert trouble_of(beat_age=beat_age, claim_age=claim_age, beat_bound=30.0, claim_bound=45.0) is trouble


def test_where_all_is_well_there_is_nothing_to_say() -> None:
    assert problems([seen()], [QueueSeen(name="mail", oldest=30.0)]) == []


def test_too_few_workers_are_a_problem() -> None:
    assert problems([]) == ["no worker is alive, and 1 should be: python manage.py runjobs"]
    assert problems([seen()], limits=Limits(min_workers=2)) == [
        "1 worker is alive, and 2 should be: python manage.py runjobs"
    ]
    assert problems([seen("a"), seen("b")], limits=Limits(min_workers=3)) == [
        "2 workers are alive, and 3 should be: python manage.py runjobs"
    ]
    assert problems([], limits=Limits(min_workers=0)) == []


def test_o07_a_worker_that_beats_but_claims_nothing_is_a_problem() -> None:
    assert problems([seen(claim_age=180.0)]) == ["worker web1:7:ab beats but claims nothing, for 3 min"]


def test_a_worker_that_never_claimed_has_until_the_bound_since_its_start() -> None:
    assert problems([seen(claim_age=None, age=65.0)]) == []
    assert problems([seen(claim_age=None, age=70.0)]) == ["worker web1:7:ab beats but claims nothing, for 70 s"]


def test_the_age_of_a_claim_counts_as_of_the_beat_that_told_of_it() -> None:
    """Nobody knows what was claimed since."""
    assert problems([seen(beat_age=50.0, claim_age=105.0)]) == []


def test_one_that_is_gone_is_no_problem_while_others_are_there_and_it_holds_nothing() -> None:
    gone = seen("gone", beat_age=61.0)
    assert problems([gone, seen("there")]) == []
    assert problems([gone]) == ["no worker is alive, and 1 should be: python manage.py runjobs"]
    holds = seen("gone", beat_age=600.0, in_hand=3)
    assert problems([holds, seen("there")]) == ["worker gone hasn't beaten for 10 min and holds 3 jobs"]


def test_jobs_that_wait_too_long_or_that_nobody_serves_are_a_problem() -> None:
    mail = seen(queues=("mail",))
    assert problems([mail], [QueueSeen(name="mail", oldest=301.0)]) == [
        "a job in queue mail has waited for 5 min, longer than 5 min"
    ]
    assert problems([mail], [QueueSeen(name="mail", oldest=9_000.0)], limits=Limits(max_wait=None)) == []
    assert problems([mail], [QueueSeen(name="reports", oldest=1.0)]) == [
        "queue reports has jobs due, and no live worker serves it: runjobs -q reports"
    ]
    assert problems([mail], [QueueSeen(name="reports", oldest=9_000.0, is_paused=True)]) == []


def test_a_queue_that_only_one_who_is_gone_served_is_served_by_nobody() -> None:
    workers = [seen("gone", queues=("reports",), beat_age=90.0), seen("there", queues=("mail",))]
    assert len(problems(workers, [QueueSeen(name="reports", oldest=1.0)])) == 1


def test_too_many_failures_are_a_problem_where_a_limit_is_given() -> None:
    assert problems([seen()], failed=1_000) == []
    limits = Limits(max_failed=100)
    assert problems([seen()], failed=100, limits=limits) == []
    assert problems([seen()], failed=101, limits=limits) == ["101 jobs failed for good, more than 100"]


def test_bounds_may_be_wider() -> None:
    limits = Limits(beat_bound=timedelta(minutes=5), claim_bound=timedelta(hours=2))
    assert problems([seen(beat_age=200.0, claim_age=3_700.0)], limits=limits) == []
