"""The low level, sentence by sentence: what is pushed and taken by hand, for consumers that are no performers."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.test import override_settings

from django_jobs import lifecycle, lowlevel, work_one
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import (
    ArgumentsTooLarge,
    JobRunning,
    JobsError,
    LeaseLost,
    UndecodableValue,
    UnencodableValue,
)
from django_jobs.lowlevel import Dead, Taken, ack, dead, extend, push, retry, stats, take
from django_jobs.models import Job, Queue
from django_jobs.testing import drain, enqueued_jobs
from django_jobs.worker.chores import duties
from tests.factories import NOON, claim_one, queue_job, read, seconds, write

pytestmark = pytest.mark.django_db


def taken(queue: str = "mail", **options: Any) -> Taken:
    """Take a row that is there."""
    found = take(queue, **options)
    assert found is not None
    return found


# -- push


def test_push_gives_the_id_of_a_row_without_a_name() -> None:
    row_id = push("mail", {"to": "ada@example.com"})
    job = read(row_id)
    assert (job.name, job.queue, job.state, job.args) == ("", "mail", "READY", [{"to": "ada@example.com"}])
    assert (job.attempts, job.max_attempts, job.keep, job.keep_failed, job.timeout) == (0, 20, None, None, None)


def test_push_is_in_the_callers_transaction() -> None:
    with transaction.atomic():
        push("mail", 1)
        transaction.set_rollback(True)
    assert stats() == {}


@pytest.mark.parametrize("delay", [90, 90.0, "1m30s", timedelta(seconds=90)])
def test_a_row_waits_for_its_delay(frozen: FrozenClock, delay: Any) -> None:
    push("mail", 1, delay)
    assert stats()["mail"] == {"ready": 0, "waiting": 1, "taken": 0, "dead": 0}
    frozen.advance(seconds(89))
    assert take("mail") is None
    frozen.advance(seconds(1))
    assert taken().run_at == NOON + seconds(90)


@pytest.mark.parametrize("delay", [-1, -0.5, "-5m", timedelta(seconds=-1), 0])
def test_a_negative_delay_counts_as_none(frozen: FrozenClock, delay: Any) -> None:
    push("mail", 1, delay=delay)
    claim = taken()
    assert claim.run_at == NOON
    assert retry(claim, delay=delay) == "ready"
    assert taken().run_at == NOON


@pytest.mark.parametrize("delay", [True, "soon", "-soon", None, float("nan"), timedelta(days=40_000)])
def test_what_is_no_delay_is_refused(delay: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="delay"):
        push("mail", 1, delay)
    assert not Job.objects.exists()


PAYLOADS = [
    None, 0, "", [], {}, "text", [1, [2, {"three": None}]], 1.5e300, -0.0, (1, "two"), {1, 2}, frozenset({3}),
    b"\x00\xff", Decimal("1.10"), UUID(int=5), date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC), timedelta(days=1),
    {"$tuple": [1]}, {"a": {"b": (Decimal("0.1"),)}},
]  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
def test_a_payload_comes_back_as_what_it_was(payload: Any) -> None:
    push("mail", payload)
    found = taken().payload
    assert (found, type(found), repr(found)) == (payload, type(payload), repr(payload))


def test_a_model_instance_is_fetched_fresh() -> None:
    user = User.objects.create(username="ada")
    push("mail", {"user": user})
    User.objects.update(username="grace")
    assert taken().payload["user"].username == "grace"


def test_a_payload_that_cannot_be_stored_is_refused_with_its_path() -> None:
    with pytest.raises(UnencodableValue, match=r"^payload\.lines\[1\]") as refused:
        push("mail", {"lines": [1, object()]})
    assert refused.value.path == "payload.lines[1]"
    with pytest.raises(UnencodableValue, match=r"^payload"):
        push("mail", float("nan"))
    assert not Job.objects.exists()


@override_settings(DJANGO_JOBS={"MAX_ARGS_BYTES": 20})
def test_a_payload_above_the_limit_is_refused() -> None:
    push("mail", "x" * 18)
    with pytest.raises(ArgumentsTooLarge):
        push("mail", "x" * 19)


@pytest.mark.parametrize("queue", ["", "no spaces", "x" * 101, None, 5])
def test_what_is_no_name_of_a_queue_is_refused(queue: Any) -> None:
    for call in (lambda: push(queue, 1), lambda: take(queue), lambda: dead(queue)):
        with pytest.raises((TypeError, ValueError), match="queue"):
            call()


@override_settings(DJANGO_JOBS={"QUEUES": {"default": {}, "mail": {}}})
def test_a_queue_that_the_settings_do_not_allow_is_refused() -> None:
    push("mail", 1)
    with pytest.raises(ValueError, match="'letters' is not in"):
        push("letters", 1)


# -- take


def test_a_claim_says_all_that_there_is_to_say(frozen: FrozenClock) -> None:
    row_id = push("mail", "hello", delay=5)
    frozen.advance(seconds(7))
    claim = take("mail", "30s")
    assert isinstance(claim, Taken)
    assert claim == Taken(
        id=row_id, queue="mail", payload="hello", attempts=1, max_attempts=20, error="", run_at=NOON + seconds(5),
        lease_expires_at=NOON + seconds(37), token=claim.token,
    )  # fmt: skip
    assert claim.token == read(row_id).token


def test_take_gives_none_where_nothing_is_due() -> None:
    assert take("mail") is None


def test_rows_come_by_their_time_and_then_in_the_order_they_were_pushed(frozen: FrozenClock) -> None:
    push("mail", "later", delay=10)
    for word in ("first", "second"):
        push("mail", word)
    frozen.advance(seconds(10))
    assert [taken().payload for _ in range(3)] == ["first", "second", "later"]


def test_a_lease_lasts_as_the_settings_say_where_nothing_is_said(frozen: FrozenClock) -> None:
    push("mail", 1)
    assert taken().lease_expires_at == NOON + seconds(60)


@pytest.mark.parametrize("lease", [0, -5, 0.2, "200ms", "-1h", timedelta(0)])
def test_a_lease_below_a_second_counts_as_a_second(frozen: FrozenClock, lease: Any) -> None:
    push("mail", 1)
    claim = taken(lease=lease)
    assert claim.lease_expires_at == NOON + seconds(1)
    assert extend(claim, lease).lease_expires_at == NOON + seconds(1)


def test_take_first_brings_back_rows_whose_lease_is_over_with_their_attempts_counted(frozen: FrozenClock) -> None:
    first = push("mail", "first")
    push("mail", "second")
    taken(lease=10)
    frozen.advance(seconds(10))
    again = taken()
    assert (again.id, again.attempts, again.error) == (first, 2, "the lease ran out while a consumer had this")
    assert taken().payload == "second"


def test_a_row_never_goes_dead_by_lapsing(frozen: FrozenClock) -> None:
    push("mail", 1)
    for attempt in range(1, 31):
        assert taken(lease=1).attempts == attempt
        frozen.advance(seconds(1))
    assert dead("mail") == []


def test_take_looks_at_leases_of_its_own_queue_only(frozen: FrozenClock) -> None:
    push("letters", 1)
    taken("letters", lease=1)
    frozen.advance(seconds(9))
    assert take("mail") is None
    assert stats()["letters"]["taken"] == 1
    assert taken("letters").attempts == 2


def test_take_honours_pause_for_rows_that_came_back_too(frozen: FrozenClock) -> None:
    push("mail", 1)
    taken(lease=1)
    push("mail", 2)
    Queue.objects.create(name="mail", paused_at=NOON)
    frozen.advance(seconds(1))
    assert take("mail") is None
    Queue.objects.all().delete()
    assert taken().payload == 1


# -- ack


def test_ack_says_that_the_row_is_gone() -> None:
    row_id = push("mail", 1)
    assert ack(taken()) is True
    assert not Job.objects.filter(pk=row_id).exists()


def test_ack_says_that_somebody_else_has_the_row(frozen: FrozenClock) -> None:
    push("mail", 1)
    late = taken(lease=1)
    frozen.advance(seconds(1))
    assert ack(taken()) is True
    assert ack(late) is False


def test_who_is_late_but_first_still_acks(frozen: FrozenClock) -> None:
    push("mail", 1)
    late = taken(lease=1)
    frozen.advance(timedelta(days=1))
    assert ack(late) is True


def test_ack_within_atomic_commits_work_and_ack_together() -> None:
    row_id = push("mail", 1)
    claim = taken()
    with transaction.atomic():
        User.objects.create(username="ada")
        assert ack(claim)
        transaction.set_rollback(True)
    assert (User.objects.count(), read(row_id).state) == (0, "RUNNING")
    with transaction.atomic():
        User.objects.create(username="ada")
        assert ack(claim)
    assert (User.objects.count(), Job.objects.count()) == (1, 0)


# -- retry


def test_retry_puts_the_row_back_with_what_went_wrong(frozen: FrozenClock) -> None:
    push("mail", 1)
    assert retry(taken(), "the server is away", "5m") == "ready"
    assert take("mail") is None
    frozen.advance(seconds(300))
    again = taken()
    assert (again.attempts, again.error, again.run_at) == (2, "the server is away", NOON + seconds(300))


def test_the_claim_tells_the_latest_reason() -> None:
    push("mail", 1)
    for reason in ("first", "second"):
        retry(taken(), reason)
    assert taken().error == "second"


def test_an_exception_is_kept_with_its_traceback() -> None:
    row_id = push("mail", 1)
    try:
        int("one")
    except ValueError as error:
        retry(taken(), error)
    [entry] = read(row_id).errors
    assert (entry["kind"], entry["exception"], entry["attempt"]) == ("error", "builtins.ValueError", 1)
    assert entry["reason"] == "invalid literal for int() with base 10: 'one'"
    assert "Traceback" in entry["traceback"]


def test_retry_says_when_a_row_is_dead(frozen: FrozenClock) -> None:
    row_id = push("mail", "hello")
    assert retry(taken(), "no", max_attempts=2) == "ready"
    assert retry(taken(), "no again", max_attempts=2) == "dead"
    assert take("mail") is None
    assert dead("mail") == [
        Dead(id=row_id, queue="mail", attempts=2, error="no again", run_at=NOON, died_at=NOON, args='["hello"]')
    ]
    assert dead("mail")[0].payload == "hello"


@override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 2})
def test_a_row_has_as_many_attempts_as_the_settings_say_where_nothing_is_said() -> None:
    push("mail", 1)
    assert [retry(taken()), retry(taken())] == ["ready", "dead"]


def test_how_many_attempts_were_said_last_counts_from_then_on() -> None:
    push("mail", 1)
    assert retry(taken(), max_attempts=2) == "ready"
    assert retry(taken()) == "dead"


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "3"])
def test_what_is_no_number_of_attempts_is_refused(most: Any) -> None:
    push("mail", 1)
    with pytest.raises((TypeError, ValueError), match="max_attempts"):
        retry(taken(), max_attempts=most)


def test_what_is_no_error_is_refused() -> None:
    push("mail", 1)
    with pytest.raises(TypeError, match="give a text or an exception"):
        retry(taken(), error=5)  # type: ignore[arg-type]  # what a caller may do all the same


def test_what_no_database_can_store_of_an_error_is_replaced() -> None:
    push("mail", 1)
    retry(taken(), "no\0t \ud800")
    assert taken().error == "no\N{REPLACEMENT CHARACTER}t ?"


# -- extend


def test_extend_gives_the_claim_with_its_later_end(frozen: FrozenClock) -> None:
    push("mail", 1)
    claim = taken(lease=10)
    frozen.advance(seconds(9))
    longer = extend(claim, "1m")
    assert longer.lease_expires_at == NOON + seconds(69)
    frozen.advance(seconds(59))
    assert take("mail") is None
    assert ack(longer)


def test_extend_holds_for_as_long_as_the_settings_say_where_nothing_is_said(frozen: FrozenClock) -> None:
    push("mail", 1)
    assert extend(taken(lease=1)).lease_expires_at == NOON + seconds(60)


@pytest.mark.parametrize("verb", [retry, extend])
def test_retry_and_extend_raise_once_the_lease_was_taken(frozen: FrozenClock, verb: Any) -> None:
    row_id = push("mail", 1)
    late = taken(lease=1)
    frozen.advance(seconds(1))
    held = taken()
    with pytest.raises(LeaseLost, match=rf"^row {row_id} was not") as lost:
        verb(late)
    assert (lost.value.row_id, isinstance(lost.value, JobsError)) == (row_id, True)
    assert read(row_id).token == held.token


@pytest.mark.parametrize("verb", [retry, extend])
def test_retry_and_extend_raise_where_the_row_is_gone(verb: Any) -> None:
    push("mail", 1)
    claim = taken()
    ack(claim)
    with pytest.raises(LeaseLost):
        verb(claim)


@pytest.mark.parametrize("verb", [retry, extend])
def test_retry_and_extend_hold_good_after_the_lease_as_long_as_nobody_took_the_row(
    frozen: FrozenClock, verb: Any
) -> None:
    push("mail", 1)
    late = taken(lease=1)
    frozen.advance(timedelta(days=1))
    verb(late)
    assert stats()["mail"]["dead"] == 0


# -- stats and dead


def test_stats_tells_all_four_of_each_queue() -> None:
    push("mail", 1)
    push("letters", 1, delay=60)
    assert stats() == {
        "letters": {"ready": 0, "waiting": 1, "taken": 0, "dead": 0},
        "mail": {"ready": 1, "waiting": 0, "taken": 0, "dead": 0},
    }
    assert list(stats()) == ["letters", "mail"]
    taken()
    assert stats()["mail"] == {"ready": 0, "waiting": 0, "taken": 1, "dead": 0}


def test_dead_rows_are_told_the_oldest_first_up_to_a_limit() -> None:
    ids = [push("mail", n) for n in range(3)]
    for claim in reversed([taken() for _ in ids]):
        retry(claim, max_attempts=1)
    assert [row.id for row in dead("mail")] == ids
    assert [row.payload for row in dead("mail", 2)] == [0, 1]
    assert dead("letters") == []


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_limit_outside_of_one_to_a_thousand_is_a_value_error(limit: int) -> None:
    with pytest.raises(ValueError, match="give a whole number from 1 to 1,000"):
        dead("mail", limit)


@pytest.mark.parametrize("limit", [1, 1_000])
def test_one_and_a_thousand_are_limits(limit: int) -> None:
    assert dead("mail", limit) == []


# -- payloads that can't be read any more


def test_a_payload_that_cannot_be_read_waits_and_holds_nothing_up(frozen: FrozenClock) -> None:
    unreadable = push("mail", 1)
    write(unreadable, args=[{"$enum": "gone.module.Colour:RED"}])
    push("mail", "next")
    assert taken().payload == "next"
    job = read(unreadable)
    assert (job.state, job.attempts, job.run_at) == ("READY", 1, NOON + seconds(15))
    assert (job.errors[-1]["kind"], "can't be read" in job.errors[-1]["reason"]) == ("misfit", True)
    frozen.advance(seconds(15))
    assert take("mail") is None
    assert read(unreadable).run_at == NOON + seconds(45)


def test_what_refers_to_a_row_that_is_gone_is_dead() -> None:
    user = User.objects.create(username="ada")
    row_id = push("mail", user)
    user.delete()
    assert take("mail") is None
    [row] = dead("mail")
    assert (row.id, "no longer exists" in row.error) == (row_id, True)
    with pytest.raises(UndecodableValue, match="no longer exists"):
        row.payload  # noqa: B018 - it is read when it is asked for


# -- beside jobs of performers


def test_workers_take_no_pushed_row_and_consumers_no_job() -> None:
    push("mail", 1)
    job_id = queue_job(queue="mail")
    assert claim_one(queues=("mail",)).id == job_id
    assert work_one("mail") is None
    queue_job(queue="letters")
    assert take("letters") is None


def test_pushed_rows_are_no_jobs_of_a_test() -> None:
    push("mail", 1)
    assert enqueued_jobs() == []
    assert drain().jobs == ()
    assert stats()["mail"]["ready"] == 1


def test_no_chore_touches_a_pushed_row(frozen: FrozenClock) -> None:
    push("mail", 1)
    for n in (2, 3, 4):
        push("mail", n)
    taken()
    cancelled, last = taken(), taken()
    retry(last, max_attempts=1)
    push("mail", 4)
    lifecycle.cancel([cancelled.id])
    frozen.advance(timedelta(days=1_000))
    before = list(Job.objects.order_by("pk").values())
    for duty in (*duties(), *duties()):
        duty.do(connections["default"])
    assert lifecycle.lapsed(connections["default"]) == set()
    assert lifecycle.reclaim(connections["default"]) == 0
    assert lifecycle.prune() == 0
    assert list(Job.objects.order_by("pk").values()) == before
    assert [row["state"] for row in before] == ["RUNNING", "CANCELLED", "FAILED", "READY", "READY"]


# -- by hand


def test_a_dead_row_that_is_retried_by_hand_has_an_attempt_more() -> None:
    row_id = push("mail", 1)
    retry(taken(), "no", max_attempts=1)
    read(row_id).retry()
    again = taken()
    assert (again.attempts, again.max_attempts, again.error) == (2, 2, "no")
    assert retry(again) == "dead"


def test_a_dead_row_that_is_deleted_is_gone() -> None:
    row_id = push("mail", 1)
    retry(taken(), max_attempts=1)
    read(row_id).delete()
    assert (dead("mail"), stats()) == ([], {})


def test_a_taken_row_is_not_deleted_nor_retried_by_hand() -> None:
    job = read(push("mail", 1))
    claim = taken()
    for verb in (job.delete, job.retry):
        with pytest.raises(JobRunning):
            verb()
    assert ack(claim)


def test_a_row_that_is_cancelled_while_it_waits_is_taken_no_more_and_stays(frozen: FrozenClock) -> None:
    row_id = push("mail", 1)
    read(row_id).cancel("not needed")
    assert take("mail") is None
    assert (read(row_id).state, read(row_id).prune_at, stats(), dead("mail")) == ("CANCELLED", None, {}, [])


@pytest.mark.parametrize("verb", [ack, retry, extend])
def test_who_has_a_row_that_was_cancelled_hears_of_it(verb: Any) -> None:
    job = read(push("mail", 1))
    claim = taken()
    until = read(job.pk).lease_expires_at
    job.cancel()
    if verb is ack:
        assert ack(claim) is False
    else:
        with pytest.raises(LeaseLost):
            verb(claim)
    job.refresh_from_db()
    # Who extends hasn't stopped yet; the others have.
    assert (job.state, job.worker) == ("CANCELLED", "take:mail" if verb is extend else None)
    assert job.lease_expires_at == (until if verb is extend else None)


def test_a_cancelled_row_that_its_consumer_forgot_is_let_go_by_the_next_take(frozen: FrozenClock) -> None:
    job = read(push("mail", 1))
    taken(lease=5)
    job.cancel()
    frozen.advance(seconds(5))
    assert take("mail") is None
    job.delete()
    assert not Job.objects.exists()


def test_a_row_that_is_rescheduled_waits_elsewhere() -> None:
    read(push("mail", 1)).reschedule(queue="letters", priority=3, max_attempts=1)
    assert take("mail") is None
    assert retry(taken("letters")) == "dead"


def test_a_copy_is_pushed_as_well() -> None:
    job = read(push("mail", {"n": (1, 2)}))
    retry(taken(), "no", max_attempts=1)
    copy = job.copy()
    claim = taken()
    assert (claim.id, claim.payload, claim.attempts, claim.error) == (copy.pk, {"n": (1, 2)}, 1, "")
    assert retry(claim, max_attempts=1) == "dead"
    assert (read(copy.pk).prune_at, len(dead("mail"))) == (None, 2)


def test_pages_show_them_as_pushed() -> None:
    assert str(read(push("mail", 7))) == f"(pushed) #{Job.objects.get().pk}"
    assert Job.objects.stored_names() == []
    assert Job.objects.counts()["mail"]["due"] == 1


# -- from async code


async def every_verb_from_async_code() -> list[Any]:
    """Go through a row's life, from a running event loop."""
    first, second = await lowlevel.apush("mail", "first"), await lowlevel.apush("mail", "second", 0)
    one, two = await lowlevel.atake("mail"), await lowlevel.atake("mail", "10s")
    assert one is not None
    assert two is not None
    two = await lowlevel.aextend(two, 30)
    said = [await lowlevel.aack(one), await lowlevel.aretry(two, "no", 0, 1), await lowlevel.astats()]
    said += [await lowlevel.atake("mail"), [row.id for row in await lowlevel.adead("mail")]]
    return [one.id == first, two.id == second, *said]


def test_each_verb_has_an_async_twin() -> None:
    said = async_to_sync(every_verb_from_async_code)()
    counts = {"mail": {"ready": 0, "waiting": 0, "taken": 0, "dead": 1}}
    assert said == [True, True, True, "dead", counts, None, [dead("mail")[0].id]]


def test_in_a_running_event_loop_each_verb_names_its_twin() -> None:
    push("mail", 1)
    claim = taken()
    calls = {
        "push": lambda: push("mail", 1), "take": lambda: take("mail"), "ack": lambda: ack(claim),
        "retry": lambda: retry(claim), "extend": lambda: extend(claim), "stats": stats, "dead": lambda: dead("mail"),
    }  # fmt: skip

    async def call(verb: str) -> None:
        with pytest.raises(SynchronousOnlyOperation, match=f"await a{verb}"):
            calls[verb]()

    for verb in calls:
        asyncio.run(call(verb))
    assert ack(claim)
