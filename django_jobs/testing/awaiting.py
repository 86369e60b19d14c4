"""Front door: what async tests await."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

Given = ParamSpec("Given")
Result = TypeVar("Result")


def awaited(function: Callable[Given, Result]) -> Callable[Given, Coroutine[Any, Any, Result]]:
    """Make the form of a function that async tests await; its name has an `a` before it."""

    @functools.wraps(function)
    async def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        return await sync_to_async(function)(*args, **kwargs)

    run.__name__ = run.__qualname__ = f"a{function.__name__}"
    run.__doc__ = f"Do as `{function.__name__}`, from an async test."
    return run
