"""The demo as a newcomer runs it: real processes, real HTTP, on the engine of this run."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import environ
import pytest
from django.conf import settings

from example_project.mail import newest_first
from tests.system.processes import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """Give the URL of an empty database on the engine of this run."""
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        yield f"sqlite:///{tmp_path / 'demo.sqlite3'}"
        return
    name = f"demo_{secrets.token_hex(4)}"
    address, question, options = os.environ["DATABASE_URL"].partition("?")
    with _administered() as execute:
        execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield f"{address.rpartition('/')[0]}/{name}{question}{options}"
        finally:
            execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _administered() -> Iterator[Callable[[str], object]]:
    import psycopg

    given = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    where = {key: given[name] for key, name in names.items() if given.get(name)} | given.get("OPTIONS", {})
    with psycopg.connect(dbname="postgres", autocommit=True, **where) as connection:
        yield connection.execute


@contextmanager
def demo(*arguments: str, database: str, mails: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo with nothing on its standard input, and end it with the test."""
    environment = {**os.environ, "DATABASE_URL": database, "MAIL_FOLDER": str(mails), "PYTHONUNBUFFERED": "1"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    with subprocess.Popen(
        [sys.executable, "manage.py", "demo", *arguments],
        cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                # In order, so that its worker ends with it.
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=PATIENCE)


def test_a_burst_of_sign_ups_comes_to_one_mail_each(database: str, tmp_path: Path) -> None:
    with demo("--burst", "200", database=database, mails=tmp_path / "unused") as process:
        out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err
    numbers = dict(re.findall(r"^(\S.*?) {2,}([\d.]+)$", out, re.MULTILINE))
    rate = float(numbers.pop("jobs per second"))
    assert numbers == {
        "sign-ups posted": "200",
        "jobs queued": "200",
        "jobs succeeded": "200",
        "jobs failed": "0",
        "mails missing": "0",
        "mails doubled": "0",
    }
    assert rate > 0
    assert not (tmp_path / "unused").exists()


def test_the_demo_serves_the_shop_sends_the_mail_and_ends_in_order(database: str, tmp_path: Path) -> None:
    mails = tmp_path / "mails"
    with demo("--port", "0", database=database, mails=mails) as process:
        port = _port(process)
        with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as browser:
            assert b"Newest jobs" in _get(browser, "/").read()
            assert _get(browser, "/static/shop/shop.css").read()
            assert _get(browser, "/admin/login/").read()
            form = _get(browser, "/sign-up/")
            token = SimpleCookie(form.headers["Set-Cookie"])["csrftoken"].value
            form.read()
            fields = urlencode({"email": "newcomer@example.com", "csrfmiddlewaretoken": token})
            kind = "application/x-www-form-urlencoded"
            browser.request("POST", "/sign-up/", fields, {"Content-Type": kind, "Cookie": f"csrftoken={token}"})
            response = browser.getresponse()
            response.read()
            assert response.status == 302
            until(lambda: b"Green tea" in _get(browser, "/search/?q=green").read(), what="the products are indexed")
        until(lambda: "newcomer@example.com" in [mail.to for mail in newest_first(mails)], what="the mail is there")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Stopped." in out
    assert re.search(r"worker \S+ stopped", err)


def test_a_burst_of_nothing_is_refused(database: str, tmp_path: Path) -> None:
    with demo("--burst", "0", database=database, mails=tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert "--burst 0: give 1 or more" in err


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"The shop +http://127\.0\.0\.1:(\d+)/", line):
            return int(found.group(1))
    raise AssertionError(process.communicate(timeout=PATIENCE))


def _get(browser: HTTPConnection, path: str) -> HTTPResponse:
    browser.request("GET", path)
    response = browser.getresponse()
    assert response.status == 200
    return response
