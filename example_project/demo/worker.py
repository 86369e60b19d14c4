"""Run `manage.py runjobs` as a process beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"

LONGEST_END = 30.0
"""Seconds until a worker that was asked to stop is killed; longer than the time it gives its jobs."""


class Worker:
    """A worker process. Ctrl-C in the terminal doesn't reach it by itself: this process passes the word on."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(MANAGE), "runjobs", *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            process_group=0 if os.name == "posix" else None,
        )

    @property
    def exit_code(self) -> int | None:
        """The code it ended with; None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Have it finish its running jobs and end; asked twice, it ends at once."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait for its end."""
        try:
            self._process.wait(LONGEST_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def working(*arguments: str, **environment: str) -> Iterator[Worker]:
    """Keep a worker running, with these arguments for `runjobs` and these variables, and stop it at the end."""
    worker = Worker(*arguments, **environment)
    try:
        yield worker
    finally:
        worker.ask_to_stop()
        worker.wait()
