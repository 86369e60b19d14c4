"""Drive: how a loop bears bad rounds: how long it waits after each, and what is said of them.

While the database is away a loop asks often, so that it is back soon after the database, and says so once and then
twice a minute. Anything else that a round raises is told in full each time, with longer and longer waits.
"""

from __future__ import annotations

import logging
import random

from django_jobs import clock, signals
from django_jobs.wording import one_line
from django_jobs.worker.link import is_away

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

SOON, OFTEN, SELDOM = 0.05, 0.5, 2.0
"""Seconds between two tries to reach the database: at first, then, and at last."""

LONG = 60.0
"""Seconds after which the database is away for long."""

TELL_INTERVAL = 30.0


def pause_after(failures: int) -> float:
    """Give the seconds to wait after so many bad rounds in a row."""
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE)


def pause_while_away(failures: int, away_for: float) -> float:
    """Give the seconds to wait before the database is tried again; the jitter comes on top."""
    return min(SOON * 2.0 ** min(failures - 1, 20), OFTEN if away_for < LONG else SELDOM)


class Setbacks:
    """Counts the bad rounds of one loop."""

    def __init__(self, name: str) -> None:
        self.failures = 0
        self._name = name
        self._away_since: float | None = None
        self._tell_at = 0.0

    def note(self, error: BaseException) -> float:
        """Take in what a round raised, and give the seconds until the next."""
        self.failures += 1
        if not is_away(error):
            message = f"{self._name}: a round failed ({self.failures} in a row): {error!r}"
            signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
            return pause_after(self.failures)
        now = clock.monotonic()
        if self._away_since is None:
            self._away_since, self._tell_at = now, now
        if now >= self._tell_at:
            self._tell_at = now + TELL_INTERVAL
            why = one_line(error) or repr(error)
            message = f"{self._name}: the database can't be used just now, trying again: {why}"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
        pause = pause_while_away(self.failures, now - self._away_since)
        return pause * random.uniform(0.8, 1.2)  # noqa: S311 - spreads clients, no secret

    def over(self) -> bool:
        """Take in a good round, and tell whether the database is back with it."""
        self.failures = 0
        since, self._away_since = self._away_since, None
        if since is None:
            return False
        message = f"{self._name}: the database is back after {clock.monotonic() - since:.1f} s"
        signals.tell(signals.odd, None, message=message, exception=None, level=logging.INFO)
        return True
