"""A job that would wait again while another with its key waits is cancelled, and the other brought forward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.test import TestCase

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.lifecycle.keys import insert_keyed
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.performers import Enqueuer
from django_jobs.records import Claim, Failure, HeldRow
from django_jobs.stores import store_for
from django_jobs.transitions import Place
from tests.declaring import declared
from tests.factories import (
    NOON,
    another_connection,
    claim_one,
    failure,
    locked,
    place_of,
    queue_job,
    read,
    seconds,
    take,
)
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db

DIED = Failure(kind="crash", reason="killed by signal 9")


@pytest.fixture
def keyed() -> Iterator[Enqueuer[...]]:
    def act(number: int = 0) -> None: ...

    with declared(act, name="shop.act", max_attempts=5) as performer:
        yield performer.using(unique_while_waiting="k")


def run_and_queue(keyed: Enqueuer[...], after: float = 60.0) -> tuple[Claim, Job]:
    """Have one job run, and another with its key wait."""
    keyed.later(1)
    claim = claim_one()
    return claim, keyed.after(after).later(2)


@pytest.mark.parametrize(
    ("outcome", "moment", "before"),
    [
        (Retried(failure=failure(reason="no"), delay=seconds(5)), 5, "; before that: no"),
        (Retried(failure=failure(reason="no"), delay=seconds(500)), 60, "; before that: no"),
        (Snoozed(delay=seconds(7)), 7, ""),
        (Released(started=True), 0, ""),
        (Released(started=False), 0, ""),
    ],
)
def test_whatever_would_wait_again_is_superseded(
    keyed: Enqueuer[...], frozen: FrozenClock, outcome: Outcome, moment: float, before: str
) -> None:
    claim, rival = run_and_queue(keyed)
    assert settle(claim, outcome) == []
    row = read(claim.id)
    assert (row.state, row.worker, row.finished_at) == ("CANCELLED", None, NOON)
    assert row.prune_at == NOON + seconds(row.keep_failed or 0)
    assert (row.errors[-1]["kind"], row.errors[-1]["reason"]) == ("superseded", f"superseded by #{rival.pk}{before}")
    assert (read(rival.pk).state, read(rival.pk).run_at) == ("READY", NOON + seconds(moment))


def test_what_went_wrong_is_told_with_it(keyed: Enqueuer[...]) -> None:
    claim, _ = run_and_queue(keyed)
    broken = failure(reason="no such customer", exception="shop.Broken", traceback="Traceback …")
    settle(claim, Retried(failure=broken, delay=seconds(5)))
    [entry] = read(claim.id).errors
    assert (entry["exception"], entry["traceback"], entry["attempt"]) == ("shop.Broken", "Traceback …", 1)


@pytest.mark.parametrize(
    ("outcome", "place"),
    [
        (Succeeded(), Place.SUCCESSFUL),
        (Failed(failure=failure()), Place.FAILED),
        (GaveUp(failure=failure()), Place.FAILED),
        (Cancelled(), Place.CANCELLED),
    ],
)
def test_an_end_is_an_end(keyed: Enqueuer[...], frozen: FrozenClock, outcome: Outcome, place: Place) -> None:
    claim, rival = run_and_queue(keyed)
    settle(claim, outcome)
    assert [place_of(claim.id), place_of(rival.pk)] == [place, Place.READY]
    assert "superseded" not in [entry["kind"] for entry in read(claim.id).errors]
    assert read(rival.pk).run_at == NOON + seconds(60)


def test_without_another_it_waits_again(keyed: Enqueuer[...]) -> None:
    keyed.later()
    claim = claim_one()
    settle(claim, Snoozed(delay=seconds(5)))
    assert place_of(claim.id) is Place.READY


def test_it_is_told_as_cancelled(keyed: Enqueuer[...], heard: list[Heard]) -> None:
    claim, _ = run_and_queue(keyed)
    heard.clear()
    settle(claim, Snoozed(delay=seconds(5)))
    [told] = heard
    assert (told.signal, told.said["change"].state) == ("job_finished", "CANCELLED")


def test_of_several_in_one_batch_the_first_is_kept(keyed: Enqueuer[...], frozen: FrozenClock) -> None:
    claims = []
    for number in range(3):
        keyed.later(number)
        claims.append(claim_one())
    delays = (30, 10, 20)
    runs = [(claim, Snoozed(delay=seconds(delay))) for claim, delay in zip(claims, delays, strict=True)]
    assert lifecycle.settle(connection(), runs) == []
    assert [place_of(claim.id) for claim in claims] == [Place.READY, Place.CANCELLED, Place.CANCELLED]
    assert read(claims[0].id).run_at == NOON + seconds(10)
    assert read(claims[2].id).errors[-1]["reason"] == f"superseded by #{claims[0].id}"


@pytest.mark.parametrize("delays", [(30, 10), (10, 30)])
def test_one_that_several_give_way_to_is_brought_forward_to_the_earliest_time(
    keyed: Enqueuer[...], frozen: FrozenClock, delays: tuple[int, int]
) -> None:
    claims = []
    for number in range(2):
        keyed.later(number)
        claims.append(claim_one())
    rival = keyed.after(60).later(2)
    runs = [(claim, Snoozed(delay=seconds(delay))) for claim, delay in zip(claims, delays, strict=True)]
    assert lifecycle.settle(connection(), runs) == []
    assert [place_of(claim.id) for claim in claims] == [Place.CANCELLED, Place.CANCELLED]
    assert read(rival.pk).run_at == NOON + seconds(10)


def test_other_jobs_of_the_batch_are_written_as_ever(keyed: Enqueuer[...]) -> None:
    claim, _ = run_and_queue(keyed)
    others = []
    for key in ("other", None):
        keyed.using(unique_while_waiting=key).later()
        others.append(claim_one())
    runs: list[Any] = [(one, Snoozed(delay=seconds(5))) for one in (others[0], claim, others[1])]
    assert lifecycle.settle(connection(), runs) == []
    assert [place_of(one.id) for one in (others[0], claim, others[1])] == [
        Place.READY,
        Place.CANCELLED,
        Place.READY,
    ]


class TestBesideOneThatExpires:
    """Who has expired will never run, and so stands for nobody; one that has time left stands for both."""

    def test_after_its_time_nobody_is_superseded(
        self, keyed: Enqueuer[...], frozen: FrozenClock, heard: list[Heard]
    ) -> None:
        keyed.later(1)
        claim = claim_one()
        rival = keyed.using(expires=5).later(2)
        frozen.advance(seconds(5))
        heard.clear()
        with TestCase.captureOnCommitCallbacks(execute=True):
            assert settle(claim, Retried(failure=failure(reason="no"), delay=seconds(7))) == []
        row, other = read(claim.id), read(rival.pk)
        assert (row.state, row.run_at, row.errors[-1]["kind"]) == ("READY", NOON + seconds(12), "error")
        assert (other.state, other.errors[-1]["kind"]) == ("CANCELLED", "expired")
        assert keyed.later().pk == claim.id
        assert [one.said["ids"] for one in heard if one.signal == "jobs_expired"] == [(rival.pk,)]

    def test_however_many_others_have_expired_before_it(
        self, keyed: Enqueuer[...], frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django_jobs.lifecycle.keys.MOST_EXPIRED", 1)
        keyed.later(1)
        claim = claim_one()
        for number in range(3):
            queue_job(expires=seconds(number))
        rival = keyed.using(expires=5).later(2)
        frozen.advance(seconds(5))
        settle(claim, Snoozed(delay=seconds(7)))
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.READY, Place.CANCELLED]

    def test_nor_is_it_where_its_worker_has_died(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        keyed.later(1)
        claim = claim_one()
        rival = keyed.using(expires=5).later(2)
        frozen.advance(seconds(61))
        assert lifecycle.reclaim(connection()) == 1
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.READY, Place.CANCELLED]

    def test_a_moment_before_its_time_it_is(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        keyed.later(1)
        claim = claim_one()
        rival = keyed.using(expires=5).later(2)
        frozen.advance(seconds(4.999))
        settle(claim, Snoozed(delay=seconds(7)))
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.CANCELLED, Place.READY]


class TestTakenBack:
    def test_by_a_dead_worker(self, keyed: Enqueuer[...], frozen: FrozenClock, heard: list[Heard]) -> None:
        claim, rival = run_and_queue(keyed)
        heard.clear()
        lifecycle.bury(connection(), "worker-1", running={claim.lease}, failure=DIED)
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.CANCELLED, Place.READY]
        assert read(claim.id).errors[-1]["reason"] == f"superseded by #{rival.pk}; before that: {DIED.reason}"
        assert read(claim.id).crashes == 1
        assert read(rival.pk).run_at == NOON
        [told] = [one for one in heard if one.signal == "jobs_reclaimed"]
        assert [change.state for change in told.said["changes"]] == ["CANCELLED"]

    def test_by_its_lease(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        claim, rival = run_and_queue(keyed, after=600)
        frozen.advance(seconds(61))
        assert lifecycle.reclaim(connection()) == 1
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.CANCELLED, Place.READY]
        assert read(rival.pk).run_at == NOON + seconds(61)

    def test_not_before_its_lease_is_over(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        claim, _ = run_and_queue(keyed)
        assert lifecycle.reclaim(connection()) == 0
        assert place_of(claim.id) is Place.RUNNING

    def test_by_a_claim_without_answer(self, keyed: Enqueuer[...]) -> None:
        claim, rival = run_and_queue(keyed)
        lifecycle.disown(connection(), "worker-1", [claim.token])
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.CANCELLED, Place.READY]

    def test_several_of_one_key_at_once(self, keyed: Enqueuer[...]) -> None:
        for number in range(3):
            keyed.later(number)
            take()
        held = held_rows()
        lifecycle.bury(connection(), "worker-1", running={row.lease for row in held}, failure=DIED)
        assert [place_of(row.id) for row in held] == [Place.READY, Place.CANCELLED, Place.CANCELLED]


def held_rows() -> list[HeldRow]:

    return store_for("default").held_by(connections["default"], "worker-1")


@pytest.mark.django_db(transaction=True)
def test_an_end_waits_while_somebody_locks_the_other(keyed: Enqueuer[...]) -> None:
    if connection().vendor != "postgresql":
        pytest.skip("only a server locks rows")
    claim, rival = run_and_queue(keyed)
    run = (claim, Snoozed(delay=seconds(5)))
    with locked(rival.pk):
        assert lifecycle.settle(connection(), [run]) == [run]
        assert [place_of(claim.id), place_of(rival.pk)] == [Place.RUNNING, Place.READY]
    assert lifecycle.settle(connection(), [run]) == []
    assert [place_of(claim.id), place_of(rival.pk)] == [Place.CANCELLED, Place.READY]


@pytest.mark.django_db(transaction=True)
def test_nobody_waits_for_a_caller_that_has_queued_another(keyed: Enqueuer[...]) -> None:
    """That one isn't to be seen before the caller's commit, but the index knows of it."""
    if connection().vendor != "postgresql":
        pytest.skip("a caller that has written has the whole file")
    keyed.later(1)
    claim = claim_one()
    keyed.using(unique_while_waiting="other").later()
    other = claim_one()
    with another_connection() as caller:
        caller.set_autocommit(False)
        insert_keyed(caller, [keyed.prepare(2)])
        began = time.monotonic()
        runs = [(one, Snoozed(delay=seconds(5))) for one in (claim, other)]
        assert lifecycle.settle(connection(), runs) == runs[:1]
        assert [place_of(one.id) for one in (claim, other)] == [Place.RUNNING, Place.READY]
        assert time.monotonic() - began < 2
        caller.commit()
    assert lifecycle.settle(connection(), runs[:1]) == []
    assert place_of(claim.id) is Place.CANCELLED


def test_an_end_waits_while_the_other_runs_later_than_it_would(
    keyed: Enqueuer[...], frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have locked the other when it was to be brought forward, and no longer when this is cancelled."""
    claim, rival = run_and_queue(keyed)
    run = (claim, Snoozed(delay=seconds(5)))
    with monkeypatch.context() as patched:
        patched.setattr(store_for("default"), "forward", lambda *_: set())
        assert lifecycle.settle(connection(), [run]) == [run]
    assert [place_of(claim.id), place_of(rival.pk)] == [Place.RUNNING, Place.READY]
    assert lifecycle.settle(connection(), [run]) == []
    assert (place_of(claim.id), read(rival.pk).run_at) == (Place.CANCELLED, NOON + seconds(5))


def test_an_answer_that_was_lost_is_known_again(keyed: Enqueuer[...], heard: list[Heard]) -> None:
    claim, _ = run_and_queue(keyed)
    settle(claim, Snoozed(delay=seconds(5)))
    heard.clear()
    assert settle(claim, Snoozed(delay=seconds(5))) == []
    assert words(heard) == ["job_finished"]
