from __future__ import annotations

import os

from django.apps import AppConfig
from django.db import connection


class YardConfig(AppConfig):
    name = "tests.yard"

    def ready(self) -> None:
        if os.environ.get("LIVE_ASKS_EARLY"):
            # As apps do that read a row while they load.
            with connection.cursor() as cursor:
                cursor.execute("select 1")
