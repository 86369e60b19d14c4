"""Drive: what a worker has in hand, in memory that it shares with its supervisor. Asks nobody, waits for nothing.

The worker writes its beat and its slots; the supervisor writes how far leases are confirmed, and the flags. Each word
is written by one side only, but a place's flags, which the worker clears. All times are this host's monotonic seconds,
which both processes share. A slot is there while its token isn't 0; the token is written last and cleared first, so
that whoever reads, after a SIGKILL too, sees either the whole entry or none.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from threading import Lock

from django_jobs import clock
from django_jobs.records import Lease

WORD = 8
_HEADER = 16
_SLOT = 8

_CAPACITY, _BEAT, _CONFIRMED, _CLAIMED, _TAKEN, _LEAVING, _NEEDED, _SUCCEEDED, _FAILED, _RELEASED = range(10)
_ID, _STARTED, _DEADLINE, _ENDED, _FLAGS, _TOKEN = range(6)

_ENTRY = struct.Struct("=qdddqq")
"""A slot, as it is written when a job is taken. Writing it clears its bytes first, and then goes from word to word."""


class Flag(IntFlag):
    """What the supervisor says about a slot."""

    NONE = 0
    CANCELLED = 1
    """The row was cancelled: interrupt the body."""
    LOST = 2
    """The row was taken away: interrupt the body."""
    DOUBTED = 4
    """The row isn't held, and for a while nobody knew whether the lease was: others may have had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many jobs succeeded, failed for good, and were given back though they had started."""

    succeeded: int = 0
    failed: int = 0
    released: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            released=self.released + other.released,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One job in hand. `started` and `ended` are monotonic seconds, 0 for not yet; `deadline` 0 is none."""

    lease: Lease
    started: float
    deadline: float
    ended: float
    flags: Flag

    @property
    def is_running(self) -> bool:
        """Whether its body has begun and not ended."""
        return bool(self.started) and not self.ended

    def overdue(self, now: float) -> float:
        """Give the seconds for which its body has gone on past its deadline, 0 where it hasn't."""
        return max(0.0, now - self.deadline) if self.is_running and self.deadline else 0.0


class Board:
    """The slots of one worker process. The worker's side may be used by its threads at once."""

    def __init__(self, memory: mmap.mmap, *, fd: int | None = None) -> None:
        self.fd = fd
        self._memory = memory
        self._ints = memoryview(memory).cast("q")
        self._floats = memoryview(memory).cast("d")
        # Those of all slots, read at once: going through hundreds of places takes as long as a round trip.
        self._tokens = self._ints[_HEADER + _TOKEN :: _SLOT]
        self._lock = Lock()
        self._places: dict[Lease, int] = {}
        self._free = [_HEADER + _SLOT * place for place in reversed(range(self.capacity))]

    @classmethod
    def create(cls, capacity: int, *, lease: float, shared: bool = True) -> Board:
        """Make a board for so many jobs in hand; `lease` seconds from now everything is confirmed."""
        size = (_HEADER + _SLOT * capacity) * WORD
        fd = new_file(size, name="django_jobs board") if shared else None
        memory = mmap.mmap(-1 if fd is None else fd, size)
        memory[:WORD] = capacity.to_bytes(WORD, sys.byteorder)
        board = cls(memory, fd=fd)
        board.confirm(clock.monotonic() + lease)
        return board

    @classmethod
    def attach(cls, fd: int) -> Board:
        """Open the board behind a descriptor that another process made."""
        return cls(mmap.mmap(fd, os.fstat(fd).st_size), fd=fd)

    def close(self) -> None:
        """Close the descriptor. The memory stays for whoever still reads it, and goes with the last of them."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    @property
    def capacity(self) -> int:
        """How many jobs may be in hand at most."""
        return self._ints[_CAPACITY]

    # -- the worker's side

    def take(self, leases: Iterable[Lease]) -> None:
        """Note claims as in hand. Raises IndexError where there is no room; see `room`."""
        with self._lock:
            for lease in leases:
                self._ints[_TAKEN] += 1
                place = self._free.pop()
                self._places[lease] = place
                job_id, token = lease
                _ENTRY.pack_into(self._memory, place * WORD, job_id, 0.0, 0.0, 0.0, 0, token)

    def start(self, lease: Lease, *, timeout: float | None) -> None:
        """Note that the body begins, with `timeout` seconds to run."""
        now = clock.monotonic()
        place = self._places[lease]
        self._floats[place + _DEADLINE] = 0.0 if timeout is None else now + timeout
        self._floats[place + _STARTED] = now or 1e-9

    def end(self, lease: Lease) -> float:
        """Note that the body has ended, and give the seconds that it took; its end isn't written yet."""
        place, now = self._places[lease], clock.monotonic()
        self._floats[place + _ENDED] = now or 1e-9
        return now - self._floats[place + _STARTED]

    def took(self, lease: Lease) -> float | None:
        """Give the seconds that a body took which has ended, None where it never began."""
        place = self._places.get(lease)
        if place is None or not self._ints[place + _STARTED]:
            return None
        return self._floats[place + _ENDED] - self._floats[place + _STARTED]

    def drop(self, leases: Iterable[Lease]) -> None:
        """Note that nothing more is owed to these."""
        with self._lock:
            for lease in leases:
                if (place := self._places.pop(lease, None)) is not None:
                    self._ints[place + _TOKEN] = 0
                    self._free.append(place)

    @property
    def room(self) -> int:
        """How many more claims fit."""
        with self._lock:
            return len(self._free)

    def beat(self) -> None:
        """Say that the worker's own loop turns."""
        self._floats[_BEAT] = clock.monotonic()

    def note_claim(self) -> None:
        """Say that a claim got an answer, or that there was no room to claim for."""
        self._floats[_CLAIMED] = clock.monotonic()

    def note_leaving(self) -> None:
        """Say that nothing more will be claimed, and that the process ends with what it has in hand."""
        self._ints[_LEAVING] = 1

    def note_needed(self, memory: int) -> None:
        """Say that so many bytes, more than the limit, were taken before the first job."""
        self._ints[_NEEDED] = memory

    def count(self, *, succeeded: int = 0, failed: int = 0, released: int = 0) -> None:
        """Count ends that were written."""
        self._ints[_SUCCEEDED] += succeeded
        self._ints[_FAILED] += failed
        self._ints[_RELEASED] += released

    # -- the supervisor's side

    def confirm(self, until: float) -> None:
        """Say that all leases on the board hold until then."""
        self._floats[_CONFIRMED] = until

    def flag(self, lease: Lease, flag: Flag) -> None:
        """Say something about a job in hand; nothing happens where it isn't any more."""
        for place in self._taken_places():
            if self._ints[place + _TOKEN] == lease.token and self._ints[place + _ID] == lease.id:
                self._ints[place + _FLAGS] |= flag

    # -- read by both

    @property
    def in_hand(self) -> int:
        """How many jobs are in hand."""
        return self.capacity - self._tokens.tolist().count(0)

    def entries(self) -> list[Entry]:
        """List what is in hand, in the order of ids."""
        found = [self._read(place) for place in self._taken_places()]
        return sorted((entry for entry in found if entry), key=lambda entry: entry.lease.id)

    def _taken_places(self) -> list[int]:
        return [_HEADER + _SLOT * slot for slot, token in enumerate(self._tokens.tolist()) if token]

    def _read(self, place: int) -> Entry | None:
        token = self._ints[place + _TOKEN]
        if not token:
            return None
        entry = Entry(
            lease=Lease(id=self._ints[place + _ID], token=token),
            started=self._floats[place + _STARTED],
            deadline=self._floats[place + _DEADLINE],
            ended=self._floats[place + _ENDED],
            flags=Flag(self._ints[place + _FLAGS]),
        )
        return entry if self._ints[place + _TOKEN] == token else None

    @property
    def doubted(self) -> set[Lease]:
        """Which of the leases in hand others may have taken away."""
        is_unconfirmed = clock.monotonic() >= self.confirmed_until
        return {entry.lease for entry in self.entries() if is_unconfirmed or Flag.DOUBTED in entry.flags}

    @property
    def confirmed_until(self) -> float:
        """Until when all leases are known to hold."""
        return self._floats[_CONFIRMED]

    @property
    def beat_at(self) -> float:
        """When the worker's own loop last turned, 0 for never."""
        return self._floats[_BEAT]

    @property
    def taken(self) -> int:
        """How many claims were ever noted."""
        return self._ints[_TAKEN]

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more will be claimed."""
        return bool(self._ints[_LEAVING])

    @property
    def needed(self) -> int:
        """How many bytes the process took before its first job, where that is more than its limit; 0 otherwise."""
        return self._ints[_NEEDED]

    @property
    def counts(self) -> Counts:
        """What its jobs came to."""
        return Counts(succeeded=self._ints[_SUCCEEDED], failed=self._ints[_FAILED], released=self._ints[_RELEASED])

    @property
    def claimed_at(self) -> float:
        """When a claim last got an answer, or there was no room to claim for; 0 for never."""
        return self._floats[_CLAIMED]


def new_file(size: int, *, name: str) -> int:
    """Make a file without a path, which lives in memory where the system can do that; lists of open files name it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
