"""Every predicate of the statements is held by a test, or listed with what makes it redundant.

A mutant is a statement with one predicate left out or turned. In the ordinary suite one that has no recorded killer yet
meets all tests. In the long forms each meets the tests that are recorded as its killers, and all others where these let
it live; or all, whatever is recorded.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Any

import pytest

from tests.mutation.__main__ import run
from tests.mutation.mutants import constants
from tests.mutation.redundant import LISTED
from tests.mutation.splitter import mutants_of

REMEDY = (
    "write the test that the mutant shows to be missing, or list it in redundant.py with what makes it redundant; "
    "then `python -m tests.mutation --unrecorded --write` records the killers"
)


def judged(*options: str, **asked: Any) -> dict[str, Any]:
    """Run the mutants, which takes as long as it takes: the run has a bound of its own."""
    faulthandler.cancel_dump_traceback_later()
    return run(os.environ["DATABASE_URL"], *options, **asked)


def check(report: dict[str, Any]) -> None:
    assert report["alive"] == [], REMEDY
    assert report["refused"] == {}, "the database can't read these; the splitter has to make better ones"
    assert report["no such mutant"] == [], "redundant.py lists what is no mutant any more"
    assert report["not redundant"] == {}, "redundant.py lists what a test does kill"


def test_each_new_mutant_is_killed_or_listed_as_redundant() -> None:
    check(judged("--mutants-unrecorded"))


@pytest.mark.soak
@pytest.mark.parametrize("form", [(), ("--mutants-search",)], ids=["recorded", "afresh"])
def test_each_mutant_is_killed_or_listed_as_redundant(form: tuple[str, ...]) -> None:
    report = judged(*form)
    check(report)
    assert len(report["killed"]) + len(report["redundant"]) == len(report["mutants"])


def test_a_mutant_that_no_test_kills_is_told() -> None:
    label = "RENEW: true for job.token = c.token"
    report = judged(f"--mutants-only={label}", tests=("tests/stores/test_insert.py",))
    assert (report["alive"], report["killed"]) == ([label], {})


def test_a_test_that_fails_anyhow_kills_nothing() -> None:
    label = "RENEW: true for job.token = c.token"
    report = judged(f"--mutants-only={label}", tests=("tests/mutation/fails_anyhow.py",))
    assert (report["alive"], report["killed"]) == ([label], {})
    assert report["failing anyhow"] == ["tests/mutation/fails_anyhow.py::test_that_fails"]


def test_a_reason_is_given_once_for_each_redundant_mutant() -> None:
    named = [(one.label, vendor) for one in LISTED for vendor in one.on]
    assert len(named) == len(set(named))
    assert all(len(one.because) > 20 for one in LISTED)


def test_a_new_predicate_is_a_new_mutant() -> None:
    from django_jobs.stores import statements

    text = dict(constants(statements))["RENEW"]
    more = text.replace("job.worker is not null", "job.worker is not null and job.queue <> 'x'")
    new = {mutant.label for mutant in mutants_of(more)} - {mutant.label for mutant in mutants_of(text)}
    assert new == {"true for job.queue <> 'x'"}
