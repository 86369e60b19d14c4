"""Front door: tests run what is queued, in their own thread, on their own connection and in their own transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from django.apps import apps
from django.db import connections

from django_jobs import clock, durations, lifecycle
from django_jobs.conf import settings
from django_jobs.outcomes import Outcome, Snoozed
from django_jobs.performers.queueing import refuse_in_event_loop
from django_jobs.states import State
from django_jobs.testing import live
from django_jobs.testing.awaiting import awaited
from django_jobs.testing.committing import run_commit_hooks
from django_jobs.testing.targets import Target, names_of, rows, whole
from django_jobs.testing.ticking import Ticking
from django_jobs.worker.inline import error_of, job_after
from django_jobs.worker.turn import Turn, work_claim

if TYPE_CHECKING:
    from django_jobs.models import Job
    from django_jobs.models.job import JobQuerySet

Until: TypeAlias = "durations.Duration | datetime"
"""How far to travel: a duration from now ("+1d", "90m", seconds, a timedelta), or an aware datetime."""

Travel: TypeAlias = Callable[[datetime], AbstractContextManager[object]]
"""Has Python's own clock stand at a moment; `time_machine.travel` and `freezegun.freeze_time` are of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a run of jobs came to: how many attempts ended how, and the jobs in the order they ran.

    Each is as its row stood right after that attempt, so a job with two attempts is there twice.
    """

    succeeded: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    failed: int = 0
    jobs: tuple[Job, ...] = ()


def run_jobs(
    *jobs: Target,
    queue: str | None = None,
    until: Until | None = None,
    max_jobs: int = 1_000,
    raise_errors: bool = True,
    retries: bool = False,
    on_commit: bool = False,
    travel: Travel | None = None,
    schedules: bool = True,
) -> Drained:
    """Run what is due, and what that queues, until nothing is; the first failing job's own exception is raised.

    Only of these `jobs` (performers or stored names) and of this `queue`, where given. It works in a plain TestCase:
    all of it happens on the test's own connection and in its transaction, and vanishes with it.

    `until` also runs what is scheduled, retried or snoozed up to then, in the order of its moments, and what schedules
    fire, those of the code too; the clock of the queue stands at each job's moment meanwhile, and is then as before.
    Python's own, timezone.now() too, goes on as ever, unless `travel` moves it: `travel=time_machine.travel`. Without
    `schedules` none fires: which ticks come up to then may depend on the time of the day.

    `retries` lets failed attempts pass that another one follows, so that only a job that has failed for good raises;
    `raise_errors=False` lets all pass. A job that raises Retry, Snooze or Cancel has not failed. `on_commit` also calls
    what was given to `transaction.on_commit` in the test's transaction so far, and by each job.

    Raises RuntimeError when more than `max_jobs` attempts were made, naming the jobs that go on; RunFailed for a failed
    job without an exception; ValueError and TypeError for what can't be read.
    """
    __tracebackhide__ = True
    refuse_in_event_loop("run_jobs", "arun_jobs")
    whole("max_jobs", max_jobs, 1)
    run = _Run(
        queue=queue, names=names_of(jobs), max_jobs=max_jobs, on_commit=on_commit, travel=travel, schedules=schedules
    )
    wanted = (lambda turn: error_of(turn, retries=retries)) if raise_errors else _interruption
    if until is None and travel is not None:
        message = "travel= moves the clock to the moments of jobs; say with until= how far to go"
        raise TypeError(message)
    # Closed at once, also when something is raised, whose traceback would keep it, and the clock, as they stand.
    with closing(run.turns() if until is None else run.turns_until(until)) as turns:
        for turn in turns:
            if (error := wanted(turn)) is not None:
                raise error
    return run.drained()


def drain(
    *jobs: Target,
    queue: str | None = None,
    until: Until | None = None,
    max_jobs: int = 1_000,
    on_commit: bool = False,
    travel: Travel | None = None,
    schedules: bool = True,
) -> Drained:
    """Do as `run_jobs`, and raise no job's exception: what failed is counted."""
    return run_jobs(
        *jobs, queue=queue, until=until, max_jobs=max_jobs, raise_errors=False, on_commit=on_commit, travel=travel,
        schedules=schedules,
    )  # fmt: skip


arun_jobs = awaited(run_jobs)
adrain = awaited(drain)


def _interruption(turn: Turn) -> BaseException | None:
    """Give Ctrl-C, which is no exception of a job's, wherever it struck."""
    return turn.error if isinstance(turn.error, KeyboardInterrupt) else None


class _Run:
    """One run of jobs: what it may take, and what it has taken."""

    def __init__(
        self,
        *,
        queue: str | None,
        names: tuple[str, ...] | None,
        max_jobs: int,
        on_commit: bool,
        travel: Travel | None,
        schedules: bool,
    ) -> None:
        self._queue = queue
        self._names = names
        self._max_jobs = max_jobs
        self._on_commit = on_commit
        self._travel = travel
        self._ticking = Ticking(names=names, queue=queue) if schedules else None
        self._end: datetime | None = None
        self._ends: Counter[str] = Counter()
        self._jobs: list[Job] = []

    def turns(self) -> Generator[Turn]:
        """Run what is due now."""
        self._call_hooks()
        while (turn := work_claim(self._queue, only=self._names)) is not None:
            self._jobs.append(job_after(turn))
            self._ends[_end_of(self._jobs[-1], turn.outcome)] += 1
            yield turn
            self._call_hooks()
            if len(self._jobs) >= self._max_jobs and self._still_to_come().exists():
                raise RuntimeError(self._endless())

    def turns_until(self, until: Until) -> Generator[Turn]:
        """Run what is due, then what is next, ticks of schedules too, and so on up to a moment."""
        if live.is_running():
            message = "until= stops the clock of this whole process, and so that of live_worker() beside it; use one"
            raise RuntimeError(message)
        with self._frozen() as frozen:
            self._end = end = _end(frozen.instant, until)
            if self._ticking is not None:
                self._ticking.begin()
            while True:
                with self._travelled(frozen.instant):
                    self._fire()
                    yield from self.turns()
                moment = self._next_moment(frozen.instant, end)
                if moment is None:
                    return
                frozen.move_to(moment)

    def _fire(self) -> None:
        if self._ticking is None or not self._ticking.fire():
            return
        if len(self._jobs) >= self._max_jobs and self._still_to_come().exists():
            raise RuntimeError(self._endless())

    def drained(self) -> Drained:
        """Say what it came to."""
        return Drained(**self._ends, jobs=tuple(self._jobs))

    def _call_hooks(self) -> None:
        if self._on_commit:
            run_commit_hooks()

    # -- the clock

    @contextmanager
    def _frozen(self) -> Iterator[clock.FrozenClock]:
        """Stand at the present moment of the database, or where the clock stands already."""
        with clock.freeze(_now()) as frozen:
            yield frozen

    def _travelled(self, moment: datetime) -> AbstractContextManager[object]:
        return nullcontext() if self._travel is None else self._travel(moment)

    def _next_moment(self, now: datetime, end: datetime) -> datetime | None:
        later = self._waiting().filter(run_at__gt=now, run_at__lte=end)
        job = later.order_by("run_at").values_list("run_at", flat=True).first()
        tick = None if self._ticking is None else self._ticking.next_after(now, end)
        return min(filter(None, (job, tick)), default=None)

    # -- what waits

    def _waiting(self) -> JobQuerySet:
        """Find what this run may take, now or later."""
        paused = apps.get_model("django_jobs", "Queue").objects.filter(paused_at__isnull=False)
        found = rows().ready().exclude(queue__in=paused.using(settings().database).values("name"))
        if self._names is not None:
            found = found.filter(name__in=self._names)
        return found if self._queue is None else found.in_queue(self._queue)

    def _still_to_come(self) -> JobQuerySet:
        now = _now()
        coming = self._waiting().filter(run_at__lte=self._end or now)
        # What has expired is no attempt, and the next claim ends it.
        return coming.exclude(expires_at__lte=now)

    def _endless(self) -> str:
        often = Counter(job.name for job in self._jobs).most_common(3)
        shown = ", ".join(f"{name} ({count} times)" for name, count in often)
        due = Counter(self._still_to_come().values_list("name", flat=True))
        waiting = ", ".join(f"{name} ({count})" for name, count in due.most_common(3))
        return (
            f"{self._max_jobs} attempts were made, and more is due. Most often ran {shown}; still due are {waiting}. "
            f"Do these jobs queue each other, ask to come back at once, or come by a schedule? "
            f"If so many are right, raise max_jobs"
        )


def _end_of(job: Job, outcome: Outcome) -> str:
    """Say how an attempt ended, as its row has it: one that was cancelled, or superseded, may have wanted otherwise."""
    match job.state:
        case State.SUCCESSFUL:
            return "succeeded"
        case State.FAILED:
            return "failed"
        case State.CANCELLED:
            return "cancelled"
        case _:
            return "snoozed" if isinstance(outcome, Snoozed) else "retried"


def _now() -> datetime:
    return clock.frozen_now() or lifecycle.pulse(connections[settings().database]).now


def _end(start: datetime, until: Until) -> datetime:
    if isinstance(until, datetime):
        if until.utcoffset() is None:
            message = f"until={until!r}: this datetime is naive; give an aware one, or a duration like '+1d'"
            raise ValueError(message)
        end = until
    else:
        given = until.strip().removeprefix("+") if isinstance(until, str) else until
        end = start + durations.parse(given, what="until")
    if end < start:
        message = f"until={until}: that is before now, {start.isoformat()}; the clock only goes on"
        raise ValueError(message)
    return end
