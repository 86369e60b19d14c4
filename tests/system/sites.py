"""Web servers with a worker inside, as real processes on the test's own database, asked over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.system.processes import PATIENCE, Worker, children_of, until
from tests.web import outside

AS_IN_A_TERMINAL = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module as `-m` does, and hears Ctrl-C also where whatever runs the tests, in the background, ignores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a server is run and stopped, and the exit code that it has then, with or without a worker inside."""

    module: str
    arguments: tuple[str, ...]
    stop: signal.Signals = signal.SIGTERM
    exit_code: int = 0

    def command(self, port: int) -> list[str]:
        return ["-c", AS_IN_A_TERMINAL, self.module, *(argument.format(port=port) for argument in self.arguments)]


GUNICORN = ("tests.web.wsgi", "--bind", "127.0.0.1:{port}", "--no-control-socket", "--workers")
UVICORN = ("--port", "{port}", "--log-level", "warning")

SERVERS = {
    "gunicorn": Server(module="gunicorn", arguments=(*GUNICORN, "2")),
    "gunicorn --preload": Server(module="gunicorn", arguments=(*GUNICORN, "2", "--preload")),
    "gunicorn gthread": Server(module="gunicorn", arguments=(*GUNICORN, "1", "--threads", "2")),
    "uvicorn": Server(
        module="uvicorn", arguments=("tests.web.asgi:application", *UVICORN), exit_code=-signal.SIGTERM
    ),
    "waitress": Server(
        module="waitress", arguments=("--listen=127.0.0.1:{port}", "tests.web.wsgi:application"), stop=signal.SIGINT
    ),
    "runserver": Server(
        module="django", arguments=("runserver", "--noreload", "127.0.0.1:{port}"), stop=signal.SIGINT
    ),
}  # fmt: skip


class Site(Worker):
    """One server with a worker inside."""

    def __init__(self, folder: Path, server: Server, *more: str, **how: Any) -> None:
        self.port = free_port()
        super().__init__(folder, *more, command=server.command(self.port), **how)

    def get(self, path: str, **parameters: str) -> str:
        browser = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            browser.request("GET", f"{path}?{urlencode(parameters)}")
            response = browser.getresponse()
            body = response.read().decode()
        finally:
            browser.close()
        assert response.status == 200, body
        return body

    def is_up(self) -> dict[str, Any] | None:
        """Say which process answers and which threads of ours it has, without a request to Django."""
        assert self.process.poll() is None, self.output
        # A process that ends may have sent the head of an answer, and no more.
        with suppress(OSError, HTTPException, JSONDecodeError):
            found: dict[str, Any] = json.loads(self.get(outside.PATH))
            return found
        return None

    def up(self) -> dict[str, Any]:
        return until(self.is_up, what="the server answers")

    def queue(self, name: str, *arguments: Any) -> int:
        return int(self.get("/web/queue/", job=name, args=json.dumps(arguments)))

    def health(self) -> tuple[int, str]:
        """Say which process answers, and how its worker is."""
        pid, word = self.get("/web/health/").split()
        return int(pid), word

    def works(self) -> int:
        """Ask until a worker is well, and give its process."""
        return until(lambda: next((pid for pid, word in [self.health()] if word == "ok"), 0), what="a worker is well")

    def kill(self) -> None:
        """End all processes of it without a word."""
        for pid in [self.process.pid, *children_of(self.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def each_server() -> Any:
    return pytest.mark.parametrize("server", [pytest.param(server, id=name) for name, server in SERVERS.items()])


@contextmanager
def served(folder: Path, server: Server, *more: str, **how: Any) -> Iterator[Site]:
    """Serve until the test ends; skipped where the server isn't installed."""
    if find_spec(server.module) is None:
        pytest.skip(f"{server.module} is not installed")
    site = Site(folder, server, *more, **how)
    try:
        site.up()
        yield site
    finally:
        site.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
