"""Measure what a job costs: statements, transactions, log, CPU time; and what a process takes of memory."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobs import enqueue, named
from django_jobs.models import Queue
from tests.benchmarks import processes
from tests.benchmarks.bench import Bench, wait_for_bodies, wait_for_ends
from tests.benchmarks.figures import Figure, Rejected
from tests.benchmarks.jobs import noop
from tests.benchmarks.waiting import idle_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    statements: float
    worker: float
    supervisor: float = 0.0
    queued_bytes: float = 0.0
    run_bytes: float = 0.0
    transactions: float = 0.0
    resident: float = 0.0


def cost(bench: Bench) -> list[Figure]:
    """Let idle workers run a backlog, and look at what the system and the server count meanwhile."""
    ours, plain = bench.alternated(lambda: _cost(bench), lambda: _cost_raw(bench))

    def figure(name: str, field: str, what: str, unit: str, *, goal: str = "", has_raw: bool = True) -> Figure:
        values = tuple(getattr(run, field) for run in ours)
        raw: tuple[float, ...] = tuple(getattr(run, field) for run in plain) if has_raw else ()
        return Figure(name=name, what=what, unit=unit, values=values, raw=raw, goal=goal)

    jobs = bench.sizes.cost
    found = [
        figure("cost_worker", "worker", "worker CPU time for a no-op job", "ms", goal="≤ 0.12"),
        figure("cost_supervisor", "supervisor", "supervisor CPU time for a no-op job", "ms", has_raw=False),
        figure("cost_statements", "statements", "statements to claim and end a job", "", has_raw=True),
        figure("worker_after", "resident", f"memory of a worker after {jobs:,} jobs", "MB", goal="≤ 60", has_raw=False),
    ]
    if bench.is_postgresql:
        found += [
            figure("cost_transactions", "transactions", "transactions that write, to claim and end a job", ""),
            figure("cost_queued_bytes", "queued_bytes", "WAL to queue a job by `later_many`", "bytes", has_raw=False),
            figure("cost_run_bytes", "run_bytes", "WAL to claim and end a job, row kept", "bytes"),
        ]
    return found


def _cost(bench: Bench) -> _Spent:
    jobs = bench.sizes.cost
    bench.wipe()
    counting = bench.counting()
    with idle_workers(
        bench, workers=bench.sizes.workers, slots=bench.sizes.slots, jobs=jobs + 1, variables=counting
    ) as (command, notes):
        workers = processes.children(command.process.pid)

        def look() -> dict[str, float]:
            position, transactions = bench.server_numbers()
            return {
                "statements": bench.counted(counting),
                "worker": 1e3 * sum(map(processes.processor_seconds, workers)),
                "supervisor": 1e3 * processes.processor_seconds(command.process.pid),
                "bytes": position,
                "transactions": transactions,
            }

        # A paused queue keeps the backlog from being touched until all of it is there.
        Queue.objects.create(name="default", paused_at="2020-01-01T00:00:00Z")
        empty = look()
        noop.later_many((number,) for number in range(jobs))
        queued = look()
        bench.settle_down()
        before = look()
        Queue.objects.all().delete()
        noop.using(queue="waking").later(jobs)
        wait_for_bodies(notes, range(jobs + 1))
        rows = bench.rows()
        wait_for_ends(rows)
        after = look()
        resident = max(processes.memory(pid).resident for pid in workers)
    bench.check(notes, jobs=jobs + 1, rows=rows)

    def a_job(what: str) -> float:
        return (after[what] - before[what]) / jobs

    return _Spent(
        statements=a_job("statements"),
        worker=a_job("worker"),
        supervisor=a_job("supervisor"),
        queued_bytes=(queued["bytes"] - empty["bytes"]) / jobs,
        run_bytes=a_job("bytes"),
        transactions=a_job("transactions"),
        resident=resident,
    )


def _cost_raw(bench: Bench) -> _Spent:
    jobs = bench.sizes.cost
    run = bench.drained_raw(jobs, workers=bench.sizes.workers)
    return _Spent(
        statements=run.statements / jobs,
        worker=1e3 * run.processor / jobs,
        run_bytes=run.bytes / jobs,
        transactions=run.transactions / jobs,
    )


def memory(bench: Bench) -> list[Figure]:
    """Start the command with the example project's own settings, have it run a few jobs, and look at its processes."""
    found = [_memory(bench) for _ in range(bench.times)]
    return [
        Figure(
            name=f"memory_{who}_{how}",
            what=f"memory of {'a worker' if who == 'worker' else 'the supervisor'}, example project: {said}",
            unit="MB",
            values=tuple(getattr(run[who], how) for run in found),
            goal="≤ 60" if (who, how) == ("worker", "resident") else "",
        )
        for who in ("worker", "supervisor")
        for how, said in (("resident", "resident"), ("proportional", "its share (PSS)"))
    ]


def _memory(bench: Bench) -> dict[str, processes.Memory]:
    bench.wipe()
    settings = {"DJANGO_SETTINGS_MODULE": "example_project.settings"}
    with bench.running("--processes", f"{bench.sizes.workers}", notes=None, **settings) as command:
        command.says(processes.SAYS_IT_WORKS)
        for number in range(3):
            # There are no customers, so it writes to nobody.
            enqueue([named("shop.send_newsletter", "spring")] * 20)
            wait_for_ends(20 * (number + 1))
        # Beside each worker there is a sentinel, which is a shell.
        pids = [pid for pid in processes.children(command.process.pid) if processes.is_worker(pid)]
        workers = [processes.memory(pid) for pid in pids]
        supervisor = processes.memory(command.process.pid)
    if len(workers) != bench.sizes.workers:
        raise Rejected(f"there were {len(workers)} worker processes instead of {bench.sizes.workers}")
    return {"worker": max(workers, key=lambda each: each.resident), "supervisor": supervisor}
