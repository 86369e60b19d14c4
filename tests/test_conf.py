from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_jobs import backoff, conf
from django_jobs.conf import DjangoJobs, Settings, settings, unknown_keys
from django_jobs.records import NewJob

WRONG_DURATION = 'give seconds, a timedelta or text like "5m"'
COUNT_RULE = "give a whole number from 1 to 1,000,000"
QUEUES_RULE = "give a list of names, a dict like {'mail': {'concurrency': 4}}, or None for any queue"
CAP_RULE = "give a dict like {'concurrency': 4}, or an empty one"
ASYNC_META_RULE = "it is async, and jobs are queued from plain code, too; give a plain function"
PATHS_RULE = "give a list of dotted paths, as in ['shop.middleware.timing']"
NAME_RULE = "give 1 to 100 characters of A-Z a-z 0-9 _ - . :"


def own_backoff(attempt: int) -> int:
    return attempt


def no_backoff() -> int:
    return 5


def own_observer(name: str, seconds: float, rows: int | None) -> None:
    pass


def own_meta(job: NewJob) -> dict[str, object]:
    return {}


async def async_meta(job: NewJob) -> dict[str, object]:
    return {}


def test_nothing_is_required() -> None:
    with override_settings(DJANGO_JOBS={}):
        assert settings() == Settings()
    with override_settings(DJANGO_JOBS={}):
        del project.DJANGO_JOBS
        assert settings() == Settings()


def test_the_defaults_are_as_documented() -> None:
    with override_settings(DJANGO_JOBS={}):
        defaults = settings()
    assert {field.name: getattr(defaults, field.name) for field in fields(Settings)} == {
        "database": "default",
        "queues": None,
        "default_queue": "default",
        "mode": "database",
        "autodiscover": ("jobs",),
        "max_attempts": 20,
        "backoff": backoff.exponential(base=15, factor=2, cap="6h", jitter=0.1),
        "timeout": timedelta(minutes=5),
        "keep_successful": timedelta(days=1),
        "keep_failed": timedelta(days=14),
        "worker": {},
        "lease": timedelta(seconds=60),
        "grace": timedelta(seconds=15),
        "timeout_grace": timedelta(seconds=5),
        "listen": True,
        "listen_database": None,
        "after_commit": None,
        "unknown_jobs": "fail",
        "max_args_bytes": 1_000_000,
        "observe": None,
        "middleware": (),
        "meta": (),
        "redact": (),
        "time_zone": "Europe/Paris",
        "owner": "tests",
    }


def test_every_key_is_read_and_typed() -> None:
    every = {
        "DATABASE": "other",
        "QUEUES": ["mail", "default"],
        "DEFAULT_QUEUE": "mail",
        "MODE": "inline",
        "AUTODISCOVER": ["jobs", "tasks"],
        "MAX_ATTEMPTS": 1,
        "BACKOFF": backoff.fixed(5),
        "TIMEOUT": None,
        "KEEP_SUCCESSFUL": 0,
        "KEEP_FAILED": None,
        "WORKER": {"concurrency": 4},
        "LEASE": "2m",
        "GRACE": 0,
        "TIMEOUT_GRACE": timedelta(seconds=1),
        "LISTEN": False,
        "LISTEN_DATABASE": "direct",
        "AFTER_COMMIT": "default",
        "UNKNOWN_JOBS": "leave",
        "MAX_ARGS_BYTES": 100,
        "OBSERVE": own_observer,
        "MIDDLEWARE": ["shop.middleware.timing"],
        "META": [own_meta, "tests.test_conf.own_meta"],
        "REDACT": ["iban"],
        "TIME_ZONE": "America/New_York",
        "OWNER": "shop",
    }
    with override_settings(DJANGO_JOBS=every):
        read = settings()
    assert {field.name: getattr(read, field.name) for field in fields(Settings)} == {
        "database": "other",
        "queues": {"mail": None, "default": None},
        "default_queue": "mail",
        "mode": "inline",
        "autodiscover": ("jobs", "tasks"),
        "max_attempts": 1,
        "backoff": backoff.fixed(5),
        "timeout": None,
        "keep_successful": timedelta(0),
        "keep_failed": None,
        "worker": {"concurrency": 4},
        "lease": timedelta(minutes=2),
        "grace": timedelta(0),
        "timeout_grace": timedelta(seconds=1),
        "listen": False,
        "listen_database": "direct",
        "after_commit": "default",
        "unknown_jobs": "leave",
        "max_args_bytes": 100,
        "observe": own_observer,
        "middleware": ("shop.middleware.timing",),
        "meta": (own_meta, own_meta),
        "redact": (re.compile("iban", re.IGNORECASE),),
        "time_zone": "America/New_York",
        "owner": "shop",
    }
    assert tuple(every) == conf.KEYS == tuple(get_type_hints(DjangoJobs))


@pytest.mark.parametrize("seconds", [90, 90.0, "90", "90s", "1m30s", timedelta(seconds=90)])
def test_durations_may_be_written_in_every_way(seconds: Any) -> None:
    with override_settings(DJANGO_JOBS={"GRACE": seconds}):
        assert settings().grace == timedelta(seconds=90)


def test_a_backoff_may_be_a_dotted_path() -> None:
    with override_settings(DJANGO_JOBS={"BACKOFF": "tests.test_conf.own_backoff"}):
        assert settings().backoff is own_backoff


def test_an_observer_may_be_a_dotted_path() -> None:
    with override_settings(DJANGO_JOBS={"OBSERVE": "tests.test_conf.own_observer"}):
        assert settings().observe is own_observer


def test_an_observer_whose_signature_cannot_be_read_is_believed() -> None:
    with override_settings(DJANGO_JOBS={"OBSERVE": max}):
        assert settings().observe is max


def test_queues_may_have_caps() -> None:
    with override_settings(DJANGO_JOBS={"QUEUES": {"mail": {"concurrency": 4}, "default": {}}}):
        assert settings().queues == {"mail": 4, "default": None}


def test_an_empty_list_of_queues_allows_none() -> None:
    with override_settings(DJANGO_JOBS={"QUEUES": []}):
        assert settings().queues == {}


@pytest.mark.parametrize("given", [None, [], "DATABASE", 5])
def test_the_setting_must_be_a_dict(given: Any) -> None:
    message = f"DJANGO_JOBS is {given!r}; give a dict"
    with override_settings(DJANGO_JOBS=given), pytest.raises(ImproperlyConfigured, match=f"^{re.escape(message)}$"):
        settings()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("DATABASE", "", "['DATABASE'] is ''; give a text that isn't empty"),
        ("DATABASE", None, "['DATABASE'] is None; give a text that isn't empty"),
        ("QUEUES", "mail", f"['QUEUES'] is 'mail'; {QUEUES_RULE}"),
        ("QUEUES", 5, f"['QUEUES'] is 5; {QUEUES_RULE}"),
        ("QUEUES", ["two words"], f"['QUEUES'] is 'two words'; {NAME_RULE}"),
        ("QUEUES", [5], f"['QUEUES'] is 5; {NAME_RULE}"),
        ("QUEUES", {"": {}}, f"['QUEUES'] is ''; {NAME_RULE}"),
        ("QUEUES", {"mail": 4}, f"['QUEUES']['mail'] is 4; {CAP_RULE}"),
        ("QUEUES", {"mail": {"concurency": 4}}, f"['QUEUES']['mail'] is {{'concurency': 4}}; {CAP_RULE}"),
        ("QUEUES", {"mail": {"concurrency": 0}}, f"['QUEUES']['mail']['concurrency'] is 0; {COUNT_RULE}"),
        ("DEFAULT_QUEUE", "", f"['DEFAULT_QUEUE'] is ''; {NAME_RULE}"),
        ("DEFAULT_QUEUE", "my queue", f"['DEFAULT_QUEUE'] is 'my queue'; {NAME_RULE}"),
        ("DEFAULT_QUEUE", "q" * 101, f"['DEFAULT_QUEUE'] is '{'q' * 79}; {NAME_RULE}"),
        ("DEFAULT_QUEUE", None, f"['DEFAULT_QUEUE'] is None; {NAME_RULE}"),
        ("AUTODISCOVER", "jobs", "['AUTODISCOVER'] is 'jobs'; give a list of module names, as in ['jobs']"),
        ("AUTODISCOVER", ["jobs", 5], "['AUTODISCOVER'][1] is 5; give a text that isn't empty"),
        ("MAX_ATTEMPTS", 0, f"['MAX_ATTEMPTS'] is 0; {COUNT_RULE}"),
        ("MAX_ATTEMPTS", 1_000_001, f"['MAX_ATTEMPTS'] is 1000001; {COUNT_RULE}"),
        ("MAX_ATTEMPTS", True, f"['MAX_ATTEMPTS'] is True; {COUNT_RULE}"),
        ("MAX_ATTEMPTS", "20", f"['MAX_ATTEMPTS'] is '20'; {COUNT_RULE}"),
        ("BACKOFF", 5, "['BACKOFF'] is 5; give one of django_jobs.backoff, a callable, or the dotted path of one"),
        ("BACKOFF", "no.backoff", "['BACKOFF'] is 'no.backoff'; it can't be imported: No module named 'no'"),
        ("BACKOFF", "own", "['BACKOFF'] is 'own'; it can't be imported: own doesn't look like a module path"),
        ("TIMEOUT", 0, "['TIMEOUT'] is 0; give a duration above 0, or None for no limit"),
        ("TIMEOUT", "soon", f"['TIMEOUT']: 'soon' is not a duration; {WRONG_DURATION}"),
        ("KEEP_SUCCESSFUL", -1, f"['KEEP_SUCCESSFUL']: -1 is negative; {WRONG_DURATION}"),
        ("KEEP_FAILED", True, f"['KEEP_FAILED']: True is not a duration; {WRONG_DURATION}"),
        ("WORKER", ["concurrency"], "['WORKER'] is ['concurrency']; give a dict"),
        ("LEASE", 0.5, "['LEASE'] is 0.5; give a second or more; each lease is renewed every quarter"),
        ("LEASE", None, f"['LEASE']: None is not a duration; {WRONG_DURATION}"),
        ("GRACE", None, f"['GRACE']: None is not a duration; {WRONG_DURATION}"),
        ("TIMEOUT_GRACE", "-5s", f"['TIMEOUT_GRACE']: '-5s' is not a duration; {WRONG_DURATION}"),
        ("LISTEN", "no", "['LISTEN'] is 'no'; give True or False"),
        ("LISTEN", None, "['LISTEN'] is None; give True or False"),
        ("LISTEN_DATABASE", "", "['LISTEN_DATABASE'] is ''; give a text that isn't empty"),
        ("AFTER_COMMIT", "", "['AFTER_COMMIT'] is ''; give a text that isn't empty"),
        (
            "MODE",
            "manual",
            "['MODE'] is 'manual'; give 'database', or 'inline' to run each job at once where it is queued",
        ),
        ("UNKNOWN_JOBS", "ignore", "['UNKNOWN_JOBS'] is 'ignore'; give 'fail' or 'leave'"),
        ("UNKNOWN_JOBS", None, "['UNKNOWN_JOBS'] is None; give 'fail' or 'leave'"),
        ("MAX_ARGS_BYTES", 0, "['MAX_ARGS_BYTES'] is 0; give a whole number of bytes, 1 or more"),
        ("OBSERVE", 5, "['OBSERVE'] is 5; give a callable, the dotted path of one, or None"),
        ("OBSERVE", "no.observer", "['OBSERVE'] is 'no.observer'; it can't be imported: No module named 'no'"),
        (
            "OBSERVE",
            "tests.test_conf.no_backoff",
            "['OBSERVE'] is 'tests.test_conf.no_backoff'; it must take (name, seconds, rows)",
        ),
        ("MIDDLEWARE", "shop.timing", f"['MIDDLEWARE'] is 'shop.timing'; {PATHS_RULE}"),
        ("MIDDLEWARE", None, f"['MIDDLEWARE'] is None; {PATHS_RULE}"),
        ("MIDDLEWARE", ["shop.timing", 5], "['MIDDLEWARE'][1] is 5; give a text that isn't empty"),
        ("META", "shop.tenant", "['META'] is 'shop.tenant'; give a list of callables or of their dotted paths"),
        ("META", ["no.tenant"], "['META'][0] is 'no.tenant'; it can't be imported: No module named 'no'"),
        ("META", [own_meta, 5], "['META'][1] is 5; give a callable, or the dotted path of one"),
        (
            "META",
            ["tests.test_conf.async_meta"],
            f"['META'][0] is 'tests.test_conf.async_meta'; {ASYNC_META_RULE}",
        ),
        (
            "META",
            ["tests.test_conf.no_backoff"],
            "['META'][0] is 'tests.test_conf.no_backoff'; it must take one argument, the new job",
        ),
        ("REDACT", "iban", "['REDACT'] is 'iban'; give a list of regular expressions, as in ['iban']"),
        ("REDACT", ["iban", ""], "['REDACT'][1] is ''; give a text that isn't empty"),
        (
            "REDACT",
            ["(iban"],
            "['REDACT'][0] is '(iban'; it is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        ("MAX_ARGS_BYTES", "1MB", "['MAX_ARGS_BYTES'] is '1MB'; give a whole number of bytes, 1 or more"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_key_value_and_remedy(key: str, value: Any, message: str) -> None:
    with (
        override_settings(DJANGO_JOBS={key: value}),
        pytest.raises(ImproperlyConfigured, match=f"^{re.escape(f'DJANGO_JOBS{message}')}$"),
    ):
        settings()


def test_a_backoff_must_take_the_number_of_the_attempt() -> None:
    wrong = r"a backoff takes \(attempt\) or \(attempt, exception\); .* takes \(\) -> 'int'$"
    with (
        override_settings(DJANGO_JOBS={"BACKOFF": "tests.test_conf.no_backoff"}),
        pytest.raises(
            ImproperlyConfigured, match=rf"^DJANGO_JOBS\['BACKOFF'\] is 'tests.test_conf.no_backoff'; {wrong}"
        ),
    ):
        settings()


def test_all_wrong_keys_are_told_at_once() -> None:
    wrong = {"LEASE": 0, "MAX_ATTEMPTS": 0, "GRACE": "5s"}
    with override_settings(DJANGO_JOBS=wrong), pytest.raises(ImproperlyConfigured) as caught:
        settings()
    assert str(caught.value).splitlines() == [
        "DJANGO_JOBS['MAX_ATTEMPTS'] is 0; give a whole number from 1 to 1,000,000",
        "DJANGO_JOBS['LEASE'] is 0; give a second or more; each lease is renewed every quarter",
    ]


def test_settings_are_read_once_and_again_when_a_test_overrides_them() -> None:
    before = settings()
    assert settings() is before
    with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 3}):
        assert settings().max_attempts == 3
        with override_settings(DJANGO_JOBS={"MAX_ATTEMPTS": 4}):
            assert settings().max_attempts == 4
        assert settings().max_attempts == 3
    assert settings().max_attempts == 20


def test_another_setting_that_changes_drops_nothing() -> None:
    before = settings()
    with override_settings(LANGUAGE_CODE="fr"):
        assert settings() is before
        assert conf.project_language() == "fr"


def test_modules_are_discovered_by_the_default_name_where_a_setting_is_wrong() -> None:
    with override_settings(DJANGO_JOBS={"AUTODISCOVER": ["tasks"]}):
        assert conf.autodiscover() == ("tasks",)
    with override_settings(DJANGO_JOBS={"AUTODISCOVER": ["tasks"], "LEASE": 0}):
        assert conf.autodiscover() == ("jobs",)


def test_unknown_keys_are_told_with_the_nearest_known_one() -> None:
    given = {"QUEUE": [], "queues": [], "Lease_": 5, "COLOUR": "red", 5: 5, "LEASE": 60}
    assert unknown_keys(given) == {"QUEUE": "QUEUES", "queues": "QUEUES", "Lease_": "LEASE", "COLOUR": "", "5": ""}
    assert unknown_keys(None) == {}
    with override_settings(DJANGO_JOBS=given):
        assert settings() == Settings()
