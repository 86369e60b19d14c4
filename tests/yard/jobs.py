"""Jobs for the tests of workers: they wait at gates and leave marks, in memory and in files."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model

from django_jobs import Snooze, job

PATIENCE = 20.0

entered: defaultdict[str, threading.Event] = defaultdict(threading.Event)
gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
noted: list[object] = []


def forget() -> None:
    entered.clear()
    gates.clear()
    noted.clear()


@job
def note(value: object) -> None:
    noted.append(value)


@job
def pass_gate(name: str) -> str:
    entered[name].set()
    assert gates[name].wait(PATIENCE)
    return name


@job
async def pass_gate_async(name: str) -> str:
    entered[name].set()
    for _ in range(int(PATIENCE * 100)):
        if gates[name].is_set():
            return name
        await asyncio.sleep(0.01)
    raise AssertionError(name)


@job
async def count_users() -> int:
    return await get_user_model().objects.acount()


@job
async def gather_sync_calls(count: int) -> int:
    """Ask the database from many child tasks at once."""
    counts = await asyncio.gather(*(sync_to_async(get_user_model().objects.count)() for _ in range(count)))
    return len(counts)


@job(max_attempts=1)
def explode() -> None:
    raise RuntimeError("boom")


@job
def snooze_once() -> None:
    raise Snooze("1h")


# -- for real processes: what they do is seen in files


@job
def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@job
def append_and_linger(path: str, text: str, seconds: float) -> None:
    with Path(path).open("a") as file:
        file.write(f"begin {text}\n")
    time.sleep(seconds)
    with Path(path).open("a") as file:
        file.write(f"end {text}\n")


@job
def interrupt_own_process(path: str) -> None:
    """Send the worker its stop signal from within a job, then finish."""
    os.kill(os.getpid(), signal.SIGTERM)
    with Path(path).open("a") as file:
        file.write("finished\n")
