"""Front door: assertions about what was queued, by themselves and as blocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation

from django_jobs import signals
from django_jobs.durations import Duration
from django_jobs.outcomes import Succeeded
from django_jobs.performers.queueing import refuse_in_event_loop
from django_jobs.states import State
from django_jobs.testing.awaiting import awaited
from django_jobs.testing.blocks import is_block
from django_jobs.testing.expecting import Expected, listed, shown
from django_jobs.testing.targets import Target, rows, whole

if TYPE_CHECKING:
    from django_jobs.models import Job
    from django_jobs.transitions import End

Match = Callable[["Job"], object]


def assert_enqueued(
    job: Target,
    /,
    *args: Any,
    queue: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    count: int | None = None,
    match: Match | None = None,
    **kwargs: Any,
) -> Enqueued:
    """Assert that the job (a performer, or a stored name) waits to run, and give the jobs that are meant.

    In a `with` statement: that it is queued within the block, whether or not it has run since; the list is filled at
    the block's end. That goes for the call which is written in the `with` statement itself, or in `async with`.

    Arguments are matched by parameter: those not given are any, defaults count, `unittest.mock.ANY` equals everything.
    `run_at` (aware) and `delay` (a duration from the moment of queueing) hold within a second. `match` is given each
    Job and says whether it is meant. `count` is how many there are exactly, one or more where it isn't given. A
    parameter of the job that is called as one of these is given by position, or looked at by `match`.

    Raises AssertionError, with what is near; TypeError where the job can't be queued like this; ValueError for a naive
    datetime.
    """
    __tracebackhide__ = True
    expected = Expected(
        target=job, args=args, kwargs=kwargs, queue=queue, priority=priority, run_at=run_at, delay=delay, match=match
    )
    return check(expected, count=None if count is None else whole("count", count, 0), is_block=is_block())


def assert_not_enqueued(
    job: Target | None = None,
    /,
    *args: Any,
    queue: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    match: Match | None = None,
    **kwargs: Any,
) -> Enqueued:
    """Assert that no such job waits to run, or any job where none is named; in a `with` statement: is queued in it.

    What may be said of the job, and what is raised, are as in `assert_enqueued`.
    """
    __tracebackhide__ = True
    expected = Expected(
        target=job, args=args, kwargs=kwargs, queue=queue, priority=priority, run_at=run_at, delay=delay, match=match
    )
    return check(expected, count=0, is_block=is_block())


def assert_num_enqueued(
    number: int,
    job: Target | None = None,
    /,
    *args: Any,
    queue: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    match: Match | None = None,
    **kwargs: Any,
) -> Enqueued:
    """Assert that exactly so many such jobs wait to run, or jobs at all; in a `with` statement: are queued in it.

    What may be said of the job, and what is raised, are as in `assert_enqueued`.
    """
    __tracebackhide__ = True
    expected = Expected(
        target=job, args=args, kwargs=kwargs, queue=queue, priority=priority, run_at=run_at, delay=delay, match=match
    )
    return check(expected, count=whole("number of jobs", number, 0), is_block=is_block())


def enqueued_jobs(
    job: Target | None = None,
    /,
    *args: Any,
    queue: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    match: Match | None = None,
    **kwargs: Any,
) -> list[Job]:
    """Give the jobs that wait to run, the oldest first; what may be said of them is as in `assert_enqueued`."""
    expected = Expected(
        target=job, args=args, kwargs=kwargs, queue=queue, priority=priority, run_at=run_at, delay=delay, match=match
    )
    return [one for one in rows().ready() if expected.matches(one)]


aassert_enqueued = awaited(assert_enqueued)
aassert_not_enqueued = awaited(assert_not_enqueued)
aassert_num_enqueued = awaited(assert_num_enqueued)
aenqueued_jobs = awaited(enqueued_jobs)


def check(expected: Expected, *, count: int | None, is_block: bool) -> Enqueued:
    """Check at once, or at the end of a block. `count` None stands for one or more."""
    __tracebackhide__ = True
    enqueued = Enqueued(expected, count=count)
    if not is_block:
        refuse_in_event_loop("an assertion", "aassert_enqueued")
        enqueued.look(list(rows().ready()))
    return enqueued


class Enqueued(list["Job"]):
    """The jobs that were found; as a block, those that were queued in it."""

    def __init__(self, expected: Expected, *, count: int | None) -> None:
        super().__init__()
        self._expected = expected
        self._count = count
        self._mark = 0
        self._gone: list[Job] = []

    def __enter__(self) -> Self:
        """Have only jobs count that are queued from now on."""
        _refuse_block_in_event_loop()
        self.clear()
        self._mark = rows().values_list("id", flat=True).last() or 0
        signals.ends.hear(self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Check what was queued, unless something was raised."""
        __tracebackhide__ = True
        signals.ends.unhear(self._hear)
        if error is None:
            kept = list(rows().filter(id__gt=self._mark))
            known = {job.pk for job in kept}
            gone = [job for job in self._gone if job.pk not in known]
            self.look(sorted([*kept, *gone], key=lambda job: job.pk))

    async def __aenter__(self) -> Self:
        """Do as `__enter__`, in async code."""
        return await sync_to_async(self.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do as `__exit__`, in async code."""
        __tracebackhide__ = True
        await sync_to_async(self.__exit__)(kind, error, traceback)

    def _hear(self, ends: list[End]) -> None:
        """Remember jobs that were queued, have run, and are gone since their keeping is 0."""
        model: type[Job] = apps.get_model("django_jobs", "Job")
        for end in ends:
            if end.change.gone and end.claim.id > self._mark:
                result = end.outcome.result if isinstance(end.outcome, Succeeded) else None
                self._gone.append(model.of_claim(end.claim, result))

    def look(self, jobs: list[Job]) -> None:
        """Take those that are meant. Raises AssertionError where there are too few or too many."""
        __tracebackhide__ = True
        self[:] = [job for job in jobs if self._expected.matches(job)]
        if len(self) == self._count or (self._count is None and self):
            return
        raise AssertionError("\n".join(self._told(jobs)))

    def _told(self, jobs: list[Job]) -> list[str]:
        if not self._count and self._count is not None:
            return [f"Enqueued, and should not be: {listed(map(shown, self))}"]
        told = [self._head()]
        if self:
            told.append(f"These are: {listed(map(shown, self))}")
        return told + self._near(jobs) + _at_all(jobs)

    def _head(self) -> str:
        if self._count is None:
            return f"Not enqueued: {self._expected}"
        return f"Enqueued {_times(len(self))}, not {_times(self._count)}: {self._expected}"

    def _near(self, jobs: list[Job]) -> list[str]:
        """Say what is of the same job, but not as it was expected."""
        if self._expected.target is None:
            return []
        told = []
        named = [job for job in jobs if self._expected.is_named(job)]
        if others := [job for job in named if not self._expected.is_called(job)]:
            told.append(f"Same job, other arguments: {listed(map(shown, others))}")
        differing = [
            f"{shown(job)} ({'; '.join(differences)})"
            for job in named
            if self._expected.is_called(job) and (differences := self._expected.differences(job))
        ]
        if differing:
            told.append(f"Same job and arguments, but: {listed(differing)}")
        seen = {job.pk for job in jobs}
        names = self._expected.names() or ()
        ended = [
            f"{shown(job)} ({job.state})"
            for job in rows().filter(name__in=names).exclude(state=State.READY)
            if job.pk not in seen
        ]
        if ended:
            told.append(f"Same job, but it waits no longer: {listed(ended)}")
        return told


def _refuse_block_in_event_loop() -> None:
    try:
        refuse_in_event_loop("assert_enqueued", "aassert_enqueued")
    except SynchronousOnlyOperation:
        message = "this block would block the running event loop: it asks the database; write `async with`"
        raise SynchronousOnlyOperation(message) from None


def _times(number: int) -> str:
    return {0: "not at all", 1: "once"}.get(number, f"{number} times")


def _at_all(jobs: list[Job]) -> list[str]:
    if not jobs:
        return ["Nothing is enqueued."]
    return [f"Enqueued at all: {listed(map(shown, jobs))}"]
