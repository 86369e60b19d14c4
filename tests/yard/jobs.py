"""Jobs for the tests of workers: they wait at gates and leave marks, in memory and in files."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import signal
import subprocess
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_jobs import Attempt, Snooze, enqueue, job, named

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
def wait_for_file(path: str, gate: str) -> None:
    """Say that it began, and finish when the test makes the file that is its gate."""
    append_line(path, "begin")
    while not Path(gate).exists():
        time.sleep(0.01)
    append_line(path, "end")


@job(takes_attempt=True, timeout=None)
def report_beside_gate(attempt: Attempt, gate: str) -> None:
    """Say how far it is before the gate and behind it."""
    attempt.progress(1, 3, f"attempt {attempt.number}")
    while not Path(gate).exists():
        time.sleep(0.01)
    attempt.progress(3, 3, "behind the gate")


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Say where another body is in here for the same file; a lock shows that, which ends with its process."""
    with Path(f"{path}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            append_line(path, "beside another")
        yield


@job(timeout=None)
def wait_alone_for_file(path: str, gate: str) -> None:
    """Do as `wait_for_file`, and say where another body of the kind is there, and that it was interrupted."""
    with alone(path):
        try:
            wait_for_file(path, gate)
        except BaseException:
            append_line(path, "interrupted")
            raise


@job(timeout=None)
def sleep_alone_in_c(path: str, seconds: float) -> None:
    """Sleep in one call, which no exception reaches, and say where another body of the kind is there."""
    with alone(path):
        append_line(path, "begin")
        time.sleep(seconds)


@job
def append_variable(path: str, name: str) -> None:
    append_line(path, repr(os.environ.get(name)))


# -- bodies that are hard to stop


@job(max_attempts=2, timeout=1)
def spin(path: str) -> None:
    """Run Python code for ever."""
    append_line(path, "begin")
    try:
        while True:
            time.sleep(0.01)
    finally:
        append_line(path, "end")


@job(max_attempts=2, timeout=1)
def swallow(path: str) -> None:
    """Swallow everything that is raised, and go on."""
    append_line(path, "begin")
    while True:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)


@job(max_attempts=2, timeout=1)
def swallow_once(path: str) -> str:
    """Swallow the interruption and return as if nothing had been."""
    append_line(path, "begin")
    with contextlib.suppress(BaseException):
        while True:
            time.sleep(0.01)
    return "done"


@job(max_attempts=2, timeout=1)
def sleep_in_c(path: str, seconds: float) -> None:
    """Sleep in one call, which no exception reaches."""
    append_line(path, "begin")
    time.sleep(seconds)
    append_line(path, "end")


@job(max_attempts=2, timeout=1)
def sleep_in_database(path: str) -> None:
    append_line(path, "begin")
    with connection.cursor() as cursor:
        cursor.execute("select pg_sleep(60)")


@job(max_attempts=2, timeout=1)
def run_subprocess(path: str, seconds: float) -> None:
    """Start a process that outlives the body unless somebody ends it."""
    process = subprocess.Popen(["sleep", str(seconds)])
    append_line(path, f"child {process.pid}")
    process.wait()


@job(max_attempts=2, timeout=1)
async def spin_async(path: str) -> None:
    append_line(path, "begin")
    try:
        await asyncio.sleep(600)
    finally:
        append_line(path, "end")


@job(max_attempts=3)
def exit_process(path: str, code: int) -> None:
    append_line(path, "begin")
    os._exit(code)


@job(max_attempts=5)
def kill_process(path: str, number: int) -> None:
    append_line(path, "begin")
    os.kill(os.getpid(), number)
    time.sleep(60)


@job(restart=False)
def never_again(path: str, number: int) -> None:
    append_line(path, "begin")
    os.kill(os.getpid(), number)
    time.sleep(60)


@job(timeout=None)
def hold_interpreter(path: str, seconds: float) -> None:
    """Hold the interpreter's lock in one C call for about that long."""
    append_line(path, "begin")
    until = time.monotonic() + seconds
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    append_line(path, f"end {time.monotonic() >= until}")


@job(timeout=None)
def hold_interpreter_alone_at_first(path: str, seconds: float) -> None:
    """Hold it in the first run, and say where another body of the kind is there."""
    is_first = not Path(path).exists()
    with alone(path):
        append_line(path, "begin")
        if is_first:
            ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
        append_line(path, "end")


@job(timeout=None)
async def block_loop(path: str, seconds: float) -> None:
    """Keep the event loop from everything else for that long."""
    append_line(path, "begin")
    time.sleep(seconds)
    append_line(path, "end")


def append_line(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@job
def leave_orphan(path: str) -> None:
    """Start a process that starts another and ends: that one is nobody's child but its inheritor's."""
    command = f"sleep 600 >/dev/null 2>&1 & echo $! >> '{path}'"
    subprocess.run(["sh", "-c", command], check=True)


@job
def leave_short_orphan(path: str) -> None:
    """Leave a process behind that soon ends by itself, and says so."""
    subprocess.run(["sh", "-c", f"(sleep 0.5; echo done >> '{path}') >/dev/null 2>&1 &"], check=True)


@job
def end_forked_child(path: str) -> None:
    """Start a process by fork, end it as any other, and say how it ended."""
    with warnings.catch_warnings():
        # Python 3.12 and later warn of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
    child.terminate()
    child.join(PATIENCE)
    append_line(path, str(child.exitcode))


# -- for limits of worker processes


@job
def append_pid(path: str) -> None:
    """Say which process ran this."""
    append_line(path, str(os.getpid()))


hoard: list[bytes] = []


@job
def keep_memory(path: str, size: int) -> None:
    """Keep so many bytes for good, as a leak does."""
    hoard.append(b"x" * size)
    append_line(path, str(os.getpid()))


@job(timeout=None)
def pass_file(path: str, name: str, gate: str) -> None:
    """Say that it begins, wait for the file that is its gate, and say that it ends."""
    append_line(path, f"begin {name} {os.getpid()}")
    while not Path(gate).exists():
        time.sleep(0.01)
    append_line(path, f"end {name} {os.getpid()}")


# -- bodies that use the database


@job
def count_users_and_append(path: str) -> None:
    """Ask the database something; leave the number of the server's process that answered."""
    get_user_model().objects.count()
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()" if connection.vendor == "postgresql" else "select 0")
        append_line(path, str(cursor.fetchone()[0]))


@job
def count_users_in_threads(path: str) -> None:
    """Ask in threads of the job's own, which close what they opened."""

    def ask() -> None:
        get_user_model().objects.count()
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    append_line(path, "asked")


# -- atomic bodies: what they do is seen in the database


@job(atomic=True)
def write_atomically(name: str) -> None:
    Group.objects.create(name=name)


@job(atomic=True, max_attempts=3)
def write_and_pass_gate(name: str, fails: bool = False) -> None:
    Group.objects.create(name=name)
    entered[name].set()
    assert gates[name].wait(PATIENCE)
    if fails:
        raise RuntimeError("boom")


def leave_effect(name: str) -> None:
    """Write what may stand there twice, and waits for nobody who does the same: a job that no worker serves."""
    enqueue([named("somebody.else", name, queue="nowhere")])


@job(atomic=True, timeout=None)
def take_effect_at_gate(path: str, gate: str, name: str) -> None:
    """Say that it has written, and finish when the test makes the file that is its gate."""
    leave_effect(name)
    append_line(path, "begin")
    while not Path(gate).exists():
        time.sleep(0.01)
    append_line(path, "end")


@job(atomic=True)
def take_effect_slowly(name: str, seconds: float) -> None:
    time.sleep(seconds)
    leave_effect(name)
    time.sleep(seconds)


@job(atomic=True, max_attempts=2, timeout=1)
def take_effect_and_swallow(path: str, name: str) -> str:
    """Swallow the interruption and return as if nothing had been."""
    leave_effect(name)
    append_line(path, "begin")
    with contextlib.suppress(BaseException):
        while True:
            time.sleep(0.01)
    return "done"


@job(atomic=True, timeout=None)
def take_effect_and_die(path: str, name: str, point: str) -> None:
    """Have the process killed at a point of its first attempt."""
    leave_effect(name)
    is_first = not Path(path).exists()
    append_line(path, "body")
    if is_first:
        match point:
            case "in the body":
                die()
            case "before the commit":
                connection.commit = die
            case "after the commit":
                commit = connection.commit
                connection.commit = lambda: (commit(), die())
            case "in a callback":
                transaction.on_commit(die)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


# -- bodies that ask whether they were cancelled


@job(takes_attempt=True)
def poll_in_threads(attempt: Attempt, path: str) -> None:
    """Have a thread of its own that looks whether the job was cancelled; nothing interrupts that one."""

    def poll() -> None:
        append_line(path, "begin")
        while not attempt.cancelled:
            time.sleep(0.01)
        append_line(path, "thread heard")

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        while True:
            time.sleep(0.01)
    finally:
        thread.join()


@job(takes_attempt=True)
async def checkpoint_async(attempt: Attempt, path: str) -> None:
    """Swallow what cancels the task, and stop at the next checkpoint."""
    append_line(path, "begin")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
        try:
            attempt.checkpoint()
        except BaseException as error:
            append_line(path, type(error).__name__)
            raise
