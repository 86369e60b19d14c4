"""One job per key: who gets it, who holds it, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import enqueue, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import DuplicateJob, JobRunning, JobSucceeded, KeyContended, KeyHeld
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Released, Retried, Snoozed, Succeeded
from django_jobs.performers import AnyPerformer, Enqueuer
from django_jobs.records import Inserted, Queued
from django_jobs.stores import store_for
from tests.factories import NOON, claim_one, failure, seconds
from tests.lifecycle.hearing import Heard, connection, settle, words

pytestmark = pytest.mark.django_db


def ids() -> list[int]:
    return sorted(Job.objects.values_list("pk", flat=True))


# -- one at a time


def test_who_asks_for_another_gets_the_one_that_waits(keyed: Enqueuer[...]) -> None:
    first = keyed.later(1)
    second = keyed.later(2)
    assert (first.duplicate, second.duplicate, second.replaced) == (False, True, False)
    assert (second.pk, second.args) == (first.pk, [1])
    assert ids() == [first.pk]


def test_other_keys_do_not_get_in_the_way(act: AnyPerformer) -> None:
    queued = [act.using(unique=key).later() for key in ("a", "b")]
    queued += [act.using(unique_while_waiting=key).later() for key in ("a", "b")]
    queued += [act.later(), act.later()]
    assert len({job.pk for job in queued}) == 6
    assert not any(job.duplicate for job in queued)


def test_what_comes_back_is_as_the_row(unique: Enqueuer[...], frozen: FrozenClock) -> None:
    job = unique.using(unique_for="1h").after(5).later(1)
    assert job.unique_until == NOON + timedelta(hours=1)
    row = Job.objects.get()
    assert {field.attname: getattr(job, field.attname) for field in Job._meta.fields} == {
        field.attname: getattr(row, field.attname) for field in Job._meta.fields
    }


def test_a_running_job_holds_a_unique_key(unique: Enqueuer[...]) -> None:
    first = unique.later()
    claim_one()
    second = unique.later()
    assert (second.pk, second.duplicate, second.state) == (first.pk, True, "RUNNING")


def test_a_running_job_holds_no_waiting_key(waiting: Enqueuer[...]) -> None:
    first = waiting.later()
    claim_one()
    second = waiting.later()
    assert (second.duplicate, waiting.later().pk) == (False, second.pk)
    assert ids() == [first.pk, second.pk]


def test_a_cancelled_job_holds_a_unique_key_until_its_body_has_stopped(unique: Enqueuer[...]) -> None:
    first = unique.later()
    claim = claim_one()
    first.cancel()
    assert unique.later().pk == first.pk
    settle(claim, Succeeded())
    assert unique.later().pk != first.pk


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=failure())])
def test_an_end_frees_the_key(unique: Enqueuer[...], outcome: Any) -> None:
    first = unique.later()
    settle(claim_one(), outcome)
    second = unique.later()
    assert (second.pk == first.pk, second.duplicate) == (False, False)


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_o64_a_verb_by_hand_frees_the_key(keyed: Enqueuer[...], verb: str) -> None:
    first = keyed.later()
    getattr(first, verb)()
    assert not keyed.later().duplicate


@pytest.mark.parametrize(
    "outcome", [Retried(failure=failure(), delay=seconds(5)), Snoozed(delay=seconds(5)), Released(started=True)]
)
def test_a_job_that_waits_again_has_kept_its_key(keyed: Enqueuer[...], outcome: Any) -> None:
    first = keyed.later()
    settle(claim_one(), outcome)
    assert keyed.later().pk == first.pk


def test_an_expired_job_holds_no_key(keyed: Enqueuer[...], frozen: FrozenClock) -> None:
    keyed.using(expires=5).later()
    frozen.advance(seconds(6))
    lifecycle.expire(connection())
    assert not keyed.later().duplicate


class TestExpiredHolder:
    """A job that has expired will never run; its key is free, though no worker has seen to it yet."""

    def test_its_key_is_free(self, keyed: Enqueuer[...], frozen: FrozenClock, heard: list[Heard]) -> None:
        first = keyed.using(expires=5).later(1)
        frozen.advance(seconds(5))
        heard.clear()
        second = keyed.later(2)
        assert (second.pk == first.pk, second.duplicate, second.args) == (False, False, [2])
        row = Job.objects.get(pk=first.pk)
        assert (row.state, row.errors[-1]["kind"], row.finished_at) == ("CANCELLED", "expired", NOON + seconds(5))
        assert [one.said["ids"] for one in heard if one.signal == "jobs_expired"] in ([], [(first.pk,)])

    def test_a_moment_before_it_is_not(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        first = keyed.using(expires=5).later()
        frozen.advance(seconds(4.999))
        assert keyed.later().pk == first.pk

    @pytest.mark.parametrize("on_duplicate", ["replace", "raise"])
    def test_whatever_is_to_become_of_a_duplicate(
        self, keyed: Enqueuer[...], frozen: FrozenClock, on_duplicate: Any
    ) -> None:
        keyed.using(expires=5).later(1)
        frozen.advance(seconds(6))
        second = keyed.using(on_duplicate=on_duplicate).later(2)
        assert (second.duplicate, second.replaced, second.args) == (False, False, [2])

    def test_a_bulk_call_frees_those_that_have_expired(self, act: AnyPerformer, frozen: FrozenClock) -> None:
        for performer in (act.using(unique=str), act.using(unique_while_waiting=str)):
            performer.using(expires=5).later(1)
            performer.using(expires=60).later(2)
            frozen.advance(seconds(6))
            assert [one.duplicate for one in performer.later_many([(1,), (2,), (3,)])] == [False, True, False]

    def test_it_is_held_for_as_long_as_was_said_all_the_same(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        first = unique.using(unique_for="1m", expires=5).later()
        frozen.advance(seconds(6))
        again = unique.later()
        assert (again.pk, again.state) == (first.pk, "CANCELLED")
        frozen.advance(seconds(60))
        assert not unique.later().duplicate

    def test_also_where_both_times_are_over(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        unique.using(unique_for=5, expires=5).later()
        frozen.advance(seconds(6))
        assert not unique.later().duplicate

    def test_a_running_one_holds_its_key(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        first = unique.using(expires=5).later()
        claim_one()
        frozen.advance(seconds(6))
        assert (unique.later().pk, Job.objects.get().state) == (first.pk, "RUNNING")

    def test_it_keeps_no_other_from_being_retried(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        first = keyed.later()
        settle(claim_one(), Failed(failure=failure()))
        second = keyed.using(expires=5).later()
        frozen.advance(seconds(6))
        first.retry()
        assert [Job.objects.get(pk=job.pk).state for job in (first, second)] == ["READY", "CANCELLED"]


# -- for a while


class TestUniqueFor:
    def test_a_key_is_held_so_long_though_its_job_has_ended(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        for_a_minute = unique.using(unique_for="1m")
        first = for_a_minute.later()
        settle(claim_one(), Succeeded())
        frozen.advance(seconds(59))
        again = for_a_minute.later()
        assert (again.pk, again.duplicate, again.state) == (first.pk, True, "SUCCESSFUL")
        frozen.advance(seconds(1))
        assert not for_a_minute.later().duplicate

    def test_and_longer_while_the_job_runs(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        first = unique.using(unique_for="1m").later()
        claim = claim_one()
        frozen.advance(seconds(120))
        assert unique.later().pk == first.pk
        settle(claim, Succeeded())
        assert not unique.later().duplicate

    def test_prune_waits_for_it(self, unique: Enqueuer[...], frozen: FrozenClock) -> None:
        first = unique.using(unique_for="1h", keep=1).later()
        settle(claim_one(), Succeeded())
        frozen.advance(seconds(60))
        assert lifecycle.prune(using="default") == 0
        frozen.advance(seconds(3600))
        assert lifecycle.prune(using="default") == 1
        assert not Job.objects.filter(pk=first.pk).exists()

    @pytest.mark.parametrize("options", [{"keep": 0}, {}], ids=["said", "by the settings"])
    @pytest.mark.parametrize("call", ["later", "later_many"])
    def test_a_job_that_is_not_kept_stays_for_as_long_as_its_key(
        self, unique: Enqueuer[...], frozen: FrozenClock, settings: Any, call: str, options: Any
    ) -> None:
        settings.DJANGO_JOBS = {"KEEP_SUCCESSFUL": 0}
        keyed = unique.using(unique_for="1h", **options)
        if call == "later":
            keyed.later()
        else:
            keyed.later_many([()])
        [first] = ids()
        settle(claim_one(), Succeeded())
        frozen.advance(seconds(3_599))
        assert (keyed.later().pk, lifecycle.prune(using="default")) == (first, 0)
        frozen.advance(seconds(1))
        assert (lifecycle.prune(using="default"), ids()) == (1, [])
        assert not keyed.later().duplicate

    def test_without_a_key_it_goes_as_it_succeeds(self, act: AnyPerformer) -> None:
        act.using(unique="a", keep=0).later()
        settle(claim_one(), Succeeded())
        assert ids() == []

    def test_a_bulk_call_frees_keys_whose_time_is_over(self, act: AnyPerformer, frozen: FrozenClock) -> None:
        performer = act.using(unique=str, unique_for="1m")
        performer.later_many([(1,), (2,)])
        for _ in range(2):
            settle(claim_one(), Succeeded())
        frozen.advance(seconds(30))
        assert [one.duplicate for one in performer.later_many([(1,), (2,), (3,)])] == [True, True, False]
        frozen.advance(seconds(30))
        assert [one.duplicate for one in performer.later_many([(1,), (2,), (3,)])] == [False, False, True]

    def test_one_whose_time_is_over_keeps_no_other_from_being_retried(
        self, unique: Enqueuer[...], frozen: FrozenClock
    ) -> None:
        first = unique.later()
        settle(claim_one(), Failed(failure=failure()))
        unique.using(unique_for="1m").later()
        settle(claim_one(), Succeeded())
        frozen.advance(seconds(59))
        with pytest.raises(KeyHeld):
            first.retry()
        frozen.advance(seconds(1))
        first.retry()
        assert unique.later().pk == first.pk


# -- what else a duplicate may come to


class TestReplace:
    def test_one_that_waits_gets_the_arguments_and_the_time(self, keyed: Enqueuer[...], frozen: FrozenClock) -> None:
        first = keyed.after(60).later(1)
        frozen.advance(seconds(10))
        second = keyed.using(on_duplicate="replace", expires=7).after(5).later(2, name="two")
        assert (second.pk, second.duplicate, second.replaced) == (first.pk, True, True)
        row = Job.objects.get()
        assert (row.args, row.kwargs, row.enqueued_at) == ([2], {"name": "two"}, NOON)
        assert (row.run_at, row.expires_at) == (NOON + seconds(15), NOON + seconds(22))
        assert (second.args, second.run_at) == (row.args, row.run_at)

    def test_a_burst_gathers_into_the_latest(self, waiting: Enqueuer[...], frozen: FrozenClock) -> None:
        for number in range(5):
            waiting.using(on_duplicate="replace").after(5).later(number)
            frozen.advance(seconds(1))
        job = Job.objects.get()
        assert (job.args, job.run_at) == ([4], NOON + seconds(9))

    def test_a_running_one_stays_as_it_is(self, unique: Enqueuer[...]) -> None:
        first = unique.later(1)
        claim_one()
        second = unique.using(on_duplicate="replace").later(2)
        assert (second.pk, second.duplicate, second.replaced, second.args) == (first.pk, True, False, [1])

    def test_workers_hear_of_it(self, keyed: Enqueuer[...], heard: list[Heard]) -> None:
        first = keyed.after(60).later(1)
        heard.clear()
        keyed.using(on_duplicate="replace").later(2)
        assert words(heard) in ([], ["job_enqueued"])
        assert all(one.said["job_id"] == first.pk for one in heard)


class TestRaise:
    def test_it_names_the_holder(self, keyed: Enqueuer[...]) -> None:
        first = keyed.later()
        with pytest.raises(
            DuplicateJob, match=f"^job {first.pk} holds the key of this job of shop.act, so it"
        ) as caught:
            keyed.using(on_duplicate="raise").later()
        assert caught.value.holder_id == first.pk
        assert ids() == [first.pk]

    def test_nothing_is_broken_by_it(self, keyed: Enqueuer[...]) -> None:
        with transaction.atomic():
            first = keyed.later()
            with pytest.raises(DuplicateJob):
                keyed.using(on_duplicate="raise").later()
            assert ids() == [first.pk]
        assert ids() == [first.pk]

    def test_a_bulk_call_queues_nothing_then(self, act: AnyPerformer) -> None:
        performer = act.using(unique=str, on_duplicate="raise")
        second = performer.later(2)
        with pytest.raises(DuplicateJob) as caught:
            performer.later_many([(1,), (2,), (3,)])
        assert caught.value.holder_id == second.pk
        assert ids() == [second.pk]


# -- many at a time


class TestBulk:
    def test_each_gets_its_answer_in_its_place(self, act: AnyPerformer) -> None:
        keyed = act.using(unique=lambda number: str(number % 10))
        before = keyed.later(3)
        queued = enqueue([act.prepare(0), *(keyed.prepare(number) for number in range(12)), act.prepare(1)])
        assert [one.duplicate for one in queued] == [False, *[n in (3, 10, 11) for n in range(12)], False]
        assert (queued[4].id, queued[11].id, queued[12].id) == (before.pk, queued[1].id, queued[2].id)
        assert ids() == sorted({one.id for one in queued})
        numbers = {job.pk: job.args[0] for job in Job.objects.all()}
        assert [numbers[one.id] for one in queued] == [0, *range(10), 0, 1, 1]

    def test_of_twins_the_last_that_replaces_wins(self, act: AnyPerformer) -> None:
        keyed = act.using(unique="k")
        queued = enqueue([keyed.prepare(1), keyed.using(on_duplicate="replace").prepare(2), keyed.prepare(3)])
        assert [(one.duplicate, one.replaced) for one in queued] == [(False, False), (True, True), (True, False)]
        assert len({one.id for one in queued}) == 1
        assert Job.objects.get().args == [2]

    def test_twins_that_raise_queue_nothing(self, act: AnyPerformer) -> None:
        keyed = act.using(unique="k", on_duplicate="raise")
        with pytest.raises(DuplicateJob):
            keyed.later_many([(1,), (2,)])
        assert ids() == []

    def test_many_with_keys_of_both_kinds(self, act: AnyPerformer) -> None:
        unique = act.using(unique=str)
        waiting = act.using(unique_while_waiting=str)
        jobs = [kind.prepare(number) for number in range(1_500) for kind in (unique, waiting)]
        first = enqueue(jobs)
        assert not any(one.duplicate for one in first)
        assert [one.id for one in first] == sorted(one.id for one in first)
        second = enqueue(list(reversed(jobs)))
        assert second == [Queued(one.id, duplicate=True) for one in reversed(first)]
        assert len(ids()) == 3_000


# -- holders that come and go


def test_a_key_whose_holder_is_gone_is_tried_again(unique: Enqueuer[...], monkeypatch: pytest.MonkeyPatch) -> None:
    first = unique.later()
    store = store_for("default")
    lock = store.lock_holders

    def lock_too_late(*args: Any, **kwargs: Any) -> dict[str, Inserted]:
        Job.objects.filter(pk=first.pk).delete()
        return lock(*args, **kwargs)

    monkeypatch.setattr(store, "lock_holders", lock_too_late)
    assert not unique.later().duplicate


def test_a_holder_that_waits_again_when_it_is_found_is_locked_first(
    keyed: Enqueuer[...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it might run before the change is committed for which it was asked for again."""
    first = keyed.later()
    store = store_for("default")
    lock = store.lock_holders
    answers: list[dict[str, Inserted]] = []

    def lock_while_it_runs(*args: Any, **kwargs: Any) -> dict[str, Inserted]:
        claims = [] if answers else [claim_one()]
        answers.append(lock(*args, **kwargs))
        for claim in claims:
            settle(claim, Released(started=False))
        return answers[-1]

    monkeypatch.setattr(store, "lock_holders", lock_while_it_runs)
    assert keyed.later().pk == first.pk
    assert [[holder.id for holder in answer.values()] for answer in answers] == [[], [first.pk]]


def test_after_three_tries_it_says_so(unique: Enqueuer[...], monkeypatch: pytest.MonkeyPatch) -> None:
    first = unique.later()
    store = store_for("default")
    tries: list[object] = []
    for verb in ("lock_holders", "find_busy"):
        monkeypatch.setattr(store, verb, lambda *_, **__: tries.append(None) or {})
    with pytest.raises(KeyContended, match=r"^whoever held the key of this job of shop.act was gone again 3 times"):
        unique.later()
    assert len(tries) == 6
    assert ids() == [first.pk]


# -- retry, reschedule and copy


class TestRetry:
    def test_one_whose_key_another_holds_stays_as_it_is(self, unique: Enqueuer[...]) -> None:
        first = unique.later()
        settle(claim_one(), Failed(failure=failure()))
        second = unique.later()
        claim_one()
        before = list(Job.objects.order_by("pk").values())
        with pytest.raises(KeyHeld, match=f"^key held by #{second.pk}, so job {first.pk} was not retried$") as caught:
            first.retry()
        assert (caught.value.job_id, caught.value.holder_id) == (first.pk, second.pk)
        moved = Job.objects.retry()
        assert (moved.ids, moved.skipped) == ((), {"key held": (first.pk,), "running": (second.pk,)})
        assert list(Job.objects.order_by("pk").values()) == before

    def test_a_waiting_key_is_held_by_one_that_waits(self, waiting: Enqueuer[...]) -> None:
        first = waiting.later()
        settle(claim_one(), Failed(failure=failure()))
        second = waiting.later()
        with pytest.raises(KeyHeld):
            first.retry()
        claim_one()
        first.retry()
        assert waiting.later().pk == first.pk
        assert second.pk != first.pk

    def test_one_that_runs_is_refused_as_running_though_another_has_its_key(self, waiting: Enqueuer[...]) -> None:
        first = waiting.later()
        claim = claim_one()
        waiting.later()
        with pytest.raises(JobRunning, match=f"^job {first.pk} is running now, so it was not retried$"):
            first.retry()
        settle(claim, Succeeded())
        with pytest.raises(JobSucceeded, match=f"^job {first.pk} has succeeded, so it was not retried$"):
            first.retry()

    def test_of_several_with_one_key_the_oldest_is_moved(self, keyed: Enqueuer[...]) -> None:
        failed = []
        for _ in range(3):
            failed.append(keyed.later().pk)
            settle(claim_one(), Failed(failure=failure()))
        moved = Job.objects.failed().retry()
        assert (moved.ids, moved.skipped) == ((failed[0],), {"key held": tuple(failed[1:])})

    def test_a_job_that_waits_is_not_in_its_own_way(self, keyed: Enqueuer[...]) -> None:
        job = keyed.after(60).later()
        job.retry()
        assert job.is_due


def test_a_copy_has_the_key_too(keyed: Enqueuer[...]) -> None:
    job = keyed.later(5, name="x")
    with pytest.raises(DuplicateJob):
        job.copy()
    job.cancel()
    copy = job.copy()
    assert (copy.args, copy.kwargs, copy.state, copy.pk == job.pk) == ([5], {"name": "x"}, "READY", False)
    assert keyed.later().pk == copy.pk


def test_a_copy_holds_the_key_for_as_long_as_the_first(unique: Enqueuer[...], frozen: FrozenClock) -> None:
    job = unique.using(unique_for="1h").later()
    settle(claim_one(), Succeeded())
    frozen.advance(seconds(3_600))
    copy = Job.objects.get(pk=job.pk).copy()
    assert copy.unique_until == NOON + timedelta(hours=2)


def test_connections_are_left_as_they_were(keyed: Enqueuer[...]) -> None:
    keyed.later()
    keyed.later()
    assert connections["default"].is_usable()
