from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.test import override_settings
from django.utils import timezone as django_timezone
from django.utils import translation
from django.utils.functional import SimpleLazyObject

from django_jobs import Attempt, aenqueue, enqueue, named
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import ArgumentsTooLarge, UnencodableValue
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer
from django_jobs.records import Queued
from tests.declaring import declared
from tests.shop.jobs import greet

Declare = Callable[..., AnyPerformer]

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


@pytest.fixture
def send() -> Iterator[AnyPerformer]:
    """Declare `tests.nowhere.send`."""

    def send(user_id: int, greeting: str = "hello") -> str:
        return f"{greeting} {user_id}"

    with declared(send) as performer:
        yield performer


@pytest.fixture
def take(declare: Declare) -> AnyPerformer:
    """Declare `tests.nowhere.take`, which takes anything."""

    def take(*args: Any, **kwargs: Any) -> None: ...

    return declare(take)


def rows() -> list[tuple[Any, ...]]:
    """Give name, args and kwargs of all jobs, oldest first."""
    return list(Job.objects.order_by("id").values_list("name", "args", "kwargs"))


def only_job() -> Job:
    [job] = Job.objects.all()
    return job


# -- later


def test_later_writes_a_row(send: AnyPerformer) -> None:
    send.later(5)
    send.later(user_id=6, greeting="ciao")
    assert rows() == [
        ("tests.nowhere.send", [5], {}),
        ("tests.nowhere.send", [], {"user_id": 6, "greeting": "ciao"}),
    ]


def test_arguments_are_stored_as_given_without_defaults(send: AnyPerformer) -> None:
    assert (send.later(5).args, send.later(5).kwargs) == ([5], {})


def test_the_returned_job_equals_the_row_in_every_field(take: AnyPerformer) -> None:
    using = take.using(
        queue="mail", priority=-3, expires="1h", keep=None, timeout=2.5, max_attempts=4, meta={"why": [1]}
    )
    for job in (take.later(), using.after("5m").later(1, when=NOON, price=Decimal("1.10"), few=1e-7, many=2**70)):
        row = Job.objects.get(pk=job.pk)
        assert job == row
        assert values_of(job) == values_of(row)
        assert (job._state.adding, job._state.db) == (row._state.adding, row._state.db) == (False, "default")


def values_of(job: Job) -> dict[str, Any]:
    return {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}


def test_a_job_is_born_in_the_callers_transaction_and_vanishes_with_it(send: AnyPerformer) -> None:
    with transaction.atomic():
        send.later(5)
        assert rows() == [("tests.nowhere.send", [5], {})]
        transaction.set_rollback(True)
    assert rows() == []


def test_a_plain_call_runs_the_function_and_queues_nothing(send: AnyPerformer) -> None:
    assert send(5) == "hello 5"
    assert rows() == []


def test_later_can_be_patched(send: AnyPerformer) -> None:
    with mock.patch.object(send, "later") as patched:
        send.later(5)
    patched.assert_called_once_with(5)
    with mock.patch.object(send, "later", autospec=True) as patched:
        send.later(6)
    patched.assert_called_once_with(6)
    assert rows() == []
    send.later(7)
    assert rows() == [("tests.nowhere.send", [7], {})]


def test_parameters_may_have_any_name(declare: Declare) -> None:
    def odd(self: int, performer: int, options: int, calls: int, name: int) -> int:
        return self + performer + options + calls + name

    performer = declare(odd)
    arguments = {"self": 1, "performer": 2, "options": 3, "calls": 4, "name": 5}
    assert performer(**arguments) == 15
    assert performer.later(**arguments).kwargs == arguments
    assert performer.using(queue="mail").later(**arguments).kwargs == arguments
    assert async_to_sync(partial(performer.alater, **arguments))().kwargs == arguments
    assert performer.later_many([arguments]) == [Queued(id=only_newest().id)]


def only_newest() -> Job:
    newest = Job.objects.first()
    assert newest is not None
    return newest


# -- a wrong call


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'user_id'"),
        ((1, "hi", 3), {}, "too many positional arguments"),
        ((1,), {"user_id": 2}, "multiple values for argument 'user_id'"),
        ((1,), {"greting": "hi"}, "got an unexpected keyword argument 'greting'"),
    ],
)
def test_a_wrong_call_is_a_type_error_there_and_then_that_names_job_and_signature(
    send: AnyPerformer, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    message = f"tests.nowhere.send(user_id: 'int', greeting: 'str' = 'hello') -> 'str': {problem}"
    for call in (send.later, send.prepare, send.using(queue="mail").later, async_to_sync(send.alater)):
        with pytest.raises(TypeError, match=exactly(message)):
            call(*args, **kwargs)
    assert rows() == []


def test_callers_leave_out_the_attempt(declare: Declare) -> None:
    def charge(attempt: Attempt, invoice: int) -> int:
        return invoice

    charge_later = declare(charge, takes_attempt=True)
    assert charge_later.later(5).args == [5]
    assert charge_later.later(invoice=6).kwargs == {"invoice": 6}
    with pytest.raises(
        TypeError, match=r"^tests\.nowhere\.charge\(invoice: 'int'\) -> 'int': got an unexpected keyword"
    ):
        charge_later.later(attempt=1, invoice=6)


def test_an_argument_that_cannot_be_stored_is_refused_with_its_path_and_nothing_is_written(take: AnyPerformer) -> None:
    @dataclass
    class Local:
        price: float

    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: take.later(1, object()), "args[1]: object cannot be stored; "),
        (lambda: take.later(a={"b": [0, math.nan]}), "kwargs.a.b[1]: NaN cannot be stored; "),
        (lambda: take.later(a={1: "x"}), "kwargs.a: "),
        (lambda: take.later("a\0b"), "args[0]: text with a NUL character cannot be stored; "),
        (lambda: take.later(Local(1.5)), "args[0]: "),
        (lambda: take.later_many([(1,), (math.inf,)]), "args[0]: Infinity cannot be stored; "),
        (lambda: enqueue([take.prepare(1), take.prepare(x=object())]), "kwargs.x: object cannot be stored; "),
        (lambda: named("elsewhere", [object()]), "args[0][0]: object cannot be stored; "),
    ]
    for call, message in wrong:
        with pytest.raises(UnencodableValue, match=f"^{re.escape(message)}"):
            call()
    assert rows() == []


def test_arguments_above_the_limit_are_refused_and_nothing_is_written(take: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"MAX_ARGS_BYTES": 12}):
        take.later("123456")
        for call in (take.later, take.prepare):
            with pytest.raises(ArgumentsTooLarge, match=r"^the arguments: 13 bytes encoded, and the limit is 12 "):
                call("1234567")
        with pytest.raises(ArgumentsTooLarge, match=r"^meta: 13 bytes encoded, and the limit is 12 "):
            take.using(meta={"a": "12345"}).later()
    assert rows() == [("tests.nowhere.take", ["123456"], {})]


def test_a_queue_that_the_settings_do_not_allow_is_refused_and_nothing_is_written(send: AnyPerformer) -> None:
    message = "queue 'bulk' is not in DJANGO_JOBS['QUEUES'] (default, mail); add it there or choose one of them"
    bulk = send.using(queue="bulk")
    with override_settings(DJANGO_JOBS={"QUEUES": ["mail", "default"]}):
        send.later(1)
        send.using(queue="mail").later(2)
        for call in (lambda: bulk.later(3), lambda: bulk.later_many([(3,)]), lambda: named("x", queue="bulk")):
            with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
                call()
    assert [args for _, args, _ in rows()] == [[1], [2]]


def test_a_dict_of_queues_is_an_allow_list_too(send: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"QUEUES": {"mail": {"concurrency": 4}}, "DEFAULT_QUEUE": "mail"}):
        assert send.later(1).queue == "mail"
        with pytest.raises(ValueError, match=r"^queue 'default' is not in DJANGO_JOBS\['QUEUES'\] \(mail\); "):
            send.using(queue="default").later(1)


# -- options


def options_of(job: Job) -> tuple[Any, ...]:
    return (
        job.queue,
        job.priority,
        job.max_attempts,
        job.max_crashes,
        job.timeout,
        job.keep,
        job.keep_failed,
        job.restart,
    )


def test_what_nobody_said_is_as_documented(send: AnyPerformer) -> None:
    job = send.later(1)
    assert options_of(job) == ("default", 0, 20, 3, 300.0, 86_400.0, 1_209_600.0, True)
    assert (job.expires_at, job.meta) == (None, {})


def test_what_nobody_said_comes_from_the_settings_when_it_is_queued(send: AnyPerformer) -> None:
    using = send.using(priority=1)
    said = {"DEFAULT_QUEUE": "slow", "MAX_ATTEMPTS": 2, "TIMEOUT": None, "KEEP_SUCCESSFUL": 0, "KEEP_FAILED": "1h"}
    with override_settings(DJANGO_JOBS=said):
        assert options_of(send.later(1)) == ("slow", 0, 2, 3, None, 0.0, 3_600.0, True)
        assert options_of(using.later(1)) == ("slow", 1, 2, 3, None, 0.0, 3_600.0, True)
    assert options_of(using.later(1)) == ("default", 1, 20, 3, 300.0, 86_400.0, 1_209_600.0, True)


def test_the_policy_wins_over_the_settings_and_using_over_the_policy(declare: Declare) -> None:
    def act() -> None: ...

    policy = {"queue": "mail", "priority": 5, "max_attempts": 4, "max_crashes": 2, "timeout": 10, "keep": 20}
    performer = declare(act, **policy, keep_failed=None, restart=False, expires="1h")
    with override_settings(DJANGO_JOBS={"DEFAULT_QUEUE": "slow", "MAX_ATTEMPTS": 2, "TIMEOUT": 1}):
        assert options_of(performer.later()) == ("mail", 5, 4, 2, 10.0, 20.0, None, False)
        using = performer.using(queue="bulk", priority=-5, max_attempts=1, timeout=None, keep=None)
        assert options_of(using.later()) == ("bulk", -5, 1, 2, None, None, None, False)


def test_each_option_of_using_reaches_the_row(send: AnyPerformer, frozen: FrozenClock) -> None:
    assert send.using(queue="bulk").later(1).queue == "bulk"
    assert send.using(priority=100).later(1).priority == 100
    assert send.using(max_attempts=7).later(1).max_attempts == 7
    assert send.using(timeout="1m").later(1).timeout == 60.0
    assert send.using(keep=timedelta(minutes=2)).later(1).keep == 120.0
    assert send.using(expires="1h").later(1).expires_at == NOON + timedelta(hours=1)
    assert send.using(meta={"why": "import"}).later(1).meta == {"why": "import"}


def test_using_can_take_a_limit_of_the_policy_away(declare: Declare) -> None:
    def act() -> None: ...

    assert declare(act, expires="1h").using(expires=None).later().expires_at is None


OPTIONS = (
    "it takes queue, priority, max_attempts, timeout, keep, expires, meta, unique, unique_while_waiting, on_duplicate, "
    "unique_for, after_commit"
)


@pytest.mark.parametrize(
    ("options", "problem", "message"),
    [
        ({"queue": "two words"}, ValueError, "queue='two words': give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
        ({"queue": "q" * 300}, ValueError, f"queue='{'q' * 119}: give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
        ({"priority": 101}, ValueError, "priority=101: give a whole number from -100 to 100, higher runs first"),
        ({"max_attempts": 0}, ValueError, "max_attempts=0: give a whole number from 1 to 1,000,000"),
        ({"timeout": 0}, ValueError, "timeout=0: give a duration above 0, or None for no limit"),
        ({"keep": "?"}, ValueError, "keep: '?' is not a duration; give seconds, a timedelta or text like \"5m\""),
        ({"expires": -1}, ValueError, 'expires: -1 is negative; give seconds, a timedelta or text like "5m"'),
        ({"meta": "why"}, TypeError, "meta='why': give a dict"),
        ({"prio": 1}, TypeError, "using() has no option 'prio'; did you mean priority?"),
        ({"keep_failed": 1}, TypeError, f"using() has no option 'keep_failed'; {OPTIONS}"),
        ({"restart": True}, TypeError, f"using() has no option 'restart'; {OPTIONS}"),
    ],
)
def test_a_wrong_option_is_an_error_where_it_is_said(
    send: AnyPerformer, options: dict[str, Any], problem: type[Exception], message: str
) -> None:
    with pytest.raises(problem, match=exactly(message)):
        send.using(**options)
    with pytest.raises(problem, match=exactly(message.replace("using()", "named()"))):
        named("x", options=options)  # type: ignore[arg-type]


def test_what_is_not_queued_yet_says_so(send: AnyPerformer) -> None:
    for unfinished in (send.using(queue="bulk"), send.after(5), send.at(NOON), send.using(queue="bulk").after(5)):
        assert repr(unfinished) == "<tests.nowhere.send, not queued: call .later(…)>"
    assert rows() == []


def test_an_enqueuer_can_be_kept_and_used_again(send: AnyPerformer) -> None:
    bulk = send.using(queue="bulk")
    assert [bulk.later(1).queue, bulk.later(2).queue, send.later(3).queue] == ["bulk", "bulk", "default"]


# -- when it may run


@pytest.mark.parametrize(
    ("args", "parts", "seconds"),
    [
        ((10,), {}, 10),
        ((2.5,), {}, 2.5),
        ((0,), {}, 0),
        (("5m",), {}, 300),
        ((timedelta(hours=1),), {}, 3_600),
        ((), {"minutes": 10}, 600),
        ((), {"days": 1, "hours": 2, "minutes": 3, "seconds": 4.5}, 93_784.5),
        ((), {"seconds": 0}, 0),
        ((), {"minutes": 1, "seconds": -30}, 30),
    ],
)
def test_after_delays_from_the_moment_of_queueing(
    send: AnyPerformer, frozen: FrozenClock, args: tuple[Any, ...], parts: dict[str, Any], seconds: float
) -> None:
    delayed = send.after(*args, **parts)
    frozen.advance(timedelta(hours=1))
    assert delayed.later(1).run_at == NOON + timedelta(hours=1, seconds=seconds)


@pytest.mark.parametrize(
    ("args", "parts", "problem", "message"),
    [
        ((), {}, TypeError, "after(): give either one duration, as in after(10) or after('5m'), or parts, as in"),
        ((10,), {"minutes": 1}, TypeError, "after(): give either one duration, as in after(10) or after('5m'), or"),
        ((-1,), {}, ValueError, 'after(): -1 is negative; give seconds, a timedelta or text like "5m"'),
        (("soon",), {}, ValueError, "after(): 'soon' is not a duration; give seconds, a timedelta or text like"),
        (
            (NOON,),
            {},
            TypeError,
            "after(): datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.timezone.utc) is not a",
        ),
        ((), {"minutes": -5}, ValueError, "after(minutes=-5): -300 is negative; give seconds, a timedelta or text"),
        ((), {"minutes": "5"}, TypeError, "after(minutes='5'): give a number of minutes"),
        ((), {"minutes": True}, TypeError, "after(minutes=True): give a number of minutes"),
        ((), {"seconds": math.nan}, ValueError, "after(seconds=nan): nan is not a duration; give seconds,"),
        ((), {"days": math.inf}, ValueError, "after(days=inf): inf is longer than 100 years; give seconds,"),
        ((), {"days": 10**400}, ValueError, "after(days=1000"),
        ((), {"minute": 5}, TypeError, "after() has no option 'minute'; did you mean minutes?"),
        ((), {"years": 5}, TypeError, "after() has no option 'years'; it takes days, hours, minutes, seconds"),
    ],
)
def test_a_wrong_delay_is_an_error(
    send: AnyPerformer, args: tuple[Any, ...], parts: dict[str, Any], problem: type[Exception], message: str
) -> None:
    with pytest.raises(problem, match=f"^{re.escape(message)}"):
        send.after(*args, **parts)


def test_at_sets_the_moment_whatever_its_zone(send: AnyPerformer) -> None:
    in_paris = datetime(2026, 7, 1, 14, tzinfo=ZoneInfo("Europe/Paris"))
    job = send.at(in_paris).later(1)
    assert job.run_at == datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert job.run_at.tzinfo is UTC
    assert send.at(datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=5)))).later(1).run_at.hour == 7


def test_at_a_past_moment_runs_as_soon_as_it_can(send: AnyPerformer, frozen: FrozenClock) -> None:
    job = send.at(NOON - timedelta(days=1)).later(1)
    assert job.run_at == NOON - timedelta(days=1)
    assert job.is_due


@pytest.mark.parametrize(
    ("moment", "problem", "message"),
    [
        (datetime(2026, 7, 1), ValueError, "at(datetime.datetime(2026, 7, 1, 0, 0)): this datetime is naive; give an"),
        (NOON.date(), TypeError, "at(datetime.date(2026, 3, 1)): give a datetime; for a delay there is after()"),
        (10, TypeError, "at(10): give a datetime; for a delay there is after()"),
        ("tomorrow", TypeError, "at('tomorrow'): give a datetime; for a delay there is after()"),
        (None, TypeError, "at(None): give a datetime; for a delay there is after()"),
    ],
)
def test_a_wrong_moment_is_an_error(send: AnyPerformer, moment: Any, problem: type[Exception], message: str) -> None:
    with pytest.raises(problem, match=f"^{re.escape(message)}"):
        send.at(moment)


def test_of_at_and_after_the_one_said_last_counts(send: AnyPerformer, frozen: FrozenClock) -> None:
    tomorrow = NOON + timedelta(days=1)
    assert send.at(tomorrow).after("5m").later(1).run_at == NOON + timedelta(minutes=5)
    assert send.after("5m").at(tomorrow).later(1).run_at == tomorrow
    assert send.after("5m").after("6m").later(1).run_at == NOON + timedelta(minutes=6)
    assert send.at(tomorrow).at(NOON).later(1).run_at == NOON


def test_using_after_and_at_can_be_chained_in_any_order(send: AnyPerformer, frozen: FrozenClock) -> None:
    chains = [
        send.using(queue="bulk", priority=1).using(priority=2).after("5m"),
        send.after("5m").using(priority=2, queue="mail").using(queue="bulk"),
        send.using(queue="bulk").at(NOON + timedelta(minutes=5)).using(priority=2),
    ]
    for chain in chains:
        job = chain.later(1)
        assert (job.queue, job.priority, job.run_at) == ("bulk", 2, NOON + timedelta(minutes=5))


def test_expires_counts_from_the_moment_it_may_run(send: AnyPerformer, frozen: FrozenClock) -> None:
    using = send.using(expires="10m")
    assert using.later(1).expires_at == NOON + timedelta(minutes=10)
    assert using.after("1h").later(1).expires_at == NOON + timedelta(minutes=70)
    assert using.at(NOON + timedelta(days=1)).later(1).expires_at == NOON + timedelta(days=1, minutes=10)
    assert using.at(NOON - timedelta(days=1)).later(1).expires_at == NOON - timedelta(days=1) + timedelta(minutes=10)


def test_a_moment_beyond_the_calendar_is_an_error(send: AnyPerformer) -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    assert send.at(last).later(1).run_at == last
    with pytest.raises(ValueError, match=r"^at\(.*\): in UTC this is no year from 1 to 9999$"):
        send.at(last.replace(tzinfo=timezone(timedelta(hours=-1))))
    using = send.at(last).using(expires="2h")
    for call in (lambda: using.later(1), lambda: using.later_many([(1,)]), lambda: using.prepare(1)):
        with pytest.raises(ValueError, match=r"^expires=2:00:00: at\(.*\) and that are after the year 9999"):
            call()
    assert rows() == [("tests.nowhere.send", [1], {})]


# -- many


def ids_of(queued: list[Queued]) -> list[int]:
    assert not any(one.duplicate for one in queued)
    return [one.id for one in queued]


def test_later_many_takes_tuples_dicts_and_prepared_jobs_and_answers_in_order(send: AnyPerformer) -> None:
    prepared = send.using(queue="bulk").prepare(3)
    queued = send.later_many([(1,), {"user_id": 2, "greeting": "ciao"}, prepared, (4, "hi")])
    jobs = [Job.objects.get(pk=pk) for pk in ids_of(queued)]
    assert [(job.args, job.kwargs) for job in jobs] == [
        ([1], {}), ([], {"user_id": 2, "greeting": "ciao"}), ([3], {}), ([4, "hi"], {}),
    ]  # fmt: skip
    assert [job.queue for job in jobs] == ["default", "default", "bulk", "default"]


def test_later_many_takes_a_generator(send: AnyPerformer) -> None:
    queued = send.later_many((number,) for number in range(2_500))
    assert len(set(ids_of(queued))) == 2_500
    by_id = dict(Job.objects.values_list("pk", "args"))
    assert [by_id[pk] for pk in ids_of(queued)] == [[number] for number in range(2_500)]


def test_later_many_of_nothing_queues_nothing(send: AnyPerformer) -> None:
    assert send.later_many([]) == []
    assert send.later_many(iter(())) == []
    assert rows() == []


def test_later_many_keeps_the_options_said(send: AnyPerformer, frozen: FrozenClock) -> None:
    send.using(queue="bulk", priority=3, expires="1h", meta={"why": "import"}).after("5m").later_many([(1,), (2,)])
    for job in Job.objects.all():
        assert (job.queue, job.priority, job.meta) == ("bulk", 3, {"why": "import"})
        assert (job.run_at, job.expires_at) == (NOON + timedelta(minutes=5), NOON + timedelta(minutes=65))


def test_rows_of_later_many_are_as_those_of_later(take: AnyPerformer, frozen: FrozenClock) -> None:
    using = take.using(queue="mail", priority=-3, expires="1h", keep=None, timeout=2.5, meta={"why": [1]}).after(5)
    one = values_of(using.later(1, when=NOON))
    [queued] = using.later_many([using.prepare(1, when=NOON)])
    many = values_of(Job.objects.get(pk=queued.id))
    assert {**one, "id": None} == {**many, "id": None}


WANTED = "give a tuple of arguments, as (5,), a dict of them, or prepare(…)"


@pytest.mark.parametrize(
    ("wrong", "problem", "message"),
    [
        (5, TypeError, f"a call of type int; {WANTED}"),
        ("abc", TypeError, f"a call of type str; {WANTED}"),
        ([5], TypeError, f"a call of type list; {WANTED}"),
        (None, TypeError, f"a call of type NoneType; {WANTED}"),
        ((1, 2, 3), TypeError, "tests.nowhere.send(user_id: 'int', greeting: 'str' = 'hello') -> 'str': too many"),
        ({"name": 1}, TypeError, "tests.nowhere.send(user_id: 'int', greeting: 'str' = 'hello') -> 'str': missing"),
        ((object(),), UnencodableValue, "args[0]: object cannot be stored; "),
    ],
)
def test_a_wrong_call_among_many_is_an_error_that_says_which_and_nothing_is_written(
    send: AnyPerformer, wrong: Any, problem: type[Exception], message: str
) -> None:
    for later_many in (send.later_many, async_to_sync(send.alater_many)):
        with pytest.raises(problem, match=f"^{re.escape(message)}") as caught:
            later_many([(1,), (2,), wrong, (4,)])
        assert caught.value.__notes__ == ["in later_many(): call [2] of tests.nowhere.send"]
    assert rows() == []


def test_later_many_of_bare_values_tells_how_to_write_them(send: AnyPerformer) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(f'a call of type int; {WANTED}')}"):
        send.later_many([1, 2, 3])  # type: ignore[list-item]


def test_a_value_whose_repr_fails_is_refused_all_the_same(send: AnyPerformer) -> None:
    class Unshowable:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    with pytest.raises(TypeError, match=r"^a call of type Unshowable; "):
        send.later_many([Unshowable()])  # type: ignore[list-item]
    with pytest.raises(UnencodableValue, match=r"^args\[0\]: .*Unshowable cannot be stored"):
        send.later(Unshowable())


def test_a_job_prepared_for_another_performer_is_refused(send: AnyPerformer, take: AnyPerformer) -> None:
    message = "this was prepared for tests.nowhere.take; enqueue([…]) takes jobs of several kinds"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        send.later_many([take.prepare(1)])
    assert rows() == []


def test_a_generator_that_fails_midway_queues_nothing(send: AnyPerformer) -> None:
    def calls() -> Iterator[tuple[int]]:
        yield (1,)
        raise LookupError("no more")

    with pytest.raises(LookupError, match=r"^no more$"):
        send.later_many(calls())
    assert rows() == []


# -- several kinds


def test_enqueue_takes_several_kinds_and_answers_in_order(send: AnyPerformer, take: AnyPerformer) -> None:
    queued = enqueue([
        send.prepare(1),
        take.using(queue="bulk").prepare(x=2),
        named("other.service", 3, queue="other"),
        send.prepare(4),
    ])  # fmt: skip
    jobs = [Job.objects.get(pk=pk) for pk in ids_of(queued)]
    assert [(job.name, job.args, job.kwargs, job.queue) for job in jobs] == [
        ("tests.nowhere.send", [1], {}, "default"),
        ("tests.nowhere.take", [], {"x": 2}, "bulk"),
        ("other.service", [3], {}, "other"),
        ("tests.nowhere.send", [4], {}, "default"),
    ]


def test_enqueue_takes_any_iterable_and_nothing_too(send: AnyPerformer) -> None:
    assert len(ids_of(enqueue(send.prepare(number) for number in (1, 2)))) == 2
    assert enqueue([]) == []


def test_a_prepared_job_can_be_queued_twice(send: AnyPerformer) -> None:
    prepared = send.prepare(1)
    first, second = ids_of(enqueue([prepared, prepared]))
    assert first != second


def test_preparing_queues_nothing_and_settles_every_option(send: AnyPerformer) -> None:
    with override_settings(DJANGO_JOBS={"DEFAULT_QUEUE": "early"}):
        prepared = send.prepare(1)
    assert rows() == []
    enqueue([prepared])
    assert only_job().queue == "early"


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([greet.prepare, 1], "enqueue(): [0] is of type method; give performer.prepare(…) or named(…)"),
        ([named("x"), greet], "enqueue(): [1] is of type Performer; give performer.prepare(…) or named(…)"),
        ([named("x"), ("x", 1)], "enqueue(): [1] is of type tuple; give performer.prepare(…) or named(…)"),
        (named("x"), "enqueue() takes a list of jobs: enqueue([…])"),
    ],
)
def test_what_is_not_prepared_is_refused_and_nothing_is_written(jobs: Any, message: str) -> None:
    for call in (enqueue, async_to_sync(aenqueue)):
        with pytest.raises(TypeError, match=exactly(message)):
            call(jobs)
    assert rows() == []


def test_named_takes_arguments_and_the_options_of_using(frozen: FrozenClock) -> None:
    enqueue([named("a.b", 1, who="Ada", options={"priority": 4, "expires": "1h", "keep": 0, "queue": "x"}, queue="y")])
    job = only_job()
    assert (job.name, job.args, job.kwargs) == ("a.b", [1], {"who": "Ada"})
    assert (job.priority, job.keep, job.expires_at, job.queue) == (4, 0.0, NOON + timedelta(hours=1), "y")


def test_named_fills_in_the_settings() -> None:
    with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 5}):
        enqueue([named("a.b")])
    assert options_of(only_job()) == ("default", 0, 5, 3, 300.0, 86_400.0, 1_209_600.0, True)


@pytest.mark.parametrize(
    ("name", "problem", "message"),
    [
        ("", ValueError, "name='': give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
        ("no such", ValueError, "name='no such': give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
        (greet, TypeError, "name=<Performer tests.shop.greet>: give a text"),
    ],
)
def test_named_refuses_wrong_names(name: Any, problem: type[Exception], message: str) -> None:
    with pytest.raises(problem, match=exactly(message)):
        named(name)


def test_named_queues_by_the_rules_of_queues() -> None:
    with pytest.raises(ValueError, match=r"^queue='two words': give 1 to 100 characters"):
        named("x", queue="two words")


# -- from async code


def test_async_code_queues_with_alater(send: AnyPerformer) -> None:
    async def view() -> tuple[Job, Job, list[Queued], list[Queued]]:
        return (
            await send.alater(1),
            await send.using(queue="bulk").alater(user_id=2),
            await send.alater_many((number,) for number in (3, 4)),
            await aenqueue([send.prepare(5), named("x", 6)]),
        )

    first, second, many, several = async_to_sync(view)()
    assert [first.pk, second.pk, *ids_of(many), *ids_of(several)] == list(
        Job.objects.order_by("pk").values_list("pk", flat=True)
    )
    assert [(args, kwargs) for _, args, kwargs in rows()] == [
        ([1], {}), ([], {"user_id": 2}), ([3], {}), ([4], {}), ([5], {}), ([6], {}),
    ]  # fmt: skip
    assert (second.queue, values_of(second)) == ("bulk", values_of(Job.objects.get(pk=second.pk)))


def test_alater_many_may_ask_the_database_for_its_arguments(send: AnyPerformer) -> None:
    User.objects.create(username="ada")
    queued = async_to_sync(send.alater_many)((user.pk,) for user in User.objects.all())
    assert len(ids_of(queued)) == 1


def test_alater_carries_language_and_time_zone(send: AnyPerformer) -> None:
    async def view() -> Job:
        with translation.override("fr"), django_timezone.override("Asia/Tokyo"):
            return await send.alater(1)

    assert async_to_sync(view)().meta == {"language": "fr", "time_zone": "Asia/Tokyo"}


def test_in_a_running_event_loop_each_sync_call_names_the_async_one(send: AnyPerformer) -> None:
    calls: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: send.later(1), "tests.nowhere.send.later()", "tests.nowhere.send.alater(…)"),
        (lambda: send.later_many([(1,)]), "tests.nowhere.send.later_many()", "tests.nowhere.send.alater_many(…)"),
        (lambda: send.after(5).later(1), "tests.nowhere.send.later()", "tests.nowhere.send.alater(…)"),
        (lambda: enqueue([]), "enqueue()", "aenqueue(…)"),
    ]

    async def view(call: Callable[[], Any]) -> None:
        call()

    for call, sync, asynchronous in calls:
        message = f"{sync} would block the running event loop; write: await {asynchronous}"
        with pytest.raises(SynchronousOnlyOperation, match=exactly(message)):
            async_to_sync(view)(call)
    assert rows() == []


def test_djangos_own_way_around_that_refusal_works(send: AnyPerformer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def view() -> None:
        send.using(queue="bulk").later(1)

    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    with override_settings(DJANGO_JOBS={"QUEUES": []}), pytest.raises(ValueError, match=r"^queue 'bulk' is not in"):
        async_to_sync(view)()


def test_preparing_needs_no_database_and_so_works_in_an_event_loop(send: AnyPerformer) -> None:
    async def view() -> Any:
        return send.using(queue="bulk").prepare(1)

    assert async_to_sync(view)().queue == "bulk"


# -- model instances


def test_a_model_instance_is_stored_as_a_reference(take: AnyPerformer) -> None:
    user = User.objects.create(username="ada")
    reference = {"$model": {"label": "auth.User", "pk": user.pk, "alias": "default"}}
    job = take.later(user, users=[user], by_name={"ada": user})
    assert (job.args, job.kwargs) == ([reference], {"users": [reference], "by_name": {"ada": reference}})


def test_a_lazy_instance_as_that_of_a_request_is_one_too(take: AnyPerformer) -> None:
    user = User.objects.create(username="ada")
    job = take.later(SimpleLazyObject(lambda: user))
    assert job.args == [{"$model": {"label": "auth.User", "pk": user.pk, "alias": "default"}}]


@pytest.mark.django_db(databases=["default", "other"])
def test_the_alias_of_an_instance_is_kept(take: AnyPerformer) -> None:
    user = User.objects.using("other").create(username="ada")
    assert take.later(user).args == [{"$model": {"label": "auth.User", "pk": user.pk, "alias": "other"}}]


def test_an_instance_that_is_not_in_the_database_is_refused_with_its_path(take: AnyPerformer) -> None:
    gone = User.objects.create(username="ada")
    gone.delete()
    for unsaved in (User(username="eve"), User(pk=5, username="eve"), gone):
        calls: list[tuple[partial[Job], str]] = [
            (partial(take.later, unsaved), "args[0]"),
            (partial(take.later, users=[1, unsaved]), "kwargs.users[1]"),
            (partial(take.later, {"by": {"name": unsaved}}), "args[0].by.name"),
        ]
        for call, path in calls:
            message = f"{path}: this auth.User is not in the database; save it first"
            with pytest.raises(UnencodableValue, match=exactly(message)):
                call()
    assert rows() == []


def test_the_callers_objects_are_not_changed(take: AnyPerformer) -> None:
    user = User.objects.create(username="ada")
    lines = [1, (2, {"user": user})]
    meta = {"why": ["import"]}
    options = {"priority": 1}
    take.using(meta=meta).later(lines, lines=lines)
    named("x", lines, queue="bulk", options=options)  # type: ignore[arg-type]
    assert lines == [1, (2, {"user": user})]
    assert lines[1][1]["user"] is user  # type: ignore[index]
    assert (meta, options) == ({"why": ["import"]}, {"priority": 1})


def test_what_meta_holds_is_read_at_each_call(take: AnyPerformer) -> None:
    meta = {"why": ["import"]}
    using = take.using(meta=meta)
    first = using.later()
    meta["why"].append("again")
    assert (first.meta, using.later().meta) == ({"why": ["import"]}, {"why": ["import", "again"]})


def test_meta_said_is_not_followed_when_it_changes_later(take: AnyPerformer) -> None:
    meta = {"why": "import"}
    using = take.using(meta=meta)
    meta["why"] = "export"
    assert using.later().meta == {"why": "import"}


# -- meta


def test_language_and_time_zone_are_noted_only_where_they_differ_from_the_projects(send: AnyPerformer) -> None:
    assert send.later(1).meta == {}
    with translation.override("en"), django_timezone.override("Europe/Paris"):
        assert send.later(1).meta == {}
    with translation.override("fr"):
        assert send.later(1).meta == {"language": "fr"}
    with django_timezone.override("Asia/Tokyo"):
        assert send.later(1).meta == {"time_zone": "Asia/Tokyo"}
    with translation.override(None):
        assert send.later(1).meta == {}


def test_zones_of_one_offset_are_told_apart(send: AnyPerformer) -> None:
    for name in ("here", "there"):
        with django_timezone.override(timezone(timedelta(hours=5), name)):
            assert send.later(1).meta == {"time_zone": name}
            assert send.prepare(1).draft.meta == f'{{"time_zone":"{name}"}}'


def test_calls_in_the_same_surroundings_share_a_draft(send: AnyPerformer) -> None:
    first, second = send.prepare(1), send.prepare(2)
    with translation.override("fr"):
        other = send.prepare(3)
    assert first.draft is second.draft
    assert other.draft is not first.draft
    assert send.prepare(4).draft == first.draft


def test_what_using_says_goes_beside_them_and_wins(send: AnyPerformer) -> None:
    with translation.override("fr"):
        assert send.using(meta={"why": "import"}).later(1).meta == {"language": "fr", "why": "import"}
        assert send.using(meta={"language": "de"}).later(1).meta == {"language": "de"}


def test_named_and_many_note_them_too(send: AnyPerformer) -> None:
    with translation.override("fr"):
        send.later_many([(1,)])
        enqueue([named("x"), send.prepare(2)])
    assert [job.meta for job in Job.objects.all()] == [{"language": "fr"}] * 3


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"why": object()}, "meta.why: object cannot be stored; "),
        ({"why": [1, math.nan]}, "meta.why[1]: NaN cannot be stored; "),
        ({1: "why"}, "meta: "),
        ({"why": User(username="eve")}, "meta.why: "),
    ],
)
def test_meta_that_cannot_be_stored_is_refused_with_its_path(send: AnyPerformer, meta: Any, message: str) -> None:
    with pytest.raises(UnencodableValue, match=f"^{re.escape(message)}"):
        send.using(meta=meta).later(1)
    assert rows() == []
