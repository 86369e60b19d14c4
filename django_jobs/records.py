"""Decide: the frozen values that pass between rooms. No behaviour beyond reading itself, no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django_jobs import clock
from django_jobs.states import State

ERROR_KINDS = (
    "error", "timeout", "crash", "lapse", "interrupted", "expired",
    "cancelled", "gave_up", "superseded", "misfit", "result", "unknown",
)  # fmt: skip
"""What an entry of `errors` may be about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A job but for its arguments: every option settled. Jobs that differ in nothing else share one.

    `meta` is JSON text. `delay` counts from the insert; `run_at` (aware) wins over it. `expires` counts from the moment
    the job may first run. `timeout`, `keep`, `keep_failed` and `unique_for` are seconds. `on_duplicate` is "return",
    "replace" or "raise"; `on_failure` a performer's name, '' for none; `after_commit` the alias of the database whose
    commit the insert waits for, '' for none.
    """

    name: str
    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    restart: bool
    timeout: float | None
    keep: float | None
    keep_failed: float | None
    delay: timedelta = timedelta(0)
    run_at: datetime | None = None
    expires: timedelta | None = None
    meta: str = "{}"
    on_failure: str = ""
    unique_for: float | None = None
    on_duplicate: str = "return"
    after_commit: str = ""

    @property
    def is_due_at_once(self) -> bool:
        """Whether its jobs may run as soon as they are inserted, and at any time after that."""
        return self.run_at is None and not self.delay and self.expires is None


class Key(NamedTuple):
    """A key and its kind: held while a job waits, runs or is held, or only while it waits."""

    text: str
    is_waiting: bool


class NewJob(NamedTuple):
    """A job that isn't queued yet: a draft, with its arguments bound and encoded. `args` and `kwargs` are JSON text.

    It may have one kind of key: `unique_key` is held while it waits, runs or is held, `waiting_key` while it waits.

    (A tuple, since a bulk call makes a hundred thousand a second.)
    """

    draft: Draft
    args: str
    kwargs: str
    unique_key: str | None = None
    waiting_key: str | None = None

    @property
    def key(self) -> Key | None:
        """The key that it is to hold, of whichever kind."""
        if self.unique_key is not None:
            return Key(self.unique_key, is_waiting=False)
        return None if self.waiting_key is None else Key(self.waiting_key, is_waiting=True)

    @property
    def name(self) -> str:
        """The stored name of its performer."""
        return self.draft.name

    @property
    def queue(self) -> str:
        """The queue it will wait under."""
        return self.draft.queue


class Inserted(NamedTuple):
    """What the database decided about a new row, or about the one that holds its key: then it is a `duplicate`.

    Where it was `replaced`, that one has got its arguments and time.
    """

    id: int
    enqueued_at: datetime
    run_at: datetime
    expires_at: datetime | None
    duplicate: bool = False
    replaced: bool = False


class Queued(NamedTuple):
    """What a bulk call says of each job, in the given order.

    Of a `duplicate` no row was added: `id` is that of the job that holds its key. Where it was `replaced`, that one has
    got its arguments and time.
    """

    id: int
    duplicate: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What a verb by hand came to: the ids of the jobs it moved, and those it left as they are, by why.

    The words are waiting, running, stopping, succeeded, failed, cancelled, gone, and "key held": by another job, so
    that this one wasn't retried.
    """

    ids: tuple[int, ...]
    skipped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a waiting job is to wait from now on; None leaves it as it is. `run_at` is aware."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None


class Lease(NamedTuple):
    """The right to a held row: its id, and the token of the claim that took it."""

    id: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for: at most `limit` rows of the queues it serves.

    `queues` None serves every queue. `rooms` holds how many more of a capped queue may be taken. Queues of one priority
    are tried in the order of their names, beginning after `last_queue`. `names` limits the claim to these jobs.
    An `alone` row is only taken when `empty_handed`, and then nothing beside it.
    """

    worker: str
    limit: int
    lease: timedelta
    grace: timedelta
    queues: tuple[str, ...] | None = None
    rooms: dict[str, int] = field(default_factory=dict)
    last_queue: str = ""
    empty_handed: bool = True
    names: tuple[str, ...] | None = None


class Claim(NamedTuple):
    """A job in a worker's hands. `args`, `kwargs` and `meta` are JSON text.

    `lease` is what every later write of this claim names. `instants` holds `enqueued_at`, `run_at`, `first_started_at`,
    `started_at` and `tick` as the database gave them; hardly a job asks for one. (A tuple, and one that takes a row as
    it comes, since a worker makes thousands a second.)
    """

    lease: Lease
    name: str
    queue: str
    priority: int
    args: str
    kwargs: str
    meta: str
    attempt: int
    max_attempts: int
    crashes: int
    max_crashes: int
    alone: bool
    restart: bool
    timeout: float | None
    keep: float | None
    schedule: str | None
    waiting_key: str | None
    on_failure: str
    instants: tuple[datetime | str | None, ...]

    @property
    def id(self) -> int:
        """The id of its row."""
        return self.lease.id

    @property
    def token(self) -> int:
        """What the claim statement wrote into the row."""
        return self.lease.token

    @property
    def is_last(self) -> bool:
        """Whether no further attempt follows when this one fails."""
        return self.attempt >= self.max_attempts

    @property
    def enqueued_at(self) -> datetime:
        """When it was queued, by the database's clock, aware UTC; so are the others."""
        return clock.read(self.instants[0])

    @property
    def run_at(self) -> datetime:
        """From when it was due."""
        return clock.read(self.instants[1])

    @property
    def first_started_at(self) -> datetime:
        """When it was claimed for the first time."""
        return clock.read(self.instants[2])

    @property
    def started_at(self) -> datetime:
        """When it was claimed."""
        return clock.read(self.instants[3])

    @property
    def tick(self) -> datetime | None:
        """The moment of a schedule that it is for, None where no schedule fired it."""
        tick = self.instants[4]
        return None if tick is None else clock.read(tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What a claim statement came to: jobs to run, in their order, and the leases of rows it ended as expired."""

    claims: tuple[Claim, ...] = ()
    expired: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Whether jobs are due now, and in how many seconds the next one will be, None where none waits for its time."""

    now: bool
    later: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLife:
    """One process life that works, as its supervisor says. Ages are seconds; `queues` empty means all.

    `claim_age` tells how long ago a claim of it got an answer, or it had no room for more; None for never.
    """

    identity: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    versions: Mapping[str, str]
    age: float
    claim_age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """The row of a worker. Ages are seconds by the database's clock; `in_hand` counts the jobs that it holds."""

    identity: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    age: float
    beat_age: float
    claim_age: float | None
    in_hand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """A row that somebody holds or held, as far as reclaim and read-back need it."""

    id: int
    token: int
    state: State
    worker: str | None
    name: str
    queue: str
    attempts: int
    max_attempts: int
    crashes: int
    max_crashes: int
    alone: bool
    restart: bool
    waiting_key: str | None = None
    on_failure: str = ""

    @property
    def lease(self) -> Lease:
        """The id and token under which it is, or was, held."""
        return Lease(id=self.id, token=self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRow:
    """A pushed row in a consumer's hands. `args` is the JSON text of a list with the payload in it.

    `attempts` counts this one, too; `error` is the latest reason that the row came back, '' for none.
    """

    lease: Lease
    queue: str
    args: str
    attempts: int
    max_attempts: int
    error: str
    run_at: datetime
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRow:
    """A pushed row that is taken no more; what the fields hold is as in a `TakenRow`."""

    id: int
    queue: str
    args: str
    attempts: int
    error: str
    run_at: datetime
    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run didn't succeed, as text that can be stored: no NUL, no lone surrogate, bounded.

    `exception` is an importable path or ''; `fingerprint` groups equal failures, '' for none.
    """

    kind: str
    reason: str
    exception: str = ""
    traceback: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Since when the database's server runs, None where there is none, and what its clock says."""

    server_start: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule as its row stood at a moment of the database's clock, `now`. `args` and `kwargs` are JSON text.

    `cron` '' stands for an interval; `time_zone` '' is the setting's, `queue` '' and `priority` None the performer's.
    """

    id: int
    name: str
    owner: str
    version: int
    cron: str
    every_seconds: float | None
    time_zone: str
    performer: str
    args: str
    kwargs: str
    queue: str
    priority: int | None
    removed: bool
    origin: str
    missed: str
    overlap: str
    jitter: float
    starts: datetime | None
    ends: datetime | None
    next_at: datetime | None
    error: str
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSeen:
    """Which set of schedules a worker's release declares, by owner and hash in one text, and how old its beat is."""

    said: str
    beat_age: float
