"""A job past its `expires_at` is never run: whoever sees it first ends it, and nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import lifecycle, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Released, Retried, Snoozed
from django_jobs.performers import AnyPerformer
from tests.declaring import declared
from tests.factories import NOON, claim_one, failure, read, seconds, take
from tests.lifecycle.hearing import connection, settle
from tests.racing import at_once

HANDS = 8

ran: list[int] = []


@pytest.fixture
def act() -> Iterator[AnyPerformer]:
    def act(number: int = 0) -> None:
        ran.append(number)

    ran.clear()
    with declared(act, name="shop.act", max_attempts=3) as performer:
        yield performer


def seen_by_a_claim() -> None:
    assert take().claims == ()


def seen_by_the_chore() -> None:
    assert lifecycle.expire(connection()) == 1


def seen_by_a_turn() -> None:
    assert work_one() is None


@pytest.mark.django_db
@pytest.mark.parametrize("seen", [seen_by_a_claim, seen_by_the_chore, seen_by_a_turn], ids=lambda seen: seen.__name__)
def test_whoever_sees_it_first_cancels_it_as_expired(act: AnyPerformer, frozen: FrozenClock, seen: Any) -> None:
    job = act.using(expires="1m", keep="1d").later()
    frozen.advance(seconds(60))
    seen()
    row = read(job.pk)
    [entry] = row.errors
    assert (row.state, entry["kind"], entry["reason"]) == ("CANCELLED", "expired", "expired before it could start")
    assert (row.attempts, row.worker, row.token, row.started_at) == (0, None, None, None)
    assert (row.finished_at, row.prune_at) == (NOON + seconds(60), NOON + seconds(60) + timedelta(days=14))
    seen_by_a_claim()
    assert lifecycle.expire(connection()) == 0
    assert (len(read(job.pk).errors), ran) == (1, [])


@pytest.mark.django_db
@pytest.mark.parametrize(
    "outcome", [Retried(failure=failure(), delay=seconds(5)), Snoozed(delay=seconds(5)), Released(started=True)]
)
def test_what_comes_back_after_its_time_starts_no_more(act: AnyPerformer, frozen: FrozenClock, outcome: Any) -> None:
    job = act.using(expires="1m").later()
    claim = claim_one()
    frozen.advance(seconds(60))
    assert lifecycle.expire(connection()) == 0
    settle(claim, outcome)
    frozen.advance(seconds(5))
    assert take().claims == ()
    assert (read(job.pk).state, read(job.pk).errors[-1]["kind"]) == ("CANCELLED", "expired")


@pytest.mark.django_db(transaction=True)
def test_however_many_look_at_once_each_expired_job_is_ended_once_and_none_is_run(act: AnyPerformer) -> None:
    """Workers claim, the chores of others expire, and callers ask for the keys of some."""
    jobs = [act.prepare(0), *(act.using(unique=str(number)).prepare(0) for number in range(40))]
    queued = [one.id for one in lifecycle.enqueue_many(jobs, using="default")]
    late, fresh = queued[::2], queued[1::2]
    Job.objects.filter(pk__in=late).update(expires_at=NOON)

    def look(number: int) -> tuple[list[int], int]:
        claimed, ended = [], 0
        for turn in range(60):
            if number % 4 == 0:
                ended += lifecycle.expire(connection(), limit=2)
            elif number % 4 == 1:
                act.using(unique=str((turn + number) % 40)).later(1)
            else:
                taken = take(worker=f"worker-{number}", limit=2)
                claimed += [claim.id for claim in taken.claims]
                ended += len(taken.expired)
        return claimed, ended

    looked = at_once(HANDS, look)
    # Each of them passes over what others lock, so the last of all may be left.
    lifecycle.expire(connection())
    claimed = [job_id for ids, _ in looked for job_id in ids]
    assert len(claimed) == len(set(claimed))
    assert set(claimed).isdisjoint(late)
    # Those that callers have queued since are not meant.
    assert {job_id for job_id in claimed if job_id in queued} <= set(fresh)
    rows = Job.objects.filter(pk__in=late)
    assert {row.state for row in rows} == {"CANCELLED"}
    assert {tuple(entry["kind"] for entry in row.errors) for row in rows} == {("expired",)}
    assert {(row.attempts, row.worker) for row in rows} == {(0, None)}
    # What callers have met was ended by them.
    assert sum(ended for _, ended in looked) <= len(late)
