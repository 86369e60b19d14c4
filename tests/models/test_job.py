from __future__ import annotations

import re
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connections, transaction
from django.template import Context, Template
from django.test import override_settings

from django_jobs import lifecycle, transitions
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import JobFinished, JobGone, JobRunning
from django_jobs.models import Job, JobStat, Queue, Schedule, Worker
from django_jobs.outcomes import Failed, Succeeded
from django_jobs.records import Moved
from django_jobs.stores import store_for
from django_jobs.transitions import Place
from tests.factories import NOON, failure, new_job, place_of, queue_job, read, run_job, seconds, write

pytestmark = pytest.mark.django_db


def ids(jobs: Any) -> list[int]:
    return [job.pk for job in jobs]


def ended(outcome: Any, **changes: Any) -> int:
    claim = run_job(**changes)
    store_for("default").settle(connections["default"], [transitions.settle(claim, outcome)])
    return claim.id


def waited(awaitable: Awaitable[Any]) -> Any:
    """Wait for what an async form gives, as async code would."""

    async def wait() -> Any:
        return await awaitable

    return async_to_sync(wait)()


# -- words to find jobs


def test_jobs_come_newest_first() -> None:
    first, second, third = queue_job(), queue_job(), queue_job()
    assert ids(Job.objects.all()) == [third, second, first]


def test_each_word_finds_its_jobs(frozen: FrozenClock) -> None:
    waiting, later = queue_job(), queue_job(delay=seconds(60))
    running, failed = run_job().id, ended(Failed(failure=failure()))
    assert ids(Job.objects.ready()) == [later, waiting]
    assert ids(Job.objects.due()) == [waiting]
    assert ids(Job.objects.running()) == [running]
    assert ids(Job.objects.failed()) == [failed]


def test_words_find_by_queue_name_and_age() -> None:
    mail = queue_job(queue="mail")
    bill = queue_job(name="shop.bill")
    last = queue_job()
    assert ids(Job.objects.in_queue("mail")) == [mail]
    assert ids(Job.objects.named("shop.bill")) == [bill]
    assert ids(Job.objects.before(last)) == [bill, mail]


def test_words_can_be_strung_together() -> None:
    wanted = queue_job(queue="mail", name="shop.bill")
    queue_job(queue="mail")
    queue_job(name="shop.bill")
    assert ids(Job.objects.ready().in_queue("mail").named("shop.bill")) == [wanted]


def test_nothing_is_cut_silently() -> None:
    lifecycle.enqueue_many([new_job() for _ in range(300)], using="default")
    assert len(Job.objects.ready()) == 300


def test_stored_names_are_sorted_and_leave_out_the_low_level() -> None:
    for name in ("shop.greet", "shop.bill", "shop.greet", ""):
        queue_job(name=name)
    assert Job.objects.stored_names() == ["shop.bill", "shop.greet"]


def test_counts_are_per_queue_and_leave_no_state_out(frozen: FrozenClock) -> None:
    queue_job(queue="mail")
    queue_job(queue="mail", delay=seconds(1))
    queue_job(queue="mail", delay=seconds(1))
    run_job(queue="bulk")
    ended(Succeeded(), queue="bulk")
    ended(Failed(failure=failure()), queue="bulk")
    lifecycle.cancel([queue_job(queue="bulk")])
    assert Job.objects.counts() == {
        "bulk": {"due": 0, "not due": 0, "RUNNING": 1, "SUCCESSFUL": 1, "FAILED": 1, "CANCELLED": 1},
        "mail": {"due": 1, "not due": 2, "RUNNING": 0, "SUCCESSFUL": 0, "FAILED": 0, "CANCELLED": 0},
    }


def test_counts_heed_the_filter() -> None:
    queue_job(queue="mail")
    queue_job(queue="bulk")
    assert list(Job.objects.in_queue("mail").counts()) == ["mail"]


def test_counts_of_nothing_are_empty() -> None:
    assert Job.objects.counts() == {}


def test_async_code_lists_counts_and_prunes_too() -> None:
    queue_job(queue="mail")
    assert waited(Job.objects.astored_names()) == ["shop.greet"]
    assert waited(Job.objects.in_queue("mail").acounts()) == Job.objects.counts()
    assert waited(Job.objects.aprune()) == 0


# -- verbs on QuerySets


def test_retry_moves_what_it_can_and_gives_the_ids() -> None:
    failed, running = ended(Failed(failure=failure())), run_job().id
    assert Job.objects.all().retry().ids == (failed,)
    assert [place_of(failed), place_of(running)] == [Place.READY, Place.RUNNING]


def test_cancel_moves_what_it_can_and_gives_the_ids() -> None:
    waiting, running, succeeded = queue_job(), run_job().id, ended(Succeeded())
    assert Job.objects.cancel("not needed").ids == (waiting, running)
    assert place_of(succeeded) is Place.SUCCESSFUL
    assert read(waiting).errors[0]["reason"] == "not needed"


def test_verbs_heed_the_filter() -> None:
    mail, bulk = queue_job(queue="mail"), queue_job(queue="bulk")
    assert Job.objects.in_queue("mail").cancel().ids == (mail,)
    assert place_of(bulk) is Place.READY


def rows() -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in Job.objects.values()}


@pytest.mark.parametrize("verb", ["cancel", "retry", "reschedule", "delete"])
def test_verbs_take_no_more_than_a_slice_has(verb: str) -> None:
    jobs = [queue_job(delay=seconds(60)) for _ in range(4)]
    before = rows()
    getattr(Job.objects.all()[1:3], verb)(**({"priority": 5} if verb == "reschedule" else {}))
    after = rows()
    assert [job_id for job_id in jobs if after.get(job_id) != before[job_id]] == jobs[1:3]


def test_delete_skips_held_jobs_and_says_how_many_went() -> None:
    running, waiting, failed = run_job().id, queue_job(), ended(Failed(failure=failure()))
    assert Job.objects.all().delete() == (2, {"django_jobs.Job": 2})
    assert [place_of(running), place_of(waiting), place_of(failed)] == [Place.RUNNING, Place.ABSENT, Place.ABSENT]


def test_the_manager_itself_does_not_delete() -> None:
    assert not hasattr(Job.objects, "delete")


def test_prune_deletes_what_is_past_its_keeping(frozen: FrozenClock) -> None:
    ended(Succeeded(), keep=10.0)
    kept = ended(Succeeded(), keep=60.0)
    frozen.advance(seconds(10))
    assert Job.objects.prune() == 1
    assert ids(Job.objects.all()) == [kept]


def test_the_async_forms_do_the_same() -> None:
    job_id = queue_job()

    async def verbs() -> list[Moved]:
        jobs = Job.objects.filter(pk=job_id)
        return [await jobs.acancel("no"), await jobs.aretry(), await jobs.areschedule(priority=5)]

    assert async_to_sync(verbs)() == [Moved(ids=(job_id,))] * 3


def test_querysets_say_what_they_moved_and_why_the_others_stay() -> None:
    waiting, running = queue_job(), run_job().id
    moved = Job.objects.reschedule(queue="aside", priority=3)
    assert moved == Moved(ids=(waiting,), skipped={"running": (running,)})
    assert read(waiting).queue == "aside"
    assert Job.objects.cancel() == Moved(ids=(waiting, running))
    assert Job.objects.cancel() == Moved(ids=(), skipped={"cancelled": (waiting,), "stopping": (running,)})
    assert Job.objects.retry() == Moved(ids=(waiting,), skipped={"stopping": (running,)})


@pytest.mark.parametrize(
    ("places", "problem", "message"),
    [
        ({}, TypeError, "reschedule() takes queue, priority, run_at, max_attempts; give at least one"),
        ({"queue": "two words"}, ValueError, "queue='two words': give 1 to 100 characters"),
        ({"priority": 101}, ValueError, "priority=101: give a whole number from -100 to 100"),
        ({"max_attempts": 0}, ValueError, "max_attempts=0: give a whole number from 1"),
        ({"run_at": 5}, TypeError, "run_at(5): give a datetime"),
        ({"run_at": datetime(2026, 1, 1)}, ValueError, "run_at(datetime.datetime(2026, 1, 1, 0, 0)): this datetime is"),
        ({"prio": 5}, TypeError, "reschedule() has no option 'prio'; did you mean priority?"),
    ],
)
def test_a_wrong_place_is_refused(places: dict[str, Any], problem: type[Exception], message: str) -> None:
    job = read(queue_job())
    for reschedule in (job.reschedule, Job.objects.reschedule):
        with pytest.raises(problem, match=re.escape(message)):
            reschedule(**places)
    assert read(job.pk).queue == "default"


def test_a_job_is_rescheduled_and_read_anew() -> None:
    job = read(queue_job())
    job.reschedule(priority=9)
    assert job.priority == 9
    async_to_sync(job.areschedule)(queue="aside")
    assert (job.queue, read(job.pk).queue) == ("aside", "aside")


def test_a_copy_is_a_new_job_with_what_was_said_of_the_first() -> None:
    said = {
        "queue": "mail", "priority": 4, "args": '[1,{"$set":["a"]}]', "kwargs": '{"x":"ü"}', "meta": '{"why":1}',
        "max_attempts": 7, "max_crashes": 5, "restart": False, "timeout": 9.0, "keep": 8.0, "keep_failed": 6.0,
        "on_failure": "shop.tidy", "delay": seconds(60), "expires": seconds(60),
    }  # fmt: skip
    first = read(queue_job(**said))
    write(first.pk, attempts=2, crashes=1)
    lifecycle.cancel([first.pk])
    for copy in (first.copy(), async_to_sync(first.acopy)()):
        assert (copy.state, copy.attempts, copy.pk > first.pk) == ("READY", 0, True)
        assert copy.errors == []
        assert (copy.run_at, copy.expires_at) == (copy.enqueued_at, None)
        row = read(copy.pk)
        for name in ("name", *said.keys() - {"delay", "expires"}):
            assert getattr(copy, name) == getattr(row, name) == getattr(first, name), name


# -- writes past the verbs


@pytest.mark.parametrize(
    ("call", "write"),
    [
        ("create()", lambda: Job.objects.create(queue="mail")),
        ("bulk_create()", lambda: Job.objects.bulk_create([Job(queue="mail")])),
        ("bulk_update()", lambda: Job.objects.bulk_update([Job(pk=1)], ["queue"])),
        ("get_or_create()", lambda: Job.objects.get_or_create(queue="mail")),
        ("update_or_create()", lambda: Job.objects.update_or_create(queue="mail")),
        ("Job.save()", lambda: Job(queue="mail").save()),
        ("Job.save()", lambda: read(queue_job()).save(update_fields=["queue"])),
        ("acreate()", lambda: waited(Job.objects.acreate(queue="mail"))),
        ("abulk_create()", lambda: waited(Job.objects.abulk_create([Job(queue="mail")]))),
        ("abulk_update()", lambda: waited(Job.objects.abulk_update([Job(pk=1)], ["queue"]))),
        ("aget_or_create()", lambda: waited(Job.objects.aget_or_create(queue="mail"))),
        ("aupdate_or_create()", lambda: waited(Job.objects.aupdate_or_create(queue="mail"))),
        ("Job.asave()", lambda: waited(Job(queue="mail").asave())),
    ],
)
def test_a_write_past_the_verbs_names_the_right_ones(call: str, write: Any) -> None:
    with pytest.raises(TypeError) as caught:
        write()
    assert str(caught.value) == (
        f"{call} would write past the verbs that keep jobs safe; queue with performer.later(), later_many() or "
        "enqueue(), and move jobs with retry(), cancel() or delete(). update() is the documented escape hatch."
    )


def test_update_is_the_escape_hatch() -> None:
    job_id = queue_job()
    assert Job.objects.filter(pk=job_id).update(queue="mail") == 1
    assert read(job_id).queue == "mail"


# -- one job


def test_a_job_is_called_by_its_name_and_id() -> None:
    assert str(Job(pk=7, name="shop.greet")) == "shop.greet #7"
    assert str(Job(pk=8, name="")) == "(pushed) #8"


@pytest.mark.parametrize(
    ("state", "ahead", "due"),
    [("READY", -1, True), ("READY", 0, True), ("READY", 1, False), ("RUNNING", -1, False), ("FAILED", -1, False)],
)
def test_a_job_knows_whether_it_is_due(frozen: FrozenClock, state: str, ahead: int, due: bool) -> None:
    assert Job(state=state, run_at=NOON + seconds(ahead)).is_due is due


@pytest.mark.parametrize(("attempts", "exhausted"), [(2, False), (3, True), (4, True)])
def test_a_job_knows_whether_an_attempt_is_left(attempts: int, exhausted: bool) -> None:
    assert Job(attempts=attempts, max_attempts=3).is_exhausted is exhausted


def test_a_cancelled_job_knows_it_at_once() -> None:
    job = read(queue_job())
    job.cancel("not needed")
    assert (job.state, job.errors[0]["reason"]) == ("CANCELLED", "not needed")


def test_a_retried_job_knows_it_at_once() -> None:
    job = read(ended(Failed(failure=failure())))
    job.retry()
    assert (job.state, job.finished_at) == ("READY", None)


def test_a_deleted_job_is_gone() -> None:
    job = read(queue_job())
    assert job.delete() == (1, {"django_jobs.Job": 1})
    with pytest.raises(JobGone):
        job.delete()


def test_a_held_job_is_not_deleted() -> None:
    job = read(run_job().id)
    with pytest.raises(JobRunning):
        job.delete()
    assert place_of(job.pk) is Place.RUNNING


def test_a_verb_that_does_not_fit_changes_nothing() -> None:
    job = read(ended(Succeeded()))
    with pytest.raises(JobFinished):
        job.retry()
    with pytest.raises(JobFinished):
        job.cancel()
    assert place_of(job.pk) is Place.SUCCESSFUL


def test_one_job_has_async_forms_too() -> None:
    job = read(queue_job())

    async def cancel_and_retry() -> list[str]:
        await job.acancel("no")
        cancelled = job.state
        await job.aretry()
        return [cancelled, job.state]

    assert async_to_sync(cancel_and_retry)() == ["CANCELLED", "READY"]


def test_no_template_can_move_a_job() -> None:
    job = read(queue_job())
    calls = ("job.cancel", "job.retry", "job.delete", "jobs.cancel", "jobs.retry", "jobs.delete", "jobs.prune")
    page = Template("".join(f"{{{{ {call} }}}}" for call in calls))
    before = Job.objects.values().get()
    assert page.render(Context({"job": job, "jobs": Job.objects.all()})) == ""
    assert Job.objects.values().get() == before


# -- several databases


class ReadsFromAReplica:
    """A router: `other` is a replica of `default`, of which the tests let it know nothing."""

    def db_for_read(self, model: type, **hints: object) -> str:
        return "other"

    def db_for_write(self, model: type, **hints: object) -> str:
        return "default"


@pytest.mark.django_db(databases=["default", "other"])
def test_verbs_decide_and_write_where_writes_go() -> None:
    first, second, third = queue_job(), queue_job(), queue_job()
    with override_settings(DATABASE_ROUTERS=[ReadsFromAReplica()]):
        assert Job.objects.filter(pk=first).cancel().ids == (first,)
        assert Job.objects.filter(pk=first).retry().ids == (first,)
        assert Job.objects.filter(pk=second).delete() == (1, {"django_jobs.Job": 1})
        assert Job.objects.prune() == 0
        job = Job(pk=third)
        job._state.db = "other"
        job.cancel()
        assert job.state == "CANCELLED"
        job.retry()
        job.delete()
    assert ids(Job.objects.using("default")) == [first]


@pytest.mark.django_db(databases=["default", "other"])
def test_verbs_work_where_a_queryset_looks() -> None:
    job_id = lifecycle.enqueue(new_job(), using="other").id
    assert Job.objects.using("other").cancel().ids == (job_id,)
    job = Job.objects.using("other").get(pk=job_id)
    job.retry()
    assert job.delete() == (1, {"django_jobs.Job": 1})
    assert not Job.objects.using("other").exists()


# -- what the tables refuse


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "SLEEPING"},
        {"state": "ready"},
        {"state": "FAILED"},
        {"finished_at": NOON},
        {"priority": 101},
        {"priority": -101},
        {"worker": "worker-1", "token": 1, "lease_expires_at": NOON},
        {"state": "RUNNING"},
        {"state": "RUNNING", "worker": "worker-1", "lease_expires_at": NOON},
        {"state": "RUNNING", "worker": "worker-1", "token": 1},
        {"state": "RUNNING", "token": 1, "lease_expires_at": NOON},
        {"state": "CANCELLED", "finished_at": NOON, "worker": "worker-1", "token": 1},
        {"state": "CANCELLED", "finished_at": NOON, "worker": "worker-1", "lease_expires_at": NOON},
        {"state": "FAILED", "finished_at": NOON, "worker": "worker-1", "token": 1, "lease_expires_at": NOON},
        {"state": "SUCCESSFUL", "finished_at": NOON, "worker": "worker-1", "token": 1, "lease_expires_at": NOON},
        {"state": "RUNNING", "finished_at": NOON, "worker": "worker-1", "token": 1, "lease_expires_at": NOON},
    ],
)
def test_an_impossible_row_is_refused(columns: dict[str, Any]) -> None:
    job_id = queue_job()
    ours = "django_jobs_(state|running|holding|finished|priority)"
    with pytest.raises(IntegrityError, match=ours), transaction.atomic():
        write(job_id, **columns)
    assert place_of(job_id) is Place.READY


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "RUNNING", "worker": "worker-1", "token": 1, "lease_expires_at": NOON},
        {"state": "CANCELLED", "finished_at": NOON, "worker": "worker-1", "token": 1, "lease_expires_at": NOON},
        {"state": "CANCELLED", "finished_at": NOON},
        {"priority": 100},
        {"priority": -100},
        {"token": 9_223_372_036_854_775_807},
    ],
)
def test_a_possible_row_is_not_refused(columns: dict[str, Any]) -> None:
    job_id = queue_job()
    write(job_id, **columns)
    row = Job.objects.filter(pk=job_id).values(*columns).get()
    assert row == columns


def test_a_key_is_held_while_waiting_and_running_once() -> None:
    write(queue_job(), unique_key="k")
    with pytest.raises(IntegrityError), transaction.atomic():
        write(queue_job(), unique_key="k")
    with pytest.raises(IntegrityError), transaction.atomic():
        write(run_job().id, unique_key="k")


def test_a_key_is_held_by_a_body_that_is_stopping() -> None:
    claim = run_job()
    write(claim.id, unique_key="k")
    lifecycle.cancel([claim.id])
    with pytest.raises(IntegrityError), transaction.atomic():
        write(queue_job(), unique_key="k")


def test_a_key_is_free_after_the_end_unless_it_holds_until_later() -> None:
    write(ended(Succeeded()), unique_key="k")
    write(queue_job(), unique_key="k")
    write(ended(Succeeded()), unique_key="u", unique_until=NOON + timedelta(days=9_000))
    with pytest.raises(IntegrityError), transaction.atomic():
        write(queue_job(), unique_key="u")


def test_a_waiting_key_is_held_while_waiting_only() -> None:
    write(run_job().id, waiting_key="k")
    write(queue_job(), waiting_key="k")
    with pytest.raises(IntegrityError), transaction.atomic():
        write(queue_job(), waiting_key="k")


def test_an_empty_key_is_a_key_and_none_is_none() -> None:
    write(queue_job(), unique_key=None, waiting_key=None)
    write(queue_job(), unique_key=None, waiting_key=None)
    write(queue_job(), unique_key="")
    with pytest.raises(IntegrityError), transaction.atomic():
        write(queue_job(), unique_key="")


# -- permissions


def test_exactly_these_permissions_exist() -> None:
    found = Permission.objects.filter(content_type__app_label="django_jobs").values_list("codename", flat=True)
    assert sorted(found) == [
        "add_schedule", "cancel_job", "change_schedule", "delete_job", "delete_schedule", "pause_queue",
        "reschedule_job", "retry_job", "run_job", "view_job", "view_job_args", "view_queue", "view_schedule",
        "view_worker",
    ]  # fmt: skip


# -- the other tables


def test_the_other_rows_say_what_they_are() -> None:
    assert str(Queue(name="mail")) == "mail"
    assert str(Schedule(name="nightly")) == "nightly"
    assert str(Worker(identity="host-1-ab12")) == "host-1-ab12"
    assert str(JobStat(name="shop.greet", queue="mail", minute=NOON)) == "shop.greet in mail at 2026-03-01 12:00"


def test_one_process_counts_a_minute_once() -> None:
    counted = {"minute": NOON, "queue": "mail", "name": "shop.greet", "process": "host-1"}
    JobStat.objects.create(**counted)
    with pytest.raises(IntegrityError), transaction.atomic():
        JobStat.objects.create(**counted)
