"""What a body finds around it, and that nothing of it reaches the next job."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from datetime import timezone as fixed
from typing import Any

import pytest
from asgiref.local import Local
from django.test import override_settings
from django.utils import timezone, translation
from django.utils.translation import gettext_lazy

from django_jobs import current_attempt, signals
from django_jobs.models import Job
from django_jobs.records import Claim
from tests.declaring import declared
from tests.performing import POLICY, perform, work
from tests.runner.conftest import Form

pytestmark = pytest.mark.django_db

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
local = Local()


def surroundings() -> list[object]:
    return [
        translation.get_language(),
        timezone.get_current_timezone_name(),
        tenant.get(),
        getattr(local, "tenant", "nobody"),
        decimal.getcontext().prec,
    ]


PLAIN = ["en", "Europe/Paris", "nobody", "nobody", 28]


def disturb() -> None:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    tenant.set("somebody")
    local.tenant = "somebody"
    decimal.getcontext().prec = 3


def disturb_and_fail() -> None:
    disturb()
    raise LookupError


def deactivate() -> None:
    translation.deactivate_all()
    timezone.deactivate()


@pytest.mark.parametrize("first", [disturb, disturb_and_fail, deactivate])
def test_o86_nothing_that_a_job_sets_reaches_the_next_one(form: Form, first: Callable[[], None]) -> None:
    perform(form(first))
    assert perform(form(surroundings)).result == PLAIN
    assert surroundings() == PLAIN


def test_nothing_of_the_caller_but_what_is_stored_reaches_a_job(form: Form) -> None:
    before = surroundings()
    with translation.override("de"), timezone.override("Asia/Tokyo"), decimal.localcontext(prec=5):
        token = tenant.set("the caller")
        local.tenant = "the caller"
        try:
            with declared(form(surroundings), **POLICY) as performer:
                job = performer.later()
                run = work(job)
            assert tenant.get() == "the caller"
            assert translation.get_language() == "de"
        finally:
            tenant.reset(token)
            del local.tenant
    assert run.result == ["de", "Asia/Tokyo", "nobody", "nobody", 28]
    assert surroundings() == before


def tenant_of_body() -> str:
    return tenant.get()


def test_a_receiver_of_the_start_prepares_the_context_of_the_body(form: Form) -> None:
    def prepare(*, claim: Claim, **_: Any) -> None:
        attempt = current_attempt()
        assert attempt is not None
        tenant.set(f"of job {attempt.job_id}, by {Job.objects.get(pk=claim.id).state}")

    signals.job_started.connect(prepare)
    try:
        run = perform(form(tenant_of_body))
    finally:
        signals.job_started.disconnect(prepare)
    assert run.result == f"of job {run.job.pk}, by RUNNING"
    assert tenant.get() == "nobody"


# -- language and time zone


def test_language_and_time_zone_are_those_of_the_moment_it_was_queued(form: Form) -> None:
    with declared(form(surroundings), **POLICY) as performer:
        with translation.override("de"), timezone.override("Asia/Tokyo"):
            job = performer.later()
        with translation.override("fr"), timezone.override("Asia/Seoul"):
            assert work(job).result == ["de", "Asia/Tokyo", *PLAIN[2:]]


def test_a_body_works_in_the_language_it_was_queued_under(form: Form) -> None:
    def body() -> str:
        return str(gettext_lazy("Yes"))

    with declared(form(body), **POLICY) as performer:
        with translation.override("de"):
            job = performer.later()
        assert work(job).result == "Ja"


def test_what_went_wrong_is_told_in_the_language_of_the_project(form: Form) -> None:
    def body() -> None:
        raise LookupError(gettext_lazy("Yes"))

    with declared(form(body), **POLICY) as performer:
        with translation.override("de"):
            job = performer.later()
        assert "Ja" not in work(job).reason


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        (timezone.get_fixed_timezone(150), timedelta(hours=2, minutes=30)),
        (timezone.get_fixed_timezone(-90), timedelta(hours=-1, minutes=-30)),
        (fixed(timedelta(hours=-3)), timedelta(hours=-3)),
        (UTC, timedelta(0)),
    ],
    ids=str,
)
def test_a_fixed_offset_is_a_time_zone_too(form: Form, zone: Any, offset: timedelta) -> None:
    def body() -> timedelta | None:
        return timezone.localtime(datetime(2026, 3, 1, tzinfo=UTC)).utcoffset()

    with declared(form(body), **POLICY) as performer:
        with timezone.override(zone):
            job = performer.later()
        assert work(job).result == offset


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "a\0b", "+nonsense", "UTC+99:99"])
def test_a_time_zone_that_is_not_here_is_replaced_by_the_projects_and_told(odd: list[str], zone: str) -> None:
    with declared(surroundings, **POLICY) as performer:
        job = performer.later()
        Job.objects.filter(pk=job.pk).update(meta={"time_zone": zone.replace("\0", "?")})
        assert work(job).result == PLAIN
    [line] = odd
    assert line.startswith("a job was queued under the time zone ")
    assert "which this process can't activate" in line


def test_a_language_that_is_not_here_does_no_harm(form: Form) -> None:
    for code in ("tlh", "", "x" * 5_000, "de/../../x"):
        with declared(form(surroundings), **POLICY) as performer:
            job = performer.later()
            Job.objects.filter(pk=job.pk).update(meta={"language": code})
            assert work(job).job.state == "SUCCESSFUL"


@pytest.mark.parametrize("meta", [{"language": 5, "time_zone": None}, {"language": ["de"], "time_zone": {"a": 1}}])
def test_a_language_and_a_time_zone_that_are_no_text_are_none(odd: list[str], meta: dict[str, object]) -> None:
    with declared(surroundings, **POLICY) as performer:
        job = performer.later()
        Job.objects.filter(pk=job.pk).update(meta=meta)
        assert work(job).result == PLAIN
    assert odd == []


@override_settings(USE_I18N=False, USE_TZ=False)
def test_jobs_run_without_translation_and_time_zones_too(form: Form) -> None:
    def body() -> list[str | None]:
        return [translation.get_language(), timezone.get_current_timezone_name()]

    assert perform(form(body)).result == ["en", "Europe/Paris"]
