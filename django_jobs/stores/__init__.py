"""Write: the one seam to the rows. `store_for` is the only place where a vendor is asked."""

from __future__ import annotations

from functools import cache

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from django_jobs.conf import settings
from django_jobs.stores.base import Store
from django_jobs.stores.observed import observe

DIALECTS = {
    "postgresql": "django_jobs.stores.postgresql.PostgreSQLStore",
    "sqlite": "django_jobs.stores.sqlite.SQLiteStore",
}

MODELS = {"job": "Job", "queue": "Queue", "worker": "Worker", "schedule": "Schedule", "set": "ScheduleSet"}
"""The words for tables in statements, and the models whose tables these are."""


def store_for(alias: str) -> Store:
    """Give the store for the jobs in the database `alias`. Raises ImproperlyConfigured for an engine we don't speak."""
    vendor = connections[alias].vendor
    if vendor not in DIALECTS:
        message = (
            f"the database {alias!r} is {vendor}; jobs need PostgreSQL or SQLite (setting DJANGO_JOBS['DATABASE'])"
        )
        raise ImproperlyConfigured(message)
    return _store(vendor)


@cache
def _store(vendor: str) -> Store:
    dialect: type[Store] = import_string(DIALECTS[vendor])
    tables = {word: apps.get_model("django_jobs", model)._meta.db_table for word, model in MODELS.items()}
    store = dialect(**tables)
    if (observer := settings().observe) is not None:
        observe(store, observer)
    return store


def _drop(*, setting: str, **_: object) -> None:
    if setting == "DJANGO_JOBS":
        _store.cache_clear()


setting_changed.connect(_drop, dispatch_uid="django_jobs.stores")
