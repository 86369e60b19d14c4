"""Drive: what a worker is asked to do, checked, as a value. Starts nothing."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django_jobs.conf import settings
from django_jobs.performers import NAME, Unset, get_performer, known_names, registered
from django_jobs.performers.options import check_name
from django_jobs.records import ClaimRequest
from django_jobs.worker.pace import MOST_AHEAD

OWN_POLL = 15.0
"""Seconds between two looks of a worker's own for jobs. Its lookout tells it sooner when any are due."""

OWN_POLL_EACH = 8.0
"""So many seconds for each of its neighbours and itself, so that the cost doesn't grow with their number."""


def new_identity(name: str | None = None, *, pid: int | None = None) -> str:
    """Name one life of a process: host, or the given name, process id and a random part."""
    return f"{(name or socket.gethostname())[:120]}:{pid or os.getpid()}:{secrets.token_hex(4)}"


def default_concurrency() -> int:
    """Give two slots a core, ten at the most."""
    return min((os.cpu_count() or 1) * 2, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one worker does: which queues it serves, with how many slots.

    `queues` maps each queue to its cap, None for no cap; `queues` None serves every queue, and `caps` holds for those
    it names. `drain` ends the worker when nothing is due. `poll` and `grace` are seconds. For the command `poll` is how
    often it looks for jobs that nobody told of, None for one second, five while the database is heard; dealt to a
    worker it is how often that one looks by itself. After `max_jobs` jobs, `max_runtime` seconds, or above `max_memory`
    MB a process is replaced; after `idle_timeout` seconds without work the command ends. `held_back` slots, and as many
    of each cap, are still in use by a process that this one follows.
    """

    alias: str
    name: str | None = None
    identity: str = field(default_factory=new_identity)
    queues: Mapping[str, int | None] | None = None
    caps: Mapping[str, int] = field(default_factory=dict)
    concurrency: int = field(default_factory=default_concurrency)
    poll: float | None = None
    grace: float = 15.0
    drain: bool = False
    fail_on_error: bool = False
    max_jobs: int | None = None
    max_memory: int | None = None
    max_runtime: float | None = None
    idle_timeout: float | None = None
    held_back: int = 0

    @property
    def queue_names(self) -> frozenset[str] | None:
        """The queues served, None for all."""
        return None if self.queues is None else frozenset(self.queues)

    def dealt(self, processes: int) -> list[Plan]:
        """Deal slots and caps out to so many processes; one whose share of a cap is 0 doesn't serve that queue."""
        shares = _shares(self.concurrency, processes)
        return [
            replace(
                self,
                concurrency=share,
                queues=self._dealt_queues(number, processes),
                caps={queue: _shares(cap, processes)[number] for queue, cap in self.caps.items()},
                poll=max(OWN_POLL, OWN_POLL_EACH * processes, self.poll or 0.0),
            )
            for number, share in enumerate(shares)
        ]

    def _dealt_queues(self, number: int, processes: int) -> dict[str, int | None] | None:
        if self.queues is None:
            return None
        dealt = {q: None if cap is None else _shares(cap, processes)[number] for q, cap in self.queues.items()}
        return {queue: cap for queue, cap in dealt.items() if cap != 0}

    @property
    def most_processes(self) -> int:
        """How many processes have something to serve, once slots and caps are dealt out."""
        caps = list((self.queues or {}).values())
        is_capped = bool(caps) and None not in caps
        return min(self.concurrency, max(cap for cap in caps if cap is not None)) if is_capped else self.concurrency

    @property
    def board_capacity(self) -> int:
        """How many jobs may be in hand: slots, short jobs ahead of them, and ends that can't be written just now."""
        return 4 * self.concurrency + 3 * MOST_AHEAD

    def request(
        self,
        *,
        limit: int,
        in_hand: Mapping[str, int],
        last_queue: str,
        held_back: int = 0,
        at_most: Mapping[str, int] | None = None,
    ) -> ClaimRequest:
        """Ask for at most `limit` jobs, and of some queues `at_most` so many, given how many of each are in hand.

        The queues of `held_back` others are not known: each of them may be of any queue with a cap.
        """
        conf = settings()
        named = {queue: cap for queue, cap in (self.queues or {}).items() if cap is not None}
        rooms = {
            q: max(cap - in_hand.get(q, 0) - held_back, 0) for q, cap in (named if self.queues else self.caps).items()
        }
        for queue, most in (at_most or {}).items():
            if self.queues is None or queue in self.queues:
                rooms[queue] = min(rooms.get(queue, most), most)
        return ClaimRequest(
            worker=self.identity,
            limit=limit,
            lease=conf.lease,
            grace=conf.timeout_grace,
            queues=None if self.queues is None else tuple(q for q in self.queues if rooms.get(q) != 0),
            rooms={queue: room for queue, room in rooms.items() if room or self.queues is None},
            last_queue=last_queue,
            empty_handed=not any(in_hand.values()),
            names=known_names() if conf.unknown_jobs == "leave" else None,
        )


def unserved(queues: Collection[str] | None) -> dict[str, list[str]]:
    """List performers whose jobs wait under a queue that isn't among `queues`, None for all, by that queue."""
    found: dict[str, list[str]] = {}
    for name in registered():
        said = get_performer(name).options.queue
        queue = settings().default_queue if isinstance(said, Unset) else said
        if queues is not None and queue not in queues:
            found.setdefault(queue, []).append(name)
    return dict(sorted(found.items()))


def with_default_caps(queues: Mapping[str, int | None] | None) -> dict[str, Any]:
    """Give the plan's `queues` and `caps` for what the command said, the caps of DJANGO_JOBS["QUEUES"] by default."""
    defaults = {queue: cap for queue, cap in (settings().queues or {}).items() if cap is not None}
    if queues is None:
        return {"queues": None, "caps": defaults}
    return {"queues": {q: defaults.get(q) if cap is None else cap for q, cap in queues.items()}, "caps": {}}


def _shares(count: int, processes: int) -> list[int]:
    return [count // processes + (number < count % processes) for number in range(processes)]


def parse_queues(text: str) -> dict[str, int | None] | None:
    """Read "a,b:4": queue a without a cap, four of b at once; '' serves all. Raises ValueError with the remedy."""
    queues: dict[str, int | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, cap = part.rpartition(":")
        if not colon or not cap.isdigit():
            # Queue names may hold colons themselves.
            name, cap = part, ""
        if not NAME.fullmatch(name):
            message = f"queue {name!r}: give 1 to 100 letters, digits or any of _ - . :"
            raise ValueError(message)
        if cap and int(cap) < 1:
            message = f"{part}: a cap below 1 would run nothing; leave the queue out, or pause it"
            raise ValueError(message)
        queues[name] = int(cap) if cap else None
    return queues or None


def read_queues(queues: Sequence[str] | Mapping[str, int | None] | None) -> dict[str, int | None] | None:
    """Read queues as Python code names them: a list, or a mapping of names to caps; None serves all.

    Raises TypeError or ValueError with the remedy.
    """
    if queues is None:
        return None
    if isinstance(queues, str):
        message = f"queues={queues!r:.80}: give a list, as in [{queues!r:.80}]"
        raise TypeError(message)
    read: dict[str, Any] = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues)
    if not read:
        message = f"queues={queues!r}: would serve nothing; leave it out to serve all"
        raise ValueError(message)
    for name, cap in read.items():
        check_name("queues", name)
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
            message = f"queues: {name!r} has the cap {cap!r:.80}; give a whole number of 1 or more, or None for no cap"
            raise ValueError(message)
    return read


def read_concurrency(concurrency: object) -> int:
    """Give the number of slots back. Raises ValueError with the remedy."""
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        message = f"concurrency {concurrency!r:.80}: give a whole number, 1 or more"
        raise ValueError(message)
    return concurrency
