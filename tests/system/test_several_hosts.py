"""Several hosts, each with a supervisor, on one PostgreSQL: the link of one is cut and mended, or the host is gone.

The hosts are network namespaces (see hosts.py), so this takes root. As with all fault runs the seed is printed,
FAULT_SEED repeats it, and FAULT_FIGURES names a file for the figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median

import pytest
from django.db import connections

from tests.mill import jobs
from tests.system.history import TABLE
from tests.system.hosts import FAULTS, Host, hosts, require_hosts
from tests.system.load import LIVE, PAST_RECLAIM, FaultRun, fault_run
from tests.system.own_server import own_server, used_by_default
from tests.system.processes import Worker, lines, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.faults,
    pytest.mark.skipif(connections["default"].vendor == "sqlite", reason="an SQLite file belongs to one host"),
]

TWO = ("--processes", "2", "-c", "4")
SLOTS = 4
"""What a supervisor with these arguments has in hand at most."""

LEASE = float(LIVE["LEASE"].removesuffix("s"))

WITHIN, PAST = "for less than a lease", "for longer than a lease"

FEW = [f"silent {PAST}", f"down {PAST}", f"deaf {WITHIN}", f"unplugged {WITHIN}"]
EVERY = [f"{fault} {length}" for fault, length in product(FAULTS, (WITHIN, PAST))]
"""How links are cut in a short run, and in a long one."""


@pytest.fixture
def pair(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    """Give two hosts, and a server of the test's own that both reach."""
    require_hosts()
    with hosts(2) as two, own_server() as own:
        own.listen(*(f"{host.gateway}/30" for host in two))
        with used_by_default(own):
            monkeypatch.setenv("DATABASE_URL", own.url)
            yield two


@pytest.fixture
def run(request: pytest.FixtureRequest, pair: list[Host], tmp_path: Path) -> Iterator[FaultRun]:
    length = float(getattr(request, "param", 0.0))
    with fault_run(tmp_path, request.node.name.removeprefix("test_"), seconds=length) as started:
        yield started


def start_on(host: Host, run: FaultRun) -> Worker:
    """Start a supervisor on a host, and wait until all its workers work. Its database is at the end of its link."""
    way = json.dumps({"default": {"HOST": host.gateway}})
    supervisor = run.start(*TWO, before=(*host.prefix, "env", f"LIVE_DATABASES={way}"))
    assert host.address in clients()
    return supervisor


def clients() -> set[str]:
    """Give the addresses from which the database is used; who uses its socket has none."""
    with connections["default"].cursor() as cursor:
        cursor.execute("select distinct host(client_addr) from pg_stat_activity where client_addr is not null")
        return {address for (address,) in cursor.fetchall()}


def newest_change() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute(f"select coalesce(max(seq), 0) from {TABLE}")
        return int(cursor.fetchone()[0])


def wait_until_claimed(host: Host, *, since: int) -> None:
    """Wait until a host has claimed anything after a change."""

    def is_claimed() -> bool:
        with connections["default"].cursor() as cursor:
            cursor.execute(
                f"select count(*) from {TABLE} where seq > %s and old->>'state' = 'READY' and new->>'worker' like %s",
                [since, f"{host.name}:%"],
            )
            return bool(cursor.fetchone()[0])

    until(is_claimed, what=f"{host.name} claims")


def claimants(run: FaultRun, *, after: int, up_to: int) -> set[str]:
    """Name the hosts that claimed anything after one change and up to another."""
    claims = (change for change in run.history.changes if change.is_claim and after < change.seq <= up_to)
    return {str(claim.new.worker).split(":")[0] for claim in claims if claim.new}


def begun_at(run: FaultRun) -> list[float]:
    """Say when bodies began."""
    marks = [json.loads(line) for line in lines(run.marks) if line.endswith("}")]
    return [mark["at"] for mark in marks if mark["word"] == "begin"]


# -- under load


@pytest.mark.parametrize(
    "run",
    [pytest.param(6.0, id="short"), pytest.param(30.0, id="long", marks=pytest.mark.soak)],
    indirect=True,
)
def test_the_link_of_one_host_at_a_time_is_cut_and_mended(run: FaultRun, pair: list[Host]) -> None:
    supervisors = [start_on(host, run) for host in pair]
    cuts = FEW if run.seconds < 30.0 else EVERY
    silences: list[tuple[Host, int, int]] = []
    with run.load():
        for cut in run.in_turn(*run.random.sample(cuts, len(cuts))):
            fault, _, length = cut.partition(" ")
            host, supervisor = run.random.choice(list(zip(pair, supervisors, strict=True)))
            run.occupy(supervisor)
            host.cut(fault)
            share = run.random.uniform(0.2, 0.8) if length == WITHIN else run.random.uniform(1.1, 1.3) * PAST_RECLAIM
            time.sleep(share * LEASE / 2)
            half_over = newest_change()
            time.sleep(share * LEASE / 2)
            over = newest_change()
            host.mend()
            run.played[cut] += 1
            if length == PAST and fault != "deaf":
                silences.append((host, half_over, over))
            wait_until_claimed(host, since=over)
    figures = run.check()
    assert set(run.exit_codes) == {0}
    # The cuts were such that leases were over, and that nothing came from the host any more.
    assert figures.lapses > 0
    for host, half_over, over in silences:
        assert host.name not in claimants(run, after=half_over, up_to=over)


# -- one fault, step by step


@pytest.mark.parametrize(
    "fault", ["silent", "deaf", *(pytest.param(fault, marks=pytest.mark.soak) for fault in ("down", "unplugged"))]
)
def test_a_host_that_is_cut_off_stops_its_jobs_and_works_again_when_mended(
    run: FaultRun, pair: list[Host], tmp_path: Path, fault: str
) -> None:
    """Its bodies are interrupted before the other begins them, it ends and claims nothing, and nobody restarts it."""
    run.options["LEASE"] = "12s"
    cut_off, other = pair
    gate = tmp_path / "gate"
    start_on(cut_off, run)
    held = [run.queue(jobs.waits_for_file, str(gate)) for _ in range(SLOTS // 2)]
    until(lambda: len(begun_at(run)) == len(held), what="all bodies have begun")
    start_on(other, run)

    cut_off.cut(fault)
    until(lambda: len(begun_at(run)) >= 2 * len(held), what="all have begun on the other host")
    taken = newest_change()
    queued = [run.queue(jobs.short) for _ in range(20)]
    until(lambda: all(is_ended(job.pk) for job in queued), what="new jobs end there")
    over = newest_change()
    cut_off.mend()
    run.played[fault] += 1
    gate.touch()
    with run.load():
        wait_until_claimed(cut_off, since=over)

    figures = run.check()
    assert run.exit_codes == [0, 0]
    assert (figures.overlaps, figures.doubled, figures.lapses) == (0, 0, len(held))
    # They weren't killed, which is what happens later where they can't be interrupted.
    assert {job.pk for job in held} <= {mark.job for mark in run.history.marks if mark.word == "left"}
    assert claimants(run, after=taken, up_to=over) == {other.name}


def is_ended(job: int) -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute("select state = 'SUCCESSFUL' from django_jobs_job where id = %s", [job])
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("lease", ["3s", pytest.param("30s", marks=pytest.mark.soak)])
def test_the_jobs_of_a_host_that_is_gone_run_on_another(
    run: FaultRun, pair: list[Host], tmp_path: Path, lease: str
) -> None:
    """No connection of its was closed: the database still waits for it."""
    run.options["LEASE"] = lease
    gone, other = pair
    gate = tmp_path / "gate"
    supervisor = start_on(gone, run)
    held = [run.queue(jobs.waits_for_file, str(gate)) for _ in range(SLOTS)]
    until(lambda: len(begun_at(run)) == SLOTS, what="all bodies have begun")
    start_on(other, run)

    gone.cut("silent")
    run.kill_tree(supervisor)
    gone_at = time.monotonic()
    until(lambda: len(begun_at(run)) == 2 * len(held), what="all run again")
    assert gone.address in clients()
    again_after = [at - gone_at for at in begun_at(run) if at > gone_at]
    gate.touch()

    figures = run.check()
    assert run.exit_codes == [0]
    assert (figures.overlaps, figures.doubled, figures.lapses) == (0, 0, SLOTS)
    # The goal is below lease + 5 s.
    facts = {"p50": round(median(again_after), 2), "max": round(max(again_after), 2)}
    run.tell({"figure": "seconds until the jobs of a host that is gone run again", "lease": lease, **facts})
