"""Know: what time it is. The only room that reads a clock in Python; tests freeze it here.

On PostgreSQL "now" is the server's `statement_timestamp()`; on SQLite it is this host's clock. A frozen clock replaces
both: the stores run the same statements with the frozen instant in place of the server's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta


class FrozenClock:
    """A clock that stands until it is moved."""

    def __init__(self, instant: datetime) -> None:
        self._start = self.instant = _aware(instant)

    def move_to(self, instant: datetime) -> None:
        """Stand at `instant` (aware) from now on."""
        self.instant = _aware(instant)

    def advance(self, delta: timedelta) -> None:
        """Move on by `delta`."""
        self.instant += delta

    @property
    def elapsed(self) -> float:
        """Seconds since it was frozen."""
        return (self.instant - self._start).total_seconds()


_frozen: FrozenClock | None = None


def now() -> datetime:
    """Give the present instant, aware, in UTC."""
    return datetime.now(UTC) if _frozen is None else _frozen.instant


def monotonic() -> float:
    """Give seconds that never go back, for durations within this process."""
    return time.monotonic() if _frozen is None else _frozen.elapsed


def frozen_now() -> datetime | None:
    """Give the instant at which the clock is frozen, or None: then the database's own time counts."""
    return None if _frozen is None else _frozen.instant


def read(given: datetime | str | None) -> datetime:
    """Turn what a database gave for an instant, in UTC whether it says so or not, into an aware UTC datetime."""
    assert given is not None
    instant = datetime.fromisoformat(given) if isinstance(given, str) else given
    return instant.replace(tzinfo=UTC)


@contextmanager
def freeze(instant: datetime) -> Iterator[FrozenClock]:
    """Freeze the clock of this process, all its threads included, and give it to be moved."""
    global _frozen  # noqa: PLW0603 - one clock per process, as with time itself
    before, clock = _frozen, FrozenClock(instant)
    _frozen = clock
    try:
        yield clock
    finally:
        _frozen = before


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        message = f"{instant!r} is naive; give an aware datetime, for example datetime.now(UTC)"
        raise ValueError(message)
    return instant.astimezone(UTC)
