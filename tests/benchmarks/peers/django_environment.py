"""Django as the peers that are apps of it need it: in a peer's environment only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def set_up(*apps: str, backend: Mapping[str, Any], routers: tuple[str, ...] = ()) -> None:
    """Have Django know the database that the PG variables name, and one backend of tasks."""
    import django
    from django.conf import settings

    said = {"NAME": "PGDATABASE", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "HOST": "PGHOST", "PORT": "PGPORT"}
    database = {part: os.environ.get(variable, "") for part, variable in said.items()}
    settings.configure(
        INSTALLED_APPS=list(apps),
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}},
        DATABASE_ROUTERS=list(routers),
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        TASKS={"default": dict(backend)},
        USE_TZ=True,
        LOGGING={"version": 1, "loggers": {"": {"level": "WARNING"}}},
    )
    django.setup()


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def truncate(prefix: str) -> None:
    """Empty all tables whose names begin so."""
    from django.db import connection

    tables = ", ".join(f'"{name}"' for name in connection.introspection.table_names() if name.startswith(prefix))
    with connection.cursor() as cursor:
        cursor.execute(f"truncate {tables} cascade")
