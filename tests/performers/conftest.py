from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from django_jobs.performers import AnyPerformer
from tests.declaring import declared


@pytest.fixture
def declare() -> Iterator[Callable[..., AnyPerformer]]:
    """Declare functions of the test; they are forgotten when it ends."""
    with ExitStack() as until_the_end:

        def declare(function: Callable[..., Any], /, **options: Any) -> AnyPerformer:
            return until_the_end.enter_context(declared(function, **options))

        yield declare
