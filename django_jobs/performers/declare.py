"""Declare: `@job`. Importing a `jobs` module reads no setting and touches no model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Concatenate, Literal, Protocol, Unpack, overload

from django_jobs.context import Attempt
from django_jobs.performers import registry, scheduling
from django_jobs.performers.options import Policy, check_name, check_policy, check_truth
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
    aliases: Iterable[str] = (),
    schedule: str | timedelta | None = None,
    time_zone: str | None = None,
    **policy: Unpack[Policy],
) -> AttemptDecorator: ...


@overload
def job(
    name: str | None = None,
    *,
    takes_attempt: Literal[False] = False,
    aliases: Iterable[str] = (),
    schedule: str | timedelta | None = None,
    time_zone: str | None = None,
    **policy: Unpack[Policy],
) -> Decorator: ...


def job(
    name: Any = None,
    *,
    takes_attempt: Any = False,
    aliases: Any = (),
    schedule: Any = None,
    time_zone: Any = None,
    **policy: Any,
) -> Any:
    """Make a performer of a function at the top level of a module.

    `name` is what rows carry: by default the module path up to its last `jobs` part, and the function's name; give one
    for jobs that outlive a refactoring, and keep old ones in `aliases`. `takes_attempt` gives the function the Attempt
    as first argument. What isn't given comes from the settings when a job is queued; where they are silent too:

    - `queue="default"`, and `priority=0` (-100..100, higher first)
    - `max_attempts=20`, `backoff=backoff.exponential()` between them, and `max_crashes=3` of its process
    - `timeout="5m"` for an attempt; None sets no limit
    - `keep="1d"` after success (0 deletes at once, None keeps for ever), `keep_failed="14d"` after any other end
    - `retry_on=(Exception,)`: what is worth another attempt, and `give_up_on=()`: what isn't, even so. Anything else
      that a body raises fails the job at once. `Retry`, timeouts, crashes and `SystemExit` are tried again as ever
    - `unique`: one job per key waits or runs, and who asks for another gets that one, with `.duplicate`. The key is a
      text, True (all arguments), or a function of them that gives a text, or None for no key. `unique_while_waiting`:
      the same, but only a job that waits to start holds it; what is asked for while one runs gets a job of its own
    - `on_duplicate="return"`; "replace" gives a holder that waits these arguments and this time (`.replaced`), and
      "raise" raises DuplicateJob. `unique_for`: so long after it was queued a job keeps its key, ended or not
    - `on_failure`: a performer, or its name, that is queued with the id of a job that has failed
    - `redact`: names of arguments, or of keys within arguments and result, that are shown as ******** wherever a job is
    - `expires=None`: how long it may wait to start, from the moment it may run
    - `restart=True`; False: once started, it never starts again by itself
    - `atomic=False`; True: body and end of the job are one transaction, so that what a body does in the jobs' database
      is done exactly once. Nothing but success is committed. On SQLite the transaction holds the file's one write lock
      from its beginning, so nobody else writes meanwhile: keep such bodies short
    - `schedule`: a cron line, one of its words ("@daily"), or a timedelta, by which a job is queued again and again;
      and `time_zone`, a key such as "Europe/Paris"; `every()` says more, and takes arguments

    Raises TypeError or ValueError, naming option, value and remedy, for wrong values and for functions that a worker
    could not import.
    """
    function = name if callable(name) else None
    given_name = None if name is None or function else check_name("name", name)
    known_as = _check_aliases(aliases)
    with_attempt = check_truth("takes_attempt", takes_attempt)
    options = check_policy(policy)
    if time_zone is not None and schedule is None:
        message = f"@job(): time_zone={time_zone!r:.80} is that of a schedule, so give schedule, too"
        raise ValueError(message)

    def decorate(function: Callable[..., Any]) -> Performer[..., ..., Any]:
        _refuse_unimportable(function)
        performer: Performer[..., ..., Any] = Performer(
            function,
            name=given_name or check_name("name", default_name(function)),
            aliases=known_as,
            takes_attempt=with_attempt,
            options=options,
        )
        _refuse_async_atomic(performer)
        of_its_own = None
        if schedule is not None:
            of_its_own = scheduling.check(
                performer, schedule, name=performer.name, time_zone=time_zone, call="@job(schedule=…)"
            )
        registry.register(performer)
        if of_its_own is not None:
            scheduling.enter(of_its_own, performer)
        return performer

    return decorate(function) if function else decorate


def default_name(function: Callable[..., Any]) -> str:
    """Give the name of a performer that has none: the module path up to its last `jobs` part, and the function."""
    parts = function.__module__.split(".")
    if "jobs" in parts:
        parts = parts[: len(parts) - 1 - parts[::-1].index("jobs")]
    return ".".join([*parts, function.__name__])


def _check_aliases(aliases: object) -> tuple[str, ...]:
    given = [aliases] if isinstance(aliases, str) else aliases
    if not isinstance(given, Iterable):
        message = f"aliases={aliases!r:.80}: give a list of names"
        raise TypeError(message)
    return tuple(check_name("aliases", alias) for alias in given)


def _refuse_async_atomic(performer: Performer[..., ..., Any]) -> None:
    if performer.is_async and performer.is_atomic:
        where = performer.function.__qualname__
        message = f"@job(atomic=True) on {where}, an async function: Django's transactions can't span an await; use def"
        raise TypeError(message)


def _refuse_unimportable(function: Callable[..., Any]) -> None:
    where = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function):
        message = f"@job on {function!r:.80}: give a function"
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
