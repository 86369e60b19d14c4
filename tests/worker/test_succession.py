"""Who leaves, who follows, and how many slots a follower leaves free. Only the test reads the pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from django_jobs.records import Lease
from django_jobs.worker.child import Child
from django_jobs.worker.succession import Succession
from tests.worker.conftest import make_board


class Family:
    def __init__(self) -> None:
        self.children: dict[int, Child] = {}
        self.pipes: dict[int, int] = {}
        self.succession = Succession(self.children, grace=15.0)

    def add(self, pid: int, *, place: int = 0, concurrency: int = 2, held_back: int = 0) -> Child:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        child = Child(
            place=place, identity=f"w{pid}", pid=pid, board=make_board(), control=writer, started_at=0.0,
            concurrency=concurrency, held_back=held_back,
        )  # fmt: skip
        self.children[pid], self.pipes[pid] = child, reader
        return child

    def heard(self, pid: int) -> list[str]:
        try:
            return os.read(self.pipes[pid], 4096).decode().split("\n")[:-1]
        except BlockingIOError:
            return []


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    yield family
    for pid, reader in family.pipes.items():
        os.close(reader)
        if pid in family.children:
            os.close(family.children[pid].control)


def lease(number: int) -> Lease:
    return Lease(id=number, token=number)


def test_on_hangup_one_leaves_after_the_other(family: Family) -> None:
    for pid in (1, 2):
        family.add(pid, place=pid)
    family.succession.replace_one_by_one()
    family.succession.tick(100.0, is_complete=True)
    assert (family.heard(1), family.heard(2)) == (["stop"], [])
    family.succession.tick(101.0, is_complete=True)
    assert family.heard(2) == []
    os.close(family.children.pop(1).control)
    family.succession.tick(102.0, is_complete=False)
    assert family.heard(2) == []
    family.succession.tick(103.0, is_complete=True)
    assert family.heard(2) == ["stop"]


def test_when_the_code_changed_all_leave_at_once(family: Family) -> None:
    for pid in (1, 2):
        family.add(pid, place=pid)
    family.succession.replace_all(100.0)
    family.succession.replace_all(101.0)
    assert (family.heard(1), family.heard(2)) == (["stop"], ["stop"])


def test_after_the_grace_they_are_told_to_stop_now(family: Family) -> None:
    family.add(1)
    family.succession.replace_all(100.0)
    family.heard(1)
    family.succession.tick(114.9, is_complete=True)
    assert family.heard(1) == []
    family.succession.tick(115.0, is_complete=True)
    assert family.heard(1) == ["now"]


def test_one_that_leaves_is_followed_once_as_soon_as_a_slot_is_free(family: Family) -> None:
    child = family.add(1, place=7)
    child.board.take([lease(1), lease(2)])
    assert family.succession.followed(most=8) == []
    child.board.note_leaving()
    assert family.succession.followed(most=8) == []
    child.board.end(lease(1))
    assert family.succession.followed(most=8) == [7]
    assert family.succession.followed(most=8) == []


def test_a_follower_leaves_those_slots_free_that_are_still_used(family: Family) -> None:
    child = family.add(1)
    child.board.take([lease(1), lease(2)])
    child.board.note_leaving()
    assert family.succession.held_back(0) == 2
    family.add(2, held_back=2)
    family.succession.tell_held_back()
    assert family.heard(2) == []
    child.board.end(lease(1))
    family.succession.tell_held_back()
    assert family.heard(2) == ["hold 1"]
    os.close(family.children.pop(1).control)
    family.succession.tell_held_back()
    assert family.heard(2) == ["hold 0"]
