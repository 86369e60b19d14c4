"""Decide: when a worker process has worked enough and is to be replaced, and when there was nothing to do for too long.

Memory is asked of the system; everything else comes from outside.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from django_jobs.worker.board import Board
from django_jobs.worker.plan import Plan

MB = 1024 * 1024

JITTER = 0.1
"""Limits differ by up to this share from process to process, so that not all of them end at once."""

SHORTEST_LIFE = 10.0
"""Seconds that a process lives at the least before its memory is a reason to end it: a limit that the first job of
each process passes must not cost a process per job."""

INTERVAL = 1.0
"""Seconds between two looks at memory and run time."""


def memory_in_use() -> int:
    """Give the bytes of memory that this process takes; the most it ever took where the system says only that."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return _peak_memory()
    return pages * os.sysconf("SC_PAGE_SIZE")


def _peak_memory() -> int:
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """After so many jobs, above so many bytes, or after so many seconds one process is replaced; None is no limit."""

    jobs: int | None = None
    memory: int | None = None
    runtime: float | None = None

    @classmethod
    def drawn(cls, plan: Plan, *, draw: Callable[[], float] = random.random) -> Limits:
        """Draw the limits of one process from those of the command; never more memory than was said."""
        share = 1.0 - JITTER + 2 * JITTER * draw()
        below = 1.0 - JITTER * draw()
        return cls(
            jobs=None if plan.max_jobs is None else max(1, round(plan.max_jobs * share)),
            memory=None if plan.max_memory is None else int(plan.max_memory * MB * below),
            runtime=None if plan.max_runtime is None else plan.max_runtime * share,
        )


class Recycling:
    """Whether one process is due to be replaced for its memory or its age. (Its crew counts jobs.)

    A memory limit below what the process takes before its first job is no limit: nothing would ever run.
    """

    def __init__(self, limits: Limits, *, now: float, memory: int) -> None:
        self._limits = limits
        self._began = now
        self.is_memory_too_low = limits.memory is not None and memory >= limits.memory

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to look at."""
        return self._limits.runtime is not None or (self._limits.memory is not None and not self.is_memory_too_low)

    def due(self, *, now: float, memory: int) -> str | None:
        """Say why the process is to be replaced; None while it isn't."""
        age = now - self._began
        if self._limits.runtime is not None and age >= self._limits.runtime:
            return f"it has worked for {age:.0f} s"
        is_above = self._limits.memory is not None and memory >= self._limits.memory and not self.is_memory_too_low
        return f"it takes {memory / MB:,.0f} MB" if is_above and age >= SHORTEST_LIFE else None


class Idleness:
    """Whether no worker of a command had anything to do for `timeout` seconds; None never is."""

    def __init__(self, timeout: float | None, *, now: float) -> None:
        self._timeout = timeout
        self._since = now
        self._looked = now
        # A worker that got no answer to a claim since then may have work to do.
        self._unanswered_since = now
        self._seen = 0

    def is_over(self, boards: Iterable[Board], *, now: float, gone: int = 0) -> bool:
        """Look once. `gone` is how many jobs boards had taken that are there no more."""
        if self._timeout is None:
            return False
        boards = list(boards)
        taken = gone + sum(board.taken for board in boards)
        before, self._looked = self._looked, now
        if taken != self._seen or any(board.entries() for board in boards):
            self._seen, self._since, self._unanswered_since = taken, now, before
            return False
        is_answered = bool(boards) and all(board.claimed_at >= self._unanswered_since for board in boards)
        return is_answered and now - self._since >= self._timeout


def too_low(plan: Plan, needed: int) -> str:
    """Say in one line that the memory limit can't be kept."""
    return (
        f"--max-memory {plan.max_memory}: a worker process takes {needed / MB:,.0f} MB before its first job, "
        "so this limit isn't used; give more"
    )
