"""Fault runs: load, somebody who plays one fault again and again, and a history that must keep every rule.

Each comes in a short form, and in a long one with `-m soak`. The seed is printed; FAULT_SEED repeats it, and
FAULT_FIGURES names a file that gets a line with each run's figures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connections

from django_jobs.models import Job
from tests.mill import jobs
from tests.system.history import a_job_runs_again_only_for_a_reason, story
from tests.system.load import LIVE, PAST_RECLAIM, FaultRun, fault_run
from tests.system.own_server import OwnServer, own_server, used_by_default

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.faults,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc to find workers"),
]

needs_server = pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="SQLite has no server")

FOUR = ("--processes", "4", "-c", "8")
TWO = ("--processes", "2", "-c", "4")
"""Arguments of a supervisor with four workers, and of one with two."""

LEASE = float(LIVE["LEASE"].removesuffix("s"))


@pytest.fixture(params=[pytest.param(3.0, id="short"), pytest.param(30.0, id="long", marks=pytest.mark.soak)])
def seconds(request: pytest.FixtureRequest) -> float:
    """How long faults are played."""
    return float(request.param)


@pytest.fixture
def run(request: pytest.FixtureRequest, seconds: float, tmp_path: Path) -> Iterator[FaultRun]:
    with fault_run(tmp_path, request.node.name.removeprefix("test_"), seconds=seconds) as started:
        yield started


@pytest.fixture
def server(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnServer]:
    """Give a server of the test's own, which it uses in place of the suite's."""
    with own_server() as own, used_by_default(own):
        monkeypatch.setenv("DATABASE_URL", own.url)
        yield own


# -- processes


def test_workers_are_killed(run: FaultRun) -> None:
    supervisor = run.start(*FOUR)
    with run.load():
        for _ in run.moments(0.2, 0.8):
            if pids := run.working(supervisor):
                run.kill(run.random.choice(pids))
    figures = run.check()
    assert run.played["killed"]
    assert figures.overlaps == 0
    assert run.exit_codes == [0]


@pytest.mark.parametrize("what", ["supervisor", "tree"])
def test_supervisors_are_killed(run: FaultRun, what: str) -> None:
    """Alone, so that their workers must end themselves, or with all of these, as if the host were gone."""
    kill = run.kill_supervisor if what == "supervisor" else run.kill_tree
    for _ in range(2):
        run.start(*TWO)
    with run.load():
        for _ in run.moments(0.5, 1.5):
            victim = run.random.choice(run.supervisors)
            run.wait_until_working(victim)
            kill(victim)
            run.begin(*TWO)
    run.check()


def test_processes_are_frozen_past_their_lease(run: FaultRun) -> None:
    """A worker, a supervisor, and one with all its workers, as if the host had slept."""
    supervisors = [run.start(*TWO) for _ in range(2)]
    with run.load():
        for what in run.in_turn("worker", "supervisor", "tree"):
            supervisor = run.random.choice(supervisors)
            run.occupy(supervisor)
            workers, root = run.working(supervisor), supervisor.process.pid
            pids = {"worker": workers[:1], "supervisor": [root], "tree": [root, *workers]}[what]
            run.freeze(*pids)
            time.sleep(LEASE * PAST_RECLAIM + run.random.uniform(0.2, 1.0))
            run.thaw(*pids)
    figures = run.check()
    # Leases were over while processes stood still; of an SQLite file nobody takes away what a live process holds.
    assert bool(figures.lapses) is (connections["default"].vendor == "postgresql")


def test_supervisors_are_stopped_and_started_again(run: FaultRun) -> None:
    for _ in range(2):
        run.start(*TWO)
    with run.load():
        for _ in run.moments(0.1, 0.5):
            assert run.stop(run.supervisors[0]) == 0
            run.begin(*TWO)
            run.wait_until_working(run.supervisors[0])
    figures = run.check()
    assert set(run.exit_codes) == {0}
    # Nobody dies, so nothing is charged or doubled.
    assert (figures.deaths, figures.doubled, figures.crashes, figures.overlaps) == (0, 0, 0, 0)


# -- the database


@needs_server
def test_connections_are_cut(run: FaultRun) -> None:
    run.start(*FOUR)
    with run.load(), another_session() as session:
        for _ in run.moments(0.05, 0.3):
            run.played["cut"] += cut_one(session, run.random.random())
    figures = run.check()
    assert run.played["cut"]
    assert figures.overlaps == 0
    assert run.exit_codes == [0]


def another_session() -> psycopg.Connection[tuple[int]]:
    """Open a connection that none of ours is."""
    return psycopg.connect(
        **{**connections["default"].get_connection_params(), "cursor_factory": None}, autocommit=True
    )


def cut_one(session: psycopg.Connection[tuple[int]], chance: float) -> int:
    """End one of the other sessions of this database, and say how many that were."""
    found = session.execute(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and backend_type = 'client backend' order by pid"
    ).fetchall()
    if not found:
        return 0
    session.execute("select pg_terminate_backend(%s)", found[int(chance * len(found))])
    return 1


@needs_server
def test_the_server_is_restarted(server: OwnServer, run: FaultRun) -> None:
    """In order, and as after a crash. Leases outlast it, so nobody is to die, and nothing is to run twice."""
    run.options["LEASE"] = "15s"
    run.start(*FOUR)
    with run.load():
        for mode in run.in_turn("fast", "immediate"):
            server.restart(mode)
            run.played[mode] += 1
            time.sleep(run.random.uniform(0.5, 2.0))
    figures = run.check()
    assert run.exit_codes == [0]
    assert (figures.deaths, figures.doubled, figures.lapses) == (0, 0, 0)


@needs_server
def test_the_clocks_of_two_hosts_are_wrong(run: FaultRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is five minutes fast, one as slow; the database's own is what counts."""
    run.start(*TWO)
    for shift in ("300", "-300"):
        with monkeypatch.context() as patch:
            patch.setenv("LIVE_CLOCK_SHIFT", shift)
            run.start("-c", "2")
    with run.load():
        for _ in run.moments(0.1, 0.3):
            run.queue(jobs.tells_time)
            run.queue(jobs.medium, run.random.uniform(0.5, 1.5))
    figures = run.check()
    assert {mark.label for mark in run.history.marks if mark.word == "clock"} == {"0", "300", "-300"}
    assert (figures.crashes, figures.doubled, figures.overlaps) == (0, 0, 0)


# -- jobs


def test_jobs_that_kill_their_process_are_found_and_their_neighbours_live(run: FaultRun) -> None:
    run.start(*FOUR)
    poison: list[Job] = []
    with run.load():
        for _ in run.moments(0.5, 4.0):
            performer = run.random.choice([jobs.exits, jobs.crashes, jobs.is_killed])
            poison.append(run.queue(performer))
            run.played["poison"] += 1
            run.hurry()
    run.check()
    ids = {job.pk for job in poison}
    for job in poison:
        runs = sum(body.job == job.pk for body in run.history.bodies.values())
        assert runs <= job.max_crashes, f"job {job.pk} ran {runs} times:\n{story(run.history, job.pk)}"
    charged = [
        change
        for change in run.history.changes
        if change.kind == "crash" and change.id not in ids and change.old and change.new
    ]
    assert all(change.new.state == "READY" for change in charged)
    # Neighbours got their attempt back.
    assert all(change.new.attempts == change.old.attempts - 1 for change in charged)


def test_calls_that_hold_the_interpreter_for_three_leases_run_once(run: FaultRun) -> None:
    run.options["LEASE"] = "2s"
    for _ in range(2):
        run.start(*TWO)
    holders: list[Job] = []
    with run.load():
        for _ in run.moments(2.0, 4.0):
            holders.append(run.queue(jobs.holds_interpreter, 6.0))
    figures = run.check()
    bodies = [body.job for body in run.history.bodies.values()]
    assert {bodies.count(job.pk) for job in holders} == {1}
    assert (figures.deaths, figures.doubled, figures.overlaps) == (0, 0, 0)


def test_bodies_that_run_past_their_deadline_are_stopped_and_recorded_as_timed_out(run: FaultRun) -> None:
    run.start(*FOUR)
    late: list[Job] = []
    with run.load():
        for _ in run.moments(1.0, 2.0):
            late.append(run.queue(jobs.runs_on))
            late.append(run.queue(jobs.sleeps_in_c))
            late.append(run.queue(jobs.holds_interpreter_past_deadline, 600.0))
    run.check()
    for job in late:
        job.refresh_from_db()
        assert (job.state, job.attempts, [error["kind"] for error in job.errors]) == ("FAILED", 1, ["timeout"])
    ids = {job.pk for job in late}
    # Neighbours of those who were killed for it are charged with nothing.
    assert not [c for c in run.history.changes if c.kind in {"crash", "lapse"} and c.id not in ids]


def test_jobs_that_take_all_memory_fail_by_themselves(run: FaultRun) -> None:
    run.start(*FOUR)
    greedy: list[Job] = []
    with run.load():
        for _ in run.moments(0.3, 1.0):
            greedy.append(run.queue(jobs.eats_memory, 256))
    # There may be no memory left for what comes after a neighbour's last line; then it has failed, and runs again.
    run.check(excused=(a_job_runs_again_only_for_a_reason,))
    exceptions = set()
    for job in greedy:
        job.refresh_from_db()
        exceptions |= {error["exception"] for error in job.errors}
    # "" is a neighbour's fault: its process died, or ended itself.
    assert "builtins.MemoryError" in exceptions
    assert exceptions <= {"builtins.MemoryError", ""}
