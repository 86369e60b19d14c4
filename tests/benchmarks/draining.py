"""Measure how fast workers get through a backlog of no-op jobs: claim, run, write the end; rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.db import connection

from django_jobs.models import Job
from tests.benchmarks.bench import CROWD, Bench, Drained
from tests.benchmarks.figures import Figure, Rejected, rate, rate_at_work


def drain(bench: Bench) -> list[Figure]:
    """Drain by the command, beside two raw processes."""
    jobs = bench.sizes.drain
    ours, plain = _measured(bench, jobs)
    goal = "≥ 10,000, ≥ 0.85 of raw" if bench.is_postgresql else "≥ 8,000"
    command = f"`runjobs --drain --processes {bench.sizes.workers} -c {bench.sizes.slots}`"
    what = f"drain {jobs:,} by {command}: ends per second"
    return [
        _figure("drain", f"{what}, first to last end", ours, plain, goal=goal),
        Figure(
            name="drain_at_work",
            what=f"{what}, from the first batch of the later worker on",
            unit="jobs/s",
            values=tuple(rate_at_work(run.ends) for run in ours),
            raw=tuple(rate_at_work(run.ends) for run in plain),
        ),
        _by_bodies("drain_bodies", "the same, first to last body (as peers are measured)", ours, plain),
    ]


def drain_not_kept(bench: Bench) -> list[Figure]:
    """Drain jobs with a keeping of 0, which are deleted as they succeed; nothing but their bodies tells the time."""
    jobs = bench.sizes.drain
    ours, plain = _measured(bench, jobs, keep=False)
    what = f"drain {jobs:,} with `keep=0`, first to last body; raw deletes"
    return [_by_bodies("drain_not_kept", what, ours, plain)]


def drain_crowded(bench: Bench) -> list[Figure]:
    """Drain beside many finished rows and as many future ones of a higher priority."""
    jobs, crowd = bench.sizes.drain, bench.sizes.crowd
    bench.wipe()
    bench.say(f"seeding {crowd:,} finished and {crowd:,} future rows")
    try:
        with connection.cursor() as cursor:
            for statement in SEEDS[connection.vendor]:
                cursor.execute(statement.format(name=CROWD, rows=crowd))
            cursor.execute("analyze django_jobs_job" if bench.is_postgresql else "analyze")
        ours, plain = _measured(bench, jobs)
        if (there := Job.objects.filter(name=CROWD).count()) != 2 * crowd:
            raise Rejected(f"there were {there:,} other rows, not {2 * crowd:,}")
    finally:
        with connection.cursor() as cursor:
            if bench.is_postgresql:
                cursor.execute("truncate django_jobs_job")
            else:
                cursor.execute("delete from django_jobs_job")
                # Or the next measurement's statements would be planned for a crowd.
                cursor.execute("delete from sqlite_stat1")
        bench.wipe()
    what = f"drain with {crowd:,} finished and {crowd:,} future rows of a higher priority"
    return [_figure("drain_crowded", what, ours, plain, goal="≥ 0.9 of `drain`", beside="drain")]


def drain_held(bench: Bench) -> list[Figure]:
    """Drain while another session holds a snapshot, so that no dead row can be cleared away."""
    ours, plain = _measured(bench, bench.sizes.drain, held=True)
    what = "drain while another session holds a snapshot open"
    return [_figure("drain_held", what, ours, plain, goal="≥ 0.6 of `drain`", beside="drain")]


def scaling(bench: Bench) -> list[Figure]:
    """Drain with several numbers of worker processes, each with eight slots."""
    found = []
    for workers in bench.sizes.scaling:
        ours, plain = _measured(bench, bench.sizes.scaled, workers=workers, slots=8 * workers)
        what = f"drain with {workers} worker processes of 8 slots; raw: as many processes"
        found.append(_figure(f"scaling_{workers}", what, ours, plain))
    return found


def _measured(
    bench: Bench, jobs: int, *, keep: bool = True, held: bool = False, workers: int = 0, slots: int = 0
) -> tuple[Sequence[Drained], Sequence[Drained]]:
    workers, slots = workers or bench.sizes.workers, slots or bench.sizes.slots
    if bench.sizes.warm_up:
        bench.drained_raw(bench.sizes.warm_up, keep=keep, workers=workers)
        bench.drained_by_us(bench.sizes.warm_up, keep=keep, workers=workers, slots=slots)
    runs = bench.alternated(
        partial(bench.drained_by_us, jobs, keep=keep, held=held, workers=workers, slots=slots),
        partial(bench.drained_raw, jobs, keep=keep, held=held, workers=workers),
    )
    bench.wipe()
    return runs


def _figure(
    name: str, what: str, ours: Sequence[Drained], plain: Sequence[Drained], *, goal: str = "", beside: str = ""
) -> Figure:
    values, raw = tuple(rate(run.ends) for run in ours), tuple(rate(run.ends) for run in plain)
    return Figure(name=name, what=what, unit="jobs/s", values=values, raw=raw, goal=goal, beside=beside)


def _by_bodies(name: str, what: str, ours: Sequence[Drained], plain: Sequence[Drained]) -> Figure:
    def rates(runs: Sequence[Drained]) -> tuple[float, ...]:
        return tuple((len(run.bodies) - 1) / (max(run.bodies) - min(run.bodies)) for run in runs)

    return Figure(name=name, what=what, unit="jobs/s", values=rates(ours), raw=rates(plain))


# Set-based: the rows of a job's life as it looks in the end, and of jobs put off to next week.
_COLUMNS = "name, queue, args, kwargs, meta, keep, keep_failed, timeout"
_FINISHED = f"""insert into django_jobs_job ({_COLUMNS}, state, attempts, token, last_worker, run_at, enqueued_at,
  first_started_at, started_at, finished_at, prune_at)"""
_FUTURE = f"insert into django_jobs_job ({_COLUMNS}, priority, run_at, enqueued_at)"

SEEDS = {
    "postgresql": (
        _FINISHED
        + """select '{name}', 'default', '[1]', '{{}}', '{{}}', 604800, 1209600, 300,
          'SUCCESSFUL', 1, n, 'host-1-crowd', at, at, at, at, at + interval '5 ms', at + interval '7 days'
        from generate_series(1, {rows}) as n,
          lateral (select statement_timestamp() - n * interval '50 ms' as at) as moment""",
        _FUTURE
        + """select '{name}', 'default', '[1]', '{{}}', '{{}}', 86400, 1209600, 300, 50,
          statement_timestamp() + interval '7 days' + n * interval '10 ms', statement_timestamp()
        from generate_series(1, {rows}) as n""",
    ),
    "sqlite": (
        _FINISHED
        + """with recursive series(n) as (select 1 union all select n + 1 from series where n < {rows}),
          age as (select n, '-' || (n * 0.05) || ' seconds' as age from series),
          moment as (select n, strftime('%Y-%m-%d %H:%M:%f', 'now', age) || '000' as at,
            strftime('%Y-%m-%d %H:%M:%f', 'now', '7 days', age) || '000' as later from age)
        select '{name}', 'default', '[1]', '{{}}', '{{}}', 604800, 1209600, 300,
          'SUCCESSFUL', 1, n, 'host-1-crowd', at, at, at, at, at, later from moment""",
        _FUTURE
        + """with recursive series(n) as (select 1 union all select n + 1 from series where n < {rows})
        select '{name}', 'default', '[1]', '{{}}', '{{}}', 86400, 1209600, 300, 50,
          strftime('%Y-%m-%d %H:%M:%f', 'now', '7 days', (n * 0.01) || ' seconds') || '000',
          strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' from series""",
    ),
}
