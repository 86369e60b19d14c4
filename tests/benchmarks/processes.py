"""Drive: `manage.py runjobs` and raw loops as processes of their own, and what the system says of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Rejected

ROOT = Path(__file__).resolve().parents[2]

PATIENCE = 900.0
"""Seconds after which a process is given up; never how long a good one takes."""

SAYS_IT_WORKS = " slots · "


def until(condition: Callable[[], object], *, what: str, pause: float = 0.01, patience: float = PATIENCE) -> None:
    """Ask again and again until it is so."""
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            raise Rejected(f"gave up waiting until {what}")
        time.sleep(pause)


class Program:
    """One process, with what it says in a file."""

    def __init__(self, command: Sequence[str], *, log: Path, variables: Mapping[str, str]) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def says(self, words: str) -> None:
        """Wait until it says something."""
        until(lambda: words in self.output or self.process.poll() is not None, what=f"{self.log.name} says {words}")
        if self.process.poll():
            raise Rejected(f"{self.log.name} ended with {self.process.returncode}: {self.output[-2_000:]}")

    def wait(self) -> None:
        """Wait until it has ended well."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.end()
            raise Rejected(f"{self.log.name} didn't end: {self.output[-2_000:]}") from None
        if code:
            raise Rejected(f"{self.log.name} ended with {code}: {self.output[-2_000:]}")

    def end(self) -> None:
        """Have it end now, however it does."""
        if self.process.stdin:
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def runjobs(*arguments: str, log: Path, variables: Mapping[str, str]) -> Program:
    """Start the command as a project does."""
    return Program([sys.executable, "manage.py", "runjobs", *arguments], log=log, variables=variables)


def raw_loop(verb: str, *, log: Path, variables: Mapping[str, str]) -> Program:
    return Program([sys.executable, "-m", "tests.benchmarks.raw", verb], log=log, variables=variables)


# -- what the system says


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a process has in memory, in MB: all of it, and with its share of what others have, too."""

    resident: float
    proportional: float


def memory(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return Memory(resident=kilobytes["Rss"] * 1024 / 1e6, proportional=kilobytes["Pss"] * 1024 / 1e6)


def processor_seconds(pid: int) -> float:
    """Give how long a process has computed so far, all its threads together."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_worker(pid: int) -> bool:
    """Whether a process is a worker of ours."""
    return b"django_jobs.worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(_stat(stat)[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


def _stat(path: Path) -> list[str]:
    """Give the fields behind the name of the program, which may hold anything."""
    return path.read_text().rpartition(")")[2].split()
