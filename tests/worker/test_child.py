"""A worker process as its supervisor sees it."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from django_jobs.worker.board import Board
from django_jobs.worker.child import Child
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
