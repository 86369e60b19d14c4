"""The setting MIDDLEWARE: what is around each run, in which order, and what becomes of what it does."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import override_settings
from django.utils import timezone, translation

from django_jobs import Attempt, GiveUp, Retry, Snooze, current_attempt, enqueue, named, work_one
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Retried, Snoozed, Succeeded
from django_jobs.testing import jobs_mode, live_worker, run_jobs
from django_jobs.testing import perform as rehearse
from tests.declaring import declared
from tests.performing import POLICY, perform, work
from tests.runner import around
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db

HERE = "tests.runner.around."


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    around.seen.clear()
    around.instead.clear()
    yield
    around.seen.clear()
    around.instead.clear()


def middleware(*names: str) -> Any:
    return override_settings(DJANGO_JOBS={"MIDDLEWARE": [HERE + name for name in names]})


@pytest.fixture
def either() -> Iterator[dict[str, Callable[..., Any]]]:
    """Put one around all runs that does what the test says."""
    with middleware("either"):
        yield around.instead


def body(value: object = "done") -> object:
    around.seen.append("body")
    return value


def test_the_first_is_the_outermost_and_each_is_built_once() -> None:
    with middleware("outer", "inner"):
        assert perform(body).result == "done"
        assert around.seen[:2] == ["inner is built", "outer is built"]
        assert around.seen[2:] == ["outer begins", "inner begins", "body", "inner ends", "outer ends"]
        perform(body)
        assert around.seen.count("outer is built") == 1
    with middleware("outer"):
        perform(body)
    assert around.seen.count("outer is built") == 2


def test_threads_that_begin_at_once_build_it_once(transactional_db: None) -> None:
    with middleware("outer"), declared(body, **POLICY) as performer:
        performer.later_many((n,) for n in range(8))
        threads = [threading.Thread(target=_work_and_close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert around.seen.count("outer is built") == 1
    assert around.seen.count("outer ends") == 4


def _work_and_close() -> None:
    try:
        work_one()
    finally:
        connection.close()


def test_without_the_setting_nothing_is_around(form: Form) -> None:
    assert perform(form(body)).result == "done"
    assert around.seen == ["body"]


@pytest.mark.parametrize(
    ("name", "sync", "asynchronous"),
    [
        ("inner", ["inner begins", "body", "inner ends"], ["body"]),
        ("only_async", ["body"], ["async begins", "body", "async ends"]),
        ("Marking", ["marked", "body"], ["marked", "body"]),
        ("AsyncCalled", ["body"], ["called", "body"]),
        ("not_used", ["body"], ["body"]),
    ],
)
def test_sync_ones_are_around_sync_performers_and_async_ones_around_async_ones(
    form: Form, request: pytest.FixtureRequest, name: str, sync: list[str], asynchronous: list[str]
) -> None:
    with middleware(name):
        assert perform(form(body), policy={"takes_attempt": False}).result == "done"
    is_async = "async" in request.node.callspec.id.split("-")[0]
    expected = asynchronous if is_async else sync
    assert [word for word in around.seen if "built" not in word] == expected


def test_it_is_given_the_attempt_that_the_body_has(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    given: list[Attempt | None] = []
    either["before"] = lambda attempt: given.extend((attempt, current_attempt()))

    def body(attempt: Attempt) -> None:
        given.extend((attempt, current_attempt()))

    run = perform(form(body), policy={"takes_attempt": True})
    assert run.outcome == Succeeded()
    assert given[0] is not None
    assert all(one is given[0] for one in given)
    assert (given[0].job_id, given[0].number) == (run.job.pk, 1)


def test_its_value_is_the_result(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    either["after"] = lambda value: [value, "and more"]
    assert perform(form(body)).result == ["done", "and more"]


@pytest.mark.parametrize("name", ["calls_twice", "waits_for_it"])
def test_it_may_call_on_twice_and_from_another_task(form: Form, name: str) -> None:
    with middleware(name):
        perform(form(body))
    assert around.seen == ["body"] * (2 if name == "calls_twice" else 1)


def test_what_it_swallows_is_a_success(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    def body() -> None:
        raise LookupError

    either["caught"] = lambda attempt: "never mind"
    run = perform(form(body))
    assert (run.job.state, run.result) == ("SUCCESSFUL", "never mind")


def test_a_body_that_it_does_not_call_is_not_run(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    either["body"] = lambda attempt: "done before"
    assert perform(form(body)).result == "done before"
    assert around.seen == []


def test_what_the_body_raises_goes_through_it(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    def body() -> None:
        raise LookupError("no such customer")

    run = perform(form(body))
    assert (run.error["exception"], run.reason) == ("builtins.LookupError", "no such customer")
    assert around.seen == ["LookupError"]


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        (Retry("later", after=5), Retried),
        (Snooze(5), Snoozed),
        (GiveUp("never"), GaveUp),
        (ZeroDivisionError("around"), Retried),
        (SystemExit(3), Retried),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_what_it_raises_is_as_if_the_body_had_raised_it(
    form: Form, either: dict[str, Callable[..., Any]], word: BaseException, outcome: type, place: str
) -> None:
    def say(*_: object) -> None:
        raise word

    either[place] = say
    assert isinstance(perform(form(body)).outcome, outcome)


def test_a_control_word_may_be_raised_or_returned(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    either["body"] = lambda attempt: Snooze(5, "the shop is closed")
    assert perform(form(body)).outcome == Snoozed(delay=Snooze(5).after, reason="the shop is closed")
    with middleware("cancels"):
        assert perform(body).outcome == Cancelled(reason="not today")


@pytest.mark.parametrize("given", [None, "another"])
def test_call_next_takes_the_attempt_and_nothing_else(form: Form, given: Any) -> None:
    around.instead["give"] = lambda _: given
    with middleware("GivesSomethingElse"):
        run = perform(form(body))
    assert (
        run.reason == "call_next() takes the attempt that its middleware was given, and is called in the same context"
    )
    assert around.seen == []


def test_a_job_that_does_not_come_to_its_body_does_not_come_to_it_either() -> None:
    def greet(name: str) -> None: ...

    with middleware("outer"):
        enqueue([named("shop.nobody")])
        assert isinstance(work_one(), Retried)
        with declared(greet, name="shop.greet", **POLICY):
            enqueue([named("shop.greet", 1, 2, 3)])
            assert isinstance(work_one(), Failed)
    assert around.seen == ["outer is built"]


# -- within what the body is in


def test_it_finds_the_language_and_the_time_zone_of_the_body(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    def look(*_: object) -> None:
        around.seen.append((translation.get_language(), timezone.get_current_timezone_name()))

    either["before"] = look
    with declared(form(look), **POLICY) as performer:
        with translation.override("de"), timezone.override("Asia/Tokyo"):
            job = performer.later()
        work(job)
    assert around.seen == [("de", "Asia/Tokyo"), ("de", "Asia/Tokyo")]


def test_what_it_activates_is_active_in_the_body_and_gone_for_the_next_job(
    form: Form, either: dict[str, Callable[..., Any]]
) -> None:
    def look() -> str:
        return translation.get_language() or ""

    either["before"] = lambda attempt: translation.activate("fr")
    assert perform(form(look)).result == "fr"
    either.clear()
    assert perform(form(look)).result == "en"


def test_what_it_writes_around_an_atomic_job_is_committed_with_it() -> None:
    with middleware("writes"):
        perform(body, policy={"atomic": True})
    assert list(Group.objects.values_list("name", flat=True)) == ["around 1"]


def test_what_it_writes_around_an_atomic_job_is_rolled_back_with_it() -> None:
    def fail() -> None:
        raise LookupError

    with middleware("writes"):
        assert isinstance(perform(fail, policy={"atomic": True}).outcome, Retried)
        assert Group.objects.count() == 0
        # Without a transaction it stays.
        perform(fail)
    assert Group.objects.count() == 1


def test_what_it_raises_after_the_body_rolls_an_atomic_job_back(either: dict[str, Callable[..., Any]]) -> None:
    def body() -> None:
        Group.objects.create(name="by the body")

    def fail(value: object) -> None:
        raise LookupError

    either["after"] = fail
    assert isinstance(perform(body, policy={"atomic": True}).outcome, Retried)
    assert Group.objects.count() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [False, True])
def test_an_interruption_goes_through_it(either: dict[str, Callable[..., Any]], atomic: bool) -> None:
    def body() -> None:
        for _ in range(2_000):
            threading.Event().wait(0.01)

    with declared(body, **POLICY, timeout=0.2, atomic=atomic) as performer:
        run = work(performer.later())
    assert run.reason == "timed out after 0.2 s"
    assert around.seen == ["JobTimeout"]


@pytest.mark.django_db(transaction=True)
def test_the_timeout_is_over_for_what_is_around_the_body_too(either: dict[str, Callable[..., Any]]) -> None:
    def wait(*_: object) -> None:
        for _ in range(2_000):
            threading.Event().wait(0.01)

    either["after"] = wait
    with declared(body, **POLICY, timeout=0.2) as performer:
        assert work(performer.later()).reason == "timed out after 0.2 s"


@pytest.mark.django_db(transaction=True)
def test_a_timeout_that_it_swallows_is_one_all_the_same(either: dict[str, Callable[..., Any]]) -> None:
    def body() -> None:
        for _ in range(2_000):
            threading.Event().wait(0.01)

    either["caught"] = lambda attempt: "never mind"
    with declared(body, **POLICY, timeout=0.2) as performer:
        assert work(performer.later()).reason == "timed out after 0.2 s"


@pytest.mark.django_db(transaction=True)
def test_an_interruption_goes_through_what_is_around_an_async_body(either: dict[str, Callable[..., Any]]) -> None:
    async def body() -> None:
        await asyncio.sleep(20.0)

    with declared(body, **POLICY, timeout=0.2) as performer, live_worker() as worker:
        job = performer.later()
        worker.wait()
    assert Job.objects.get(pk=job.pk).errors[0]["reason"] == "timed out after 0.2 s"
    assert around.seen == ["CancelledError"]


# -- wherever jobs run


def test_a_job_that_runs_at_once_within_another_has_its_own(either: dict[str, Callable[..., Any]]) -> None:
    def outside(attempt: Attempt) -> list[object]:
        before = current_attempt() is attempt
        inside = inner.later("inside").result
        return [before, inside, current_attempt() is attempt]

    either["after"] = lambda value: ["around", value]
    with (
        declared(body, name="shop.inside", **POLICY) as inner,
        declared(outside, name="shop.outside", **POLICY, takes_attempt=True) as outer,
        jobs_mode("inline"),
    ):
        assert outer.later().result == ["around", [True, ["around", "inside"], True]]


def test_it_is_around_jobs_that_run_at_once(either: dict[str, Callable[..., Any]]) -> None:
    either["after"] = lambda value: [value]
    with declared(body, **POLICY) as performer, jobs_mode("inline"):
        assert performer.later().result == ["done"]


def test_it_is_around_jobs_that_a_test_runs(either: dict[str, Callable[..., Any]]) -> None:
    either["after"] = lambda value: [value]
    with declared(body, **POLICY) as performer:
        performer.later()
        [job] = run_jobs().jobs
        assert job.result == ["done"]


def test_it_is_around_a_job_without_a_row(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    either["before"] = lambda attempt: around.seen.append(dict(attempt.meta))
    either["after"] = lambda value: [value]
    with declared(form(body), **POLICY) as performer:
        assert rehearse(performer, meta={"tenant": "north"}) == ["done"]
    assert around.seen == [{"tenant": "north"}, "body"]


@pytest.mark.django_db(transaction=True)
def test_it_is_around_the_jobs_of_a_worker(form: Form, either: dict[str, Callable[..., Any]]) -> None:
    either["after"] = lambda value: [value]
    with declared(form(body), **POLICY) as performer, live_worker() as worker:
        job = performer.later()
        worker.wait()
    assert Job.objects.get(pk=job.pk).result == ["done"]


# -- what can't be used


WRONG = {
    "nowhere": 'it can\'t be imported: Module "tests.runner.around" does not define a "nowhere" attribute/class',
    "no_function": "give the path of a function of call_next, or of a class",
    "neither": "it has sync_capable and async_capable False, so it would be around nothing",
    "fails": "it failed: LookupError: no server was named",
    "gives_nothing": "it gave None; let it give a function of the attempt",
    "is_async_itself": "it is async itself; let a plain function give an async one",
    "always_plain": "it gave a plain function for async jobs; give an async one, or say sync_only_middleware",
    "always_async": "it gave an async function for sync jobs; give a plain one, or say async_only_middleware",
}


@pytest.mark.parametrize("name", WRONG)
def test_nothing_is_claimed_where_the_middleware_cannot_be_built(name: str) -> None:
    with declared(body, **POLICY) as performer:
        job = performer.later()
        message = f"DJANGO_JOBS['MIDDLEWARE'][1] is '{HERE}{name}'; {WRONG[name]}"
        with middleware("not_used", name), pytest.raises(ImproperlyConfigured, match=f"^{re.escape(message)}$"):
            work_one()
        job.refresh_from_db()
        assert (job.state, job.attempts) == ("READY", 0)
        assert work(job).result == "done"


@pytest.mark.django_db(transaction=True)
def test_a_worker_does_not_start_where_the_middleware_cannot_be_built() -> None:
    with declared(body, **POLICY) as performer:
        job = performer.later()
        with middleware("fails"), pytest.raises(RuntimeError, match="has died") as caught, live_worker() as worker:
            worker.wait()
        assert isinstance(caught.value.__cause__, ImproperlyConfigured)
        job.refresh_from_db()
    assert (job.state, job.attempts) == ("READY", 0)


def test_all_that_cannot_be_used_is_told_at_once() -> None:
    with middleware("fails", "outer", "no_function"), pytest.raises(ImproperlyConfigured) as caught:
        work_one()
    assert str(caught.value).splitlines() == [
        f"DJANGO_JOBS['MIDDLEWARE'][0] is '{HERE}fails'; {WRONG['fails']}",
        f"DJANGO_JOBS['MIDDLEWARE'][2] is '{HERE}no_function'; {WRONG['no_function']}",
    ]
