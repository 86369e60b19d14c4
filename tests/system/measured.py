"""What faults cost, each measured in a run of its own. Printed by tests/system/figures.py."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from django.db import Error, connections

from django_jobs.models import Job
from django_jobs.states import FINISHED
from tests.mill import jobs
from tests.system.history import Mark, read_marks
from tests.system.load import FaultRun
from tests.system.own_server import own_server, used_by_default
from tests.system.processes import until

Line = tuple[str, str, str]
"""What was measured, what it came to, and the goal."""


@contextmanager
def a_run(**options: str) -> Iterator[FaultRun]:
    """Give supervisors and marks of a run, in a folder that goes away."""

    with tempfile.TemporaryDirectory(prefix="django-jobs-figures-") as folder:
        run = FaultRun(Path(folder), name="figures", seconds=0.0, seed=0)
        run.options.update({"LEASE": "60s", "TIMEOUT_GRACE": "5s"} | options)
        try:
            yield run
        finally:
            run.abandon()
            connections["default"].close()
            Job.objects.update(state="CANCELLED", worker=None, finished_at="2020-01-01T00:00:00Z")
            Job.objects.all().delete()


def killed_workers() -> Iterator[Line]:
    for processes in (2, 1):
        with a_run() as run:
            supervisor = run.start("--processes", str(processes), "-c", str(2 * processes))
            taken = []
            for number in range(40):
                run.wait_until_working(supervisor)
                with gated(run, f"{number}") as (job, body):
                    begun = time.monotonic()
                    run.kill(body.pid)
                    taken.append(begins(run, job, 2)[1].at - begun)
        beside = "another worker beside it" if processes > 1 else "the only worker, to be replaced"
        yield f"worker process killed ({beside}) → its job runs again", spread(taken), "p50 < 0.25 s, p99 < 1 s"


def killed_trees() -> Iterator[Line]:
    for what in ("tree", "supervisor"):
        with a_run(LEASE="5s") as run:
            for _ in range(2):
                run.start("-c", "2")
            taken = []
            for number in range(6):
                with gated(run, f"{number}") as (job, body):
                    victim = next(each for each in run.supervisors if body.pid in run.working(each))
                    begun = time.monotonic()
                    (run.kill_tree if what == "tree" else run.kill_supervisor)(victim)
                    taken.append(begins(run, job, 2)[1].at - begun)
                run.start("-c", "2")
        who = "supervisor with all workers" if what == "tree" else "supervisor alone"
        yield f"{who} killed, another one up, lease 5 s → runs again", spread(taken), "< lease + 5 s"


def restarted_databases() -> Iterator[Line]:
    if connections["default"].vendor == "sqlite":
        return

    for mode in ("fast", "immediate"):
        url = os.environ["DATABASE_URL"]
        with own_server() as server, used_by_default(server):
            os.environ["DATABASE_URL"] = server.url
            try:
                with a_run() as run:
                    run.start("--processes", "4", "-c", "8")
                    taken, away = [], []
                    for _ in range(6):
                        for _ in range(400):
                            run.queue(jobs.medium, 0.1)
                        connections["default"].close()
                        restarting = Thread(target=server.restart, args=(mode,))
                        begun = time.monotonic()
                        restarting.start()
                        down = first_answer(begun, wanted=False)
                        back = first_answer(begun, wanted=True)
                        restarting.join()
                        away.append(back - down)
                        taken.append(first_begin_after(run, back) - back)
            finally:
                os.environ["DATABASE_URL"] = url
        yield f"database restarted ({mode}, away {max(away):.1f} s at most) → claiming again", spread(taken), "< 1 s"


def first_answer(since: float, *, wanted: bool) -> float:
    """Wait until the database answers a new connection, or doesn't any more, and say when."""
    while time.monotonic() < since + 60:
        is_there = False
        with suppress(Error):
            connections["default"].close()
            connections["default"].ensure_connection()
            is_there = True
        if is_there is wanted:
            return time.monotonic()
        time.sleep(0.002)
    raise AssertionError(wanted)


def first_begin_after(run: FaultRun, moment: float) -> float:

    def first() -> float | None:
        found = [mark.at for mark in read_marks(run.marks) if mark.word == "begin" and mark.at > moment]
        return min(found, default=None)

    return until(first, what="a job begins")


def terminated() -> Iterator[Line]:

    for length, grace in ((0.2, "15s"), (600.0, "3s")):
        with a_run() as run:
            for _ in range(6):
                # Queued first: what the rounds before have left would fill all slots at once.
                first = run.queue(jobs.medium, length, priority=1)
                for _ in range(200):
                    run.queue(jobs.medium, length)
                supervisor = run.start("--processes", "4", "-c", "8", "--grace", grace)
                begins(run, first, 1)
                run.stop(supervisor)
            codes = dict(Counter(run.exit_codes))
        what = f"TERM under load, jobs of {length:g} s, grace {grace} → exit (codes {codes})"
        yield what, spread(run.exit_times), "< grace + 5 s"


def poisoned() -> Iterator[Line]:

    with a_run() as run:
        run.start("--processes", "2", "-c", "8")
        neighbours = [run.queue(jobs.medium, 0.5) for _ in range(60)]
        poison = [run.queue(each, priority=1) for each in (jobs.exits, jobs.crashes, jobs.is_killed)]
        run.wait_for_the_end()
        runs = [len(begins(run, job, 0)) for job in poison]
        ended = Job.objects.in_bulk([job.pk for job in (*poison, *neighbours)])
        states = dict(Counter(ended[job.pk].state for job in neighbours))
        counted = max(ended[job.pk].attempts for job in neighbours) - 1
        assert {job.state for job in ended.values()} <= set(FINISHED)
        fates = ", ".join(sorted({ended[job.pk].state for job in poison}))
    yield f"poison jobs (exit, segfault, kill): runs of each; they end {fates}", str(runs), "≤ max_crashes (3)"
    yield "their 60 neighbours: ends; attempts charged at the most", f"{states}; {counted}", "all SUCCESSFUL; 0"


def timed_out() -> Iterator[Line]:

    for performer, what, goal in (
        (jobs.runs_on, "timeout of Python code → recorded", "timeout + 1 s"),
        (jobs.sleeps_in_c, "timeout of a C call → killed and recorded", "timeout + grace (5 s) + 1 s"),
        (jobs.holds_interpreter_past_deadline, "… that holds the interpreter", "timeout + grace (5 s) + 1 s"),
    ):
        with a_run() as run:
            supervisor = run.start("-c", "1")
            taken = []
            more = (600.0,) if performer is jobs.holds_interpreter_past_deadline else ()
            for _ in range(4):
                run.wait_until_working(supervisor)
                job = run.queue(performer, *more)
                run.wait_for_the_end()
                job.refresh_from_db()
                assert (job.state, job.errors[-1]["kind"]) == ("FAILED", "timeout"), job.errors
                assert job.finished_at is not None
                assert job.started_at is not None
                taken.append((job.finished_at - job.started_at).total_seconds())
        yield f"{what} (timeout 1 s), from the claim", spread(taken), goal


def held_interpreter() -> Iterator[Line]:

    with a_run(LEASE="4s") as run:
        for _ in range(2):
            run.start("-c", "2")
        held = [run.queue(jobs.holds_interpreter, 12.0) for _ in range(2)]
        run.wait_for_the_end()
        runs = [len(begins(run, job, 0)) for job in held]
    yield "C calls that hold the interpreter for three leases (4 s): runs of each", str(runs), "1"


@contextmanager
def gated(run: FaultRun, name: str) -> Iterator[tuple[Job, Mark]]:
    """Run a job until its body has begun, give both, and let it end."""

    gate = run.marks.with_name(f"gate-{name}")
    job = run.queue(jobs.waits_for_file, str(gate))
    [body] = begins(run, job, 1)
    yield job, body
    gate.touch()

    def has_ended() -> bool:
        job.refresh_from_db()
        return job.state == "SUCCESSFUL"

    until(has_ended, what="the job ends")


def begins(run: FaultRun, job: Job, count: int) -> list[Mark]:
    """Wait until a job's body has begun so often, and give the marks."""

    def found() -> list[Mark]:
        return [mark for mark in read_marks(run.marks) if mark.word == "begin" and mark.job == job.pk]

    until(lambda: len(found()) >= count, what=f"the body of job {job.pk} has begun {count} times")
    return found()


def spread(taken: list[float]) -> str:
    """Say the median and the extremes."""
    ordered = sorted(taken)
    if len(ordered) < 20:
        return f"p50 {statistics.median(ordered):.2f} s, max {ordered[-1]:.2f} s ({len(ordered)})"
    ninety_nine = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.3f} s, p99 {ninety_nine:.3f} s ({len(ordered)})"


MEASURED: dict[str, Callable[[], Iterator[Line]]] = {
    "killed_workers": killed_workers,
    "killed_trees": killed_trees,
    "restarted_databases": restarted_databases,
    "terminated": terminated,
    "poisoned": poisoned,
    "timed_out": timed_out,
    "held_interpreter": held_interpreter,
}
