"""A consumer's code as it should be: every form of declaring and queueing, with the types that come of it.

Nothing runs this file. test_typing.py has it checked, with mistakes.py beside it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Literal, assert_type
from unittest.mock import ANY

from django.contrib.auth.models import User
from django.test import TestCase

from django_jobs import (
    Attempt,
    Cancel,
    GiveUp,
    Retry,
    Snooze,
    aenqueue,
    backoff,
    current_attempt,
    enqueue,
    every,
    get_performer,
    job,
    lowlevel,
    named,
    preview,
    queues,
    registered,
)
from django_jobs.conf import DjangoJobs
from django_jobs.exceptions import (
    DuplicateJob,
    JobFinished,
    JobGone,
    JobRunning,
    JobStopping,
    JobSucceeded,
    JobWaiting,
    KeyContended,
    KeyHeld,
    LeaseLost,
    WaitCancelled,
    WaitFailed,
    WaitGone,
)
from django_jobs.models import Job, Queue
from django_jobs.performers import Enqueuer
from django_jobs.records import Moved, NewJob, Queued
from django_jobs.schedules import Tick
from django_jobs.testing import (
    Drained,
    JobsFixture,
    JobsMixin,
    LiveWorker,
    assert_enqueued,
    assert_not_enqueued,
    assert_num_enqueued,
    drain,
    enqueued_jobs,
    jobs_mode,
    live_worker,
    perform,
    run_jobs,
)

# -- declaring


@job
def send_welcome(user_id: int, greeting: str = "hello") -> str:
    return f"{greeting} {user_id}"


@job()
def without_arguments() -> None: ...


@job("billing.charge", queue="billing", max_attempts=5, timeout=30, priority=10, takes_attempt=True)
def charge(attempt: Attempt, invoice_id: int, *, currency: str = "EUR") -> bool:
    assert_type(attempt.number, int)
    assert_type(attempt.is_last, bool)
    assert_type(attempt.remaining(), float | None)
    assert_type(attempt.cancelled, bool)
    attempt.checkpoint()
    attempt.progress(1, 2.5, "reading")
    if attempt.is_last:
        raise GiveUp("no more")
    raise Retry("later", after="5m")


@job(name="mail.deliver", aliases=["mail.send"], takes_attempt=False)
async def deliver(address: str, copies: int = 1) -> int:
    if copies > 9:
        raise Snooze(timedelta(minutes=5), "too many")
    return copies


@job(takes_attempt=True)
async def watch(attempt: Attempt, user: User) -> None:
    raise Cancel(f"{user.pk} is not watched")


class Priority(IntEnum):
    HIGH = 50


def wait(attempt: int, exception: BaseException | None) -> timedelta:
    return timedelta(seconds=attempt)


@job(
    queue="bulk",
    priority=Priority.HIGH,
    max_attempts=3,
    max_crashes=1,
    backoff=backoff.exponential(30, cap="1h"),
    timeout=None,
    keep=0,
    keep_failed=timedelta(days=30),
    expires="1h",
    aliases=("old.name",),
    restart=False,
    atomic=True,
)
def with_everything(*numbers: int, **names: str) -> dict[str, int]:
    return dict.fromkeys(names, sum(numbers))


@job(backoff=wait, keep=None, keep_failed=None, expires=None)
def with_own_backoff(when: datetime, /) -> None: ...


@job(backoff=lambda attempt: attempt * 10)
def with_short_backoff() -> None: ...


@job(schedule="0 3 * * *", time_zone="Europe/Paris")
def nightly(size: int = 1) -> int:
    return size


@job("shop.beat", takes_attempt=True, schedule=timedelta(minutes=1))
def beat(attempt: Attempt) -> None:
    assert_type(attempt.tick, datetime | None)


every("@daily", send_welcome, args=(5,), kwargs={"greeting": "ciao"}, name="morning", queue="mail", priority=5)
every(
    timedelta(minutes=10), nightly, time_zone="UTC", missed="all", overlap="skip", jitter="30s",
    starts=datetime(2026, 1, 1, tzinfo=UTC), ends=None,
)  # fmt: skip
assert_type(nightly(5), int)
assert_type(preview("0 3 * * *", 5, time_zone="UTC"), list[Tick])
assert_type([(tick.at, tick.remark) for tick in preview(nightly)], list[tuple[datetime, str]])


# -- a performer is what its function was

assert_type(send_welcome(5), str)
assert_type(send_welcome(user_id=5, greeting="ciao"), str)
assert_type(with_everything(1, 2, a="b"), dict[str, int])
assert_type(send_welcome.name, str)


def call_directly(attempt: Attempt) -> None:
    assert_type(charge(attempt, 5), bool)
    assert_type(charge(attempt, invoice_id=5, currency="USD"), bool)


# -- queueing


def queue_one(user: User) -> None:
    assert_type(send_welcome.later(user.pk), Job)
    assert_type(send_welcome.later(5, "ciao"), Job)
    assert_type(send_welcome.later(greeting="ciao", user_id=5), Job)
    assert_type(without_arguments.later(), Job)
    assert_type(charge.later(5), Job)
    assert_type(charge.later(invoice_id=5, currency="USD"), Job)
    assert_type(deliver.later("ada@example.org", copies=2), Job)
    assert_type(watch.later(user), Job)
    assert_type(with_everything.later(1, 2, 3, a="b"), Job)
    assert_type(with_own_backoff.later(datetime.now(UTC)), Job)


def queue_for_later(tomorrow: datetime) -> None:
    send_welcome.after(10).later(5)
    send_welcome.after(2.5).later(5)
    send_welcome.after("5m").later(5)
    send_welcome.after(timedelta(minutes=10)).later(5)
    send_welcome.after(minutes=10).later(5)
    send_welcome.after(days=1, hours=2, minutes=3, seconds=4.5).later(5)
    assert_type(send_welcome.at(tomorrow).later(5), Job)
    assert_type(charge.at(tomorrow).using(queue="slow").after(5).later(5, currency="USD"), Job)


def queue_with_options() -> None:
    bulk = send_welcome.using(queue="bulk", priority=-5, expires="1h", meta={"why": "import"})
    assert_type(bulk.later(5, greeting="ciao"), Job)
    assert_type(bulk.using(keep=None, timeout=None, max_attempts=Priority.HIGH).later(5), Job)
    assert_type(charge.using(queue="slow").later(5), Job)
    takes_any: Enqueuer[...] = bulk
    takes_any.later()


def queue_many(ids: list[int]) -> None:
    assert_type(send_welcome.later_many((pk,) for pk in ids), list[Queued])
    assert_type(send_welcome.later_many([(1, "ciao"), {"user_id": 2}, send_welcome.prepare(3)]), list[Queued])
    assert_type(charge.using(queue="slow").later_many([(1,), (2,)]), list[Queued])
    assert_type(send_welcome.prepare(1), NewJob)
    queued = enqueue([send_welcome.prepare(1), charge.prepare(2), named("other.service", 3, queue="other")])
    assert_type(queued, list[Queued])
    assert_type([(one.id, one.duplicate) for one in queued], list[tuple[int, bool]])
    assert_type(enqueue(send_welcome.prepare(pk) for pk in ids), list[Queued])
    named("other.service", 3, who="Ada", options={"priority": 4, "expires": "1h", "meta": {"why": "import"}})


async def queue_from_async_code(ids: list[int]) -> None:
    assert_type(await send_welcome.alater(5), Job)
    assert_type(await charge.using(queue="slow").alater(5, currency="USD"), Job)
    assert_type(await send_welcome.alater_many((pk,) for pk in ids), list[Queued])
    assert_type(await aenqueue([send_welcome.prepare(1), deliver.prepare("ada@example.org")]), list[Queued])
    assert_type(await deliver("ada@example.org"), int)


# -- around them


def look_around() -> None:
    assert_type(registered(), list[str])
    assert_type(get_performer("billing.charge").name, str)
    get_performer("billing.charge").later(5)
    attempt = current_attempt()
    assert_type(attempt, Attempt | None)
    if attempt is not None:
        assert_type(attempt.errors, list[dict[str, Any]])


# -- keys, expiry, failures, and verbs by hand


def key_of(user_id: int, **_: object) -> str | None:
    return str(user_id) if user_id else None


@job(
    unique_while_waiting=key_of,
    on_duplicate="replace",
    expires="1h",
    retry_on=OSError,
    give_up_on=(ValueError, KeyError),
)
def reindex(user_id: int) -> None: ...


@job(unique=True, unique_for=timedelta(days=1), on_failure=reindex, redact=("card",))
def summarise(user_id: int) -> None: ...


def keys() -> None:
    one = reindex.using(unique_while_waiting="all", expires=60, on_duplicate="return").after(seconds=5).later(5)
    assert_type(one.duplicate, bool)
    assert_type(one.replaced, bool)
    [queued] = summarise.using(unique="k", unique_for="1h").later_many([(5,)])
    assert_type(queued.duplicate, bool)
    assert_type(queued.replaced, bool)
    try:
        summarise.using(on_duplicate="raise").later(5)
    except DuplicateJob as error:
        assert_type(error.holder_id, int)
    except KeyContended as error:
        assert_type(error.key, str)


def by_hand() -> None:
    one = Job.objects.failed().get()
    try:
        one.retry()
        one.cancel("not needed")
        one.reschedule(queue="bulk", priority=-5, run_at=datetime.now(UTC), max_attempts=9)
    except KeyHeld as error:
        assert_type(error.holder_id, int)
    except (JobStopping, JobRunning, JobSucceeded, JobFinished, JobWaiting, JobGone) as error:
        assert_type(error.job_id, int)
    assert_type(one.copy(), Job)
    assert_type(one.delete(), tuple[int, dict[str, int]])
    moved = Job.objects.in_queue("mail").ready().cancel("not needed")
    assert_type(moved.ids, tuple[int, ...])
    assert_type(moved.skipped["running"], tuple[int, ...])
    assert_type(Job.objects.failed().retry(), Moved)
    assert_type(Job.objects.reschedule(priority=5), Moved)


async def by_hand_in_async_code() -> None:
    one = await Job.objects.aget(pk=5)
    await one.aretry()
    await one.acancel()
    await one.areschedule(priority=5)
    assert_type(await one.acopy(), Job)
    assert_type(await Job.objects.failed().aretry(), Moved)
    assert_type(await Job.objects.ready().acancel("not needed"), Moved)
    assert_type(await Job.objects.ready().areschedule(queue="bulk"), Moved)


# -- waiting, looking, pausing


def wait_and_look() -> None:
    one = summarise.later(5)
    try:
        one.wait_result("30s")
    except WaitFailed as error:
        assert_type(error.error["reason"], Any)
    except (WaitCancelled, WaitGone) as error:
        assert_type(error.job_id, int)
    assert_type(one.explain(), str)
    assert_type(one.as_dict(), dict[str, Any])
    assert_type(Job.objects.succeeded().before(5).counts(), dict[str, dict[str, int]])
    assert_type(Job.objects.cancelled().stored_names(), list[str])


async def wait_in_async_code() -> None:
    one = await Job.objects.aget(pk=5)
    await one.await_result(timedelta(seconds=30))
    assert_type(await one.aexplain(), str)


def pause() -> None:
    assert_type(queues["mail"].pause("the server moves", by="ann"), bool)
    assert_type(queues["mail"].resume(), bool)
    assert_type(queues["mail"].is_paused, bool)
    assert_type(queues["mail"].counts(), dict[str, int])
    assert_type(queues.paused(), list[Queue])


async def pause_in_async_code() -> None:
    assert_type(await queues["mail"].apause(), bool)
    assert_type(await queues["mail"].aresume(), bool)
    assert_type(await queues["mail"].acounts(), dict[str, int])
    assert_type(await queues.apaused(), list[Queue])


# -- the low level


def consume() -> None:
    assert_type(lowlevel.push("mail", {"to": 5}), int)
    lowlevel.push("mail", None, "5m")
    lowlevel.push("mail", (1, 2), delay=timedelta(seconds=-1))
    claim = lowlevel.take("mail", lease="1m")
    if claim is None:
        return
    assert_type(claim.id, int)
    assert_type(claim.payload, Any)
    assert_type(claim.error, str)
    assert_type(claim.lease_expires_at, datetime)
    assert_type(lowlevel.extend(claim, 30), lowlevel.Taken)
    assert_type(lowlevel.ack(claim), bool)
    try:
        assert_type(lowlevel.retry(claim, ValueError("no"), delay=10, max_attempts=5), Literal["ready", "dead"])
    except LeaseLost as lost:
        assert_type(lost.row_id, int)
    assert_type(lowlevel.stats()["mail"]["ready"], int)
    assert_type(lowlevel.dead("mail", limit=5), list[lowlevel.Dead])


async def consume_async() -> None:
    assert_type(await lowlevel.apush("mail", 1, delay=0.5), int)
    claim = await lowlevel.atake("mail", 10)
    if claim is not None:
        assert_type(await lowlevel.aextend(claim), lowlevel.Taken)
        assert_type(await lowlevel.aretry(claim, "no"), Literal["ready", "dead"])
        assert_type(await lowlevel.aack(claim), bool)
    assert_type(await lowlevel.astats(), dict[str, lowlevel.Counts])
    assert_type(await lowlevel.adead("mail"), list[lowlevel.Dead])


# -- testing


class SignUpTests(JobsMixin, TestCase):
    def test_jobs(self) -> None:
        with self.assertEnqueued(send_welcome, 5, queue="mail", priority=Priority.HIGH, greeting=ANY) as found:
            send_welcome.using(queue="mail").later(5)
        assert_type(found[0], Job)
        self.assertEnqueued("other.service", 3, count=1, delay="5m", match=lambda one: one.queue == "mail")
        self.assertNotEnqueued()
        with self.assertNotEnqueued(charge, run_at=datetime.now(UTC)), self.assertNumEnqueued(1, deliver):
            pass
        done = self.run_jobs(send_welcome, queue="mail", until="+1d", raise_errors=False)
        assert_type(done, Drained)
        assert_type(done.succeeded, int)
        assert_type(done.jobs, tuple[Job, ...])
        assert_type(self.drain(until=timedelta(days=1), max_jobs=5), Drained)
        assert_type(self.enqueued_jobs(send_welcome), list[Job])

    async def test_async(self) -> None:
        assert_type(await self.arun_jobs(until=60), Drained)
        assert_type(await self.adrain(), Drained)
        assert_type(await self.aperform(deliver, "ada@example.org"), int)
        async with self.assertEnqueued(send_welcome, 5) as found:
            await send_welcome.alater(5)
        assert_type(found[0], Job)
        assert_type(await self.aenqueued_jobs(send_welcome, queue="mail"), list[Job])
        await self.aassertNotEnqueued(charge)


def test_one_job_alone() -> None:
    assert_type(perform(send_welcome, 5), str)
    assert_type(perform(charge, invoice_id=5, attempt=2, max_attempts=2, meta={"why": "import"}), bool)
    assert_type(perform(deliver, "ada@example.org"), int)
    perform(without_arguments)


@jobs_mode("inline")
def test_inline(number: int) -> str:
    with jobs_mode("database"):
        return str(number)


@jobs_mode("inline")
async def test_inline_async() -> int:
    return 5


assert_type(test_inline(5), str)


def test_with_pytest(django_jobs: JobsFixture, django_jobs_worker: LiveWorker) -> None:
    with django_jobs.assert_enqueued(send_welcome, 5), django_jobs.mode("inline"):
        send_welcome.later(5)
    assert_type(django_jobs.enqueued, list[Job])
    assert_type(django_jobs.run(queue="mail"), Drained)
    django_jobs_worker.wait(timeout=2.5)
    with live_worker(["mail"], concurrency=4) as worker:
        assert_type(worker, LiveWorker)


def test_functions() -> None:
    assert_enqueued(send_welcome, 5)
    assert_not_enqueued(queue="mail")
    assert_num_enqueued(3)
    assert_type(enqueued_jobs(queue="mail"), list[Job])
    assert_type(run_jobs(), Drained)
    assert_type(drain(on_commit=True), Drained)


# -- the setting


def of_tenant(job: NewJob) -> dict[str, str]:
    return {"of": job.name}


def observe(name: str, seconds: float, rows: int | None) -> None: ...


DJANGO_JOBS: DjangoJobs = {
    "MODE": "inline",
    "QUEUES": {"mail": {"concurrency": 4}, "default": {}},
    "BACKOFF": backoff.polynomial(),
    "TIMEOUT": None,
    "LEASE": timedelta(seconds=30),
    "KEEP_SUCCESSFUL": "2d",
    "OBSERVE": observe,
    "MIDDLEWARE": ["shop.hooks.timing"],
    "META": [of_tenant, "shop.hooks.of_request"],
    "REDACT": ["iban"],
}
