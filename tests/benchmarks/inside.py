"""Measure on one database, which DATABASE_URL names and which holds nothing else: a process of its own for each."""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django


def measure(url: str, *, names: Sequence[str], size: str, times: int | None, into: Path) -> None:
    """Take these measurements, and write figures and what went wrong as JSON."""
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.measured import MEASURED
    from tests.benchmarks.report import as_json
    from tests.benchmarks.sizes import BY_NAME

    call_command("migrate", verbosity=0, interactive=False)
    sizes = BY_NAME[size]
    figures: list[dict[str, Any]] = []
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="django-jobs-bench-") as folder:
        bench = Bench(url=url, folder=Path(folder), sizes=sizes, times=times or sizes.times)
        for name in names:
            begun = time.monotonic()
            with _noted(name, failures):
                figures += map(as_json, MEASURED[name](bench))
            bench.say(f"{name}: {time.monotonic() - begun:.1f} s")
    connection.close()
    into.write_text(json.dumps({"figures": figures, "failures": failures}))


@contextmanager
def _noted(name: str, failures: dict[str, str]) -> Iterator[None]:
    """Have one measurement that fails be told of, and the others go on."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        failures[name] = f"{type(error).__name__}: {error}"
