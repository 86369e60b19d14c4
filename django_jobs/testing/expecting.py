"""Front door: what a test expects of queued jobs, and what is near to it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django_jobs import codec, durations
from django_jobs.exceptions import UndecodableValue
from django_jobs.performers import Enqueuer, reference, resolve
from django_jobs.testing.targets import Target, aliases_of, enqueuer_of, name_of

if TYPE_CHECKING:
    from django_jobs.models import Job

CLOSE = timedelta(seconds=1)
"""Moments this near to each other are equal."""

FEW = 5
"""As many jobs of a kind are shown."""

LONGEST = 200
"""Characters that the arguments of one job are shown with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What jobs are meant; None, and an argument that isn't named, stands for any."""

    target: Target | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: durations.Duration | None = None
    match: Callable[[Job], object] | None = None

    def __post_init__(self) -> None:
        """Refuse what can't be meant. Raises TypeError or ValueError, naming value and remedy."""
        if self.target is None:
            if self.args or self.kwargs:
                message = "arguments without a job: name the job first"
                raise TypeError(message)
        else:
            self._wanted()
        if self.run_at is not None and self.run_at.utcoffset() is None:
            message = f"run_at={self.run_at!r}: this datetime is naive; give an aware one"
            raise ValueError(message)
        if self.delay is not None:
            durations.parse(self.delay, what="delay")

    def names(self) -> tuple[str, ...] | None:
        """Give the names that rows of the job may carry, None for any."""
        return None if self.target is None else aliases_of(self.target)

    def is_named(self, job: Job) -> bool:
        """Whether it is a row of that performer."""
        names = self.names()
        return names is None or job.name in names

    def is_called(self, job: Job) -> bool:
        """Whether the arguments that are named are those of the row."""
        args, kwargs = arguments_of(job)
        enqueuer = None if self.target is None else enqueuer_of(self.target)
        bound = None if enqueuer is None else _bound(enqueuer, args, kwargs)
        if bound is not None:
            return all(name in bound and _same(value, bound[name]) for name, value in self._wanted().items())
        return (
            len(self.args) <= len(args)
            and all(map(_same, self.args, args))
            and all(name in kwargs and _same(value, kwargs[name]) for name, value in self.kwargs.items())
        )

    def differences(self, job: Job) -> list[str]:
        """Say in what, beside its arguments, a row is another: "queue bulk, not mail"."""
        return list(self._differences(job))

    def _differences(self, job: Job) -> Iterator[str]:
        if self.queue is not None and self.queue != job.queue:
            yield f"queue {job.queue}, not {self.queue}"
        if self.priority is not None and self.priority != job.priority:
            yield f"priority {job.priority}, not {self.priority}"
        if self.run_at is not None and abs(job.run_at - self.run_at) > CLOSE:
            yield f"run_at {job.run_at.isoformat()}, not {self.run_at.isoformat()}"
        if self.delay is not None:
            wanted, delay = durations.parse(self.delay, what="delay"), job.run_at - job.enqueued_at
            if abs(delay - wanted) > CLOSE:
                yield f"delay {delay}, not {wanted}"
        if self.match is not None and not self.match(job):
            yield "refused by match="

    def matches(self, job: Job) -> bool:
        """Whether a row is what is expected."""
        return self.is_named(job) and self.is_called(job) and not self.differences(job)

    def _wanted(self) -> dict[str, Any]:
        """Give the arguments that are named, positional and keyword alike."""
        assert self.target is not None
        enqueuer = enqueuer_of(self.target)
        if enqueuer is None:
            return {}
        try:
            bound = enqueuer.signature.bind_partial(*self.args, **self.kwargs)
        except TypeError as error:
            message = f"no job can be queued like this: {enqueuer.name}{enqueuer.signature}: {error}"
            raise TypeError(message) from None
        return _flat(bound)

    def __str__(self) -> str:
        """Write it as the call that is expected, with what else was said."""
        said = [
            f"{option}={value.isoformat() if isinstance(value, datetime) else repr(value)}"
            for option in ("queue", "priority", "run_at", "delay")
            if (value := getattr(self, option)) is not None
        ]
        if self.match is not None:
            said.append(f"match={getattr(self.match, '__name__', '…')}")
        if self.target is None:
            return "any job" + (f" with {', '.join(said)}" if said else "")
        arguments = self._wanted() if enqueuer_of(self.target) else dict(self.kwargs)
        positional = () if enqueuer_of(self.target) else self.args
        call = _call(name_of(self.target), positional, arguments)
        return f"{call} with {', '.join(said)}" if said else call


# -- a job as it is shown, and the arguments it was queued with


def arguments_of(job: Job) -> tuple[list[object], dict[str, object]]:
    """Decode what the row holds; a model instance that is gone stays a reference."""
    return codec.decode_arguments(json.dumps(job.args), json.dumps(job.kwargs), resolve=_fetched)


def shown(job: Job) -> str:
    """Write a job as the call that queued it: "shop.send_welcome(user_id=5)"."""
    try:
        args, kwargs = arguments_of(job)
    except UndecodableValue:
        return f"{job.name}(…)"
    enqueuer = enqueuer_of(job.name)
    bound = None if enqueuer is None else _bound(enqueuer, args, kwargs, with_defaults=False)
    return _call(job.name, args, kwargs) if bound is None else _call(job.name, (), bound)


def listed(shown_jobs: Iterable[str]) -> str:
    """Write a bounded list."""
    texts = list(shown_jobs)
    more = f", and {len(texts) - FEW} more" if len(texts) > FEW else ""
    return ", ".join(texts[:FEW]) + more


def _call(name: str, args: Iterable[object], kwargs: Mapping[str, object]) -> str:
    given = [*(repr(value) for value in args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    text = ", ".join(given)
    return f"{name}({text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'})"


def _fetched(ref: codec.ModelRef) -> object:
    try:
        return resolve(ref)
    except Exception:  # noqa: BLE001 - gone, or of a model that isn't here
        return ref


def _bound(
    enqueuer: Enqueuer[Any], args: list[object], kwargs: dict[str, object], *, with_defaults: bool = True
) -> dict[str, Any] | None:
    """Give arguments by their parameters; None where they no longer fit."""
    try:
        bound = enqueuer.signature.bind(*args, **kwargs)
    except TypeError:
        return None
    if with_defaults:
        bound.apply_defaults()
    return _flat(bound)


def _flat(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Name each argument; those that `**kwargs` took by their own names."""
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        else:
            flat[name] = value
    return flat


def _same(expected: object, actual: object) -> bool:
    if isinstance(actual, codec.ModelRef):
        try:
            return actual in (expected, reference(expected))
        except TypeError:
            return False
    # What is expected goes first: ANY equals everything.
    return bool(expected == actual)
