"""Know: the running job as its performer sees it. Set by runner, read by user code; knows no database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from django_jobs import clock
from django_jobs.exceptions import Interruption, JobCancelled, JobTimeout
from django_jobs.progress import Progress, checked
from django_jobs.records import Claim

Report: TypeAlias = Callable[[Claim, Progress], None]
"""Takes note of how far the body of a claim is."""


class Attempt:
    """One try at a job, numbered from 1. Numbers repeat after a snooze or a release; id and token name a run.

    Instants are aware UTC.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        meta: Mapping[str, Any],
        load_errors: Callable[[], list[dict[str, Any]]],
        interruption: Callable[[], type[Interruption] | None] = lambda: None,
        report: Report = lambda *_: None,
    ) -> None:
        self._claim = claim
        self._load_errors = load_errors
        self._interruption = interruption
        self._report = report
        self.reported: Progress | None = None
        """What `progress` was told last, None before."""
        self._begun = clock.monotonic()
        self.meta: Mapping[str, Any] = meta
        """What was stored beside the arguments: what `using(meta=…)` and the setting META said, language, time zone."""

    @property
    def job_id(self) -> int:
        """The id of the job's row."""
        return self._claim.id

    @property
    def name(self) -> str:
        """The stored name of the performer."""
        return self._claim.name

    @property
    def queue(self) -> str:
        """The queue that the job came from."""
        return self._claim.queue

    @property
    def number(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.attempt

    @property
    def max_attempts(self) -> int:
        """After how many attempts the job fails for good."""
        return self._claim.max_attempts

    @property
    def is_last(self) -> bool:
        """Whether no further attempt follows when this one fails."""
        return self._claim.is_last

    @property
    def enqueued_at(self) -> datetime:
        """When the job was queued."""
        return self._claim.enqueued_at

    @property
    def run_at(self) -> datetime:
        """The moment from which this attempt was due."""
        return self._claim.run_at

    @property
    def tick(self) -> datetime | None:
        """The moment of the schedule that this job is for; None for a job that no schedule fired."""
        return self._claim.tick

    @property
    def deadline(self) -> datetime | None:
        """When the timeout is over; None without one."""
        if self._claim.timeout is None:
            return None
        return self._claim.started_at + timedelta(seconds=self._claim.timeout)

    def remaining(self) -> float | None:
        """Give the seconds left until the deadline, 0 once it has passed; None without a timeout."""
        if self._claim.timeout is None:
            return None
        return max(0.0, self._begun + self._claim.timeout - clock.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled the job since it began; known about a second later.

        The body's own thread or task is interrupted then. This is for what that doesn't reach: code that swallows it,
        and threads that the body started.
        """
        kind = self._interruption()
        return kind is not None and issubclass(kind, JobCancelled)

    def checkpoint(self) -> None:
        """Raise JobCancelled, JobLost or JobTimeout if the job was cancelled or lost, or is out of time.

        Cheap, and may be called from any thread or task: it asks no database.
        """
        kind = self._interruption()
        if kind is None and self.remaining() == 0:
            kind = JobTimeout
        if kind is not None:
            raise kind

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the job is: so many are done, of `total` where that is known; the row's `progress` shows it.

        Cheap, and may be called from any thread or task, as often as you like: the value is noted, and written at most
        twice a second and when the body has ended. Numbers are ints or floats from 0 on; a message is cut to 500
        characters. Raises TypeError or ValueError for others.
        """
        said = checked(done, total, message)
        self.reported = said
        self._report(self._claim, said)

    @cached_property
    def errors(self) -> list[dict[str, Any]]:
        """What went wrong before, oldest first; loaded from the database when asked."""
        return self._load_errors()

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self.max_attempts} at {self.name} #{self.job_id}>"


_current: ContextVar[Attempt | None] = ContextVar("django_jobs.attempt", default=None)


def current_attempt() -> Attempt | None:
    """Give the attempt that this code is part of, None outside of a job."""
    return _current.get()


def enter(attempt: Attempt) -> None:
    """Make `attempt` the current one of this context; runner gives each run a context of its own."""
    _current.set(attempt)
