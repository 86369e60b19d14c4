"""Settings of the shop. What differs between machines comes from the environment, or from `.env` beside manage.py.

DATABASE_URL   sqlite:///relative.sqlite3, postgres://user:password@host:5432/name,
               or postgres:////folder/of/the/socket/name?user=postgres; an SQLite file in var/ by default
SECRET_KEY, DEBUG, ALLOWED_HOSTS
MAIL_FOLDER    the folder that mails are written to, as files; var/mail by default
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django
import environ

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = BASE_DIR / "example_project" / "var"

env = environ.Env()
if (BASE_DIR / ".env").is_file():
    env.read_env(str(BASE_DIR / ".env"))

SECRET_KEY = env.str("SECRET_KEY", default="only-for-the-demo: set SECRET_KEY wherever others can reach the site")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])


# -- database: jobs are rows beside the shop's own, so that both commit together


def _database() -> dict[str, Any]:
    if "DATABASE_URL" not in os.environ:
        VAR.mkdir(exist_ok=True)
    database: dict[str, Any] = env.db_url("DATABASE_URL", default=f"sqlite:///{VAR / 'shop.sqlite3'}")
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # Readers beside one writer (WAL), a writer that takes its lock when it begins, and patience with the other one.
        database["OPTIONS"] = {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        } | database.get("OPTIONS", {})
    return {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True} | database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# -- jobs: every key is optional, and so is the whole dict

DJANGO_JOBS = {
    "AUTODISCOVER": ["jobs", "timetable"],  # modules of each app in which workers find performers and schedules
    "KEEP_SUCCESSFUL": "7d",  # a day by default; here you may want to look at them for longer
}


# -- e-mail: each message becomes a file

MAIL_FOLDER = env.str("MAIL_FOLDER", default=str(VAR / "mail"))
DEFAULT_FROM_EMAIL = "The shop <shop@example.com>"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "example_project.mail.FileBackend", "OPTIONS": {"file_path": MAIL_FOLDER}}}
else:
    EMAIL_BACKEND = "example_project.mail.FileBackend"
    EMAIL_FILE_PATH = MAIL_FOLDER


# -- the rest is as `django-admin startproject` makes it

INSTALLED_APPS = [
    "django_jobs",
    "example_project.shop",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "example_project.urls"
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
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator", "MinimumLengthValidator",
        "CommonPasswordValidator", "NumericPasswordValidator",
    )
]  # fmt: skip
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
