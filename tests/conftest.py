from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_jobs import clock


@pytest.fixture
def frozen() -> Iterator[clock.FrozenClock]:
    """Stand still at noon of an ordinary day."""
    with clock.freeze(datetime(2026, 3, 1, 12, tzinfo=UTC)) as frozen_clock:
        yield frozen_clock
