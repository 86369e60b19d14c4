"""Callers that ask for a job with a key: each statement of enqueue, in a transaction with a change of other data.

Whoever must wait has no move until the other's transaction has ended; then the statement sees what is committed by
then. (The real one may see less, having begun before, and finds nothing; then it is tried again.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model.explorer import Move
from tests.model.keys import (
    CALLER_IS_SAFE,
    NEVER_LOCKED_OUT,
    OPEN,
    TRIES,
    Ask,
    Caller,
    Moves,
    Row,
    Setting,
    Slip,
    Version,
    World,
    flawed,
    holds,
    with_caller,
    with_row,
)

ENDED = ("SUCCESSFUL", "FAILED", "CANCELLED")


class Asking:
    """What callers do."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def moves(self, world: World) -> Moves:
        for number, caller in enumerate(world.callers):
            if not self.blockers(world, number):
                for kind, after in self._next(world, number, caller):
                    yield Move(kind, f"caller {'ABC'[number]}"), self._checked(after)

    def _next(self, world: World, number: int, caller: Caller) -> Iterator[tuple[str, World]]:
        if caller.at == "begin":
            yield "begin", with_caller(world, number, at="insert")
        elif caller.at in ("insert", "insert again"):
            yield caller.at, self._insert(world, number, caller)
        elif caller.at == "free":
            yield "free", self._free(world, number)
        elif caller.at in ("lock", "replace"):
            yield caller.at, self._lock(world, number, caller)
        elif caller.at == "find":
            yield "find", self._find(world, number, caller)
        elif caller.at == "answered":
            yield "commit", _committed(world, number)
            yield "roll back", _rolled_back(world, number)
        elif caller.at == "refused":
            yield "roll back", _rolled_back(world, number)

    def _ask(self, caller: Caller, number: int) -> Ask:
        return self.setting.callers[number][caller.asked]

    # -- the statements

    def _insert(self, world: World, number: int, caller: Caller) -> World:
        kind = self.setting.kind
        if any(holds(row.seen_by(number), kind) for row in world.rows):
            if self.setting.makes(Slip.PLAIN_INSERT):
                return flawed(world, CALLER_IS_SAFE, self.setting)
            is_first = caller.at == "insert" and kind == "unique"
            return with_caller(world, number, at="free" if is_first else self._locking(caller, number))
        version = Version(later=self._ask(caller, number).later, kept=int(self.setting.unique_for))
        return self._answered(
            world._replace(rows=(*world.rows, Row(new=version, writer=number))), number, len(world.rows)
        )

    def _locking(self, caller: Caller, number: int) -> str:
        words = {"return": "lock", "replace": "replace", "raise": "find"}
        return words[self._ask(caller, number).on_duplicate]

    def _free(self, world: World, number: int) -> World:
        at = self._locking(world.callers[number], number)
        for place, row in enumerate(world.rows):
            version = row.seen_by(number)
            if _has_passed(version):
                assert version is not None
                world = with_row(world, place, row._replace(new=version._replace(kept=0), writer=number))
                at = "insert again"
        return with_caller(world, number, at=at)

    def _lock(self, world: World, number: int, caller: Caller) -> World:
        for place, row in enumerate(world.rows):
            version = row.seen_by(number)
            if version is None or version.state != "READY":
                continue
            changes: dict[str, Any] = {}
            if caller.at == "replace":
                is_later = self._ask(caller, number).later
                owes = "later" if version.owes and is_later else version.owes
                changes = {"new": version._replace(later=is_later, owes=owes), "writer": number}
            elif not self.setting.makes(Slip.NO_SHARE):
                changes = {"sharers": row.sharers | {number}}
            return self._answered(with_row(world, place, row._replace(**changes)), number, place)
        if self.setting.kind == "waiting" and not self.setting.makes(Slip.FIND_WHO_WAITS):
            return self._again(world, number, caller)
        return with_caller(world, number, at="find")

    def _find(self, world: World, number: int, caller: Caller) -> World:
        refuses = self._ask(caller, number).on_duplicate == "raise"
        for place, row in enumerate(world.rows):
            version = row.seen_by(number)
            if not holds(version, self.setting.kind):
                continue
            assert version is not None
            if refuses:
                return with_caller(world, number, at="refused")
            if version.state != "READY" or self.setting.makes(Slip.FIND_WHO_WAITS):
                return self._answered(world, number, place, is_busy=version.state != "READY")
        return self._again(world, number, caller)

    def _again(self, world: World, number: int, caller: Caller) -> World:
        tries = caller.tries + 1
        return with_caller(world, number, at="insert" if tries < TRIES else "refused", tries=tries)

    def _answered(self, world: World, number: int, place: int, *, is_busy: bool = False) -> World:
        asked = world.callers[number].asked + 1
        is_through = asked == len(self.setting.callers[number])
        return with_caller(
            world, number, at="answered" if is_through else "insert", tries=0, answer=place, is_busy=is_busy,
            asked=asked,
        )  # fmt: skip

    # -- who waits for whom

    def blockers(self, world: World, number: int) -> frozenset[int]:
        """Give the callers for whose commit the next statement of this one has to wait."""
        caller = world.callers[number]
        if self.setting.whole_file:
            return frozenset(
                other
                for other, one in enumerate(world.callers)
                if other != number and one.at in OPEN and caller.at not in ("committed", "rolled back")
            )
        others: set[int] = set()
        for row in world.rows:
            if self._must_wait_for(row, number, caller):
                others |= {row.writer, *(row.sharers if caller.at in ("free", "replace") else ())}
        return frozenset(others - {number, -1})

    def _must_wait_for(self, row: Row, number: int, caller: Caller) -> bool:
        if caller.at in ("insert", "insert again"):
            is_either = holds(row.now, self.setting.kind) or holds(row.new, self.setting.kind)
            return row.writer not in (-1, number) and is_either and not self.setting.makes(Slip.LOOK_THEN_INSERT)
        version = row.seen_by(number)
        if version is None:
            return False
        if caller.at == "free":
            return _has_passed(version)
        return caller.at in ("lock", "replace") and version.state == "READY" and not self.setting.makes(Slip.NO_SHARE)

    def _checked(self, world: World) -> World:
        waits = {number: self.blockers(world, number) for number in range(len(world.callers))}
        for number, others in waits.items():
            met: set[int] = set()
            ahead = set(others)
            while ahead - met:
                met |= ahead
                ahead = {other for one in ahead for other in waits[one]}
            if number in met and not self.setting.whole_file:
                return flawed(world, NEVER_LOCKED_OUT, self.setting)
        return world


def _has_passed(version: Version | None) -> bool:
    return version is not None and version.state in ENDED and not version.held and version.kept == 2


def _committed(world: World, number: int) -> World:
    rows = tuple(
        row._replace(
            now=row.new if row.writer == number else row.now,
            new=None if row.writer == number else row.new,
            writer=-1 if row.writer == number else row.writer,
            sharers=row.sharers - {number},
        )
        for row in world.rows
    )
    return with_caller(world._replace(rows=rows), number, at="committed")


def _rolled_back(world: World, number: int) -> World:
    before = world.rows
    if before and before[-1].writer == number and before[-1].now is None:
        # Nobody else knows of it.
        before = before[:-1]
    rows = tuple(
        row._replace(
            new=None if row.writer == number else row.new,
            writer=-1 if row.writer == number else row.writer,
            sharers=row.sharers - {number},
        )
        for row in before
    )
    world = world._replace(rows=rows)
    return with_caller(world, number, at="rolled back", answer=-1, is_busy=False, tries=0)
