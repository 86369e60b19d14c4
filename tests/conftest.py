from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobs import clock, signals


@pytest.fixture
def frozen() -> Iterator[clock.FrozenClock]:
    """Stand still at noon of an ordinary day."""
    with clock.freeze(datetime(2026, 3, 1, 12, tzinfo=UTC)) as frozen_clock:
        yield frozen_clock


@pytest.fixture
def odd() -> Iterator[list[str]]:
    """Give what is told of odd things meanwhile."""
    messages: list[str] = []

    def note(*, message: str, **_: Any) -> None:
        messages.append(message)

    signals.odd.connect(note)
    yield messages
    signals.odd.disconnect(note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Have what was captured be text that can be sent to another process, whatever a test logged."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report
