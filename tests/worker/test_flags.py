from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from django_jobs.worker import flags


def parsed(*arguments: str) -> dict[str, Any]:
    parser = ArgumentParser()
    for flag in flags.FLAGS:
        flag.declare(parser)
    return vars(parser.parse_args(arguments))


def said(*arguments: str, setting: dict[str, Any] | None = None, **environment: str) -> dict[str, Any]:
    return flags.said(parsed(*arguments), environment, setting or {})


def test_what_is_not_said_anywhere_is_left_to_the_default() -> None:
    assert said() == {}


def test_a_flag_goes_before_its_variable_and_that_before_the_setting() -> None:
    setting = {"concurrency": 1, "grace": "1s", "drain": True}
    assert said(setting=setting) == {"concurrency": 1, "grace": 1.0, "drain": True}
    variables = {"DJANGO_JOBS_CONCURRENCY": "2", "DJANGO_JOBS_DRAIN": "no"}
    assert said(setting=setting, **variables) == {"concurrency": 2, "grace": 1.0, "drain": False}
    assert said("-c", "3", "--drain", setting=setting, **variables) == {"concurrency": 3, "grace": 1.0, "drain": True}


def test_an_empty_variable_says_nothing() -> None:
    assert said(setting={"concurrency": 1}, DJANGO_JOBS_CONCURRENCY="") == {"concurrency": 1}


@pytest.mark.parametrize("flag", flags.FLAGS, ids=lambda flag: flag.name)
def test_every_flag_names_its_variable_in_the_help(flag: flags.Flag) -> None:
    parser = ArgumentParser()
    flag.declare(parser)
    assert flag.variable == "DJANGO_JOBS_" + flag.name.upper()
    assert f"[{flag.variable}]" in " ".join(parser.format_help().split())


@pytest.mark.parametrize("flag", flags.FLAGS, ids=lambda flag: flag.name)
def test_every_flag_has_its_line_in_the_reference(flag: flags.Flag) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "reference" / "runjobs.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("|") and f"`{flag.variable}`" in line]
    assert f"`{flag.spelling}" in line


def test_queues_are_a_text_or_in_the_setting_a_list() -> None:
    queues = {"mail": 4, "slow": None}
    assert said("-q", "mail:4,slow") == {"queues": queues}
    assert said(setting={"queues": ["mail:4", "slow"]}) == {"queues": queues}


@pytest.mark.parametrize(
    ("arguments", "setting", "environment", "message"),
    [
        (["-c", "0"], {}, {}, "--concurrency 0: give 1 or more"),
        (["-c", "two"], {}, {}, "--concurrency two: give 1 or more"),
        ([], {"concurrency": 2.5}, {}, "DJANGO_JOBS['WORKER']['concurrency'] 2.5: give 1 or more"),
        ([], {}, {"DJANGO_JOBS_CONCURRENCY": "-1"}, "DJANGO_JOBS_CONCURRENCY -1: give 1 or more"),
        ([], {}, {"DJANGO_JOBS_DRAIN": "maybe"}, "DJANGO_JOBS_DRAIN maybe: give 1 or 0, true or false, yes or no"),
        (["--grace", "soon"], {}, {}, "--grace: 'soon' is not a duration"),
        (["--max-runtime", "0"], {}, {}, "--max-runtime 0: give more than 0 seconds"),
        (["-q", "mail:0"], {}, {}, "mail:0: a cap below 1 would run nothing"),
    ],
)
def test_a_wrong_value_is_refused_and_it_says_where_it_stands(
    arguments: list[str], setting: dict[str, Any], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=":") as refused:
        said(*arguments, setting=setting, **environment)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("concurency", "did you mean 'concurrency'?"),
        ("POLL-INTERVAL", "did you mean 'poll_interval'?"),
        ("colour", "the keys are queues, concurrency, processes, "),
    ],
)
def test_an_unknown_key_of_the_setting_is_refused_with_the_nearest(key: str, remedy: str) -> None:
    with pytest.raises(ValueError, match="unknown key") as refused:
        said(setting={key: 1})
    assert str(refused.value).startswith(f"DJANGO_JOBS['WORKER'] has the unknown key {key!r}; {remedy}")


@pytest.mark.parametrize(("given", "processes"), [("1", 1), ("3", 3), ("0", 0)])
def test_the_number_of_processes_is_read(given: str, processes: int) -> None:
    assert said("--processes", given) == {"processes": processes}


def test_auto_leaves_the_number_of_processes_to_the_machine() -> None:
    assert said("--processes", "auto") == {"processes": None}


@pytest.mark.parametrize("given", ["-1", "two", "", "1.5", "AUTO"])
def test_a_number_of_processes_that_makes_no_sense_is_refused_with_the_remedy(given: str) -> None:
    with pytest.raises(ValueError, match=f"--processes {given}: give a whole number of 0 or more, or auto"):
        said(f"--processes={given}")
