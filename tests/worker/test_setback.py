"""What a loop does after bad rounds, and what it says of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError

from django_jobs import signals
from django_jobs.clock import FrozenClock
from django_jobs.worker.setback import Setbacks, pause_after, pause_while_away
from tests.factories import seconds

AWAY = OperationalError("connection refused\n\tIs the server running?")


@pytest.fixture
def told() -> Iterator[list[tuple[str, int]]]:
    heard: list[tuple[str, int]] = []

    def note(*, message: str, level: int, **_: Any) -> None:
        heard.append((message, level))

    signals.odd.connect(note)
    yield heard
    signals.odd.disconnect(note)


def test_while_the_database_is_away_it_is_asked_often_and_at_last_less_often() -> None:
    assert [pause_while_away(n, away_for=1.0) for n in (1, 2, 3, 4, 5, 10_000)] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]
    assert pause_while_away(100, away_for=60.0) == 2.0


def test_other_errors_make_longer_and_longer_pauses() -> None:
    assert [pause_after(n) for n in (1, 2, 3, 10_000)] == [0.1, 0.2, 0.4, 5.0]


def test_the_absence_is_told_once_and_then_twice_a_minute(told: list[tuple[str, int]], frozen: FrozenClock) -> None:
    setbacks = Setbacks("keeper")
    for _ in range(90):
        setbacks.note(AWAY)
        frozen.advance(seconds(0.5))
    line = (
        "keeper: the database can't be used just now, trying again: connection refused Is the server running?",
        logging.WARNING,
    )
    assert told == [line, line]


def test_the_return_is_told_with_how_long_it_took(told: list[tuple[str, int]], frozen: FrozenClock) -> None:
    setbacks = Setbacks("keeper")
    setbacks.note(AWAY)
    frozen.advance(seconds(3.2))
    assert setbacks.over()
    assert told[1:] == [("keeper: the database is back after 3.2 s", logging.INFO)]
    assert not setbacks.over()


def test_pauses_are_spread(frozen: FrozenClock) -> None:
    pauses = set()
    for _ in range(20):
        pauses.add(Setbacks("keeper").note(AWAY))
    assert len(pauses) > 1
    assert all(0.04 <= pause <= 0.06 for pause in pauses)


def test_after_another_error_nobody_says_that_the_database_is_back(told: list[tuple[str, int]]) -> None:
    setbacks = Setbacks("keeper")
    assert setbacks.note(ValueError("bad round")) == 0.1
    assert not setbacks.over()
    assert told == [("keeper: a round failed (1 in a row): ValueError('bad round')", logging.ERROR)]
