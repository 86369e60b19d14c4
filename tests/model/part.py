"""What the parts of the life model have in common: how a statement runs, and short ways to a changed world."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model import rows
from tests.model.explorer import Move
from tests.model.world import THREE_QUARTERS, Hand, Lease, Mistake, Picture, Process, Setting, Supervisor, World

Moves = Iterator[tuple[Move, World]]

UNCOUNTED = ("snooze", "lost", "unstarted")
"""Outcomes after which the attempt isn't counted."""

UNSTARTED = {"body": "ended", "outcome": "unstarted", "stale": False}


class Part:
    """Some of what may happen in a world, in one setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def makes(self, mistake: Mistake) -> bool:
        return mistake in self.setting.mistakes

    def may_befall(self, world: World, fault: str) -> bool:
        return fault in self.setting.faults and world.trouble < self.setting.trouble

    def supervisor_of(self, world: World, number: int) -> Supervisor:
        return world.supervisors[self.setting.supervisor_of[number]]

    def statement(
        self,
        kind: str,
        actor: str,
        before: World,
        after: World,
        answered: Callable[[World], World],
        lost: Callable[[World], World],
        *,
        on: tuple[int, ...] = (),
    ) -> Moves:
        """Run one statement that makes `after` of `before`: with its answer, and where it may be, without."""
        yield Move(kind, actor, on), answered(after)
        if self.may_befall(before, "answer"):
            yield Move(f"{kind}, not written", actor, on, by_itself=False), lost(troubled(before))
            if after.rows != before.rows:
                yield Move(f"{kind}, answer lost", actor, on, by_itself=False), lost(troubled(after))

    def name(self, number: int) -> str:
        return f"worker {'AB'[number]}"

    def may_run(self, process: Process) -> bool:
        return process.confirmed < THREE_QUARTERS and not process.losing


def given_back(hand: Hand) -> Hand:
    return hand._replace(**UNSTARTED)


def troubled(world: World) -> World:
    return world._replace(trouble=world.trouble + 1)


def with_process(world: World, number: int, **changes: object) -> World:
    process = world.processes[number]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(processes=(*world.processes[:number], process, *world.processes[number + 1 :]))


def with_supervisor(world: World, number: int, **changes: object) -> World:
    supervisor = world.supervisors[number]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(supervisors=(*world.supervisors[:number], supervisor, *world.supervisors[number + 1 :]))


def with_hand(world: World, number: int, hand: Hand, **changes: object) -> World:
    hands = tuple(
        one._replace(**changes) if one.lease == hand.lease else one  # type: ignore[arg-type]
        for one in world.processes[number].hands
    )
    return with_process(world, number, hands=hands)


def dead(world: World, number: int, *, blamed: bool, timed_out: tuple[Lease, ...] = ()) -> World:
    """End a process; its board stays for whoever buries it."""
    process = Process(health="dead", hands=world.processes[number].hands, blamed=blamed, timed_out=timed_out)
    return world._replace(processes=(*world.processes[:number], process, *world.processes[number + 1 :]))


def held_by(world: World, life: int, token: int = 0) -> list[Picture]:
    return [
        rows.picture_of(job, row)
        for job, row in enumerate(world.rows)
        if row and row.worker == life and (not token or row.token == token)
    ]


def is_held(world: World, lease: Lease) -> bool:
    row = world.rows[lease[0]]
    return row is not None and row.token == lease[1] and bool(row.worker)


def first_write(pictures: tuple[Picture, ...]) -> str:
    return "write" if any(row.state == "RUNNING" for row in pictures) else "let go"
