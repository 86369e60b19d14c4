"""Drive: a worker process as its supervisor sees it: how it is started, spoken to, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Event, Lock

from django_jobs import clock
from django_jobs.records import Lease
from django_jobs.worker import sentinel
from django_jobs.worker.board import Board
from django_jobs.worker.plan import Plan, new_identity

GONE = -1
"""No descriptor: the pipe was closed."""

OTHERS_LATER = 0.0015
"""Seconds by which a wake comes later to all workers but the first: about what a claim takes."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One life of a worker process. It leads a process group of its own, so that what its jobs start ends with it."""

    place: int
    identity: str
    pid: int
    board: Board
    control: int
    started_at: float
    timed_out: set[Lease] = field(default_factory=set)
    is_killed: bool = False
    leave_at: float | None = None
    concurrency: int
    held_back: int = 0
    is_followed: bool = False
    # Closed with this process, whatever ends it; then the sentinel of the worker's group acts.
    life: int | None = None
    lock: Lock = field(default_factory=Lock, repr=False)

    @classmethod
    def spawn(cls, plan: Plan, *, place: int, lease: float, log_level: int | None) -> Child:
        """Start a worker by exec, never by fork: it shares no socket, pool or lock with anybody."""
        board = Board.create(plan.board_capacity, lease=lease)
        assert board.fd is not None
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, *_interpreter_flags(), "-m", "django_jobs.worker", str(reader), str(board.fd)],
                pass_fds=(reader, board.fd),
                process_group=0,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            os.close(reader)
        # The supervisor reaps all children itself; this keeps Popen from minding.
        process.returncode = 0
        plan = replace(plan, identity=new_identity(plan.name, pid=process.pid))
        child = cls(
            place=place,
            identity=plan.identity,
            pid=process.pid,
            board=board,
            control=writer,
            started_at=clock.monotonic(),
            concurrency=plan.concurrency,
            held_back=plan.held_back,
            life=sentinel.post(process.pid, lease=lease),
        )
        child.say(json.dumps(asdict(plan) | {"log_level": log_level, "python_path": os.environ.get("PYTHONPATH")}))
        # One that doesn't read its pipe, since it is stopped for example, must not stop us.
        os.set_blocking(writer, False)
        return child

    def say(self, line: str) -> None:
        """Write a line into the pipe; a worker that is gone doesn't hear it."""
        # Other threads speak to it, too; a number that was closed may by now be another file's.
        with self.lock, suppress(BrokenPipeError, BlockingIOError):
            if self.control != GONE:
                os.write(self.control, f"{line}\n".encode())

    def kill(self) -> None:
        """End the process and everything its jobs started, at once."""
        self.is_killed = True
        self.kill_group()

    def kill_group(self) -> None:
        """End whatever is left of its process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self, *, within: float) -> None:
        """Wait for its end, and kill it after so many seconds."""
        give_up = clock.monotonic() + within
        while clock.monotonic() < give_up:
            with suppress(ChildProcessError):
                if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                    Event().wait(0.02)
                    continue
            return
        self.kill()

    def close(self) -> None:
        """Give back what is left of it, when it is dead and buried."""
        with self.lock:
            os.close(self.control)
            self.control = GONE
        if self.life is not None:
            os.close(self.life)
            self.life = None
        self.board.close()


def wake(children: Sequence[Child]) -> None:
    """Have workers look for jobs: the one that has least to do at once, and the others a moment later.

    If all of them claimed at the same time, a single job would be had later where they are more than the cores are.
    """
    for place, child in enumerate(sorted(children, key=lambda child: child.board.in_hand)):
        if place == 1:
            time.sleep(OTHERS_LATER)
        child.say("wake")


def _interpreter_flags() -> list[str]:
    """Start workers with the flags that this interpreter was started with."""
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001
