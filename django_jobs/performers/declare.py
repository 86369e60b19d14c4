"""Declare: `@job`. Importing a `jobs` module reads no setting and touches no model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Literal, Protocol, overload

from django_jobs.backoff import Backoff
from django_jobs.context import Attempt
from django_jobs.durations import Duration
from django_jobs.performers import registry
from django_jobs.performers.options import UNSET, Options, Unset, check_name, check_options
from django_jobs.performers.performer import Args, Performer, Result


class Decorator(Protocol):
    """What `@job(…)` gives: it makes a performer of a function."""

    def __call__(self, function: Callable[Args, Result], /) -> Performer[Args, Args, Result]: ...


class AttemptDecorator(Protocol):
    """What `@job(…, takes_attempt=True)` gives: callers leave the first argument out."""

    def __call__(
        self, function: Callable[Concatenate[Attempt, Args], Result], /
    ) -> Performer[Concatenate[Attempt, Args], Args, Result]: ...


@overload
def job(function: Callable[Args, Result], /) -> Performer[Args, Args, Result]: ...


@overload
def job(
    name: str | None = None,
    *,
    takes_attempt: Literal[True],
    queue: str | Unset = UNSET,
    priority: int | Unset = UNSET,
    max_attempts: int | Unset = UNSET,
    max_crashes: int | Unset = UNSET,
    backoff: Backoff | Callable[..., Any] | Unset = UNSET,
    timeout: Duration | Unset | None = UNSET,
    keep: Duration | Unset | None = UNSET,
    keep_failed: Duration | Unset | None = UNSET,
    expires: Duration | Unset | None = UNSET,
    aliases: Iterable[str] = (),
    restart: bool | Unset = UNSET,
) -> AttemptDecorator: ...


@overload
def job(
    name: str | None = None,
    *,
    takes_attempt: Literal[False] = False,
    queue: str | Unset = UNSET,
    priority: int | Unset = UNSET,
    max_attempts: int | Unset = UNSET,
    max_crashes: int | Unset = UNSET,
    backoff: Backoff | Callable[..., Any] | Unset = UNSET,
    timeout: Duration | Unset | None = UNSET,
    keep: Duration | Unset | None = UNSET,
    keep_failed: Duration | Unset | None = UNSET,
    expires: Duration | Unset | None = UNSET,
    aliases: Iterable[str] = (),
    restart: bool | Unset = UNSET,
) -> Decorator: ...


def job(
    name: Any = None,
    *,
    takes_attempt: bool = False,
    backoff: Callable[..., Any] | Unset = UNSET,
    aliases: Iterable[str] = (),
    **policy: Any,
) -> Any:
    """Make a performer of a function at the top level of a module.

    `name` is what rows carry: by default the module path up to its last `jobs` part, and the function's name; give one
    for jobs that outlive a refactoring, and keep old ones in `aliases`. `takes_attempt` gives the function the Attempt
    as first argument. `queue` (default "default"), `priority` (-100..100, higher first), `max_attempts` (20),
    `max_crashes` (3), `timeout` ("5m"; None: no limit), `keep` ("1d"; 0 deletes as it succeeds, None keeps for ever),
    `keep_failed` ("14d"), `expires` (None; from the moment it may run), `restart` (True; False: once started, never again
    by itself), `backoff` (exponential from 15 s): the settings say what isn't given.

    Raises TypeError or ValueError, naming option, value and remedy, for wrong values and for functions that a worker
    could not import.
    """
    if callable(name):
        return _declared(name, None, takes_attempt=False, backoff=UNSET, aliases=(), options=Options())
    if backoff is not UNSET and not callable(backoff):
        message = f"backoff={backoff!r}: give one of django_jobs.backoff, or a callable of attempt number and exception"
        raise TypeError(message)
    options = check_options(**policy)
    known_as = tuple(check_name("aliases", alias) for alias in ([aliases] if isinstance(aliases, str) else aliases))

    def decorate(function: Callable[..., Any]) -> Performer[..., ..., Any]:
        return _declared(
            function, name, takes_attempt=takes_attempt, backoff=backoff, aliases=known_as, options=options
        )

    return decorate


def _declared(
    function: Callable[..., Any],
    name: str | None,
    *,
    takes_attempt: bool,
    backoff: Callable[..., Any] | Unset,
    aliases: tuple[str, ...],
    options: Options,
) -> Performer[..., ..., Any]:
    _refuse_unimportable(function)
    performer: Performer[..., ..., Any] = Performer(
        function,
        name=check_name("name", name if name is not None else default_name(function)),
        aliases=aliases,
        takes_attempt=takes_attempt,
        backoff=backoff,
        options=options,
    )
    registry.register(performer)
    return performer


def default_name(function: Callable[..., Any]) -> str:
    """Give the name of a performer that has none: the module path up to its last `jobs` part, and the function."""
    parts = function.__module__.split(".")
    if "jobs" in parts:
        parts = parts[: len(parts) - 1 - parts[::-1].index("jobs")]
    return ".".join([*parts, function.__name__])


def _refuse_unimportable(function: Callable[..., Any]) -> None:
    where = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function):
        message = f"@job on {function!r}: give a function"
    elif function.__name__ == "<lambda>":
        message = f"@job on a lambda ({where}): give it a name with def, at the top level of a module"
    elif "<locals>" in where:
        message = f"@job on {where}, a function within a function: a worker can't import it; move it to the top level"
    elif "." in where:
        message = f"@job on {where}, a method: a worker can't import it; move it to the top level of a module"
    elif function.__module__ == "__main__":
        message = f"@job on {where} in __main__: a worker can't import it; move it to a `jobs` module of an app"
    elif inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        message = f"@job on {where}, a generator: nothing would run its body; use return instead of yield"
    else:
        return
    raise TypeError(message)
