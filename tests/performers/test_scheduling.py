from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import every
from django_jobs.exceptions import UnencodableValue
from django_jobs.performers import AnyPerformer, Declared, forget, registered, schedule_clashes
from django_jobs.performers.scheduling import declared as schedules
from django_jobs.performers.scheduling import hash_of
from tests.declaring import declared

Declare = Callable[..., AnyPerformer]

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


def report(size: int = 1, *, to: str = "") -> None: ...


def needy(customer_id: int) -> None: ...


@pytest.fixture
def performer() -> Iterator[AnyPerformer]:
    with declared(report, name="shop.report") as performer:
        yield performer


def ours() -> list[Declared]:
    """Give the schedules that the test has declared; apps of the suite have some of their own."""
    return [one for one in schedules() if one.performer in {"shop.report", "shop.other"}]


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


# -- what may be said


def test_what_is_not_said_is_left_to_settings_and_performer(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer)
    assert ours() == [
        Declared(
            name="shop.report", performer="shop.report", cron="0 3 * * *", every_seconds=None, time_zone="", args="[]",
            kwargs="{}", queue="", priority=None, missed="once", overlap="allow", jitter=0.0, starts=None, ends=None,
        )
    ]  # fmt: skip


def test_all_that_may_be_said(performer: AnyPerformer) -> None:
    every(
        "0  3 * *  *", performer, args=[1], kwargs={"to": "ada"}, name="Nightly: the report", queue="slow", priority=-5,
        time_zone="Europe/Paris", missed="all", overlap="skip", jitter="2m",
        starts=datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=1))), ends=MARCH,
    )  # fmt: skip
    assert ours() == [
        Declared(
            name="Nightly: the report", performer="shop.report", cron="0 3 * * *", every_seconds=None,
            time_zone="Europe/Paris", args="[1]", kwargs='{"to":"ada"}', queue="slow", priority=-5, missed="all",
            overlap="skip", jitter=120.0, starts=MARCH, ends=MARCH,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("timing", "cron", "seconds"),
    [
        ("*/5 * * * *", "*/5 * * * *", None),
        ("30 3 * * MON-FRI", "30 3 * * MON-FRI", None),
        ("*/10 * * * * *", "*/10 * * * * *", None),
        ("@daily", "@daily", None),
        (timedelta(minutes=10), "", 600.0),
        (timedelta(seconds=0.1), "", 0.1),
    ],
)
def test_a_timing_is_a_cron_line_a_word_or_an_interval(
    performer: AnyPerformer, timing: str | timedelta, cron: str, seconds: float | None
) -> None:
    every(timing, performer)
    assert [(one.cron, one.every_seconds) for one in ours()] == [(cron, seconds)]


def test_a_performer_may_have_a_schedule_of_its_own_name(declare: Declare) -> None:
    declare(report, name="shop.report", schedule=timedelta(hours=1))
    declare(needy, name="shop.other")
    assert [(one.name, one.performer, one.every_seconds) for one in ours()] == [("shop.report", "shop.report", 3600.0)]


def test_a_performer_may_have_several_schedules(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, args=(1,), name="small")
    every("0 4 * * SUN", performer, args=(100,), name="big")
    assert [(one.name, one.args) for one in ours()] == [("big", "[100]"), ("small", "[1]")]


def test_arguments_are_stored_as_those_of_jobs_are(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, args=(date(2026, 3, 1),))
    assert [one.args for one in ours()] == ['[{"$date":"2026-03-01"}]']


def test_a_performer_that_takes_the_attempt_is_given_no_other_argument_by_it(declare: Declare) -> None:
    def attempted(attempt: Any, size: int = 1) -> None: ...

    declare(attempted, name="shop.report", takes_attempt=True, schedule="0 3 * * *")
    assert [one.name for one in ours()] == ["shop.report"]


def test_overlap_may_be_skipped_where_a_key_was_taken_away(declare: Declare) -> None:
    performer = declare(report, name="shop.report", unique=None, unique_while_waiting=None)
    every("0 3 * * *", performer, overlap="skip")
    assert [one.overlap for one in ours()] == ["skip"]


def test_a_schedule_goes_with_its_performer(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="nightly")
    forget(performer)
    assert ours() == []


# -- what is refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "60 * * * *",
            (
                "cron line '60 * * * *': minute '60' can't be; give 0-59, *, lists, ranges and steps of them, "
                'as in "30 3 * * MON-FRI"'
            ),
        ),
        (
            "0 3 * *",
            (
                "cron line '0 3 * *' has 4 fields; give five (minute, hour, day of month, month, day of week), "
                'as in "30 3 * * MON-FRI", or six with seconds before them'
            ),
        ),
        (
            "0 3 31 2 *",
            (
                "cron line '0 3 31 2 *': day of month '31' can't be; give 1-31, L (the last) or LW (the last weekday), "
                '*, lists, ranges and steps of them, as in "30 3 * * MON-FRI"'
            ),
        ),
        (
            "@fortnightly",
            (
                "cron line '@fortnightly': there is no such word; give one of @annually, @daily, @hourly, @midnight, "
                "@monthly, @weekly, @yearly, or five fields"
            ),
        ),
        (
            ",".join(["1"] * 100) + " 3 * * *",
            "every(): a cron line of 207 characters: give 200 at the most, or two schedules",
        ),
    ],
    ids=["minute", "fields", "date", "word", "length"],
)
def test_o55_a_cron_line_that_cannot_be_is_refused_when_declared(
    performer: AnyPerformer, line: str, message: str
) -> None:
    with pytest.raises(ValueError, match=exactly(message)):
        every(line, performer)
    assert ours() == []


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        (
            {"time_zone": "Mars/Base"},
            ValueError,
            ("time zone 'Mars/Base': there is none of this name here; give one such as 'Europe/Paris' or 'UTC'"),
        ),
        (
            {"time_zone": ""},
            ValueError,
            ("time zone '': there is none of this name here; give one such as 'Europe/Paris' or 'UTC'"),
        ),
        (
            {"time_zone": UTC},
            TypeError,
            ("every(): time_zone=datetime.timezone.utc: give the key of a zone, such as 'Europe/Paris'"),
        ),
        ({"name": ""}, ValueError, "every(): name='': give 1 to 200 characters that can be seen"),
        ({"name": " nightly"}, ValueError, "every(): name=' nightly': give 1 to 200 characters that can be seen"),
        ({"name": "a\nb"}, ValueError, r"every(): name='a\nb': give 1 to 200 characters that can be seen"),
        ({"name": "\0"}, ValueError, r"every(): name='\x00': give 1 to 200 characters that can be seen"),
        ({"name": "\ud800"}, ValueError, r"every(): name='\ud800': give 1 to 200 characters that can be seen"),
        ({"name": "x" * 201}, ValueError, f"every(): name='{'x' * 201}': give 1 to 200 characters that can be seen"),
        ({"name": 5}, TypeError, "every(): name=5: give a text"),
        ({"queue": "a b"}, ValueError, "queue='a b': give 1 to 100 characters of A-Z a-z 0-9 _ - . :"),
        ({"queue": None}, TypeError, "queue=None: give a text"),
        ({"priority": 101}, ValueError, "priority=101: give a whole number from -100 to 100, higher runs first"),
        ({"priority": "5"}, TypeError, "priority='5': give a whole number from -100 to 100, higher runs first"),
        ({"missed": "never"}, ValueError, "every(): missed='never': give one of 'once', 'skip', 'all'"),
        ({"missed": None}, ValueError, "every(): missed=None: give one of 'once', 'skip', 'all'"),
        ({"overlap": "queue"}, ValueError, "every(): overlap='queue': give one of 'allow', 'skip'"),
        ({"overlap": []}, ValueError, "every(): overlap=[]: give one of 'allow', 'skip'"),
        ({"jitter": -1}, ValueError, 'every() jitter: -1 is negative; give seconds, a timedelta or text like "5m"'),
        (
            {"jitter": None},
            TypeError,
            ('every() jitter: None is not a duration; give seconds, a timedelta or text like "5m"'),
        ),
        (
            {"starts": datetime(2026, 3, 1)},
            ValueError,
            (
                "every() starts(datetime.datetime(2026, 3, 1, 0, 0)): this "
                "datetime is naive; give an aware one, as django.utils.timezone.make_aware() does"
            ),
        ),
        (
            {"ends": datetime(2026, 3, 1)},
            ValueError,
            (
                "every() ends(datetime.datetime(2026, 3, 1, 0, 0)): this "
                "datetime is naive; give an aware one, as django.utils.timezone.make_aware() does"
            ),
        ),
        ({"starts": date(2026, 3, 1)}, TypeError, "every(): starts=datetime.date(2026, 3, 1): give an aware datetime"),
        ({"ends": "soon"}, TypeError, "every(): ends='soon': give an aware datetime"),
        (
            {"starts": MARCH, "ends": MARCH - timedelta(seconds=1)},
            ValueError,
            (
                "every(): ends=2026-02-28 23:59:59+00:00 "
                "is before starts=2026-03-01 00:00:00+00:00: no tick would ever come"
            ),
        ),
        (
            {"args": (1, 2)},
            TypeError,
            (
                "every(): shop.report(size: 'int' = 1, *, to: 'str' = '') -> 'None': too many "
                "positional arguments; a schedule gives it these arguments"
            ),
        ),
        (
            {"kwargs": {"sise": 1}},
            TypeError,
            (
                "every(): shop.report(size: 'int' = 1, *, to: 'str' = '') -> 'None': got "
                "an unexpected keyword argument 'sise'; a schedule gives it these arguments"
            ),
        ),
        ({"args": "ab"}, TypeError, "every(): args='ab': give a tuple of arguments; one alone is written (x,)"),
        ({"args": 5}, TypeError, "every(): args=5: give a tuple of arguments; one alone is written (x,)"),
        (
            {"args": {"size": 1}},
            TypeError,
            ("every(): args={'size': 1}: give a tuple of arguments; one alone is written (x,)"),
        ),
        ({"kwargs": [1]}, TypeError, "every(): kwargs=[1]: give a dict of arguments by name"),
        ({"args": (float("nan"),)}, UnencodableValue, None),
        (
            {"kwargs": {"to": object()}},
            UnencodableValue,
            (
                "kwargs.to: object cannot be stored; pass plain values, such "
                "as str(value) or list(value), or a key to fetch it by"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_when_declared(
    performer: AnyPerformer, said: dict[str, Any], error: type[Exception], message: str | None
) -> None:
    with pytest.raises(error, match=None if message is None else exactly(message)):
        every("0 3 * * *", performer, **said)
    assert ours() == []


@pytest.mark.parametrize(
    ("timing", "error", "message"),
    [
        (5, TypeError, 'every(): 5: give a cron line, as in "30 3 * * MON-FRI", or a timedelta'),
        (None, TypeError, 'every(): None: give a cron line, as in "30 3 * * MON-FRI", or a timedelta'),
        (timedelta(0), ValueError, "every(): an interval of 0:00:00: give a tenth of a second or more"),
        (
            timedelta(seconds=0.099),
            ValueError,
            "every(): an interval of 0:00:00.099000: give a tenth of a second or more",
        ),
        (
            timedelta(seconds=-5),
            ValueError,
            (
                "every() interval: datetime.timedelta(days=-1, seconds=86395) is negative; "
                'give seconds, a timedelta or text like "5m"'
            ),
        ),
        (
            timedelta(days=36_526),
            ValueError,
            (
                "every() interval: datetime.timedelta(days=36526) is longer than 100 years; "
                'give seconds, a timedelta or text like "5m"'
            ),
        ),
    ],
)
def test_a_timing_of_another_kind_is_refused(
    performer: AnyPerformer, timing: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=exactly(message)):
        every(timing, performer)


def test_a_function_that_is_no_performer_is_refused() -> None:
    with pytest.raises(TypeError, match="give a performer, which is what @job made of a function"):
        every("0 3 * * *", report)  # type: ignore[arg-type]  # the test is about it


@pytest.mark.parametrize("key", ["unique", "unique_while_waiting"])
def test_overlap_skip_and_a_key_of_the_performers_are_refused_together(declare: Declare, key: str) -> None:
    performer = declare(report, name="shop.report", **{key: True})
    message = "every(): overlap='skip' is a unique key, and shop.report has one of its own; leave out one of them"
    with pytest.raises(ValueError, match=exactly(message)):
        every("0 3 * * *", performer, overlap="skip")


# -- @job(schedule=…)


def test_a_zone_without_a_schedule_is_refused() -> None:
    message = "@job(): time_zone='UTC' is that of a schedule, so give schedule, too"
    with pytest.raises(ValueError, match=exactly(message)), declared(report, time_zone="UTC"):
        pass


def test_a_schedule_gives_no_arguments_that_a_performer_needs() -> None:
    message = (
        "@job(schedule=…): shop.needy(customer_id: 'int') -> 'None': missing a required argument: 'customer_id'; "
        "a schedule gives it these arguments"
    )
    with pytest.raises(TypeError, match=exactly(message)), declared(needy, name="shop.needy", schedule="0 3 * * *"):
        pass


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"schedule": "61 * * * *"}, ValueError),
        ({"schedule": ""}, ValueError),
        ({"schedule": 5}, TypeError),
        ({"schedule": "* * * * *", "time_zone": "Mars/Base"}, ValueError),
        ({"schedule": "* * * * *", "time_zone": 5}, TypeError),
    ],
)
def test_a_performer_whose_schedule_is_refused_is_not_registered(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error), declared(report, name="shop.refused", **options):
        pass
    assert "shop.refused" not in registered()


# -- names


def test_of_two_of_one_name_the_first_counts_and_both_are_told(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="nightly")
    every("0 4 * * *", performer, name="nightly")
    assert [one.cron for one in ours()] == ["0 3 * * *"]
    assert [(one.cron, other.cron) for one, other in schedule_clashes()] == [("0 3 * * *", "0 4 * * *")]
    forget(performer)
    assert schedule_clashes() == []


def test_what_is_declared_twice_in_the_same_words_is_one(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="nightly")
    every("0 3 * * *", performer, name="nightly")
    assert [one.name for one in ours()] == ["nightly"]
    assert schedule_clashes() == []


SOURCE = """
from django_jobs import every, job

@job("shop.report", schedule="0 3 * * *")
def report(): ...

every("0 {hour} * * *", report, name="early")
"""


def test_a_module_that_is_executed_again_declares_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_of_tests")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for hour in (4, 5):
        module.__spec__ = ModuleSpec(module.__name__, None)
        exec(SOURCE.format(hour=hour), vars(module))
    try:
        assert [(one.name, one.cron) for one in ours()] == [("early", "0 5 * * *"), ("shop.report", "0 3 * * *")]
        assert schedule_clashes() == []
    finally:
        forget(module.report)


# -- the hash of a set


def test_the_hash_of_a_set_says_what_it_is_whatever_the_order(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="one")
    every("0 4 * * *", performer, name="two")
    one, two = ours()
    assert hash_of([one, two]) == hash_of([two, one])
    assert len({hash_of(some) for some in ([one, two], [one], [two], [])}) == 4
    assert hash_of([]) == ""


@pytest.mark.parametrize(
    "said",
    [
        {"args": (2,)}, {"kwargs": {"to": "bo"}}, {"queue": "other"}, {"priority": 1}, {"time_zone": "UTC"},
        {"missed": "skip"}, {"overlap": "skip"}, {"jitter": 5}, {"starts": MARCH}, {"ends": MARCH},
    ],
    ids=lambda said: next(iter(said)),
)  # fmt: skip
def test_the_hash_changes_with_each_thing_that_is_said(performer: AnyPerformer, said: dict[str, Any]) -> None:
    every("0 3 * * *", performer, name="one")
    [before] = ours()
    with declared(report, name="shop.other") as other:
        every("0 3 * * *", other, name="two", **said)
        [after] = [one for one in ours() if one.name == "two"]
    assert hash_of([before]) != hash_of([replace(after, name="one", performer="shop.report")])


def test_the_zone_of_the_settings_is_no_part_of_what_code_says(performer: AnyPerformer) -> None:
    every("0 3 * * *", performer, name="one")
    before = hash_of(ours())
    with override_settings(DJANGO_JOBS={"TIME_ZONE": "Asia/Tokyo"}):
        assert hash_of(ours()) == before
