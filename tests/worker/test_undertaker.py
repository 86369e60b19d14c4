"""What the board of a dead worker says of its jobs, and what the undertaker makes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from django_jobs.models import Job
from django_jobs.records import Claim
from django_jobs.worker.board import Board
from django_jobs.worker.child import Child
from django_jobs.worker.link import Link
from django_jobs.worker.undertaker import Death, Undertaker
from tests.factories import queue_jobs, take
from tests.worker.conftest import make_board

pytestmark = pytest.mark.django_db(transaction=True)


def bury(board: Board) -> None:
    """Bury a worker that was killed, by its board."""
    _, control = os.pipe()
    child = Child(place=0, identity="worker-1", pid=0, board=board, control=control, started_at=0.0, concurrency=1)
    undertaker = Undertaker(link=Link("default"))
    undertaker.receive(Death(child=child, status=-signal.SIGKILL))
    undertaker.tick()
    undertaker.close()


def claimed(**options: bool) -> tuple[Board, Claim]:
    queue_jobs(1, **options)
    [claim] = take().claims
    board = make_board()
    board.take([claim.lease])
    return board, claim


def waits(_board: Board, _claim: Claim) -> None:
    """Leave it as it is."""


def runs(board: Board, claim: Claim) -> None:
    board.start(claim.lease, timeout=None)


def ended(board: Board, claim: Claim) -> None:
    board.start(claim.lease, timeout=None)
    board.end(claim.lease)


@pytest.mark.parametrize(
    ("reach", "restart", "state", "attempts"),
    [
        (waits, True, "READY", 0),
        (waits, False, "READY", 0),
        (runs, True, "READY", 1),
        (runs, False, "FAILED", 1),
        (ended, True, "READY", 0),
        (ended, False, "FAILED", 1),
    ],
)
def test_what_had_started_must_not_start_twice_where_restart_is_false(
    reach: Callable[[Board, Claim], None], restart: bool, state: str, attempts: int
) -> None:
    board, claim = claimed(restart=restart)
    reach(board, claim)
    bury(board)
    row = Job.objects.get(pk=claim.id)
    assert (row.state, row.attempts, row.worker) == (state, attempts, None)
