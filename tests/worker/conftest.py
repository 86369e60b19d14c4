from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.worker.board import Board
from django_jobs.worker.crew import Crew
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from django_jobs.worker.seat import Seats
from tests.yard import jobs


@pytest.fixture(autouse=True)
def clean_yard() -> Iterator[None]:
    jobs.forget()
    yield
    for gate in list(jobs.gates.values()):
        gate.set()


def make_board(capacity: int = 64, *, lease: float = 60.0) -> Board:
    return Board.create(capacity, lease=lease, shared=False)


@pytest.fixture
def make_crew() -> Iterator[Callable[..., Crew]]:
    """Make crews whose threads, loops and connections end with the test."""
    crews: list[Crew] = []

    def make(board: Board | None = None, seats: Seats | None = None, **plan: Any) -> Crew:
        settings: dict[str, Any] = {"alias": "default", "identity": "crew", "concurrency": 3, "poll": 0.05}
        crew = Crew(
            plan=Plan(**{**settings, **plan}),
            board=make_board() if board is None else board,
            seats=Seats() if seats is None else seats,
            link=Link("default"),
        )
        crews.append(crew)
        return crew

    yield make
    for crew in crews:
        for gate in list(jobs.gates.values()):
            gate.set()
        crew.close()
        crew.stop()
