"""What bodies note of themselves, in a file that the processes of a run map into their memory.

It costs a body about a microsecond, and no database knows of it. Needs the standard library only: peers note here, too.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "BENCHMARK_NOTES"
STATEMENTS_VARIABLE = "BENCHMARK_STATEMENTS"

_RECORD = struct.Struct("=qqqii")


class Note(NamedTuple):
    """What is known of one job's body. Moments are of the monotonic clock, which all processes of a host share."""

    begin: int
    end: int
    thread: int
    pid: int
    runs: int


class Notes:
    """One record for each job of a run, by its number; numbers begin at 0."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @classmethod
    def made(cls, path: Path, count: int) -> Notes:
        """Make an empty file for so many jobs."""
        path.write_bytes(bytes(_RECORD.size * count))
        return cls(path)

    def begin(self, number: int) -> None:
        """Note that the body begins."""
        place = _RECORD.size * number
        runs = _RECORD.unpack_from(self._map, place)[4]
        moment = time.monotonic_ns()
        _RECORD.pack_into(self._map, place, moment, 0, threading.get_ident(), os.getpid(), runs + 1)

    def end(self, number: int) -> None:
        """Note that the body ends."""
        struct.pack_into("=q", self._map, _RECORD.size * number + 8, time.monotonic_ns())

    def __getitem__(self, number: int) -> Note:
        return Note(*_RECORD.unpack_from(self._map, _RECORD.size * number))

    def __len__(self) -> int:
        return len(self._map) // _RECORD.size

    def all(self) -> list[Note]:
        return [Note(*fields) for fields in _RECORD.iter_unpack(self._map)]


_own: Notes | None = None


def own() -> Notes:
    """Give the notes that the environment of this process names."""
    global _own  # noqa: PLW0603 - one file for the life of a process
    if _own is None:
        _own = Notes(Path(os.environ[VARIABLE]))
    return _own


# -- statements of django_jobs, counted by its setting OBSERVE


class _Counter:
    """Counts in a file of this process alone, in a folder that the environment names."""

    def __init__(self) -> None:
        path = Path(os.environ[STATEMENTS_VARIABLE]) / f"{os.getpid()}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self._lock = threading.Lock()
        self._count = 0

    def add(self) -> None:
        with self._lock:
            self._count += 1
            struct.pack_into("=q", self._map, 0, self._count)


_counter: _Counter | None = None


def observe(name: str, seconds: float, rows: int | None) -> None:
    """Count one statement."""
    global _counter  # noqa: PLW0603 - one file for the life of a process
    if _counter is None:
        _counter = _Counter()
    _counter.add()


def statements(folder: Path) -> int:
    """Give how many statements all processes that count in a folder have run."""
    return sum(struct.unpack("=q", path.read_bytes())[0] for path in folder.iterdir())
