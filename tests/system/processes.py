"""Real worker processes on the test's own database, and bounded waiting for what they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connections

Found = TypeVar("Found")

rests_on_no_database = pytest.mark.skipif(
    connections["default"].vendor != "sqlite", reason="what this shows rests on no database, and SQLite's run shows it"
)

PATIENCE = 60.0
"""Seconds after which a test gives up on a process; never how long a good one takes."""

PATIENT, LONGER = {"LEASE": "8s"}, 10.0
"""A lease that outlasts a moment in which the disk of a busy server stands still, and a body that outlasts the lease.

Where leases can't be confirmed for three quarters of their time bodies are ended, as they should be.
"""


class Worker:
    """One `manage.py runjobs`, or another command of this interpreter, with its stderr in a file."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        jobs: dict[str, Any] | None = None,
        name: str = "worker",
        command: Sequence[str] = ("-m", "django", "runjobs"),
        before: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "LIVE_DATABASE": str(connections["default"].settings_dict["NAME"]),
            "LIVE_JOBS": json.dumps(jobs or {}),
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, *command, *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=stdin,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def began(self) -> None:
        """Wait until it says that it works."""
        until(lambda: " slots · " in self.output or self.process.poll() is not None, what=f"{self.log} says it works")
        assert self.process.poll() is None, self.output

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        """End it with all its worker processes, which might else claim the jobs of the next test."""
        for _ in range(2):
            if self.process.poll() is None:
                self.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(1.0)
        self.process.wait(PATIENCE)


@contextmanager
def worker(folder: Path, *arguments: str, **how: Any) -> Iterator[Worker]:
    """Run one worker that may end by itself, and end it with the test otherwise; `how` as for Worker."""
    started = Worker(folder, *arguments, **how)
    try:
        yield started
    finally:
        started.end()


@contextmanager
def workers(
    folder: Path, *arguments: str, count: int = 1, jobs: dict[str, Any] | None = None
) -> Iterator[list[Worker]]:
    """Run some workers, and end them with the test."""
    started = [Worker(folder, *arguments, jobs=jobs, name=f"worker-{number}") for number in range(count)]
    try:
        for worker in started:
            worker.began()
        yield started
    finally:
        for worker in started:
            worker.end()


def until(condition: Callable[[], Found], *, what: str) -> Found:
    """Ask again and again, give what is true at last, and fail after PATIENCE."""
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, f"still waiting that {what}"
        time.sleep(0.02)
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers_of(pid: int) -> list[int]:
    """Give those children of a supervisor that are workers; beside each there is a sentinel."""
    found = []
    for child in children_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"django_jobs.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found
