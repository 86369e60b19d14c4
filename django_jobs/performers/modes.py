"""Declare: whether a job that is queued waits for a worker, or runs at once in its caller.

The setting MODE says it for the project; `carry` for what runs in this context, and so for one thread or task alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, TypeAlias

from django_jobs.conf import settings

if TYPE_CHECKING:
    from django_jobs.models import Job

INLINE = "inline"

_mode: ContextVar[str | None] = ContextVar("django_jobs.mode", default=None)


def carried() -> str | None:
    """Give the mode of this context, None where the setting decides."""
    return _mode.get()


def carry(mode: str | None) -> Token[str | None]:
    """Have this context be in a mode."""
    return _mode.set(mode)


def drop(token: Token[str | None]) -> None:
    """Undo what `carry` did."""
    _mode.reset(token)


def is_inline() -> bool:
    """Whether a job runs as soon as it is queued."""
    return (_mode.get() or settings().mode) == INLINE


Run: TypeAlias = "Callable[[Sequence[int]], list[Job]]"
"""Runs the jobs of these ids, and gives them as they stand then."""

_run: Run | None = None


def run_by(run: Run) -> None:
    """Have queued jobs be run by a room above, which knows how."""
    global _run  # noqa: PLW0603 - put in once, when Django starts
    _run = run


def run_now(ids: Sequence[int]) -> list[Job]:
    """Run jobs that were just queued, in their order, and give them as they stand then.

    Raises what the first of them raised that failed.
    """
    assert _run is not None, "the app django_jobs puts it in"
    return _run(ids)
