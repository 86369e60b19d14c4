"""Settings of the suite: `default` and `other`, both on the database that DATABASE_URL names.

Processes that a test starts read here, too: LIVE_DATABASE names the test's own database, LIVE_JOBS holds DJANGO_JOBS,
LIVE_OPTIONS what is added to the OPTIONS of the database, LIVE_APPS names apps that the test has written; LIVE_…_WHEN
names a file, with whose birth the settings change. LIVE_DATABASES says, as changes to that database's entry, how each
alias is reached.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import environ

# Tools that only import the settings (type checkers, makemigrations) need no database.
_URL = os.environ.get("DATABASE_URL") or "sqlite:///unused.sqlite3"


def _database(name: str) -> dict[str, Any]:
    database: dict[str, Any] = environ.Env.db_url_config(_URL)
    if database["ENGINE"] == "django.db.backends.sqlite3":
        file = Path(database["NAME"])
        database["NAME"] = str(file.with_name(f"{name}-{file.name}"))
        # A file, never ":memory:": the shared-cache memory database has table locks and no WAL.
        database["TEST"] = {"NAME": str(file.with_name(f"test-{name}-{file.name}"))}
        database["OPTIONS"] = {"timeout": 20, "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"}
    else:
        suffix = "" if name == "default" else f"_{name}"
        database["TEST"] = {"NAME": f"test_{database['NAME']}{suffix}", "TEMPLATE": "template0"}
        database["NAME"] = "postgres"
    if name == "default" and (live := os.environ.get("LIVE_DATABASE")):
        database["NAME"] = live
        database["OPTIONS"] = {**database.get("OPTIONS", {}), **json.loads(os.environ.get("LIVE_OPTIONS", "{}"))}
    return database


def _live(changes: dict[str, Any]) -> dict[str, Any]:
    """Give the database of the test as another process reaches it."""
    default = _database("default")
    return {**default, **changes, "OPTIONS": {**default.get("OPTIONS", {}), **changes.get("OPTIONS", {})}}


DATABASES = {"default": _database("default"), "other": _database("other")}
DATABASES |= {alias: _live(changes) for alias, changes in json.loads(os.environ.get("LIVE_DATABASES", "{}")).items()}
INSTALLED_APPS = [
    "django_jobs",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "tests.shop",
    "tests.warehouse",
    "tests.yard",
    "tests.mill",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "tests.urls"
WSGI_APPLICATION = "tests.web.wsgi.application"
ALLOWED_HOSTS = ["127.0.0.1"]
SECRET_KEY = "only for tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "Europe/Paris"
LANGUAGE_CODE = "en"
DJANGO_JOBS = json.loads(os.environ.get("LIVE_JOBS", "{}"))
INSTALLED_APPS += json.loads(os.environ.get("LIVE_APPS", "[]"))
STATIC_URL = "/static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Django 6.1 wants to be told of a mailer; the test runner puts its own in the place.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

if os.environ.get("LIVE_BROKEN_WORKER") and "django_jobs.worker" in " ".join(sys.orig_argv):
    # What a worker process meets whose environment isn't the supervisor's.
    raise RuntimeError("these settings can't be used by a worker process")


def _exists(variable: str) -> bool:
    """Whether the file is there that the variable names: the settings change while a process runs."""
    return Path(os.environ.get(variable, "/nowhere")).exists()


if _exists("LIVE_BROKEN_WHEN"):
    raise RuntimeError("these settings can't be used any more")
if _exists("LIVE_UNKNOWN_KEY_WHEN"):
    DJANGO_JOBS["WORKER"] = {"colour": "red"}
if _exists("LIVE_ONE_PROCESS_WHEN"):
    DJANGO_JOBS["WORKER"] = {"processes": 1}
if shift := os.environ.get("LIVE_CLOCK_SHIFT"):
    # What a supervisor and its workers meet on a host whose clock is wrong.
    from tests.mill import shifted

    shifted.shift(float(shift))
