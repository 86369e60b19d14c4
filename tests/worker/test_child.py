"""A worker process as its supervisor sees it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from django_jobs.records import Lease
from django_jobs.worker import sentinel
from django_jobs.worker.board import Board
from django_jobs.worker.child import Child, wake
from django_jobs.worker.plan import Plan


def child_with_pipe() -> tuple[Child, int]:
    reader, writer = os.pipe()
    board = Board.create(1, lease=60.0)
    return Child(
        place=0, identity="host:1:a", pid=0, board=board, control=writer, started_at=0.0, concurrency=1
    ), reader


def test_what_is_said_after_the_burial_reaches_nobody() -> None:
    child, reader = child_with_pipe()
    child.say("wake")
    child.close()
    # Whoever opens something now gets the number that the pipe had.
    other_reader, other_writer = os.pipe()
    try:
        child.say("wake")
        os.set_blocking(other_reader, False)
        assert os.read(reader, 100) == b"wake\n"
        assert os.read(reader, 100) == b""
        os.write(other_writer, b".")
        assert os.read(other_reader, 100) == b"."
    finally:
        for descriptor in (reader, other_reader, other_writer):
            os.close(descriptor)


def test_a_worker_that_is_gone_does_not_hear() -> None:
    child, reader = child_with_pipe()
    os.close(reader)
    child.say("wake")
    child.close()


def test_all_are_woken_and_the_idlest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    children = {name: child_with_pipe()[0] for name in ("busy", "idle", "full")}
    names = {id(child): name for name, child in children.items()}
    for name, count in (("busy", 1), ("idle", 0), ("full", 2)):
        children[name].board = Board.create(3, lease=60.0)
        children[name].board.take(Lease(id=number, token=7) for number in range(count))
    monkeypatch.setattr(Child, "say", lambda child, word: said.append(f"{names[id(child)]} {word}"))
    wake(list(children.values()))
    wake([])
    assert said == ["idle wake", "busy wake", "full wake"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no worker processes on Windows")
def test_a_worker_that_does_not_read_its_words_blocks_nobody() -> None:
    child = Child.spawn(Plan(alias="default"), place=0, lease=60.0, log_level=None)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        # More than any pipe holds.
        for _ in range(30_000):
            child.say("wake")
    finally:
        child.kill()
        os.waitpid(child.pid, 0)
        child.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups on Windows")
class TestSentinel:
    def test_it_ends_its_group_when_the_pipe_is_closed_and_time_has_passed(self) -> None:
        with group() as leader:
            writer = sentinel.post(leader.pid, lease=0.1)
            assert writer is not None
            assert leader.poll() is None
            os.close(writer)
            assert leader.wait(30) == -signal.SIGKILL

    def test_it_ends_with_its_group(self) -> None:
        with group() as leader:
            writer = sentinel.post(leader.pid, lease=0.1)
            assert writer is not None
            # Its end is that of the pipe's only reader.
            readers = select.poll()
            readers.register(writer, select.POLLERR)
            assert not readers.poll(0)
            os.killpg(leader.pid, signal.SIGKILL)
            assert readers.poll(30_000)
            os.close(writer)

    def test_there_is_none_for_a_group_that_is_gone(self) -> None:
        with group() as leader:
            leader.kill()
            leader.wait()
            assert sentinel.post(leader.pid, lease=0.1) is None


@contextmanager
def group() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that leads a group of its own."""
    leader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
    try:
        yield leader
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()
