"""Drive: install each peer, have it do our work on our PostgreSQL, and throw it away. One that fails is told of."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks import addresses
from tests.benchmarks.figures import Rejected, percentile
from tests.benchmarks.notes import VARIABLE, Notes
from tests.benchmarks.processes import ROOT, until
from tests.benchmarks.sizes import BY_NAME, Sizes

LONGEST_DRAIN = 20.0
"""Seconds that a drain of a slow peer takes about: it gets fewer jobs."""

FEWEST = 500
STEP_PATIENCE = 600.0
"""Seconds after which a step of a peer is given up."""


def compare(url: str, names: Sequence[str], *, size: str, times: int | None, python: str) -> dict[str, dict[str, Any]]:
    """Give what each peer did, or why it couldn't."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        sys.stderr.write(f"peer: {name}\n")
        said = found[name] = {"note": ""}
        with tempfile.TemporaryDirectory(prefix="django-jobs-peer-") as folder, _database(url, name) as own:
            try:
                _measure(_Run(name, Path(folder), own, python), BY_NAME[size], times or BY_NAME[size].times, said)
            except Exception as error:
                said["note"] = f"{type(error).__name__}: {_last_words(error)}"
    return found


def _last_words(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[-1].replace("|", "/")[:300] if lines else ""


@contextmanager
def _database(url: str, name: str) -> Iterator[str]:
    own = f"{addresses.parts(url)['NAME']}_{name}"
    conninfo = addresses.conninfo(addresses.beside(url, "postgres"))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"create database {own} template template0")
    try:
        yield addresses.beside(url, own)
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"drop database {own} with (force)")


@dataclass(frozen=True, slots=True)
class _Run:
    """A peer with its environment and its database."""

    name: str
    folder: Path
    url: str
    python: str

    @property
    def module(self) -> Any:
        return importlib.import_module(f"tests.benchmarks.peers.{self.name}")

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def install(self) -> str:
        """Make its environment, and give its version."""
        environment = self.folder / "environment"
        _said([self.python, "-m", "venv", f"{environment}"])
        pip = [f"{environment / 'bin' / 'python'}", "-m", "pip", "--disable-pip-version-check"]
        _said([*pip, "install", "-q", *self.module.REQUIREMENTS])
        listed = _said([*pip, "show", self.module.PACKAGE]).splitlines()
        return next(line.partition(": ")[2] for line in listed if line.startswith("Version"))

    def command(self, *words: object) -> list[str]:
        python = f"{self.folder / 'environment' / 'bin' / 'python'}"
        return [python, "-m", "tests.benchmarks.peers.inside", self.name, *map(str, words)]

    def step(self, *words: object) -> Any:
        """Have it do one step, and give what it printed last."""
        lines = _said(self.command(*words), self.variables()).strip().splitlines()
        return json.loads(lines[-1]) if lines and words[0] in ("one", "many", "pickup") else None

    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "DATABASE", "PG"))}
        return kept | addresses.variables(self.url) | {"PYTHONPATH": str(ROOT), VARIABLE: str(self.notes)}

    @contextmanager
    def working(self) -> Iterator[Callable[[], None]]:
        """Run its two worker processes, and give what raises if one of them has ended."""
        started: list[subprocess.Popen[bytes]] = []

        def check() -> None:
            for number, process in enumerate(started):
                if process.poll() is not None:
                    raise Rejected(f"a worker ended: {(self.folder / f'worker-{number}').read_text()[-300:]}")

        try:
            for number in range(self.module.WORKERS):
                with (self.folder / f"worker-{number}").open("w") as log:
                    command = self.command("work")
                    started.append(
                        subprocess.Popen(
                            command, cwd=ROOT, env=self.variables(), stdout=log, stderr=log, start_new_session=True
                        )
                    )
            yield check
        finally:
            for process in started:
                process.terminate()
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                # What it has started itself and left behind is in its session.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def count_succeeded(self) -> int:
        with psycopg.connect(addresses.conninfo(self.url)) as connection:
            row = connection.execute(self.module.SUCCEEDED).fetchone()
        assert row is not None
        return int(row[0])

    def settle_down(self) -> None:
        with psycopg.connect(addresses.conninfo(self.url), autocommit=True) as connection:
            connection.execute("vacuum (analyze)")
            with suppress(psycopg.Error):
                connection.execute("checkpoint")


def _said(command: list[str], variables: dict[str, str] | None = None) -> str:
    run = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True, timeout=STEP_PATIENCE
    )
    return run.stdout


def _measure(run: _Run, sizes: Sizes, times: int, said: dict[str, Any]) -> None:
    if address := getattr(run.module, "REDIS", None):
        try:
            socket.create_connection(address, timeout=1.0).close()
        except OSError:
            raise Rejected(f"there is no Redis at {address[0]}:{address[1]}") from None
    said["version"] = run.install()
    run.step("prepare")
    Notes.made(run.notes, FEWEST)
    first = _drained(run, FEWEST)
    jobs = int(min(sizes.drain, max(FEWEST, first * LONGEST_DRAIN)))
    # Peers without a bulk call would queue all these one by one.
    has_bulk = run.module.Client.many is not None
    one, many, drain = [], [], []
    for _ in range(times):
        run.step("wipe")
        one.append(sizes.one_by_one / run.step("one", sizes.one_by_one))
        run.step("wipe")
        if has_bulk and (seconds := run.step("many", sizes.many)) is not None:
            many.append(sizes.many / seconds)
        drain.append(_drained(run, jobs))
    said |= {"one_by_one": statistics.median(one), "drain": statistics.median(drain), "jobs": jobs}
    said |= {"one_by_one values": one, "many values": many, "drain values": drain}
    said["many"] = statistics.median(many) if many else None
    latencies = _picked_up(run, sizes)
    said |= {"pickup_p50": percentile(latencies, 0.5), "pickup_p99": percentile(latencies, 0.99)}
    said["note"] = f"drained {jobs:,} jobs"


def _drained(run: _Run, jobs: int) -> float:
    """Queue jobs, have them run, and give bodies per second from the first to the last."""
    run.step("wipe")
    notes = Notes.made(run.notes, jobs)
    run.step("many", jobs)
    run.settle_down()
    with run.working() as check:

        def have_run() -> bool:
            check()
            return all(note.runs for note in notes.all())

        until(have_run, what=f"{run.name} runs {jobs} jobs", pause=0.1, patience=STEP_PATIENCE)
        if run.module.SUCCEEDED:
            ended = partial(_have_succeeded, run, jobs)
            until(ended, what=f"{run.name} writes {jobs} ends", pause=0.2, patience=STEP_PATIENCE)
    if any(note.runs != 1 for note in notes.all()):
        raise Rejected("not every job ran exactly once")
    begun = [note.begin for note in notes.all()]
    return (jobs - 1) / (max(begun) - min(begun)) * 1e9


def _have_succeeded(run: _Run, jobs: int) -> bool:
    return run.count_succeeded() >= jobs


def _picked_up(run: _Run, sizes: Sizes) -> list[float]:
    run.step("wipe")
    warming = 20
    Notes.made(run.notes, warming + sizes.pickup)
    with run.working():
        run.step("pickup", 0, warming, sizes.pickup_pause)
        latencies: list[float] = run.step("pickup", warming, sizes.pickup, sizes.pickup_pause)
    return latencies
