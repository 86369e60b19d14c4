from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

Jobs = Callable[..., str]


@pytest.fixture
def jobs() -> Jobs:
    """Run `manage.py jobs …`, and give what it printed, without colours."""

    def jobs(*said: str, **options: Any) -> str:
        out = StringIO()
        call_command("jobs", *said, stdout=out, **{"no_color": True, **options})
        return out.getvalue()

    return jobs
