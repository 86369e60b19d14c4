"""Marks in a file outside the database: what bodies, and whoever plays the faults, did and when.

One line of JSON each, by one write. `at` is CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from django_jobs import signals
from django_jobs.records import Claim

_claim: ContextVar[Claim] = ContextVar("tests.mill.claim")


def _remember(*, claim: Claim, **_: Any) -> None:
    _claim.set(claim)


# Sent before the body, in its context.
signals.job_started.connect(_remember, dispatch_uid="tests.mill")


def mark(path: str | Path, word: str, **facts: object) -> None:
    """Append one line. It begins with a line's end: a process may be killed within the write of the one before."""
    line = json.dumps({"word": word, "pid": os.getpid(), "at": time.monotonic(), **facts})
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"\n{line}\n".encode())
    finally:
        os.close(fd)


def mark_body(path: str, word: str) -> None:
    """Mark something about the body that this code is part of."""
    claim = _claim.get()
    mark(path, word, job=claim.id, token=claim.token)


@contextmanager
def traced(path: str) -> Iterator[Callable[[], None]]:
    """Mark that the body begins, and that it is done or left by an exception; yields what marks that it goes on.

    A body that is interrupted right after it was done marks both, and counts as left.
    """
    mark_body(path, "begin")
    try:
        yield lambda: mark_body(path, "on")
        mark_body(path, "done")
    except BaseException:
        mark_body(path, "left")
        raise
