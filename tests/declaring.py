"""Performers declared within a test, and forgotten after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_jobs import job
from django_jobs.performers import AnyPerformer, forget

NOWHERE = "tests.nowhere.jobs"
"""A module that doesn't exist."""


@contextmanager
def declared(function: Callable[..., Any], /, *, module: str = NOWHERE, **options: Any) -> Iterator[AnyPerformer]:
    """Declare a function of a test as if it stood at the top level of `module`; `options` are those of `@job`."""
    with at_the_top(function, module=module):
        performer: AnyPerformer = job(**options)(function)
        try:
            yield performer
        finally:
            forget(performer)


@contextmanager
def at_the_top(function: Callable[..., Any], *, module: str = NOWHERE) -> Iterator[None]:
    """Make a function of a test look as if it stood at the top level of `module`."""
    before = function.__module__, function.__qualname__
    function.__module__, function.__qualname__ = module, function.__name__
    try:
        yield
    finally:
        function.__module__, function.__qualname__ = before
