"""Declare and run: what the setting MIDDLEWARE puts around each run. Knows no outcome and writes nothing.

A factory is given `call_next` and gives a function of the attempt, as Django's give one of the request. There are two
chains, one around sync performers and one around async ones.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.utils.module_loading import import_string

from django_jobs.conf import settings
from django_jobs.context import Attempt
from django_jobs.runner.call import Call
from django_jobs.wording import one_line

Around: TypeAlias = Callable[[Attempt], Any]
"""Takes the attempt, and gives the body's value, or the coroutine of an async one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """What was made of the paths of one reading of the settings; None where nothing is around."""

    paths: tuple[str, ...]
    around_sync: Around | None
    around_async: Around | None


_built: _Chains | None = None
_building = threading.Lock()
_call: ContextVar[Call] = ContextVar("django_jobs.call")


def prepare() -> None:
    """Build the chains, so that nothing is claimed where that fails. Raises ImproperlyConfigured, a line a trouble."""
    if settings().middleware:
        _chains(settings().middleware)


def begin(call: Call) -> Any:
    """Call the performer within the middleware: its value, or the coroutine of an async one.

    Raises what they raise, and ImproperlyConfigured.
    """
    if not (paths := settings().middleware):
        return call.begin()
    chains = _chains(paths)
    around = chains.around_async if call.performer.is_async else chains.around_sync
    if around is None:
        return call.begin()
    # In the context of this run alone.
    _call.set(call)
    return around(call.attempt)


# -- the inner end of a chain


def _body(attempt: Attempt) -> Any:
    return _call_of(attempt).begin()


async def _abody(attempt: Attempt) -> Any:
    return await _call_of(attempt).begin()


def _call_of(attempt: Attempt) -> Call:
    call = _call.get(None)
    if call is None or attempt is not call.attempt:
        message = "call_next() takes the attempt that its middleware was given, and is called in the same context"
        raise TypeError(message)
    return call


# -- from paths to chains


def _chains(paths: tuple[str, ...]) -> _Chains:
    """Give what was built once; settings that were read anew have another tuple."""
    global _built  # noqa: PLW0603 - one for the process
    built = _built
    if built is None or built.paths is not paths:
        with _building:
            built = _built
            if built is None or built.paths is not paths:
                built = _built = _build(paths)
    return built


def _build(paths: tuple[str, ...]) -> _Chains:
    sync: Around = _body
    asynchronous: Around = _abody
    wrong: list[str] = []
    # The first in the list is the outermost.
    for place, path in reversed([*enumerate(paths)]):
        try:
            factory = _factory(path)
            if getattr(factory, "sync_capable", True):
                sync = _wrapped(factory, sync, is_async=False)
            if getattr(factory, "async_capable", False):
                asynchronous = _wrapped(factory, asynchronous, is_async=True)
        except _Unusable as problem:
            wrong.insert(0, f"DJANGO_JOBS['MIDDLEWARE'][{place}] is {path!r:.120}; {problem}")
    if wrong:
        raise ImproperlyConfigured("\n".join(wrong))
    return _Chains(
        paths=paths,
        around_sync=None if sync is _body else sync,
        around_async=None if asynchronous is _abody else asynchronous,
    )


class _Unusable(Exception):
    """Says why a path gives no middleware."""


def _factory(path: str) -> Callable[[Around], Any]:
    try:
        factory = import_string(path)
    except Exception as error:
        raise _Unusable(f"it can't be imported: {one_line(error)}") from error
    if not callable(factory):
        raise _Unusable("give the path of a function of call_next, or of a class")
    if not getattr(factory, "sync_capable", True) and not getattr(factory, "async_capable", False):
        raise _Unusable("it has sync_capable and async_capable False, so it would be around nothing")
    return factory  # type: ignore[no-any-return]


def _wrapped(factory: Callable[[Around], Any], call_next: Around, *, is_async: bool) -> Around:
    try:
        made = factory(call_next)
    except MiddlewareNotUsed:
        return call_next
    except Exception as error:
        raise _Unusable(f"it failed: {type(error).__name__}: {one_line(error)}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise _Unusable("it is async itself; let a plain function give an async one")
    if not callable(made):
        raise _Unusable(f"it gave {made!r:.80}; let it give a function of the attempt")
    if (iscoroutinefunction(made) or iscoroutinefunction(getattr(made, "__call__", None))) is not is_async:  # noqa: B004 - what is called may be a method of a class
        raise _Unusable(_WRONG_COLOUR[is_async])
    return made  # type: ignore[no-any-return]


_WRONG_COLOUR = {
    False: "it gave an async function for sync jobs; give a plain one, or say async_only_middleware",
    True: "it gave a plain function for async jobs; give an async one, or say sync_only_middleware",
}
