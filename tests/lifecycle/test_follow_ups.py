"""A performer that hears of a job's failure is queued in the transaction that writes it, whoever does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from django_jobs import lifecycle, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Succeeded
from django_jobs.performers import AnyPerformer
from django_jobs.records import Failure
from django_jobs.stores import store_for
from tests.declaring import declared
from tests.factories import claim_one, failure, read, seconds, take
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db

DIED = Failure(kind="crash", reason="killed by signal 9")


@pytest.fixture
def tidy() -> Iterator[AnyPerformer]:
    def tidy(job_id: int) -> None: ...

    with declared(tidy, name="shop.tidy", queue="aside", priority=7) as performer:
        yield performer


@pytest.fixture
def act(tidy: AnyPerformer) -> Iterator[AnyPerformer]:
    def act() -> None: ...

    with declared(act, name="shop.act", on_failure=tidy, max_attempts=1, max_crashes=1) as performer:
        yield performer


def followed() -> list[Job]:
    return list(Job.objects.named("shop.tidy").order_by("pk"))


@pytest.mark.parametrize("outcome", [Failed(failure=failure()), GaveUp(failure=failure())])
def test_it_gets_the_id_of_the_job_that_failed(act: AnyPerformer, outcome: Outcome, heard: list[Heard]) -> None:
    act.later()
    claim = claim_one()
    heard.clear()
    settle(claim, outcome)
    [job] = followed()
    assert (job.args, job.queue, job.priority, job.state) == ([claim.id], "aside", 7, "READY")
    assert read(claim.id).state == "FAILED"


@pytest.mark.parametrize(
    "outcome", [Succeeded(), Cancelled(), Retried(failure=failure(), delay=seconds(5), patient=True)]
)
def test_any_other_end_is_not_followed(act: AnyPerformer, outcome: Outcome) -> None:
    act.using(max_attempts=2).later()
    settle(claim_one(), outcome)
    assert followed() == []


def test_a_retry_that_is_the_last_is(act: AnyPerformer) -> None:
    act.later()
    settle(claim_one(), Retried(failure=failure(), delay=seconds(5)))
    assert len(followed()) == 1


def test_each_arrival_in_failed_is_followed_once(act: AnyPerformer) -> None:
    job = act.later()
    for _ in range(2):
        claim = claim_one(queues=("default",))
        settle(claim, Failed(failure=failure()))
        settle(claim, Failed(failure=failure()))
        job.retry()
    assert [follower.args for follower in followed()] == [[job.pk], [job.pk]]


def test_every_way_to_queue_keeps_it(act: AnyPerformer) -> None:
    act.later()
    act.after(5).later()
    act.using(unique="k").later()
    act.later_many([()])
    lifecycle.enqueue_many([act.using(unique=key).prepare() for key in ("a", "b")], using="default")
    store = store_for("default")
    with transaction.atomic():
        store._insert_under(connection(), store.draw_ids(connection(), 1), [act.prepare()])
    assert list(Job.objects.values_list("on_failure", flat=True)) == ["shop.tidy"] * 7


class TestWhoeverWritesIt:
    def test_a_dead_worker(self, act: AnyPerformer) -> None:
        act.later()
        claim = claim_one()
        lifecycle.bury(connection(), "worker-1", running={claim.lease}, failure=DIED)
        assert read(claim.id).state == "FAILED"
        assert [job.args for job in followed()] == [[claim.id]]

    def test_a_lapsed_lease(self, act: AnyPerformer, frozen: FrozenClock) -> None:
        act.later()
        claim = claim_one()
        frozen.advance(seconds(61))
        lifecycle.reclaim(connection())
        assert read(claim.id).state == "FAILED"
        assert [job.args for job in followed()] == [[claim.id]]

    def test_a_supervisor_that_had_to_kill_its_body(self, act: AnyPerformer) -> None:
        act.later()
        claim = claim_one()
        lifecycle.bury(connection(), "worker-1", running=set(), timed_out={claim.lease}, failure=DIED)
        assert read(claim.id).state == "FAILED"
        assert [job.args for job in followed()] == [[claim.id]]

    def test_a_worker_that_stops_under_what_must_not_start_twice(self, tidy: AnyPerformer) -> None:
        def once() -> None: ...

        with declared(once, name="shop.once", on_failure=tidy, restart=False) as performer:
            performer.later()
            claim = claim_one()
            settle(claim, Released(started=True))
        assert (read(claim.id).state, read(claim.id).errors[-1]["kind"]) == ("FAILED", "interrupted")
        assert [job.args for job in followed()] == [[claim.id]]

    @pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
    def test_a_turn_in_the_thread_of_its_caller(self, tidy: AnyPerformer, atomic: bool) -> None:
        def fail() -> None:
            raise ValueError("no")

        with declared(fail, name="shop.fail", on_failure=tidy, max_attempts=1, atomic=atomic) as performer:
            job = performer.later()
            work_one("default")
        assert read(job.pk).state == "FAILED"
        assert [follower.args for follower in followed()] == [[job.pk]]

    def test_a_batch_that_goes_row_by_row_since_a_constraint_refuses_another(
        self, act: AnyPerformer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = store_for("default")
        right = store.settle

        def refuse(on: Any, changes: Any) -> Any:
            written = right(on, changes)
            if claims[1].lease in {change.lease for change in changes}:
                raise IntegrityError("somebody's row refers to it")
            return written

        act.later_many([()] * 3)
        claims = sorted(take().claims, key=lambda claim: claim.id)
        monkeypatch.setattr(store, "settle", refuse)
        lifecycle.settle(connection(), [(claim, Failed(failure=failure())) for claim in claims])
        assert [read(claim.id).state for claim in claims] == ["FAILED", "RUNNING", "FAILED"]
        assert [job.args for job in followed()] == [[claims[0].id], [claims[2].id]]


class TestWhatIsNoFailure:
    """Whoever cancels a job, and whatever it expires or gives way to, nobody is told that it has failed."""

    def test_a_job_that_expires(self, act: AnyPerformer, frozen: FrozenClock) -> None:
        jobs = [act.using(expires="1m").later() for _ in range(2)]
        frozen.advance(seconds(60))
        assert lifecycle.expire(connection(), limit=1) == 1
        assert take().expired == (jobs[1].pk,)
        assert [read(job.pk).state for job in jobs] == ["CANCELLED", "CANCELLED"]
        assert followed() == []

    def test_a_job_that_is_superseded(self, act: AnyPerformer) -> None:
        keyed = act.using(unique_while_waiting="k", max_attempts=3)
        job = keyed.later()
        claim = claim_one()
        keyed.later()
        settle(claim, Retried(failure=failure(), delay=seconds(5)))
        assert (read(job.pk).state, followed()) == ("CANCELLED", [])

    @pytest.mark.parametrize("runs", [False, True])
    def test_a_job_that_is_cancelled_by_hand(self, act: AnyPerformer, runs: bool) -> None:
        job = act.later()
        claims = [claim_one()] if runs else []
        job.cancel()
        for claim in claims:
            settle(claim, Failed(failure=failure()))
        assert (read(job.pk).state, read(job.pk).worker, followed()) == ("CANCELLED", None, [])


def test_a_name_alone_will_do_also_of_one_that_nobody_knows_here() -> None:
    def act() -> None: ...

    with declared(act, name="shop.act", on_failure="other.service", max_attempts=1) as performer:
        performer.later()
        claim = claim_one()
        settle(claim, Failed(failure=failure()))
    [job] = Job.objects.named("other.service")
    assert (job.args, job.queue) == ([claim.id], "default")


def test_one_that_cannot_be_queued_is_told_and_holds_nothing_up(heard: list[Heard]) -> None:
    def act() -> None: ...

    def takes_none() -> None: ...

    with (
        declared(takes_none, name="shop.takes_none"),
        declared(act, name="shop.act", on_failure="shop.takes_none", max_attempts=1) as performer,
    ):
        performer.later()
        claim = claim_one()
        heard.clear()
        settle(claim, Failed(failure=failure()))
    assert read(claim.id).state == "FAILED"
    assert words(heard) == ["odd", "job_finished"]
    message = f"job {claim.id} has failed, and shop.takes_none can't be queued to hear of it: "
    assert heard[0].said["message"].startswith(message)
    assert heard[0].said["level"] == logging.ERROR


@pytest.mark.parametrize("on_duplicate", ["return", "replace", "raise"])
def test_one_that_waits_already_holds_nothing_up_whatever_is_to_become_of_a_duplicate(on_duplicate: str) -> None:
    def act() -> None: ...

    def tidy(job_id: int) -> None: ...

    with (
        declared(tidy, name="shop.tidy", queue="aside", unique="k", on_duplicate=on_duplicate),
        declared(act, name="shop.act", on_failure="shop.tidy", max_attempts=1) as performer,
    ):
        for _ in range(2):
            performer.later()
            claim = claim_one(queues=("default",))
            assert settle(claim, Failed(failure=failure())) == []
            assert read(claim.id).state == "FAILED"
    assert len(followed()) == 1


@pytest.mark.django_db(transaction=True)
def test_both_are_written_or_none_on_a_connection_of_our_own(
    act: AnyPerformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    act.later()
    claim = claim_one()
    store = store_for("default")

    def breaks(*_: Any) -> list[int]:
        raise ConnectionError("the connection is closed")

    with monkeypatch.context() as patched:
        patched.setattr(store, "insert_many", breaks)
        with pytest.raises(ConnectionError):
            settle(claim, Failed(failure=failure()))
    assert connections["default"].get_autocommit()
    assert (read(claim.id).state, followed()) == ("RUNNING", [])
    assert settle(claim, Failed(failure=failure())) == []
    assert (read(claim.id).state, len(followed())) == ("FAILED", 1)


@pytest.mark.django_db(transaction=True)
def test_workers_hear_of_it_after_the_commit(
    act: AnyPerformer, monkeypatch: pytest.MonkeyPatch, heard: list[Heard]
) -> None:
    seen: list[tuple[list[str], int]] = []

    def note(on: Any, queues: Any) -> None:
        seen.append((list(queues), len(followed())))

    act.later()
    claim = claim_one()
    monkeypatch.setattr(store_for("default"), "notify", note)
    settle(claim, Failed(failure=failure()))
    assert (["aside"], 1) in seen
    assert [one.said["queue"] for one in heard if one.signal == "job_enqueued"][-1] == "aside"
