"""Keys while callers' transactions are open: the frozen values of the model, its rules, and who may do what to a row.

One key, and the rows that have it. A statement is one step and sees what is committed when it is made, or goes on after
it had to wait; only callers have transactions of several statements, so only they leave rows locked or uncommitted.
What a body sees is whether a caller's change of other data was committed when it started.

Times are known as far as it matters: a row's has come or hasn't, and a key that is kept for a while still is or isn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.model.explorer import Move

ONE_HOLDER = "one row at the most holds a key"
LEFT_ALONE = "whoever asked for a job has one that starts after the commit"
WAITED_THEN = "a job is superseded only by one that waits"
NEVER_BOTH = "of two jobs that superseding cancelled, each by the other, there are none"
HEIR_RUNS = "what has superseded another runs"
IN_TIME = "what has superseded another doesn't run later than that would have"
CALLER_IS_SAFE = "a caller's transaction never breaks"
NEVER_LOCKED_OUT = "callers never wait for each other in a circle"
WORKER_NEVER_WAITS = "a worker never waits for a caller"

TRIES = 3


class Slip(Enum):
    """A rule of the statements that is left out on purpose."""

    LOOK_THEN_INSERT = "the key is looked for among what is committed, and then the job inserted"
    PLAIN_INSERT = "the insert has no ON CONFLICT"
    NO_SHARE = "who waits and holds the key is found, but not locked"
    FIND_WHO_WAITS = "what is found, unlocked, after nobody could be locked may wait again by now"
    CLAIM_WAITS = "the claim doesn't skip locked rows"
    WAIT_FOR_TWIN = "who is to wait again waits for the commit of a caller that has inserted the key"
    UNLOCKED_RIVAL = "superseding believes what was found before, without locking the rival and looking again"
    RIVAL_MAY_RUN = "superseding is content with a rival that runs"
    SUPERSEDE_FIRST = "the rival is brought forward after the other is cancelled"
    UNTIMED_RIVAL = "superseding doesn't look at the rival's time, though bringing it forward may have skipped it"


class Version(NamedTuple):
    """A row as one transaction has written it.

    `later`: its time hasn't come. `kept`: its key is held for a while whatever becomes of it: 1, and that is over: 2.
    `by` is who superseded it. `owes`: when at the latest it is to run for those that it superseded: "now" or "later".
    """

    state: str = "READY"
    held: bool = False
    later: bool = False
    kept: int = 0
    by: int = -1
    owes: str = ""
    attempts: int = 0


class Hand(NamedTuple):
    """Who holds a row: a worker, or for a dead one the supervisor. `step`: the next statement of the settle."""

    body: str = "waits"
    outcome: str = ""
    step: str = ""
    rival: int = -1


class Row(NamedTuple):
    """A row: what is committed, what `writer` has written, and the callers that share its lock. Both None: gone."""

    now: Version | None = None
    new: Version | None = None
    writer: int = -1
    sharers: frozenset[int] = frozenset()
    hand: Hand | None = None

    @property
    def is_locked(self) -> bool:
        return self.writer >= 0 or bool(self.sharers)

    def seen_by(self, caller: int) -> Version | None:
        return self.new if self.writer == caller else self.now


GONE = Row()


class Ask(NamedTuple):
    """What a caller asks for."""

    on_duplicate: str = "return"
    later: bool = False


class Caller(NamedTuple):
    """A caller: its next statement, or how it ended. `is_busy`: what it was given had started, or ended, before.

    `is_seen`: a body has started after the commit.
    """

    at: str = "begin"
    asked: int = 0
    tries: int = 0
    answer: int = -1
    is_busy: bool = False
    is_seen: bool = False


class World(NamedTuple):
    rows: tuple[Row, ...]
    callers: tuple[Caller, ...]
    will: int = 0
    trouble: int = 0
    flaw: str = ""


Moves = Iterator[tuple[Move, World]]


@dataclass(frozen=True)
class Setting:
    """How large a world is. `first` are rows that are there at the beginning; `kind` is "unique" or "waiting".

    Where `whole_file`, who writes locks out all others until it commits. `attempts` bounds the runs of a job that want
    another, `will` what people do and `trouble` the deaths of workers. Rules that are `unheeded` aren't looked at, so
    that others show.
    """

    kind: str = "waiting"
    callers: tuple[tuple[Ask, ...], ...] = ((Ask(),), (Ask(),))
    first: tuple[Row, ...] = ()
    workers: int = 1
    attempts: int = 2
    outcomes: tuple[str, ...] = ("ok", "again")
    wishes: frozenset[str] = frozenset()
    will: int = 0
    trouble: int = 0
    unique_for: bool = False
    whole_file: bool = False
    slips: frozenset[Slip] = field(default_factory=frozenset)
    unheeded: frozenset[str] = frozenset()

    def makes(self, slip: Slip) -> bool:
        return slip in self.slips


OPEN = frozenset({"insert", "free", "insert again", "lock", "replace", "find", "answered", "refused"})
"""Where a caller is while its transaction is open."""


def holds(version: Version | None, kind: str) -> bool:
    """Say whether a version of a row stands in the index of keys."""
    if version is None:
        return False
    if kind == "waiting":
        return version.state == "READY"
    return version.state in ("READY", "RUNNING") or version.held or version.kept > 0


def with_row(world: World, number: int, row: Row) -> World:
    return world._replace(rows=(*world.rows[:number], row, *world.rows[number + 1 :]))


def with_caller(world: World, number: int, **changes: object) -> World:
    caller = world.callers[number]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(callers=(*world.callers[:number], caller, *world.callers[number + 1 :]))


def flawed(world: World, flaw: str, setting: Setting) -> World:
    return world if world.flaw or flaw in setting.unheeded else world._replace(flaw=flaw)


# -- what must hold


def wrong(world: World, setting: Setting) -> str:
    """Name a rule that doesn't hold; '' where all do."""
    broken = {
        world.flaw: bool(world.flaw),
        ONE_HOLDER: sum(holds(row.now, setting.kind) for row in world.rows) > 1,
        LEFT_ALONE: any(_is_left_alone(world, caller) for caller in world.callers),
        NEVER_BOTH: any(_goes_round(world, number) for number in range(len(world.rows))),
        HEIR_RUNS: any(row.now and row.now.owes and row.now.state in ("SUCCESSFUL", "FAILED") for row in world.rows),
        IN_TIME: any(_is_late(world, number, row) for number, row in enumerate(world.rows)),
    }
    return next((rule for rule, is_broken in broken.items() if is_broken and rule not in setting.unheeded), "")


def _is_left_alone(world: World, caller: Caller) -> bool:
    """Say whether no body will see what a caller has committed, though nobody cancelled its job by hand."""
    if caller.at != "committed" or caller.is_seen or caller.is_busy or caller.answer < 0:
        return False
    version = world.rows[_heir(world, caller.answer)].now
    return version is not None and version.state in ("SUCCESSFUL", "FAILED")


def _heir(world: World, number: int) -> int:
    met: set[int] = set()
    while (version := world.rows[number].now) and version.by >= 0 and number not in met:
        met.add(number)
        number = version.by
    return number


def _goes_round(world: World, number: int) -> bool:
    version = world.rows[_heir(world, number)].now
    return version is not None and version.by >= 0


def _is_late(world: World, number: int, row: Row) -> bool:
    if row.now is None or row.now.state != "READY" or row.now.owes != "now" or not row.now.later:
        return False
    return not any(other.hand and other.hand.step == "forward" and other.hand.rival == number for other in world.rows)


def is_good_end(world: World) -> bool:
    """Say whether every caller is through, and nothing waits or is held."""
    are_through = all(caller.at in ("committed", "rolled back") for caller in world.callers)
    return are_through and not any(
        row.writer >= 0 or row.hand or (row.now and row.now.state in ("READY", "RUNNING")) for row in world.rows
    )


# -- telling


def told(world: World) -> str:
    """Say in one line how things stand."""
    rows = [f"job {number + 1} {_row_told(row)}" for number, row in enumerate(world.rows) if row != GONE]
    callers = [
        f"caller {'ABC'[number]} {_caller_told(caller)}"
        for number, caller in enumerate(world.callers)
        if caller.at != "begin"
    ]
    return " · ".join([*rows, *callers])


def _row_told(row: Row) -> str:
    words = [_version_told(row.now) if row.now else "isn't committed"]
    if row.writer >= 0:
        words.append(f"for caller {'ABC'[row.writer]} {_version_told(row.new)}")
    if row.sharers:
        words.append(f"locked by {' and '.join('ABC'[number] for number in sorted(row.sharers))}")
    if row.hand:
        words.append(f"body {row.hand.body}" + (f" ({row.hand.outcome})" if row.hand.outcome else ""))
        words += [f"next: {row.hand.step}"] if row.hand.step else []
    return ", ".join(words)


def _version_told(version: Version | None) -> str:
    if version is None:
        return "gone"
    return version.state + "".join(
        word
        for word, is_so in (
            (" held", version.held),
            (" later", version.later),
            (" kept", version.kept == 1),
            (" kept too long", version.kept == 2),
            (f" superseded by {version.by + 1}", version.by >= 0),
        )
        if is_so
    )


def _caller_told(caller: Caller) -> str:
    words = [caller.at if caller.at in ("committed", "rolled back") else f"is at: {caller.at}"]
    words += [f"has job {caller.answer + 1}{' (busy)' if caller.is_busy else ''}"] if caller.answer >= 0 else []
    return ", ".join(words) + (", seen" if caller.is_seen else "")
