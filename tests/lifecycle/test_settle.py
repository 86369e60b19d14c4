from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.records import Claim, Lease
from django_jobs.stores import store_for
from django_jobs.transitions import Change, Place
from tests.factories import (
    claim_one,
    failure,
    locked,
    place_of,
    queue_job,
    queue_jobs,
    read,
    run_job,
    seconds,
    take,
    write,
)
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db


# -- settle


@pytest.mark.parametrize(
    ("outcome", "place"),
    [
        (Succeeded(result="1"), Place.SUCCESSFUL),
        (Failed(failure=failure()), Place.FAILED),
        (Retried(failure=failure(), delay=seconds(5)), Place.READY),
        (Snoozed(delay=seconds(5)), Place.READY),
        (Cancelled(), Place.CANCELLED),
        (Released(started=True), Place.READY),
    ],
)
def test_an_end_is_written_and_told(heard: list[Heard], outcome: Outcome, place: Place) -> None:
    claim = run_job()
    assert settle(claim, outcome) == []
    assert place_of(claim.id) is place
    [told] = heard
    assert (told.signal, told.sender) == ("job_finished", "shop.greet")
    assert (told.said["claim"], told.said["outcome"]) == (claim, outcome)
    assert told.said["change"].lease == claim.lease


def test_claims_that_have_not_started_are_released(heard: list[Heard]) -> None:
    queue_jobs(2, restart=False)
    claims = take().claims
    assert lifecycle.release(connection(), claims) == []
    assert [place_of(claim.id) for claim in claims] == [Place.READY, Place.READY]
    assert [one.said["outcome"] for one in heard] == [Released(started=False), Released(started=False)]


def test_settling_nothing_is_nothing(heard: list[Heard]) -> None:
    assert lifecycle.settle(connection(), []) == []
    assert heard == []


def test_the_same_run_twice_in_a_batch_is_written_and_told_once(heard: list[Heard]) -> None:
    claim = run_job()
    assert lifecycle.settle(connection(), [(claim, Succeeded()), (claim, Succeeded())]) == []
    assert words(heard) == ["job_finished"]


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(),
        Failed(failure=failure()),
        Cancelled(),
        Retried(failure=failure(), delay=seconds(5)),
        Snoozed(delay=seconds(5)),
        Released(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_end_whose_answer_was_lost_is_recognised_as_ours(heard: list[Heard], outcome: Outcome) -> None:
    claim = run_job()
    settle(claim, outcome)
    before = Job.objects.filter(pk=claim.id).values().get()
    assert settle(claim, outcome) == []
    assert words(heard) == ["job_finished", "job_finished"]
    assert Job.objects.filter(pk=claim.id).values().get() == before


def test_a_success_that_went_with_its_row_is_recognised_as_ours(heard: list[Heard]) -> None:
    claim = run_job(keep=0.0)
    settle(claim, Succeeded())
    assert settle(claim, Succeeded()) == []
    assert words(heard) == ["job_finished", "job_finished"]


def test_a_row_that_is_gone_and_should_have_stayed_was_lost(heard: list[Heard]) -> None:
    claim = run_job(keep=60.0)
    Job.objects.filter(pk=claim.id)._raw_delete("default")
    assert settle(claim, Succeeded()) == []
    assert heard == [Heard("job_lost", "shop.greet", {"claim": claim, "outcome": Succeeded()})]


def reclaimed(frozen: FrozenClock) -> Claim:
    """Give a claim whose job was taken away by its lapse."""
    claim = run_job()
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1
    return claim


def test_a_run_that_was_reclaimed_writes_nothing_and_is_told_as_lost(heard: list[Heard], frozen: FrozenClock) -> None:
    zombie = reclaimed(frozen)
    heard.clear()
    assert settle(zombie, Succeeded()) == []
    assert heard == [Heard("job_lost", "shop.greet", {"claim": zombie, "outcome": Succeeded()})]
    assert place_of(zombie.id) is Place.READY


@pytest.mark.parametrize(
    "outcome",
    [Retried(failure=failure(), delay=seconds(0)), Snoozed(delay=seconds(0)), Released(started=True), Released()],
)
def test_a_run_that_was_reclaimed_and_would_have_come_back_by_itself_is_told_as_lost(
    heard: list[Heard], frozen: FrozenClock, outcome: Outcome
) -> None:
    """The row waits under its token, as it would after its own end; but it was the reclaim that brought it there."""
    zombie = reclaimed(frozen)
    heard.clear()
    assert settle(zombie, outcome) == []
    assert words(heard) == ["job_lost"]


def test_a_run_that_another_claimed_meanwhile_writes_nothing(heard: list[Heard], frozen: FrozenClock) -> None:
    zombie = reclaimed(frozen)
    successor = claim_one(worker="worker-2", queues=("aside",))
    heard.clear()
    assert settle(zombie, Failed(failure=failure())) == []
    assert words(heard) == ["job_lost"]
    row = read(zombie.id)
    assert (row.state, row.worker, row.token) == ("RUNNING", "worker-2", successor.token)


def test_a_run_that_another_finished_meanwhile_writes_nothing(heard: list[Heard], frozen: FrozenClock) -> None:
    zombie = reclaimed(frozen)
    settle(claim_one(worker="worker-2", queues=("aside",)), Succeeded(result='"theirs"'))
    heard.clear()
    assert settle(zombie, Succeeded(result='"mine"')) == []
    assert words(heard) == ["job_lost"]
    row = read(zombie.id)
    assert (row.state, row.result, row.last_worker) == ("SUCCESSFUL", "theirs", "worker-2")


@pytest.mark.parametrize("outcome", [Succeeded(), Cancelled(), Failed(failure=failure())])
def test_a_run_cancelled_meanwhile_is_told_as_lost_and_let_go(heard: list[Heard], outcome: Outcome) -> None:
    claim = run_job()
    lifecycle.cancel([claim.id], reason="by hand")
    assert settle(claim, outcome) == []
    assert heard == [Heard("job_lost", "shop.greet", {"claim": claim, "outcome": outcome})]
    assert place_of(claim.id) is Place.CANCELLED
    assert [entry["reason"] for entry in read(claim.id).errors] == ["by hand"]


@pytest.mark.django_db(transaction=True)
def test_an_end_whose_row_is_locked_comes_back_to_be_written_later(heard: list[Heard]) -> None:
    if not connection().features.has_select_for_update_skip_locked:
        pytest.skip("this database locks whole files, not rows")
    first, second = run_job(), run_job()
    with locked(first.id):
        again = lifecycle.settle(connection(), [(first, Succeeded()), (second, Succeeded())])
    assert again == [(first, Succeeded())]
    assert [one.said["claim"].id for one in heard] == [second.id]
    assert lifecycle.settle(connection(), again) == []
    assert place_of(first.id) is Place.SUCCESSFUL


# -- nothing may hold a job back


def clash(claim: Claim) -> None:
    """Make the return of a running row to READY impossible."""
    write(claim.id, waiting_key="the only one")
    write(queue_job(), waiting_key="the only one")


def test_a_row_that_a_constraint_refuses_is_left_and_its_neighbours_are_settled(heard: list[Heard]) -> None:
    before, offender, after = run_job(), run_job(), run_job()
    clash(offender)
    outcome = Retried(failure=failure(), delay=seconds(5))
    assert lifecycle.settle(connection(), [(claim, outcome) for claim in (before, offender, after)]) == []
    assert [place_of(claim.id) for claim in (before, offender, after)] == [Place.READY, Place.RUNNING, Place.READY]
    assert sorted(words(heard)) == ["job_finished", "job_finished", "odd"]


def test_the_log_line_names_the_offender(heard: list[Heard]) -> None:
    offender = run_job()
    clash(offender)
    settle(offender, Snoozed(delay=seconds(5)))
    [odd] = heard
    assert (odd.signal, odd.said["level"]) == ("odd", logging.ERROR)
    assert odd.said["message"].startswith(f"the end of job {offender.id} can't be written and its row stays as it is: ")
    assert type(odd.said["exception"]).__name__ == "IntegrityError"


def test_other_ends_of_the_batch_are_told_once_each(heard: list[Heard]) -> None:
    succeeded, gone, failed, offender = run_job(), run_job(keep=0.0), run_job(), run_job()
    clash(offender)
    runs: list[tuple[Claim, Outcome]] = [
        (succeeded, Succeeded()),
        (gone, Succeeded()),
        (failed, Failed(failure=failure())),
        (offender, Snoozed(delay=seconds(5))),
    ]
    assert lifecycle.settle(connection(), runs) == []
    told = sorted(one.said["claim"].id for one in heard if one.signal == "job_finished")
    assert told == [succeeded.id, gone.id, failed.id]


@pytest.mark.django_db(transaction=True)
def test_the_same_holds_outside_a_transaction(heard: list[Heard]) -> None:
    succeeded, gone, offender = run_job(), run_job(keep=0.0), run_job()
    clash(offender)
    runs: list[tuple[Claim, Outcome]] = [
        (succeeded, Succeeded()),
        (gone, Succeeded()),
        (offender, Snoozed(delay=seconds(5))),
    ]
    assert lifecycle.settle(connection(), runs) == []
    told = sorted(one.said["claim"].id for one in heard if one.signal == "job_finished")
    assert told == [succeeded.id, gone.id]


def test_a_users_relation_that_forbids_the_delete_leaves_the_job_succeeded(heard: list[Heard]) -> None:
    related, free = run_job(keep=0.0), run_job(keep=0.0)
    with connection().cursor() as cursor:
        cursor.execute(f'create table note (job_id bigint not null references "{Job._meta.db_table}" (id))')
        cursor.execute("insert into note (job_id) values (%s)", [related.id])
    assert lifecycle.settle(connection(), [(related, Succeeded()), (free, Succeeded())]) == []
    assert [place_of(related.id), place_of(free.id)] == [Place.SUCCESSFUL, Place.ABSENT]
    assert words(heard) == ["job_finished", "job_finished"]


def test_a_job_that_something_refers_to_keeps_no_other_from_being_pruned(
    heard: list[Heard], frozen: FrozenClock
) -> None:
    related, free = run_job(keep=1.0), run_job(keep=1.0)
    assert lifecycle.settle(connection(), [(related, Succeeded()), (free, Succeeded())]) == []
    with connection().cursor() as cursor:
        cursor.execute(f'create table note (job_id bigint not null references "{Job._meta.db_table}" (id))')
        cursor.execute("insert into note (job_id) values (%s)", [related.id])
    frozen.advance(seconds(2))
    assert lifecycle.prune(connection()) == 1
    assert [place_of(related.id), place_of(free.id)] == [Place.SUCCESSFUL, Place.ABSENT]
    assert words(heard)[-2:] == ["odd", "jobs_pruned"]


def test_a_reclaimed_row_that_a_constraint_refuses_holds_no_other_up(
    heard: list[Heard], frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    offender, other = run_job(), run_job()
    store = store_for("default")
    write = store.reclaim

    def refuse(on: BaseDatabaseWrapper, changes: Sequence[Change]) -> set[Lease]:
        if any(change.lease == offender.lease for change in changes):
            raise IntegrityError("violates a constraint of somebody's")
        return write(on, changes)

    monkeypatch.setattr(store, "reclaim", refuse)
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 2
    assert [place_of(offender.id), place_of(other.id)] == [Place.RUNNING, Place.READY]
    assert words(heard) == ["odd", "jobs_reclaimed"]


class Breaks:
    """A connection's wrapper that lets some statements through, and breaks off before the next."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, execute: Any, *call: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OperationalError("the connection is closed")
        return execute(*call)


def test_what_was_written_is_told_once_though_reading_back_the_others_failed(heard: list[Heard]) -> None:
    good, cancelled = run_job(), run_job()
    lifecycle.cancel([cancelled.id])
    heard.clear()
    runs: list[tuple[Claim, Outcome]] = [(good, Succeeded()), (cancelled, Succeeded())]
    for statements in (1, 2):
        with connection().execute_wrapper(Breaks(statements)), pytest.raises(OperationalError):
            lifecycle.settle(connection(), runs)
        assert heard == []
    assert lifecycle.settle(connection(), runs) == []
    assert [(one.signal, one.said["claim"]) for one in heard] == [("job_finished", good), ("job_lost", cancelled)]


def test_a_row_that_is_gone_under_a_doubted_lease_was_somebody_elses(heard: list[Heard], frozen: FrozenClock) -> None:
    zombie = run_job(keep=0.0)
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    settle(claim_one(worker="worker-2", queues=("aside",)), Succeeded())
    assert place_of(zombie.id) is Place.ABSENT
    heard.clear()
    assert lifecycle.settle(connection(), [(zombie, Succeeded())], doubted=lambda: {zombie.lease}) == []
    assert words(heard) == ["job_lost"]


def test_a_row_that_waits_again_under_a_doubted_lease_was_taken_back_by_others(
    heard: list[Heard], frozen: FrozenClock
) -> None:
    zombie = reclaimed(frozen)
    lifecycle.retry([zombie.id])
    heard.clear()
    retried = Retried(failure=failure(), delay=seconds(5))
    assert lifecycle.settle(connection(), [(zombie, retried)], doubted=lambda: {zombie.lease}) == []
    assert words(heard) == ["job_lost"]


def test_a_success_under_a_doubted_lease_is_known_by_its_token(heard: list[Heard]) -> None:
    claim = run_job()
    settle(claim, Succeeded())
    heard.clear()
    assert lifecycle.settle(connection(), [(claim, Succeeded())], doubted=lambda: {claim.lease}) == []
    assert words(heard) == ["job_finished"]


@pytest.mark.django_db(transaction=True)
def test_a_cancelled_row_that_somebody_locks_is_let_go_later(heard: list[Heard]) -> None:
    if not connection().features.has_select_for_update_skip_locked:
        pytest.skip("this database locks whole files, not rows")
    claim = run_job()
    lifecycle.cancel([claim.id])
    heard.clear()
    with locked(claim.id):
        assert settle(claim, Succeeded()) == [(claim, Succeeded())]
    assert (place_of(claim.id), heard) == (Place.STOPPING, [])
    assert settle(claim, Succeeded()) == []
    assert (place_of(claim.id), words(heard)) == (Place.CANCELLED, ["job_lost"])
