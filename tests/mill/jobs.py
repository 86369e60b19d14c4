"""Jobs of the fault runs. Each takes the file for its marks, and a label that is drawn once."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from django.db import connection

from django_jobs import Attempt, Cancel, Snooze, clock, job
from tests.mill.marks import mark, mark_body, traced

STEP = 0.05
"""Seconds between two marks of a body that goes on."""

MEGABYTE = 1_000_000


@job
def short(path: str, label: str) -> None:
    with traced(path):
        pass


@job
def medium(path: str, label: str, seconds: float) -> None:
    with traced(path) as goes_on:
        _linger(seconds, goes_on)


@job(timeout=20)
async def medium_async(path: str, label: str, seconds: float) -> None:
    """Go on for a while on the event loop.

    Beside a body that takes all memory the loop may hang: Python waits for ever for a thread that died as it began. The
    timeout is what ends that.
    """
    with traced(path) as goes_on:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(STEP, left))
            goes_on()


@job(keep=0)
def kept_for_no_time(path: str, label: str) -> None:
    """Be deleted as it succeeds."""
    with traced(path):
        pass


@job
def asking(path: str, label: str) -> None:
    """Use the database, on a connection that somebody may cut."""
    with traced(path), connection.cursor() as cursor:
        for _ in range(3):
            cursor.execute("select count(*) from django_jobs_job")
            cursor.fetchall()


@job(max_attempts=2)
def failing(path: str, label: str) -> None:
    with traced(path):
        raise RuntimeError("as planned")


@job(takes_attempt=True)
def failing_first(attempt: Attempt, path: str, label: str) -> None:
    with traced(path):
        if attempt.number == 1:
            raise RuntimeError("as planned")


@job
def snoozing(path: str, label: str) -> None:
    """Snooze until a file of this label is there, which it makes."""
    with traced(path):
        if not (been := Path(f"{path}.{label}")).exists():
            been.touch()
            raise Snooze(0.5)


@job
def quitting(path: str, label: str) -> None:
    with traced(path):
        raise Cancel("as planned")


@job
def victim(path: str, label: str, seconds: float) -> None:
    """Be cancelled by somebody, or not."""
    with traced(path) as goes_on:
        _linger(seconds, goes_on)


@job
def tells_time(path: str, label: str) -> None:
    """Mark by how much this host's clock is wrong, as our code sees it."""
    with traced(path):
        wrong_by = round(clock.now().timestamp() - time.clock_gettime(time.CLOCK_REALTIME))
        mark(path, "clock", label=str(wrong_by))


# -- poison


@job
def exits(path: str, label: str) -> None:
    """Leave the process without a word."""
    with traced(path):
        mark_body(path, "dies")
        os._exit(1)


@job
def crashes(path: str, label: str) -> None:
    """Write to an address that isn't there."""
    with traced(path):
        mark_body(path, "dies")
        ctypes.memset(8, 0, 8)


@job
def is_killed(path: str, label: str) -> None:
    """Be killed as the kernel kills whom it has no memory for."""
    with traced(path):
        mark_body(path, "dies")
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


# -- greedy


@job(max_attempts=2)
def eats_memory(path: str, label: str, megabytes: int) -> None:
    """Take memory, bit by bit, until the process may have no more."""
    import resource  # not on Windows

    with traced(path):
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            # It stays: a neighbour may be eating, too.
            most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + megabytes * MEGABYTE
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        eaten = []
        try:
            for _ in range(100):
                eaten.append(bytearray(16 * MEGABYTE))
        finally:
            eaten.clear()


@job(timeout=None)
def holds_interpreter(path: str, label: str, seconds: float) -> None:
    """Hold the interpreter's lock in one C call."""
    with traced(path):
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@job(max_attempts=1, timeout=1)
def holds_interpreter_past_deadline(path: str, label: str, seconds: float) -> None:
    """Hold it for longer than it may run."""
    with traced(path):
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@job(max_attempts=1, timeout=1)
def runs_on(path: str, label: str) -> None:
    """Run Python code past the deadline."""
    with traced(path) as goes_on:
        _linger(600.0, goes_on)


@job(max_attempts=1, timeout=1)
def sleeps_in_c(path: str, label: str) -> None:
    """Sleep in one call, which lets others run, past the deadline."""
    with traced(path):
        time.sleep(600)


@job
def waits_for_file(path: str, label: str, gate: str) -> None:
    """Go on until there is a file."""
    with traced(path):
        while not Path(gate).exists():
            time.sleep(0.005)


def _linger(seconds: float, goes_on: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(STEP, left))
        goes_on()
