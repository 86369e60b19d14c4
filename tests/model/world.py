"""The frozen values of the life model: one table, some worker processes with their supervisors, and who remembers what.

Time is counted in quarters of a lease. Ages stop growing at LAPSED, so that the world is finite. A `lease` is the pair
(job, token); jobs, processes and supervisors are numbered from 0, tokens and lives of processes from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

LAPSED = 4
"""Quarters after which a lease is over."""

THREE_QUARTERS = LAPSED - 1

Lease = tuple[int, int]


class Mistake(Enum):
    """A rule of DESIGN that is left out on purpose; the explorer must find out."""

    RENEW_BY_WORKER = "the keeper renews whatever its workers hold, not exactly the leases on their boards"
    CANCEL_LETS_GO = "cancel ends the holding at once"
    SETTLE_WITHOUT_TOKEN = "settle names the id and not the token"
    RECLAIM_OLD_PICTURE = "reclaim writes by the picture it read, without looking at token and lapse again"
    LET_GO_OLD_PICTURE = "reclaim lets cancelled rows go by the picture it read"
    RELEASE_BEFORE_DEATH = "the supervisor writes what a worker held, and kills it then"
    COUNT_AT_START = "an attempt is counted in the worker's memory when the body starts, not in the row at the claim"
    NO_READ_BACK = "an end that meets no row is taken for lost without reading the row back"
    READ_BACK_STATE_ONLY = "reading back, whatever row is in the right state is taken for our own write"
    GONE_IS_OURS = "reading back, a row that is gone is taken for our own write, confirmed or not"
    TELL_EARLY = "ends are told before those that met no row are read back, which may fail"
    TRUST_THE_BOARD = "the undertaker gives back only what stands on the board"
    ENDED_IS_UNSTARTED = "a body that had ended when its process died counts as never started"
    DISOWN_ONCE = "an unanswered claim is given back once; one that is committed later is forgotten"
    BURY_ONCE = "the undertaker looks once; a claim that is committed later is forgotten"
    START_STALE = "a job is started however long ago its claim was sent"
    CONFIRM_FROM_AFTER = "the board is confirmed from the moment of the answer, not from before the statement"
    RECLAIM_AT_ONCE = "what is lapsed is taken back at the first look, though its keeper may be about to renew it"
    LET_GO_ONCE = "a cancelled row that somebody locks just then isn't let go later"
    NEVER_ENDS_ITSELF = "a worker that can't confirm its leases goes on"


@dataclass(frozen=True)
class Setting:
    """How large a world is, and what may happen in it.

    `faults` are kinds of bad luck, `trouble` how many may strike in one story; `wishes` and `will` are the same for
    what people do. `claims` bounds the claim statements of a story.
    """

    jobs: int = 1
    supervisor_of: tuple[int, ...] = (0, 1)
    slots: int = 1
    claims: int = 2
    max_attempts: int = 2
    max_crashes: int = 2
    restart: bool = True
    keep: float = 15.0
    outcomes: tuple[str, ...] = ("ok", "fail")
    faults: frozenset[str] = frozenset()
    trouble: int = 0
    wishes: frozenset[str] = frozenset()
    will: int = 0
    mistakes: frozenset[Mistake] = field(default_factory=frozenset)


class Row(NamedTuple):
    """A job's row. `lease` is the age of its lease, -1 for none; `wait` and `keeping` are quarters still to go.

    `overdue`: the deadline in the row has passed, which stands there for the case that everything else fails.
    """

    state: str
    token: int
    worker: int
    attempts: int
    max_attempts: int
    crashes: int
    alone: bool
    lease: int
    wait: int
    keeping: int
    overdue: bool = False


class Picture(NamedTuple):
    """A held row as somebody read it."""

    job: int
    token: int
    state: str
    worker: int
    attempts: int
    max_attempts: int
    crashes: int
    alone: bool


class Tale(NamedTuple):
    """What is true of a claim, whether or not anybody knows. `closed` names the verb that ended it.

    `lapsed`: its lease was truly over. `unforeseen`: the clock jumped, or the deadline in the row had to serve.
    """

    lease: Lease
    started: bool = False
    succeeded: bool = False
    lapsed: bool = False
    unforeseen: bool = False
    closed: str = ""


class Hand(NamedTuple):
    """A claim in a worker's hands. `body` waits, runs or ended; `sent` is the interruption that was sent into it.

    `stale`: it was claimed too long ago to be started. `late`: it runs on past its deadline. `doubted`: for a while
    nobody could say whether the lease held.
    """

    lease: Lease
    attempt: int
    max_attempts: int
    crashes: int
    alone: bool
    body: str = "waits"
    outcome: str = ""
    sent: str = ""
    stale: bool = False
    late: bool = False
    cancelled: bool = False
    lost: bool = False
    doubted: bool = False
    told: bool = False


class Step(NamedTuple):
    """A verb of a worker that is between two statements."""

    verb: str
    at: str
    batch: tuple[Lease, ...] = ()
    written: tuple[Lease, ...] = ()
    again: tuple[Lease, ...] = ()
    lost: tuple[Lease, ...] = ()
    left: tuple[Lease, ...] = ()
    rows: tuple[Picture, ...] = ()


class Asked(NamedTuple):
    """A claim whose answer is on the way."""

    token: int
    hands: tuple[Hand, ...]


class Process(NamedTuple):
    """A worker process. `confirmed` is the age of what its board says about its leases."""

    health: str = "up"
    confirmed: int = 0
    hands: tuple[Hand, ...] = ()
    asked: Asked | None = None
    unanswered: int = 0
    step: Step | None = None
    closing: bool = False
    losing: bool = False
    blamed: bool = True
    timed_out: tuple[Lease, ...] = ()
    buried: bool = False
    burial: Step | None = None


class Keeper(NamedTuple):
    """A round of renewing. `age` counts from before the statement. `locked`: leases that somebody's lock kept from it.

    `again`: a round for those alone, when they are free; it confirms nothing.
    """

    at: str = ""
    age: int = 0
    leases: tuple[Lease, ...] = ()
    stopping: tuple[Lease, ...] = ()
    missing: tuple[Lease, ...] = ()
    locked: tuple[Lease, ...] = ()
    again: bool = False


class Supervisor(NamedTuple):
    """The parent of some processes."""

    health: str = "up"
    keeper: Keeper = Keeper()


class World(NamedTuple):
    """Everything. `air` is a claim statement (process, token) that is under way while nobody waits for it any more.

    Statements take no time to speak of, no quarter of a lease passes before they are through, but for the supervisor
    and workers on the host that is `slow`.
    """

    queued: bool
    rows: tuple[Row | None, ...]
    processes: tuple[Process, ...]
    supervisors: tuple[Supervisor, ...]
    tales: tuple[Tale, ...] = ()
    reclaimer: Step | None = None
    holds_off: bool = False
    air: tuple[int, int] | None = None
    locked: int = -1
    slow: int = -1
    tokens: int = 0
    trouble: int = 0
    will: int = 0
    flaw: str = ""
