"""What an idle command asks of the database, counted by its loops' own ticks over an hour that the test lets pass."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import clock, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.worker.beat import Beat, Member
from django_jobs.worker.board import Board
from django_jobs.worker.chores import Chores, duties
from django_jobs.worker.crew import Crew
from django_jobs.worker.keeper import Keeper
from django_jobs.worker.link import Link
from django_jobs.worker.listener import Listener
from django_jobs.worker.lookout import Lookout
from django_jobs.worker.plan import Plan
from django_jobs.worker.seat import Seats
from tests.factories import seconds
from tests.worker.conftest import make_board

pytestmark = pytest.mark.django_db(transaction=True)

MINUTES = 10

WRITES = {"BEAT"}
"""Statements that write though nothing is to do. The others find no row, and so begin no writing transaction."""

NO_TRANSACTION = {"VERSION", "DATABASE_LIST"}
"""A look at SQLite's file, many times a second, and the question where it is."""


@dataclass
class Command:
    """A supervisor's loops and its workers' crews, without their threads and processes."""

    processes: int
    is_heard: bool
    counted: Counter[str] = field(default_factory=Counter)
    closers: list[Callable[[], None]] = field(default_factory=list)

    def ticks(self) -> list[Callable[[], float]]:
        command = Plan(alias="default", concurrency=2 * self.processes)
        plans = command.dealt(self.processes)
        boards = [make_board() for _ in plans]
        members = [
            Member(plan=plan, identity=f"w{number}", pid=7, board=board, started_at=0.0)
            for number, (plan, board) in enumerate(zip(plans, boards, strict=True))
        ]
        crews = [self.crew(plan, board) for plan, board in zip(plans, boards, strict=True)]
        lookout = Lookout(link=Link("default"), plan=command, wake=lambda: None)
        listener = Listener(
            link=Link("default"), speaker=Link("default"), queues=None, wake=lambda: None,
            tell=lambda is_hearing: lookout.hear(is_hearing=is_hearing),
        )  # fmt: skip
        keeper = Keeper(boards=lambda: boards, link=Link("default"))
        chores = Chores(link=Link("default"), duties=duties())
        beat = Beat(link=Link("default"), members=lambda: members)
        loops: list[Any] = [keeper, chores, beat, lookout, listener]
        self.closers += [loop.close for loop in loops]
        return [*(loop.tick for loop in loops), *(crew.turn for crew in crews)]

    def crew(self, plan: Plan, board: Board) -> Crew:
        link = Link("default")
        self.closers.append(link.close)
        return Crew(plan=plan, board=board, seats=Seats(), link=link)

    def idle(self, frozen: FrozenClock, *, minutes: float) -> Counter[str]:
        """Call each tick when it asked to be called, for so long, and give how often each statement ran."""
        due = [(0.0, number, tick) for number, tick in enumerate(self.ticks())]
        end = minutes * 60.0
        while due[0][0] < end:
            moment, number, tick = heapq.heappop(due)
            frozen.advance(seconds(max(0.0, moment - clock.monotonic())))
            delay = tick()
            # The listener's own waiting is stood in for below.
            heapq.heappush(due, (clock.monotonic() + max(delay, 0.001), number, tick))
        return self.counted


@pytest.fixture
def make_command(monkeypatch: pytest.MonkeyPatch, frozen: FrozenClock) -> Iterator[Callable[..., Command]]:
    commands: list[Command] = []

    def make(processes: int, *, is_heard: bool) -> Command:
        command = Command(processes, is_heard)
        commands.append(command)
        said: set[str] = set()
        monkeypatch.setattr(
            lifecycle, "notify", lambda _, words: (command.counted.update(["NOTIFY"]), said.update(words))
        )

        def hear(_: Any, mark: Any, *, timeout: float) -> tuple[set[str], Any]:
            heard = set(said) if command.is_heard else set()
            said.clear()
            if not heard:
                frozen.advance(seconds(timeout))
            return heard, mark

        monkeypatch.setattr(lifecycle, "hear", hear)
        monkeypatch.setattr(lifecycle, "needs_proof", lambda _: True)
        return command

    yield make
    for command in commands:
        for close in command.closers:
            close()


@pytest.mark.parametrize("is_heard", [True, False], ids=["heard", "polled"])
@pytest.mark.parametrize("processes", [1, 4, 16])
def test_an_idle_command_takes_two_transactions_a_second_at_the_most_however_many_processes(
    make_command: Callable[..., Command], frozen: FrozenClock, processes: int, is_heard: bool
) -> None:
    command = make_command(processes, is_heard=is_heard)
    with override_settings(DJANGO_JOBS={"OBSERVE": lambda name, *_: command.counted.update([name])}):
        counted = command.idle(frozen, minutes=MINUTES)
    transactions = sum(count for name, count in counted.items() if name not in NO_TRANSACTION)
    assert transactions <= 2.0 * 60 * MINUTES, counted
    assert counted["BEAT"] == 6 * MINUTES
    # With empty hands nothing is renewed, read back or settled.
    assert set(counted) - NO_TRANSACTION <= {
        "BACKEND", "BEAT", "CLAIM", "EXPIRE", "LAPSED", "LISTEN", "NAMED", "NEXT_DUE", "NOTIFY", "PRUNE", "PULSE",
        "SETS", "SOONEST", "SWEEP", "UNLISTEN",
    }  # fmt: skip
