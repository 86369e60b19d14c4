from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal, receiver

from django_jobs import enqueue, lifecycle, named, queues, schedules, signals, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Schedule
from django_jobs.outcomes import Succeeded
from django_jobs.performers import AnyPerformer
from django_jobs.records import Claim
from django_jobs.signals import JobSignal
from django_jobs.transitions import Change
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.factories import NOON, queue_job, run_job, seconds
from tests.lifecycle.conftest import heard
from tests.lifecycle.hearing import Heard, ended
from tests.performing import POLICY
from tests.runner.conftest import Form, form

__all__ = ["form", "heard"]

EVERY = {name: signal for name, signal in vars(signals).items() if isinstance(signal, Signal) and name != "odd"}
OF_ONE_JOB = {name: signal for name, signal in EVERY.items() if isinstance(signal, JobSignal)}


@pytest.fixture
def greet() -> Iterator[AnyPerformer]:
    def greet(name: str = "Ada") -> str:
        return name

    with declared(greet, name="shop.greet", **POLICY) as performer:
        yield performer


def of(heard: list[Heard], name: str) -> list[Heard]:
    return [one for one in heard if one.signal == name]


class Broken(logging.Handler):
    """A handler like one that mails to a misspelt address."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("no such address")


def test_neither_a_receiver_nor_a_log_handler_that_raises_gets_through() -> None:
    signal = signals.Signal()

    def receiver(**_: object) -> None:
        raise RuntimeError("broken receiver")

    signal.connect(receiver)
    log = logging.getLogger("django.dispatch")
    handler = Broken()
    log.addHandler(handler)
    try:
        with pytest.raises(ValueError, match="no such address"):
            signal.send_robust(None)
        signals.tell(signal, None)
    finally:
        log.removeHandler(handler)


def test_what_a_hearer_of_ours_raises_keeps_nobody_from_hearing() -> None:
    bulletin = signals.Bulletin()
    heard: list[object] = []

    def breaks(news: object) -> None:
        raise RuntimeError("broken hearer")

    bulletin.hear(breaks)
    bulletin.hear(heard.append)
    bulletin.hear(heard.append)
    bulletin.tell(1)
    bulletin.unhear(heard.append)
    bulletin.tell(2)
    assert heard == [1]


# -- each of them, with its arguments


def test_four_of_them_are_about_one_job() -> None:
    assert set(EVERY) == {
        "job_enqueued", "job_started", "job_finished", "job_lost", "jobs_reclaimed", "jobs_expired", "jobs_pruned",
        "queue_paused", "queue_resumed", "schedule_fired", "worker_started", "worker_stopped",
    }  # fmt: skip
    assert set(OF_ONE_JOB) == {"job_enqueued", "job_started", "job_finished", "job_lost"}


@pytest.mark.django_db(transaction=True)
def test_job_enqueued_is_sent_once_after_the_commit(heard: list[Heard], greet: AnyPerformer) -> None:
    with transaction.atomic():
        one = greet.using(queue="mail").later()
        assert heard == []
    [two, three] = enqueue([greet.prepare(), named("other.service")])
    assert heard == [
        Heard("job_enqueued", "shop.greet", {"job_id": one.pk, "name": "shop.greet", "queue": "mail"}),
        Heard("job_enqueued", "shop.greet", {"job_id": two.id, "name": "shop.greet", "queue": "default"}),
        Heard("job_enqueued", "other.service", {"job_id": three.id, "name": "other.service", "queue": "default"}),
    ]


@pytest.mark.django_db(transaction=True)
def test_job_enqueued_is_not_sent_of_a_job_that_was_there_before(heard: list[Heard], greet: AnyPerformer) -> None:
    first = greet.using(unique="k").later()
    assert greet.using(unique="k").later().duplicate
    assert [one.said["job_id"] for one in heard] == [first.pk]


@pytest.mark.django_db(transaction=True)
def test_job_started_and_job_finished_are_sent_once_for_each_run(heard: list[Heard], form: Form) -> None:
    def greet() -> str:
        return "Ada"

    with declared(form(greet), name="shop.greet", **POLICY) as performer:
        job = performer.later()
        assert work_one() == Succeeded(result='"Ada"')
    [started], [finished] = of(heard, "job_started"), of(heard, "job_finished")
    claim: Claim = started.said["claim"]
    assert (started.sender, list(started.said)) == ("shop.greet", ["claim"])
    assert (claim.id, claim.name, claim.attempt) == (job.pk, "shop.greet", 1)
    change: Change = finished.said["change"]
    assert finished == Heard(
        "job_finished", "shop.greet", {"claim": claim, "outcome": Succeeded(result='"Ada"'), "change": change}
    )
    assert (change.lease, change.state) == (claim.lease, "SUCCESSFUL")
    assert of(heard, "job_lost") == []


@pytest.mark.django_db
def test_job_finished_tells_of_every_end_that_is_written(heard: list[Heard]) -> None:
    def fail() -> None:
        raise LookupError

    with declared(fail, name="shop.fail", **{**POLICY, "max_attempts": 2}) as performer:
        job = performer.later()
        work_one()
        job.reschedule(run_at=job.enqueued_at)
        work_one()
    told = [(type(one.said["outcome"]).__name__, one.said["change"].state) for one in of(heard, "job_finished")]
    assert told == [("Retried", "READY"), ("Failed", "FAILED")]


@pytest.mark.django_db
def test_job_lost_is_sent_once_where_an_end_meets_a_row_that_was_taken_away(heard: list[Heard]) -> None:
    claim = run_job(name="shop.greet")
    lifecycle.cancel([claim.id])
    heard.clear()
    lifecycle.settle(connection, [(claim, Succeeded())])
    assert heard == [Heard("job_lost", "shop.greet", {"claim": claim, "outcome": Succeeded()})]


@pytest.mark.django_db
def test_jobs_reclaimed_is_sent_once_for_all_that_a_dead_worker_held(heard: list[Heard], frozen: FrozenClock) -> None:
    running, cancelled = run_job(), run_job()
    lifecycle.cancel([cancelled.id])
    heard.clear()
    frozen.advance(seconds(3_600))
    assert lifecycle.reclaim(connection) == 2
    [told] = heard
    assert (told.signal, told.sender, sorted(told.said)) == ("jobs_reclaimed", None, ["because", "changes", "let_go"])
    assert [change.lease for change in told.said["changes"]] == [running.lease]
    assert told.said["let_go"] == [cancelled.id]
    assert told.said["because"] == "their lease or deadline was over"


@pytest.mark.django_db
def test_jobs_expired_is_sent_once_by_the_chores_and_once_by_a_claim(heard: list[Heard]) -> None:
    ids = [queue_job(expires=seconds(0)) for _ in range(2)]
    lifecycle.expire(connection)
    lifecycle.expire(connection)
    late = queue_job(expires=seconds(0))
    assert work_one() is None
    assert heard == [
        Heard("jobs_expired", None, {"ids": tuple(ids)}),
        Heard("jobs_expired", None, {"ids": (late,)}),
    ]


@pytest.mark.django_db
def test_jobs_pruned_is_sent_once_where_there_were_any(heard: list[Heard], frozen: FrozenClock) -> None:
    ended(3)
    heard.clear()
    frozen.advance(seconds(60))
    assert lifecycle.prune(connection, limit=2) == 3
    assert lifecycle.prune(connection) == 0
    assert heard == [Heard("jobs_pruned", None, {"count": 3})]


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_of_its_start_and_its_end(heard: list[Heard], greet: AnyPerformer) -> None:
    greet.later()
    plan = Plan(alias="default", identity="web1:5:ab", queues={"default": 4}, concurrency=2, drain=True)
    assert Process(plan).run() == 0
    words = [one.signal for one in heard if one.signal in EVERY]
    assert words == ["job_enqueued", "worker_started", "job_started", "job_finished", "worker_stopped"]
    [started], [stopped] = of(heard, "worker_started"), of(heard, "worker_stopped")
    assert started == Heard(
        "worker_started", None, {"identity": "web1:5:ab", "queues": {"default": 4}, "concurrency": 2}
    )
    assert stopped == Heard("worker_stopped", None, {"identity": "web1:5:ab", "written": True})


@pytest.mark.django_db(transaction=True)
def test_schedule_fired_is_sent_after_the_commit_with_the_jobs_and_the_next_tick(
    heard: list[Heard], greet: AnyPerformer, frozen: FrozenClock
) -> None:
    made = Schedule.objects.create(name="minutely", cron="* * * * *", performer="shop.greet", missed="skip")
    schedules.fire_due(connection)
    frozen.advance(seconds(170))
    schedules.fire_due(connection)
    [job] = Job.objects.filter(schedule=made.name)
    fired = {"name": "minutely", "job_ids": (job.pk,), "skipped": 1, "next_at": NOON + seconds(180)}
    assert of(heard, "schedule_fired") == [Heard("schedule_fired", None, fired)]
    assert len(of(heard, "job_enqueued")) == 1


# -- receivers that raise


@contextmanager
def broken(names: dict[str, Signal]) -> Iterator[list[str]]:
    """Connect a receiver to each that raises."""
    called: list[str] = []
    receivers: list[tuple[Signal, Callable[..., None]]] = []
    for name, signal in names.items():

        def fail(_name: str = name, **_: Any) -> None:
            called.append(_name)
            raise ZeroDivisionError

        signal.connect(fail)
        receivers.append((signal, fail))
    yield called
    for signal, fail in receivers:
        signal.disconnect(fail)


@pytest.mark.django_db(transaction=True)
def test_receivers_that_raise_harm_nothing(greet: AnyPerformer, frozen: FrozenClock) -> None:
    with broken(EVERY) as called:
        with transaction.atomic():
            jobs = [greet.later(), greet.using(expires=0).later(), greet.using(keep=0).later()]
        plan = Plan(alias="default", identity="web1:5:ab", queues=None, concurrency=2, drain=True)
        assert Process(plan).run() == 0
        assert Job.objects.get(pk=jobs[0].pk).result == "Ada"
        assert Job.objects.get(pk=jobs[1].pk).state == "CANCELLED"
        assert not Job.objects.filter(pk=jobs[2].pk).exists()
        lost, lapsed = run_job(), run_job()
        lifecycle.cancel([lost.id])
        assert lifecycle.settle(connection, [(lost, Succeeded())]) == []
        frozen.advance(seconds(3_600))
        assert lifecycle.reclaim(connection) == 1
        assert Job.objects.get(pk=lapsed.id).state == "READY"
        frozen.advance(seconds(1_000_000_000))
        assert lifecycle.prune(connection) == 3
        assert (queues["mail"].pause(), queues["mail"].resume()) == (True, True)
        Schedule.objects.create(name="nightly", cron="* * * * *", performer="shop.greet")
        schedules.fire_due(connection)
        frozen.advance(seconds(60))
        assert schedules.fire_due(connection)[0] == 1
    assert set(called) == set(EVERY)


@pytest.mark.django_db
def test_an_async_receiver_is_told_too(greet: AnyPerformer) -> None:
    told: list[int] = []

    async def hear(*, claim: Claim, **_: Any) -> None:
        await asyncio.sleep(0)
        told.append(claim.id)

    signals.job_finished.connect(hear)
    try:
        job = greet.later()
        work_one()
    finally:
        signals.job_finished.disconnect(hear)
    assert told == [job.pk]


# -- the jobs of one performer


def another(text: str) -> str:
    """Give an equal text that is another object."""
    made = "".join([*text])
    assert made is not text
    return made


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["job_enqueued", "job_started", "job_finished"])
def test_a_receiver_may_listen_to_one_name_only(greet: AnyPerformer, name: str) -> None:
    told: list[object] = []

    def hear(*, sender: str, **_: Any) -> None:
        told.append(sender)

    signal = OF_ONE_JOB[name]
    for sender in (greet.name, another(greet.name), "nobody.here"):
        signal.connect(hear, sender=sender)
        try:
            greet.later()
            enqueue([named(another("shop.greet"), "Bea"), named("other.service")])
            for _ in range(3):
                work_one()
        finally:
            assert signal.disconnect(hear, sender=another(sender))
    assert told == ["shop.greet"] * 4


@pytest.mark.django_db
def test_jobs_queued_under_an_old_name_are_told_of_under_that_one() -> None:
    def greet() -> None: ...

    told: list[object] = []

    def hear(*, sender: str, **_: Any) -> None:
        told.append(sender)

    with declared(greet, name="shop.greet", aliases=["shop.hello"], **POLICY):
        for sender in ("shop.greet", "shop.hello"):
            signals.job_finished.connect(hear, sender=sender)
            try:
                enqueue([named("shop.hello")])
                work_one()
            finally:
                signals.job_finished.disconnect(hear, sender=sender)
    assert told == ["shop.hello"]


@pytest.mark.django_db
def test_of_a_job_that_was_lost_too() -> None:
    told: list[int] = []

    def hear(*, claim: Claim, **_: Any) -> None:
        told.append(claim.id)

    signals.job_lost.connect(hear, sender=another("shop.greet"))
    try:
        for name in ("shop.greet", "shop.other"):
            claim = run_job(name=another(name))
            lifecycle.cancel([claim.id])
            lifecycle.settle(connection, [(claim, Succeeded())])
    finally:
        signals.job_lost.disconnect(hear, sender="shop.greet")
    assert len(told) == 1


def test_any_equal_text_is_the_sender_however_a_signal_is_sent() -> None:
    signal = JobSignal()
    told: list[object] = []

    @receiver(signal, sender=another("shop.greet"))
    def hear(sender: object, **_: Any) -> None:
        told.append(sender)

    # What Python forgets, it may give the identity of to another.
    gc.collect()
    others = [another(f"shop.gree{number}") for number in range(1_000)]
    for other in others:
        signal.send(other)
    assert told == []
    signal.send(another("shop.greet"))
    signal.send_robust(another("shop.greet"))
    asyncio.run(signal.asend(another("shop.greet")))
    asyncio.run(signal.asend_robust(another("shop.greet")))
    assert told == ["shop.greet"] * 4
    assert (signal.has_listeners(another("shop.greet")), signal.has_listeners("shop.other")) == (True, False)


def test_who_listens_to_all_hears_of_all() -> None:
    signal = JobSignal()
    told: list[object] = []

    def hear(sender: object, **_: Any) -> None:
        told.append(sender)

    signal.connect(hear)
    signal.send("shop.greet")
    signal.send(None)
    assert told == ["shop.greet", None]


def test_a_dispatch_uid_connects_once_for_each_name() -> None:
    signal = JobSignal()
    told: list[object] = []

    def hear(sender: object, **_: Any) -> None:
        told.append(sender)

    for _ in range(2):
        signal.connect(hear, sender=another("shop.greet"), dispatch_uid="mine")
        signal.connect(hear, sender=another("shop.bill"), dispatch_uid="mine")
    signal.send(another("shop.greet"))
    assert told == ["shop.greet"]
    assert signal.disconnect(sender=another("shop.greet"), dispatch_uid="mine")
    assert not signal.disconnect(sender=another("shop.greet"), dispatch_uid="mine")


def test_what_is_no_name_is_refused(greet: AnyPerformer) -> None:
    message = r"^sender=<Performer shop\.greet>: give the stored name of the jobs, as in sender=send_welcome\.name$"
    with pytest.raises(TypeError, match=message):
        signals.job_finished.connect(print, sender=greet)
