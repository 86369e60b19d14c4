"""`{% job_progress job %}`: what a page shows of a job before any script runs, and what it tells the script."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.template import Context, Template
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.progress import Progress
from tests.factories import queue_job, read, run_job, seconds, write

pytestmark = pytest.mark.django_db


def page(job: object, tag: str = "{% job_progress job %}", **context: Any) -> str:
    template = Template("{% load django_jobs %}" + tag)
    return str(template.render(Context({"job": job, **context})))


def text(html: str) -> str:
    """Give what a reader sees, between single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def running(*said: Any) -> Job:
    claim = run_job()
    if said:
        lifecycle.report(connection, {claim.lease: Progress(*said)})
    return read(claim.id)


def bar(html: str) -> str:
    found = re.search(r"<progress [^>]*>", html)
    assert found is not None
    return found[0]


def test_a_running_job_is_shown_with_its_numbers_and_its_message() -> None:
    html = page(running(3, 10, "reading"))
    assert text(html) == "running 3 of 10 reading Look again"
    assert bar(html) == '<progress max="1" value="0.3000" aria-label="Progress">'


@pytest.mark.parametrize(
    ("said", "value", "shown"),
    [
        ((), "", "running Look again"),
        ((0,), "", "running 0 Look again"),
        ((1234567,), "", "running 1,234,567 Look again"),
        ((0, 10), ' value="0.0000"', "running 0 of 10 Look again"),
        ((612, 600), ' value="1.0000"', "running 612 of 600 Look again"),
        ((0, 0), ' value="1"', "running 0 of 0 Look again"),
        ((0.30000000000000004, 1.5), ' value="0.2000"', "running 0.30 of 1.50 Look again"),
    ],
)
def test_the_bar_shows_the_share_where_there_is_one(said: tuple[Any, ...], value: str, shown: str) -> None:
    html = page(running(*said))
    assert bar(html) == f'<progress max="1"{value} aria-label="Progress">'
    assert text(html) == shown


def test_html_gets_its_numbers_as_html_writes_them_whatever_the_language() -> None:
    with translation.override("de"), override_settings(USE_THOUSAND_SEPARATOR=True):
        html = page(running(1234.5, 4938))
    assert 'value="0.2500"' in html
    assert "1.234,50" in text(html)
    assert 'data-language="de"' in html


@pytest.mark.parametrize(
    ("make", "word", "value", "is_live"),
    [
        (lambda: read(queue_job()), "waiting", ' value="0"', True),
        (lambda: read(queue_job(delay=seconds(60))), "scheduled", ' value="0"', True),
        (running, "running", "", True),
    ],
)
def test_what_has_not_come_to_its_end_is_live(make: Any, word: str, value: str, is_live: bool) -> None:
    html = page(make())
    assert f'data-state="{word}"' in html
    assert bar(html) == f'<progress max="1"{value} aria-label="Progress">'
    assert ("data-url=" in html) is is_live
    assert html.count('<script type="module" src="/static/django_jobs/progress.js"></script>') == 1


def test_what_has_come_to_its_end_needs_no_script_and_no_reload() -> None:
    claim = run_job()
    lifecycle.settle(connection, [(claim, Succeeded())])
    html = page(read(claim.id))
    assert text(html) == "succeeded"
    assert bar(html) == '<progress max="1" value="1" aria-label="Progress">'
    assert "script" not in html
    assert "data-url" not in html


def test_a_job_that_failed_shows_how_far_it_came() -> None:
    job = running(3, 10)
    write(job.pk, state="FAILED", finished_at=job.started_at, worker=None, lease_expires_at=None)
    html = page(read(job.pk))
    assert text(html) == "failed 3 of 10"
    assert 'value="0.3000"' in html


def test_a_job_that_is_to_stop_is_still_under_way() -> None:
    job = running()
    job.cancel()
    html = page(job)
    assert text(html) == "stopping Look again"
    assert "value=" not in bar(html)


def test_a_job_that_is_gone_is_a_sentence() -> None:
    html = page(None)
    assert text(html) == "This job is no longer here."
    assert "script" not in html


@pytest.mark.parametrize("value", ["", "5", 5, object()])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="job_progress takes a Job, or None for one that is gone, and not"):
        page(value)


def test_everything_is_escaped() -> None:
    html = page(
        running(1, 2, "<script>alert('1')</script> & \"more\""), "{% job_progress job label=name %}", name='"><b>x</b>'
    )
    assert "<script>alert" not in html
    assert "<b>" not in html
    assert "<script>alert('1')</script> & \"more\"" in text(html)
    assert 'aria-label="&quot;&gt;&lt;b&gt;x&lt;/b&gt;"' in html


def test_a_page_that_escapes_nothing_else_has_no_say_in_it() -> None:
    tag = "{% autoescape off %}{% job_progress job label=name %}{% endautoescape %}"
    html = page(running(1, 2, "<script>alert('1')</script>"), tag, name='"><b>x</b>')
    assert "<script>alert" not in html
    assert "<b>" not in html


def test_nothing_stands_inline() -> None:
    html = page(running(1, 2))
    assert "style=" not in html
    assert not re.search(r"\son[a-z]+=", html)
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [""]


def test_a_nonce_of_the_page_is_taken_over() -> None:
    assert ' nonce="n0nce"></script>' in page(running(), csp_nonce="n0nce")
    request = type("Request", (), {"csp_nonce": "of django-csp"})()
    assert ' nonce="of django-csp"></script>' in page(running(), request=request)
    assert "nonce" not in page(running())


def test_the_script_is_told_what_to_say_in_the_language_of_the_page() -> None:
    html = page(running())
    found = re.search(r'data-texts="([^"]*)"', html)
    assert found is not None
    assert json.loads(unescape(found[1])) == {
        "states": {
            "scheduled": "scheduled", "waiting": "waiting", "retrying": "retrying", "running": "running",
            "stopping": "stopping", "succeeded": "succeeded", "failed": "failed", "cancelled": "cancelled",
        },
        "count": "%(done)s of %(total)s",
        "gone": "This job is no longer here.",
        "lost": "Lost contact, trying again.",
    }  # fmt: skip


def test_it_asks_no_database() -> None:
    job = running(1, 2)
    with CaptureQueriesContext(connection) as captured:
        page(job)
    assert len(captured) == 0


def test_without_translations_and_without_a_request_it_is_shown_too() -> None:
    with translation.override(None):
        assert text(page(running(1, 2))) == "running 1 of 2 Look again"


@override_settings(ROOT_URLCONF="tests.shop.urls")
def test_where_the_addresses_are_not_included_the_error_names_the_line_to_add() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'include\("django_jobs.urls"\)'):
        page(running())
