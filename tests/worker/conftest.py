from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobs.worker.board import Board
from django_jobs.worker.crew import Crew
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan
from tests.yard import jobs


@pytest.fixture(autouse=True)
def clean_yard() -> Iterator[None]:
    jobs.forget()
    yield
    for gate in list(jobs.gates.values()):
        gate.set()


@pytest.fixture
def make_crew() -> Iterator[Callable[..., Crew]]:
    """Make crews whose threads, loops and connections end with the test."""
    crews: list[Crew] = []

    def make(board: Board | None = None, **plan: Any) -> Crew:
        settings: dict[str, Any] = {"alias": "default", "identity": "crew", "concurrency": 3, "poll": 0.05}
        crew = Crew(plan=Plan(**{**settings, **plan}), board=Board() if board is None else board, link=Link("default"))
        crews.append(crew)
        return crew

    yield make
    for crew in crews:
        for gate in list(jobs.gates.values()):
            gate.set()
        crew.close()
        crew.stop()
