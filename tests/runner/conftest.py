from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from django.db import connections

from tests.performing import as_async

Form: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
Options: TypeAlias = Callable[..., None]


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.fixture(params=[_as_it_is, as_async], ids=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Form:
    """Run a test with a sync performer, and with an async one."""
    made: Form = request.param
    return made


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Options:
    """Change the options of the database for the connections that are opened from now on."""

    def change(**changes: Any) -> None:
        for option, value in changes.items():
            monkeypatch.setitem(connections["default"].settings_dict, option, value)
        connections["default"].close()

    return change
