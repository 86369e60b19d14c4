from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import IntEnum
from functools import partial, wraps
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db.models import TextChoices
from django.test import override_settings

from django_jobs import Attempt, Snooze, backoff, job
from django_jobs.performers import UNSET, AnyPerformer, clashes, forget, get_performer, registered
from tests.declaring import at_the_top, declared

Declare = Callable[..., AnyPerformer]

RULE = "give 1 to 100 characters of A-Z a-z 0-9 _ - . :"


def plain(size: int = 1) -> int:
    """Give the size back."""
    return size


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


# -- names


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("shop.jobs", "shop.send"),
        ("shop.jobs.mail", "shop.send"),
        ("shop.jobs.mail.welcome", "shop.send"),
        ("acme.shop.jobs", "acme.shop.send"),
        ("acme.jobs.shop.jobs.mail", "acme.jobs.shop.send"),
        ("jobs", "send"),
        ("jobs.mail", "send"),
        ("shop.tasks", "shop.tasks.send"),
        ("shop.myjobs", "shop.myjobs.send"),
    ],
)
def test_the_name_is_the_module_path_up_to_its_last_jobs_part_and_the_function(module: str, name: str) -> None:
    def send() -> None: ...

    with declared(send, module=module) as performer:
        assert performer.name == name


def test_an_explicit_name_stands_as_it_is(declare: Declare) -> None:
    assert declare(plain, name="billing:charge-v2.1_x").name == "billing:charge-v2.1_x"


def test_aliases_are_found_as_the_name_is(declare: Declare) -> None:
    performer = declare(plain, name="billing.charge", aliases=["billing.old", "billing.older"])
    assert performer.aliases == ("billing.old", "billing.older")
    assert [get_performer(name) for name in ("billing.charge", "billing.old", "billing.older")] == [performer] * 3


def test_a_single_alias_may_stand_without_a_list(declare: Declare) -> None:
    assert declare(plain, name="billing.charge", aliases="billing.old").aliases == ("billing.old",)


def test_a_name_may_have_100_characters(declare: Declare) -> None:
    assert declare(plain, name="x" * 100).name == "x" * 100


@pytest.mark.parametrize("name", ["", "two words", "größe", "a/b", "line\n", "x" * 101, "nul\0"])
def test_a_name_of_other_characters_or_length_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=exactly(f"name={name!r}: {RULE}")):
        job(name)


def test_a_very_long_name_is_shown_in_part() -> None:
    with pytest.raises(ValueError, match=exactly(f"name='{'x' * 119}: {RULE}")):
        job("x" * 5_000)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=exactly("name=5: give a text")):
        job(5)  # type: ignore[call-overload]


def test_a_default_name_must_follow_the_rule_too() -> None:
    def grüßen() -> None: ...  # noqa: PLC2401 - it is what is tested

    with pytest.raises(ValueError, match=exactly(f"name='tests.nowhere.grüßen': {RULE}")), declared(grüßen):
        pass


def test_a_module_path_too_long_for_a_name_asks_for_an_explicit_one() -> None:
    def send() -> None: ...

    module = f"{'a.' * 60}jobs"
    with pytest.raises(ValueError, match=exactly(f"name='{'a.' * 59}a: {RULE}")), declared(send, module=module):
        pass
    with declared(send, module=module, name="short") as performer:
        assert performer.name == "short"


@pytest.mark.parametrize(
    ("aliases", "problem", "message"),
    [
        (5, TypeError, "aliases=5: give a list of names"),
        ([5], TypeError, "aliases=5: give a text"),
        (["fine", "not fine"], ValueError, f"aliases='not fine': {RULE}"),
    ],
)
def test_wrong_aliases_are_refused(aliases: Any, problem: type[Exception], message: str) -> None:
    with pytest.raises(problem, match=exactly(message)):
        job(aliases=aliases)


# -- options


@pytest.mark.parametrize(
    ("option", "value", "problem", "message"),
    [
        ("queue", 7, TypeError, "queue=7: give a text"),
        ("queue", None, TypeError, "queue=None: give a text"),
        ("queue", "", ValueError, f"queue='': {RULE}"),
        ("queue", "my queue", ValueError, f"queue='my queue': {RULE}"),
        ("queue", "q" * 101, ValueError, f"queue='{'q' * 101}': {RULE}"),
        ("priority", 101, ValueError, "priority=101: give a whole number from -100 to 100, higher runs first"),
        ("priority", -101, ValueError, "priority=-101: give a whole number from -100 to 100, higher runs first"),
        ("priority", "high", TypeError, "priority='high': give a whole number from -100 to 100, higher runs first"),
        ("priority", 1.0, TypeError, "priority=1.0: give a whole number from -100 to 100, higher runs first"),
        ("priority", True, TypeError, "priority=True: give a whole number from -100 to 100, higher runs first"),
        ("max_attempts", 0, ValueError, "max_attempts=0: give a whole number from 1 to 1,000,000"),
        ("max_attempts", -1, ValueError, "max_attempts=-1: give a whole number from 1 to 1,000,000"),
        ("max_attempts", 1_000_001, ValueError, "max_attempts=1000001: give a whole number from 1 to 1,000,000"),
        ("max_attempts", None, TypeError, "max_attempts=None: give a whole number from 1 to 1,000,000"),
        ("max_attempts", True, TypeError, "max_attempts=True: give a whole number from 1 to 1,000,000"),
        ("max_crashes", 0, ValueError, "max_crashes=0: give a whole number from 1 to 1,000,000"),
        ("max_crashes", "3", TypeError, "max_crashes='3': give a whole number from 1 to 1,000,000"),
        ("timeout", 0, ValueError, "timeout=0: give a duration above 0, or None for no limit"),
        ("timeout", "0s", ValueError, "timeout='0s': give a duration above 0, or None for no limit"),
        ("timeout", -1, ValueError, 'timeout: -1 is negative; give seconds, a timedelta or text like "5m"'),
        ("timeout", [], TypeError, 'timeout: [] is not a duration; give seconds, a timedelta or text like "5m"'),
        ("timeout", "soon", ValueError, "timeout: 'soon' is not a duration; give seconds, a timedelta or text like"),
        ("timeout", float("nan"), ValueError, "timeout: nan is not a duration; give seconds, a timedelta or text"),
        ("keep", -1, ValueError, 'keep: -1 is negative; give seconds, a timedelta or text like "5m"'),
        ("keep", True, TypeError, 'keep: True is not a duration; give seconds, a timedelta or text like "5m"'),
        ("keep_failed", "1y", ValueError, "keep_failed: '1y' is not a duration; give seconds, a timedelta or text"),
        ("expires", timedelta(-1), ValueError, "expires: datetime.timedelta(days=-1) is negative; give seconds,"),
        ("restart", 1, TypeError, "restart=1: give True or False"),
        ("atomic", "yes", TypeError, "atomic='yes': give True or False"),
        (
            "retry_on",
            "KeyError",
            TypeError,
            "retry_on='KeyError': give subclasses of Exception, one or a tuple of them",
        ),
        (
            "retry_on",
            (KeyError, 5),
            TypeError,
            "retry_on=(<class 'KeyError'>, 5): give subclasses of Exception, one or",
        ),
        ("give_up_on", SystemExit, TypeError, "give_up_on=<class 'SystemExit'>: give subclasses of Exception, one or"),
        ("give_up_on", KeyError(), TypeError, "give_up_on=KeyError(): give subclasses of Exception, one or a tuple"),
        ("give_up_on", Snooze, TypeError, "give_up_on=<class 'django_jobs.exceptions.Snooze'>: Snooze says by itself"),
        ("takes_attempt", "yes", TypeError, "takes_attempt='yes': give True or False"),
    ],
)
def test_a_wrong_value_is_an_error_at_declaration_that_names_option_value_and_remedy(
    option: str, value: Any, problem: type[Exception], message: str
) -> None:
    with pytest.raises(problem, match=f"^{re.escape(message)}"):
        job(**{option: value})


BACKOFF = "give one of django_jobs.backoff, or a callable of the attempt's number and the exception"


def test_a_backoff_must_be_callable() -> None:
    with pytest.raises(TypeError, match=exactly(f"backoff=5: {BACKOFF}")):
        job(backoff=5)  # type: ignore[call-overload]


def test_a_backoff_must_take_the_number_of_the_attempt() -> None:
    def no_number() -> int:
        return 5

    with pytest.raises(TypeError, match=rf"^backoff=<function .*no_number.* takes \(\) -> 'int'; {BACKOFF}$"):
        job(backoff=no_number)  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", [backoff.fixed(5), lambda n: n, lambda n, error: n, lambda *args: 5])
def test_any_backoff_of_number_and_perhaps_exception_will_do(chosen: Any, declare: Declare) -> None:
    assert declare(plain, backoff=chosen).backoff is chosen


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("prio", "@job() has no option 'prio'; did you mean priority?"),
        ("attempts", "@job() has no option 'attempts'; did you mean max_attempts?"),
        ("meta", "@job() has no option 'meta'; it takes queue, priority, max_attempts, max_crashes, backoff, timeout"),
        ("start", "@job() has no option 'start'; "),
        ("uniqe", "@job() has no option 'uniqe'; did you mean unique?"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_or_all_of_them(option: str, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        job(**{option: "x"})  # type: ignore[call-overload]


def test_every_option_is_kept_with_durations_read(declare: Declare) -> None:
    chosen = backoff.fixed(5)
    options = declare(
        plain,
        queue="mail",
        priority=-100,
        max_attempts=1,
        max_crashes=9,
        backoff=chosen,
        timeout="1m30s",
        keep=timedelta(days=2),
        keep_failed=60,
        expires="1h",
        restart=False,
    ).options
    assert (options.queue, options.priority, options.max_attempts, options.max_crashes) == ("mail", -100, 1, 9)
    assert options.backoff is chosen
    assert (options.timeout, options.keep) == (timedelta(seconds=90), timedelta(days=2))
    assert (options.keep_failed, options.expires) == (timedelta(minutes=1), timedelta(hours=1))
    assert options.restart is False


def test_none_means_without_end_where_an_option_allows_it(declare: Declare) -> None:
    options = declare(plain, timeout=None, keep=None, keep_failed=None, expires=None).options
    assert (options.timeout, options.keep, options.keep_failed, options.expires) == (None, None, None, None)


def test_what_is_not_given_is_unset_and_no_setting_is_read(declare: Declare) -> None:
    with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": "wrong"}):
        options = declare(plain).options
    every: list[object] = [options.queue, options.priority, options.max_attempts, options.max_crashes, options.backoff]
    every += [options.timeout, options.keep, options.keep_failed, options.expires, options.restart, options.start]
    assert every == [UNSET] * 11
    assert repr(UNSET) == "UNSET"


def test_members_of_enumerations_are_taken_as_the_plain_values_they_are(declare: Declare) -> None:
    class Queues(TextChoices):
        MAIL = "mail"

    class Priority(IntEnum):
        HIGH = 50

    options = declare(plain, queue=Queues.MAIL, priority=Priority.HIGH).options
    assert (options.queue, type(options.queue)) == ("mail", str)
    assert (options.priority, type(options.priority)) == (50, int)


# -- what may be a performer


def test_a_lambda_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^@job on a lambda .*: give it a name with def, at the top level of a module$"
    ):
        job(lambda: None)


def test_a_function_within_a_function_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(TypeError, match="inner, a function within a function: a worker can't import it; move it to"):
        job(inner)


class Shop:
    def method(self) -> None: ...

    @classmethod
    def of_the_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...


@pytest.mark.parametrize("method", [Shop.method, Shop.static])
def test_a_function_in_a_class_is_refused(method: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"^@job on Shop\.\w+, a method: a worker can't import it; move it to the top"):
        job(method)


@pytest.mark.parametrize("thing", [Shop, Shop(), Shop().method, Shop.of_the_class, partial(plain, 1), len])
def test_what_is_no_function_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"^(@job on .*: give a function|name=.*: give a text)$"):
        job(thing)


def test_a_performer_is_not_made_a_performer_again(declare: Declare) -> None:
    performer = declare(plain, name="tests.plain")
    with pytest.raises(TypeError, match=exactly("@job on <Performer tests.plain>: give a function")):
        job(performer)


def test_a_function_of_main_is_refused() -> None:
    def send() -> None: ...

    with (
        pytest.raises(
            TypeError, match=r"^@job on send in __main__: a worker can't import it; move it to a `jobs` module"
        ),
        declared(send, module="__main__"),
    ):
        pass


def test_generators_are_refused() -> None:
    def some() -> Iterable[int]:
        yield 1

    async def asynchronous() -> Any:
        yield 1

    message = "a generator: nothing would run its body; use return instead of yield"
    for function in (some, asynchronous):
        with pytest.raises(TypeError, match=message), declared(function):
            pass


def test_what_is_refused_is_not_registered() -> None:
    before = clashes()
    with pytest.raises(TypeError):
        job("tests.refused")(lambda: None)
    with pytest.raises(LookupError):
        get_performer("tests.refused")
    assert clashes() == before


def test_a_decorated_function_is_still_one(declare: Declare) -> None:
    def loud(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return 10 * function(*args, **kwargs)

        return wrapper

    performer = declare(loud(plain), name="tests.loud")
    assert performer(2) == 20
    assert str(performer.signature) == "(size: 'int' = 1) -> 'int'"


# -- what a performer is


def test_a_plain_call_runs_the_function(declare: Declare) -> None:
    performer = declare(plain)
    assert (performer(), performer(3), performer(size=4)) == (1, 3, 4)


def test_an_async_performer_gives_a_coroutine_and_says_that_it_does(declare: Declare) -> None:
    async def double(size: int) -> int:
        return 2 * size

    performer = declare(double)
    assert performer.is_async
    assert iscoroutinefunction(performer)
    assert async_to_sync(performer)(4) == 8


def test_a_performer_looks_like_its_function(declare: Declare) -> None:
    performer = declare(plain, name="tests.plain")
    assert performer.__name__ == "plain"  # type: ignore[attr-defined]
    assert performer.__doc__ == "Give the size back."
    assert not performer.is_async
    assert not iscoroutinefunction(performer)
    assert repr(performer) == "<Performer tests.plain>"


@pytest.mark.parametrize("decorate", [job, job(), job(None)])
def test_job_may_stand_bare_or_with_empty_parentheses(decorate: Callable[..., AnyPerformer]) -> None:
    def send() -> None: ...

    with at_the_top(send):
        performer = decorate(send)
    forget(performer)
    assert (performer.name, performer.function) == ("tests.nowhere.send", send)


def test_options_count_where_job_is_called_with_the_function() -> None:
    def send() -> None: ...

    with at_the_top(send):
        performer: AnyPerformer = job(send, queue="mail")  # type: ignore[call-overload]
    forget(performer)
    assert (performer.name, performer.options.queue) == ("tests.nowhere.send", "mail")


# -- the attempt as first argument


def test_takes_attempt_takes_the_first_parameter_off_the_signature(declare: Declare) -> None:
    def charge(attempt: Attempt, invoice: int, *, currency: str = "EUR") -> None: ...

    performer = declare(charge, takes_attempt=True)
    assert str(performer.signature) == "(invoice: 'int', *, currency: 'str' = 'EUR') -> 'None'"


@pytest.mark.parametrize(
    ("function", "signature"),
    [(lambda: None, "()"), (lambda *, attempt: None, "(*, attempt)"), (lambda *args: None, "(*args)")],
)
def test_takes_attempt_needs_a_first_positional_parameter(function: Callable[..., Any], signature: str) -> None:
    function.__name__ = "charge"
    message = f"tests.nowhere.charge{signature}: takes_attempt=True needs a first positional parameter for the Attempt"
    with pytest.raises(TypeError, match=exactly(message)), declared(function, takes_attempt=True):
        pass


# -- atomic


def test_a_performer_is_atomic_only_if_it_says_so(declare: Declare) -> None:
    assert declare(plain).is_atomic is False
    assert declare(plain, atomic=False).is_atomic is False
    assert declare(plain, atomic=True).is_atomic is True


def test_single_jobs_cannot_be_made_atomic(declare: Declare) -> None:
    with pytest.raises(TypeError, match=r"^using\(\) has no option 'atomic'; it takes queue, priority, max_attempts, "):
        declare(plain).using(atomic=True)  # type: ignore[call-arg]


def test_an_async_function_cannot_be_atomic() -> None:
    async def send() -> None: ...

    message = (
        f"@job(atomic=True) on {send.__name__}, an async function: Django's transactions can't span an await; use def"
    )
    with pytest.raises(TypeError, match=exactly(message)), declared(send, atomic=True):
        pass
    assert "tests.nowhere.send" not in registered()
