"""Schedules fired by real processes: killed at random, stopped over ticks, busy, and in each of their forms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from django_jobs import clock
from django_jobs.models import Job, Schedule
from tests.mill import jobs
from tests.system.fresh_app import FreshApp
from tests.system.load import FaultRun, fault_run
from tests.system.processes import lines, until, worker
from tests.system.sites import SERVERS, served

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)

ONE = ("--processes", "1", "-c", "4")
"""Arguments of a supervisor with one worker."""

JOBS = f'"{Job._meta.db_table}"'


def secondly(name: str, marks: Path, *more: object, performer: str = "short", **columns: Any) -> Schedule:
    """Make a schedule of one tick a second. Its jobs have no label: many have the same arguments."""
    values = {"cron": "* * * * * *", "performer": f"tests.mill.{performer}", "args": [str(marks), "", *more], **columns}
    return Schedule.objects.create(name=name, **values)


def row(name: str) -> Schedule:
    return Schedule.objects.get(name=name)


# -- which ticks came to jobs, whether these are still there or not

TABLE = "tick_history"

POSTGRESQL = (
    f"create table {TABLE} (schedule text not null, tick timestamptz not null)",
    f"""
    create function note_tick() returns trigger language plpgsql as $$
    begin
      insert into {TABLE} (schedule, tick) values (new.schedule, new.tick);
      return null;
    end $$
    """,
    f"""
    create trigger note_tick after insert on {JOBS} for each row when (new.tick is not null)
    execute function note_tick()
    """,
)

SQLITE = (
    f"create table {TABLE} (schedule text not null, tick text not null)",
    f"""
    create trigger note_tick after insert on {JOBS} for each row when new.tick is not null begin
      insert into {TABLE} (schedule, tick) values (new.schedule, new.tick);
    end
    """,
)


@contextmanager
def noted() -> Iterator[None]:
    """Note each tick that comes to a job from now on."""
    is_postgresql = connections["default"].vendor == "postgresql"
    with connections["default"].cursor() as cursor:
        for statement in POSTGRESQL if is_postgresql else SQLITE:
            cursor.execute(statement)
    try:
        yield
    finally:
        connections["default"].close()
        with connections["default"].cursor() as cursor:
            cursor.execute(f"drop trigger note_tick{f' on {JOBS}' if is_postgresql else ''}")
            if is_postgresql:
                cursor.execute("drop function note_tick")
            cursor.execute(f"drop table {TABLE}")


def fired(name: str) -> list[datetime]:
    """Give the ticks that came to jobs, in their order, each as often as it did."""
    with connections["default"].cursor() as cursor:
        cursor.execute(f"select tick from {TABLE} where schedule = %s order by tick", [name])
        return [clock.read(tick) for (tick,) in cursor.fetchall()]


def each_second(first: datetime, last: datetime) -> list[datetime]:
    return [first + number * SECOND for number in range(round((last - first).total_seconds()) + 1)]


# -- supervisors that are killed


@pytest.fixture(params=[pytest.param(6.0, id="short"), pytest.param(60.0, id="long", marks=pytest.mark.soak)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultRun]:
    name = request.node.name.removeprefix("test_")
    with noted(), fault_run(tmp_path, name, seconds=request.param) as started:
        yield started


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc to find workers")
def test_o57_while_three_supervisors_are_killed_at_random_each_tick_comes_to_one_job(run: FaultRun) -> None:
    """With all of their processes, or alone. Whatever becomes of the jobs, there was one for each tick."""
    secondly("plain", run.marks, missed="all")
    secondly("gone", run.marks, performer="kept_for_no_time", missed="all")
    secondly("long", run.marks, 1.5, performer="medium", missed="all", overlap="skip")
    names = ("plain", "gone", "long")
    for _ in range(3):
        run.begin(*ONE)
    until(lambda: all(fired(name) for name in names), what="each has fired")
    for _ in run.moments(0.3, 1.2):
        victim = run.random.choice(run.supervisors)
        run.wait_until_working(victim)
        run.random.choice([run.kill_tree, run.kill_supervisor])(victim)
        run.begin(*ONE)
    end = clock.now()
    until(lambda: all((row(name).last_at or end) > end for name in names), what="each has fired since the last fault")
    for name in names:
        row(name).disable()
    run.check()
    for name in ("plain", "gone"):
        ticks = fired(name)
        assert ticks == each_second(ticks[0], ticks[-1]), name
        assert (ticks[-1], row(name).skipped) == (row(name).last_at, 0)
        assert ticks[-1] > end
    ticks = fired("long")
    assert len(set(ticks)) == len(ticks)
    last_at, skipped = row("long").last_at, row("long").skipped
    assert last_at is not None
    # Each was fired, or left out since an earlier one waited or ran.
    assert len(ticks) + skipped == len(each_second(ticks[0], last_at))
    assert skipped > 0
    run.tell({"run": run.name, "ticks": {name: len(fired(name)) for name in names}, "skipped": skipped})


# -- O56, O61


def test_o56_ticks_that_passed_while_nothing_ran_come_to_one_job_and_the_others_are_counted(tmp_path: Path) -> None:
    first = secondly("once", tmp_path / "marks").next_at
    assert first is not None
    secondly("all", tmp_path / "marks", missed="all")
    with noted():
        with worker(tmp_path, *ONE, name="before"):
            until(lambda: len(fired("once")) >= 2 and len(fired("all")) >= 2, what="ticks come to jobs")
        before = row("once").last_at
        assert before is not None
        until(lambda: clock.now() > before + 4.5 * SECOND, what="ticks have passed")
        begun = clock.now()
        with worker(tmp_path, *ONE, name="after"):
            until(
                lambda: all((row(name).last_at or begun) > begun + SECOND for name in ("once", "all")),
                what="ticks come to jobs again",
            )
        # Now that nobody fires any more.
        ticks, skipped, last_at = fired("once"), row("once").skipped, row("once").last_at
        assert last_at is not None
        assert len(set(ticks)) == len(ticks)
        # One that passed while the first worker started is among those that were left out.
        assert len(ticks) + skipped == len(each_second(first, last_at))
        # Whatever passed came to one job, that of the newest.
        assert not [tick for tick in ticks if before < tick <= begun - SECOND]
        assert skipped >= 3
        made_up = fired("all")
        assert made_up == each_second(made_up[0], made_up[-1])


@pytest.mark.parametrize("length", [pytest.param(4, id="short"), pytest.param(20, id="long", marks=pytest.mark.soak)])
def test_o61_ticks_stay_on_their_grid_while_the_worker_is_busy(tmp_path: Path, length: int) -> None:
    marks = tmp_path / "marks"
    secondly("cron", marks, missed="all")
    secondly("interval", marks, cron="", every_seconds=1.0, missed="all")
    with noted(), worker(tmp_path, "--processes", "2", "-c", "4"):
        until(lambda: fired("cron") and fired("interval"), what="ticks come to jobs")
        until(
            lambda: _loaded(marks) and len(fired("cron")) > length and len(fired("interval")) > length, what="20 ticks"
        )
        for name in ("cron", "interval"):
            ticks = fired(name)
            assert ticks == each_second(ticks[0], ticks[-1])
            assert {tick.microsecond for tick in ticks} == {0}
        assert row("cron").skipped == row("interval").skipped == 0
        # None comes before its time.
        assert not Job.objects.filter(schedule__isnull=False, enqueued_at__lt=F("tick")).exists()


def _loaded(marks: Path) -> bool:
    """Keep some hundred jobs waiting, and say that they were queued."""
    if Job.objects.filter(state="READY", schedule=None).count() < 100:
        jobs.short.later_many((str(marks), f"{time.monotonic()}-{number}") for number in range(200))
    return True


# -- each form of a worker


@pytest.mark.parametrize("processes", ["0", "1"])
def test_each_form_of_the_command_fires(tmp_path: Path, processes: str) -> None:
    secondly("nightly", tmp_path / "marks")
    with worker(tmp_path, "--processes", processes):
        until(
            lambda: Job.objects.filter(schedule="nightly", state="SUCCESSFUL").count() >= 2, what="ticks come to jobs"
        )


def test_a_worker_inside_a_web_server_fires(tmp_path: Path) -> None:
    secondly("nightly", tmp_path / "marks")
    with served(tmp_path, SERVERS["gunicorn"]) as site:
        site.works()
        until(
            lambda: Job.objects.filter(schedule="nightly", state="SUCCESSFUL").count() >= 2, what="ticks come to jobs"
        )


# -- what code declares


def test_o59_what_code_declares_fires_until_a_new_release_declares_it_no_more(
    tmp_path: Path, fresh_app: FreshApp
) -> None:
    fresh_app.write("first")
    plain = fresh_app.jobs.read_text()
    declared = f"every('* * * * * *', say, args=({str(fresh_app.marks)!r},), name='fresh')"
    fresh_app.jobs.write_text(f"from django_jobs import every\n{plain}\n\n{declared}\n")
    with worker(tmp_path, *ONE, name="old"):
        until(lambda: len(lines(fresh_app.marks)) >= 2, what="it fires")
    assert (row("fresh").origin, row("fresh").owner, row("fresh").removed) == ("code", "tests", False)
    fresh_app.jobs.write_text(plain)
    with worker(tmp_path, *ONE, name="new"):
        until(lambda: row("fresh").removed, what="it is removed")
        begun = Job.objects.filter(schedule="fresh").count()
        until(lambda: clock.now() > (row("fresh").last_at or clock.now()) + 2.5 * SECOND, what="ticks have passed")
        assert Job.objects.filter(schedule="fresh").count() == begun
