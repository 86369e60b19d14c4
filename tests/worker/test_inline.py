"""Jobs that run at once in their caller."""

from __future__ import annotations

import pytest

from django_jobs import work_one
from django_jobs.models import Job
from django_jobs.worker.inline import run_at_once
from tests.shop.jobs import greet, greeted

pytestmark = pytest.mark.django_db


def test_each_job_gets_its_attempt_and_comes_back() -> None:
    greeted.clear()
    ids = [greet.using(keep="1d").later(name).pk for name in ("Ada", "Bo")]
    assert [(job.pk, job.state) for job in run_at_once(ids)] == [(job_id, "SUCCESSFUL") for job_id in ids]
    assert greeted == ["Ada", "Bo"]


def test_what_a_worker_took_first_comes_back_as_it_stands() -> None:
    kept, gone = greet.using(keep="1d").later("Ada"), greet.later("Bo")
    work_one()
    work_one()
    first, second = run_at_once([kept.pk, gone.pk])
    assert (first.state, first.attempts) == ("SUCCESSFUL", 1)
    assert (second.pk, Job.objects.filter(pk=gone.pk).exists()) == (gone.pk, False)
