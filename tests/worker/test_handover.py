"""What one image of the command leaves to the next: written and read within one process, without an exec."""

from __future__ import annotations

import json
import os

import pytest

from django_jobs.records import Lease
from django_jobs.worker import handover
from django_jobs.worker.board import Board, Counts, new_file
from django_jobs.worker.child import Child
from django_jobs.worker.handover import Estate
from django_jobs.worker.undertaker import Case

ONE, TWO = Lease(id=1, token=2**62 + 1), Lease(id=2, token=7)
THREE = Lease(id=3, token=9)


def left(content: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this, as an image before us would have."""
    text = json.dumps(content).encode()
    fd = new_file(len(text), name="test")
    os.pwrite(fd, text, 0)
    monkeypatch.setenv(handover.VARIABLE, str(fd))


def estate() -> tuple[Estate, int]:
    reader, writer = os.pipe()
    board = Board.create(8, lease=60.0)
    board.take([ONE, TWO])
    child = Child(
        place=3, identity="web1:5:ab", pid=5, board=board, control=writer, started_at=12.5, concurrency=4,
        timed_out={TWO}, is_killed=True, leave_at=99.5, held_back=1, is_followed=True, life=os.dup(writer),
    )  # fmt: skip
    case = Case(
        worker="web1:4:cd",
        running=frozenset({ONE}),
        ended=frozenset({THREE}),
        timed_out=frozenset({TWO}),
        reason="it died",
        is_blamed=True,
    )
    counts = Counts(succeeded=5, failed=1, released=2)
    return Estate(children=[child], cases=[(17.5, case)], began=1.5, counts=counts, taken=8), reader


def test_what_is_left_is_read_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before, reader = estate()
    left(handover._as_json(before), monkeypatch)
    after = handover.inherited()
    assert after is not None
    assert (after.cases, after.began, after.counts, after.taken) == (
        before.cases, before.began, before.counts, before.taken,
    )  # fmt: skip
    [old], [new] = before.children, after.children
    for name in (
        "place",
        "identity",
        "pid",
        "control",
        "started_at",
        "concurrency",
        "timed_out",
        "is_killed",
        "leave_at",
        "life",
    ):
        assert getattr(new, name) == getattr(old, name)
    assert (new.held_back, new.is_followed) == (1, True)
    # Both look at one memory.
    old.board.end(ONE)
    assert [bool(entry.ended) for entry in new.board.entries()] == [True, False]
    new.say("wake")
    assert os.read(reader, 100) == b"wake\n"
    # It is read once: what jobs start must not find it.
    assert handover.VARIABLE not in os.environ
    assert new.life is not None
    assert not any(os.get_inheritable(descriptor) for descriptor in (new.control, new.life))
    new.close()
    os.close(reader)


def test_the_first_image_inherits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handover.VARIABLE, raising=False)
    assert handover.inherited() is None


def test_what_another_process_left_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    before, reader = estate()
    left(handover._as_json(before) | {"pid": os.getpid() + 1}, monkeypatch)
    assert handover.inherited() is None
    before.children[0].close()
    os.close(reader)


def test_workers_of_a_version_that_we_can_not_read_are_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before, reader = estate()
    left(handover._as_json(before) | {"format": handover.FORMAT + 1, "children": "unreadable"}, monkeypatch)
    assert handover.inherited() is None
    # The end of its pipe is a worker's word to give back what it has, and end.
    assert os.read(reader, 100) == b""
    os.close(reader)
