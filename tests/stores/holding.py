"""Another process that has a claim in hand, as far as locks beside a database file show that."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import os, sys
from django_jobs.stores import lives
kind, database, token = sys.argv[1:4]
lives._locks = getattr(lives, kind)()
end = lives.begin(database, int(token))
print(os.getpid(), flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Holder:
    """A process that has begun a life; it does what it is told, and lives until it is ended."""

    def __init__(self, database: str, token: int, *, kind: str = "DescriptionLocks") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, kind, database, str(token)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._line() == str(self.process.pid)

    def do(self, statement: str) -> None:
        """Run a line of Python there."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{statement}\n")
        assert self._line() == "done"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def holder(database: str, token: int, *, kind: str = "DescriptionLocks") -> Iterator[Holder]:
    """Have another process hold, and end it with the test."""
    started = Holder(database, token, kind=kind)
    try:
        yield started
    finally:
        started.kill()
        for stream in (started.process.stdin, started.process.stdout):
            assert stream is not None
            stream.close()
