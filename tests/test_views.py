"""How far a job is, as JSON, for whoever holds its signed id."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_jobs import lifecycle, views
from django_jobs.models import Job
from django_jobs.progress import Progress
from django_jobs.views import progress_url
from tests.factories import queue_job, run_job, write

pytestmark = pytest.mark.django_db


def answer(client: Client, url: str) -> tuple[int, dict[str, Any]]:
    response = client.get(url)
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    return response.status_code, response.json()


def test_it_tells_state_done_total_and_message_and_nothing_else(client: Client) -> None:
    claim = run_job(args='["a secret"]')
    lifecycle.report(connection, {claim.lease: Progress(3, 10, "reading")})
    found = answer(client, progress_url(claim.id))
    assert found == (200, {"state": "running", "done": 3, "total": 10, "message": "reading"})


def test_of_a_job_that_has_said_nothing_numbers_are_unknown(client: Client) -> None:
    job_id = queue_job()
    assert answer(client, progress_url(job_id)) == (
        200,
        {"state": "waiting", "done": None, "total": None, "message": ""},
    )


@pytest.mark.parametrize("stored", [[], "half", {"done": "x"}, {"done": -1, "total": 2, "message": ""}, {"total": 5}])
def test_what_no_body_has_written_is_left_out(client: Client, stored: object) -> None:
    job_id = queue_job()
    write(job_id, progress=stored)
    assert answer(client, progress_url(job_id))[1]["done"] is None


@pytest.mark.parametrize(
    "signed",
    [
        "1",
        "nonsense",
        signing.dumps(1, salt="another"),
        signing.dumps(1),
        signing.dumps(1, key="another key", salt="django_jobs.progress"),
        signing.dumps(1, salt="django_jobs.progress")[:-1],
    ],
    ids=["bare", "nonsense", "other salt", "no salt", "other key", "cut"],
)
def test_a_forged_id_is_not_found(client: Client, signed: str) -> None:
    write(queue_job(), id=1)
    assert Job.objects.filter(pk=1).exists()
    assert answer(client, f"/jobs/progress/{signed}/") == (
        404,
        {"error": "There is no such job, or not any more."},
    )


def test_a_job_that_is_gone_is_not_found_either(client: Client) -> None:
    job_id = queue_job()
    url = progress_url(job_id)
    Job.objects.all().delete()
    assert answer(client, url) == (404, {"error": "There is no such job, or not any more."})


def test_a_signed_id_lives_for_seven_days(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    url = progress_url(queue_job())
    assert timedelta(days=7) == views.LIFE
    now = signing.time.time()
    for days, status in ((6.99, 200), (7.01, 404)):
        monkeypatch.setattr(signing.time, "time", lambda days=days: now + days * 86_400)
        assert answer(client, url)[0] == status


def test_one_query_is_asked_and_no_session(client: Client) -> None:
    url = progress_url(queue_job())
    with CaptureQueriesContext(connection) as captured:
        response = client.get(url)
    assert len(captured) == 1
    assert response.cookies == {}


@pytest.mark.parametrize(
    ("method", "status"),
    [("get", 200), ("head", 200), ("post", 405), ("put", 405), ("patch", 405), ("delete", 405), ("options", 405)],
)
def test_it_can_only_be_read(client: Client, method: str, status: int) -> None:
    response = getattr(client, method)(progress_url(queue_job()))
    assert (response.status_code, response["Cache-Control"]) == (status, "no-store")
    if method == "head":
        assert response.content == b""


def test_it_is_for_anonymous_visitors_also_where_every_other_page_asks_for_a_login(
    client: Client, settings: Any
) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert answer(client, progress_url(queue_job()))[0] == 200


def test_an_id_that_was_signed_with_an_older_key_goes_on(client: Client, settings: Any) -> None:
    url = progress_url(queue_job())
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another one"
    assert answer(client, url)[0] == 200


@override_settings(ROOT_URLCONF="tests.shop.urls")
def test_where_the_addresses_are_not_included_the_error_names_the_line_to_add() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'add path\("jobs/", include\("django_jobs.urls"\)\) to the urlp'):
        progress_url(1)
