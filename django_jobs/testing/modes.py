"""Front door: whether queued jobs wait or run at once, for one test, block, thread or task."""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar, cast

from django_jobs.performers import modes

Mode: TypeAlias = Literal["inline", "database"]

MODES = ("inline", "database")

Target = TypeVar("Target", bound=Callable[..., Any])


class jobs_mode:  # noqa: N801 - read as a function, like Django's override_settings
    """Have queued jobs run at once ("inline") or wait for whoever claims them ("database"), whatever the setting MODE.

    A context manager, and a decorator of functions, async ones too, and of classes: of a TestCase as a whole with its
    setUp, of other classes each method whose name begins with "test". It holds for the thread or the task that enters
    it, and for what runs on its behalf; it nests, the innermost counts. Raises ValueError for another mode.
    """

    def __init__(self, mode: Mode) -> None:
        if mode not in MODES:
            message = f"jobs_mode({mode!r:.80}): give 'inline' or 'database'"
            raise ValueError(message)
        self._mode = mode
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> None:
        """Enter the mode."""
        self._tokens.append(modes.carry(self._mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Go back to the mode before."""
        modes.drop(self._tokens.pop())

    def __call__(self, target: Target) -> Target:
        """Have all calls of a function, or all tests of a class, be in the mode."""
        if not inspect.isclass(target):
            return cast("Target", self._wrapped(target))
        names = ["run"] if issubclass(target, unittest.TestCase) else _names_of_tests(target)
        for name in names:
            setattr(target, name, self._wrapped(getattr(target, name)))
        return target

    def _wrapped(self, function: Any) -> Any:
        mode: Any = self._mode
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                with jobs_mode(mode):
                    return await function(*args, **kwargs)

            return arun

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with jobs_mode(mode):
                return function(*args, **kwargs)

        return run


def _names_of_tests(target: type) -> list[str]:
    return [name for name in dir(target) if name.startswith("test") and inspect.isfunction(getattr(target, name))]
