from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.states import State
from django_jobs.transitions import Place
from tests.factories import (
    claim_one,
    place_of,
    queue_jobs,
    read,
    run_job,
    seconds,
    take,
)
from tests.lifecycle.hearing import Heard, connection, ended, words

pytestmark = pytest.mark.django_db


# -- chores


def test_a_lapsed_job_is_taken_back_and_told(heard: list[Heard], frozen: FrozenClock) -> None:
    claim = run_job()
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1
    row = read(claim.id)
    assert (row.state, row.attempts, row.crashes) == ("READY", 1, 1)
    reason = "the lease of worker worker-1 ran out, or the deadline passed, while this ran"
    assert [(entry["kind"], entry["reason"]) for entry in row.errors] == [("lapse", reason)]
    [told] = heard
    assert (told.signal, told.said["let_go"]) == ("jobs_reclaimed", [])
    assert [(change.lease, change.state) for change in told.said["changes"]] == [(claim.lease, State.READY)]


def test_where_nothing_lapsed_nothing_is_told(heard: list[Heard]) -> None:
    run_job()
    assert lifecycle.reclaim(connection()) == 0
    assert heard == []


def test_two_jobs_that_lapse_under_one_worker_are_not_counted_as_attempts(frozen: FrozenClock) -> None:
    queue_jobs(2)
    claims = take(worker="worker-1").claims
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 2
    rows = [read(claim.id) for claim in claims]
    assert [(row.state, row.attempts, row.crashes) for row in rows] == [("READY", 0, 1), ("READY", 0, 1)]


def test_jobs_that_lapse_under_different_workers_are_counted(frozen: FrozenClock) -> None:
    queue_jobs(2)
    claims = [claim_one(worker="worker-1"), claim_one(worker="worker-2")]
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    assert [read(claim.id).attempts for claim in claims] == [1, 1]


def test_a_cancelled_neighbour_is_as_suspect_and_makes_a_lapse_a_shared_one(frozen: FrozenClock) -> None:
    queue_jobs(2)
    running, stopping = take().claims
    lifecycle.cancel([stopping.id])
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 2
    assert (read(running.id).attempts, read(running.id).crashes) == (0, 1)


def test_a_cancelled_job_whose_holder_is_gone_is_let_go_and_told(heard: list[Heard], frozen: FrozenClock) -> None:
    claim = run_job()
    lifecycle.cancel([claim.id])
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1
    assert place_of(claim.id) is Place.CANCELLED
    assert heard == [
        Heard(
            "jobs_reclaimed", None, {"changes": [], "let_go": [claim.id], "because": "their lease or deadline was over"}
        )
    ]


def test_a_poison_job_ends_within_its_attempts_and_its_neighbours_live(frozen: FrozenClock) -> None:
    poison, *neighbours = queue_jobs(3, max_attempts=20)
    for _ in range(12):
        frozen.advance(timedelta(hours=1))
        claims = take().claims
        if any(claim.id == poison for claim in claims):
            frozen.advance(seconds(61))
            lifecycle.reclaim(connection())
        else:
            lifecycle.settle(connection(), [(claim, Succeeded()) for claim in claims])
    row = read(poison)
    assert (row.state, row.crashes, row.attempts) == ("FAILED", 3, 1)
    assert [place_of(job_id) for job_id in neighbours] == [Place.SUCCESSFUL, Place.SUCCESSFUL]
    assert [read(job_id).attempts for job_id in neighbours] == [1, 1]


def test_jobs_past_their_time_expire_and_are_told(heard: list[Heard], frozen: FrozenClock) -> None:
    ids = queue_jobs(2, expires=seconds(1))
    frozen.advance(seconds(1))
    assert lifecycle.expire(connection()) == 2
    assert heard == [Heard("jobs_expired", None, {"ids": tuple(ids)})]
    assert lifecycle.expire(connection()) == 0
    assert words(heard) == ["jobs_expired"]


def test_prune_goes_on_until_nothing_is_left_and_tells(heard: list[Heard], frozen: FrozenClock) -> None:
    ended(5)
    heard.clear()
    frozen.advance(seconds(1))
    assert lifecycle.prune(connection(), limit=2) == 5
    assert heard == [Heard("jobs_pruned", None, {"count": 5})]
    assert Job.objects.count() == 0


def test_prune_of_nothing_tells_nothing(heard: list[Heard]) -> None:
    assert lifecycle.prune(connection()) == 0
    assert heard == []
