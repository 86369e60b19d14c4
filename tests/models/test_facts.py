"""What `explain()` reads: the row as it stands now, its queue, the workers, and the jobs before it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from django_jobs import lifecycle, queues, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Failed
from django_jobs.records import WorkerLife
from tests.declaring import declared
from tests.factories import failure, new_job, queue_job, queue_jobs, read, run_job, seconds, write

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def act() -> None: ...


def beat(*queues: str, slots: int = 4) -> None:
    life = WorkerLife(
        identity="web1:41:a", host="web1", pid=41, queues=queues, slots=slots, versions={}, age=600.0, claim_age=1.0
    )
    lifecycle.beat(connections["default"], [life])


def reasons(job_id: int) -> list[str]:
    return read(job_id).explain().splitlines()


def test_it_reads_the_row_anew_and_leaves_the_instance() -> None:
    job = read(run_job().id)
    write(job.pk, state="FAILED", worker=None, finished_at=job.started_at, errors=[{"reason": "no such customer"}])
    assert job.explain().splitlines() == [
        "It failed for good 0.0 s ago, after attempt 1 of 3: no such customer.",
        "It runs again with retry().",
    ]
    assert job.state == "RUNNING"


def test_it_knows_the_workers_and_what_they_have_in_hand() -> None:
    with declared(act, name="shop.greet"):
        job_id = queue_job()
        assert reasons(job_id) == ["No worker is alive. Start one: python manage.py runjobs"]
        beat()
        run_job()
        Job.objects.running().update(worker="web1:41:a")
        assert reasons(job_id) == [
            (
                "It has been due for 0.0 s. Nothing is in its way: the workers that serve queue default have 1 job in "
                "hand and 4 slots, and one of them claims it as soon as it looks."
            )
        ]


def test_it_knows_whether_the_queue_is_paused_and_whether_the_name_is_known(frozen: FrozenClock) -> None:
    beat()
    job_id = queue_job()
    queues["default"].pause("the server moves", by="ann")
    frozen.advance(seconds(20))
    paused, unknown = reasons(job_id)
    assert paused.startswith("Queue default has been paused for 20 s by ann: the server moves.")
    assert unknown.startswith("No performer is named shop.greet in this process.")
    queues["default"].resume()
    assert "paused" not in read(job_id).explain()


def test_it_knows_who_holds_the_key_of_a_job_that_has_ended() -> None:
    with declared(act, name="shop.act") as performer:
        first = performer.using(unique="k").later()
        first.cancel()
        second = performer.using(unique="k").later()
    assert reasons(first.pk)[-1] == f"Job {second.pk} holds its key now, so it can't be retried beside that one."


def test_a_job_that_waits_for_its_time_says_when(frozen: FrozenClock) -> None:
    beat()
    with declared(act, name="shop.greet"):
        job_id = queue_job(delay=seconds(60))
        assert reasons(job_id) == ["It is not due: it may start in 60 s, at 2026-03-01 12:01:00 UTC."]
        claim = run_job()
        lifecycle.settle(connections["default"], [(claim, Failed(failure=failure()))])
        assert (
            reasons(claim.id)[0] == "It failed for good 0.0 s ago, after attempt 1 of 3: ValueError: no such customer."
        )


def test_a_row_that_is_gone_says_so() -> None:
    job = read(queue_job())
    lifecycle.delete([job.pk])
    assert job.explain() == f"Job {job.pk} is no longer here: it was deleted, or its keeping was over."


def test_a_job_that_is_not_queued_yet_is_not_called_deleted() -> None:
    assert Job(name="shop.greet").explain().startswith("It isn't queued yet")


def test_errors_that_somebody_wrote_over_harm_nothing() -> None:
    for errors in ({}, [], [5], "text", None):
        job_id = run_job().id
        write(job_id, state="FAILED", worker=None, finished_at=read(job_id).started_at, errors=errors or [])
        assert reasons(job_id)[0] == "It failed for good 0.0 s ago, after attempt 1 of 3."


def test_async_code_has_the_same_word() -> None:
    job = read(queue_job())
    assert async_to_sync(job.aexplain)() == job.explain()


@pytest.mark.parametrize("state", ["READY", "RUNNING", "FAILED"])
def test_it_takes_a_handful_of_statements(state: str, django_assert_max_num_queries: Any) -> None:
    job = read(queue_job() if state == "READY" else run_job().id)
    if state == "FAILED":
        write(job.pk, state="FAILED", worker=None, finished_at=job.started_at)
    with django_assert_max_num_queries(4):
        job.explain()


# -- how many come before it


def ahead(job_id: int, *, limit: int = 1_000) -> int:
    job = read(job_id)
    return lifecycle.ahead(job_id, queue=job.queue, priority=job.priority, run_at=job.run_at, limit=limit)


def test_jobs_that_were_due_earlier_or_are_older_come_before(frozen: FrozenClock) -> None:
    older = queue_jobs(2)
    frozen.advance(seconds(1))
    job_id = queue_job()
    same_time = queue_job()
    frozen.advance(seconds(1))
    queue_job()
    assert (ahead(older[0]), ahead(older[1]), ahead(job_id), ahead(same_time)) == (0, 1, 2, 3)


def test_jobs_of_a_higher_priority_come_before_whenever_they_were_due(frozen: FrozenClock) -> None:
    job_id = queue_job()
    frozen.advance(seconds(1))
    for priority in (1, 100, -1):
        queue_job(priority=priority)
    assert ahead(job_id) == 2


def test_only_jobs_of_its_queue_that_wait_and_are_due_come_before(frozen: FrozenClock) -> None:
    for priority in (0, 5):
        queue_job(queue="mail", priority=priority)
        queue_job(name="", priority=priority)
        run_job(queue="default", priority=priority)
        before = queue_job(priority=priority)
    queue_job(priority=5, delay=seconds(60))
    frozen.advance(seconds(1))
    job_id = queue_job()
    assert (ahead(before), ahead(job_id)) == (0, 2)


def test_of_a_job_that_is_no_longer_there_only_those_count_that_would_have_come_before(frozen: FrozenClock) -> None:
    gone = {"queue": "default", "priority": 3, "run_at": frozen.instant, "limit": 10}
    assert lifecycle.ahead(10**12, **gone) == 0
    queue_job(priority=2)
    assert lifecycle.ahead(10**12, **gone) == 0
    queue_job(priority=4)
    assert lifecycle.ahead(10**12, **gone) == 1


def test_the_count_does_not_rest_on_the_order_of_its_index(frozen: FrozenClock) -> None:
    for priority in (-5, 4, 2, 7, 2):
        queue_job(priority=priority)
    frozen.advance(seconds(1))
    job_id = queue_job(priority=2)
    with connections["default"].cursor() as cursor:
        cursor.execute("drop index django_jobs_claim")
    assert ahead(job_id) == 4


def test_the_count_has_a_bound_for_each_priority() -> None:
    queue_jobs(5)
    for _ in range(5):
        queue_job(priority=9)
    job_id = queue_job()
    assert ahead(job_id, limit=3) == 6


def test_more_than_a_thousand_are_counted_as_that(frozen: FrozenClock) -> None:
    beat()
    lifecycle.enqueue_many([new_job() for _ in range(1_200)], using="default")
    with declared(act, name="shop.greet"):
        [reason] = reasons(queue_job())
    assert "Before it come more than 1,000 due jobs of its queue" in reason


# -- the row as plain values


def test_a_row_as_plain_values(frozen: FrozenClock) -> None:
    job = read(queue_job(args="[1]", kwargs='{"to":"ada"}', meta='{"why":"import"}', expires=seconds(60)))
    assert job.as_dict() == {
        "id": job.pk, "name": "shop.greet", "queue": "default", "priority": 0, "args": [1], "kwargs": {"to": "ada"},
        "state": "READY", "run_at": "2026-03-01T12:00:00Z", "expires_at": "2026-03-01T12:01:00Z", "attempts": 0,
        "max_attempts": 3, "crashes": 0, "max_crashes": 3, "alone": False, "restart": True, "timeout": 300.0,
        "keep": 86_400.0, "keep_failed": 1_209_600.0, "on_failure": "", "enqueued_at": "2026-03-01T12:00:00Z",
        "first_started_at": None, "started_at": None, "finished_at": None, "prune_at": None, "lease_expires_at": None,
        "deadline_at": None, "worker": None, "last_worker": None, "unique_key": None, "unique_until": None,
        "waiting_key": None, "errors": [], "fingerprint": None, "result": None, "progress": None,
        "meta": {"why": "import"}, "schedule": None, "tick": None,
    }  # fmt: skip


def test_the_token_of_a_claim_stays_out_of_it() -> None:
    claim = run_job()
    assert str(claim.token) not in str(read(claim.id).as_dict())


def test_what_is_secret_is_masked_unless_asked_for() -> None:
    def pay(amount: int, card: str, *, options: dict[str, str]) -> dict[str, str]:
        return {"api_key": "K-1", "card": card}

    with declared(pay, name="shop.pay", redact=("card",), unique=True) as performer:
        job = performer.using(meta={"password": "P-1", "why": "test"}).later(5, "4111", options={"token": "T-1"})
        work_one()
        job.refresh_from_db()
        shown, whole = job.as_dict(), job.as_dict(redacted=False)
    assert (shown["args"], shown["kwargs"]) == ([5, "********"], {"options": {"token": "********"}})
    assert shown["result"] == {"api_key": "********", "card": "********"}
    assert shown["meta"] == {"password": "********", "why": "test"}
    assert "4111" not in str(shown)
    assert (whole["args"], whole["result"]["api_key"]) == ([5, "4111"], "K-1")


def test_json_takes_it_whatever_the_job_came_to() -> None:
    with declared(act, name="shop.act") as performer:
        job = performer.later()
        job.cancel("why")
    assert json.loads(json.dumps(job.as_dict())) == job.as_dict()
    assert json.loads(json.dumps(run_and_read().as_dict()))["state"] == "RUNNING"


def run_and_read() -> Job:
    return read(run_job().id)
