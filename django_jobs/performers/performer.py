"""Declare: performers, and the ways to queue their jobs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, Unpack

from asgiref.sync import markcoroutinefunction, sync_to_async

from django_jobs import codec
from django_jobs.backoff import Backoff
from django_jobs.durations import Duration
from django_jobs.performers.keys import Keys
from django_jobs.performers.meta import Adding
from django_jobs.performers.options import (
    UNSET,
    Delay,
    JobOptions,
    Options,
    Unset,
    check_delay,
    check_moment,
    check_options,
)
from django_jobs.performers.queueing import (
    Surroundings,
    adding,
    draft,
    filled,
    insert,
    insert_many,
    refuse_in_event_loop,
    surroundings,
)
from django_jobs.records import Draft, NewJob, Queued

if TYPE_CHECKING:
    from django_jobs.models import Job

Call = ParamSpec("Call")
Args = ParamSpec("Args")
Result = TypeVar("Result")

Arguments: TypeAlias = tuple[Any, ...] | dict[str, Any] | NewJob
"""One call's arguments for `later_many`."""


class Enqueuer(Generic[Args]):
    """The ways to queue jobs of one performer, with the options said so far."""

    def __init__(
        self, *, name: str, signature: inspect.Signature, options: Options, counts: range | None = None
    ) -> None:
        self.name = name
        self.signature = signature
        self.options = options
        # Binding costs more than everything else that is done for most calls.
        self._counts = _counts_taken(signature) if counts is None else counts
        self._latest: tuple[Surroundings, Draft] | None = None
        self._keys = Keys(name, options, signature)

    def __repr__(self) -> str:
        return f"<{self.name}, not queued: call .later(…)>"

    def later(self, /, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Queue a job in the caller's transaction and give it.

        Raises TypeError for arguments that don't fit the signature, UnencodableValue (with the path) or
        ArgumentsTooLarge for those that can't be stored, ValueError for a queue that the settings don't allow,
        SynchronousOnlyOperation in a running event loop, and what a function of the setting META raises.
        """
        self._refuse_in_event_loop("later")
        return insert(self.prepare(*args, **kwargs))

    async def alater(self, /, *args: Args.args, **kwargs: Args.kwargs) -> Job:
        """Do as `later`, from async code."""
        return await sync_to_async(lambda: insert(self.prepare(*args, **kwargs)))()

    def later_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Queue many jobs, all or none; each call is a tuple of arguments, a dict of them, or what `prepare` gave.

        Answers in the given order. All of them get the language and time zone that are active when the first is read.
        Raises as `later` does, before anything is written.
        """
        self._refuse_in_event_loop("later_many")
        return insert_many(self._all_prepared(calls))

    async def alater_many(self, calls: Iterable[Arguments]) -> list[Queued]:
        """Do as `later_many`, from async code; `calls` is gone through in a thread, so it may ask the database."""
        return await sync_to_async(lambda: insert_many(self._all_prepared(calls)))()

    def prepare(self, /, *args: Args.args, **kwargs: Args.kwargs) -> NewJob:
        """Bind and encode a job for `enqueue([...])` without queueing it. Raises as `later` does."""
        now = surroundings()
        job = self._filled(self._draft(now), args, kwargs, limit=now.conf.max_args_bytes)
        more = adding(self.name, self.options, now)
        return job if more is None else more.to(job)

    def prepare_unasked(self, /, *args: Args.args, **kwargs: Args.kwargs) -> NewJob:
        """Do as `prepare`, without asking the functions of the setting META."""
        now = surroundings()
        return self._filled(self._draft(now), args, kwargs, limit=now.conf.max_args_bytes)

    def check_fit(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise TypeError where these arguments don't fit the signature, in the words of `inspect`."""
        if kwargs or len(args) not in self._counts:
            self.signature.bind(*args, **kwargs)

    def after(self, delay: Duration | None = None, /, **parts: Unpack[Delay]) -> Enqueuer[Args]:
        """Have jobs run no sooner than that long after being queued: `after(10)`, `after("5m")`, `after(minutes=5)`."""
        return self._with(replace(self.options, start=check_delay(delay, parts)))

    def at(self, moment: datetime) -> Enqueuer[Args]:
        """Have jobs run no sooner than `moment` (aware)."""
        return self._with(replace(self.options, start=check_moment(moment)))

    def using(self, **options: Unpack[JobOptions]) -> Enqueuer[Args]:
        """Queue with other options than the performer's; nothing is queued before `later`.

        `queue`, `priority`, `max_attempts`, `timeout` and `keep` are as in `@job`. `expires` counts from the moment the
        job may first run. `meta` is stored beside the arguments. `unique`, `unique_while_waiting`, `on_duplicate`
        and `unique_for` are as in `@job`, too. `after_commit` is the alias of another database than that of the jobs,
        whose open transaction they wait for. Raises TypeError or ValueError for wrong values.
        """
        return self._with(check_options(options, self.options))

    def _with(self, options: Options) -> Enqueuer[Args]:
        return Enqueuer(name=self.name, signature=self.signature, options=options, counts=self._counts)

    def _draft(self, now: Surroundings) -> Draft:
        """Settle the options, once for all calls in the same surroundings."""
        latest = self._latest
        # Zones of a fixed offset are equal whatever their names.
        if latest is not None and latest[0] == now and latest[0].zone is now.zone:
            return latest[1]
        made = draft(self.name, self.options, now)
        # What meta holds may be changed by the caller.
        if self.options.meta is UNSET:
            self._latest = now, made
        return made

    def _filled(self, draft: Draft, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int) -> NewJob:
        try:
            self.check_fit(args, kwargs)
        except TypeError as error:
            message = f"{self.name}{self.signature}: {error}"
            raise TypeError(message) from None
        return filled(draft, args, kwargs, limit=limit, keys=self._keys)

    def _refuse_in_event_loop(self, call: str) -> None:
        refuse_in_event_loop(f"{self.name}.{call}", f"{self.name}.a{call}")

    def _all_prepared(self, calls: Iterable[Arguments]) -> list[NewJob]:
        jobs: list[NewJob] = []
        draft: Draft | None = None
        more: Adding | None = None
        limit, has_keys = 0, self._keys.are_wanted
        for place, call in enumerate(calls):
            try:
                if draft is None:
                    now = surroundings()
                    draft, limit = self._draft(now), now.conf.max_args_bytes
                    more = adding(self.name, self.options, now)
                # What nearly every call is, without the steps that others need.
                if (
                    not has_keys
                    and type(call) is tuple
                    and len(call) in self._counts
                    and (text := codec.encode_plain(call)) is not None
                    and len(text) + 2 <= limit
                ):
                    jobs.append(NewJob(draft, text, "{}"))
                else:
                    jobs.append(self._prepared(call, draft, limit))
                if more is not None and call is not jobs[-1]:
                    jobs[-1] = more.to(jobs[-1])
            except Exception as error:
                error.add_note(f"in later_many(): call [{place}] of {self.name}")
                raise
        return jobs

    def _prepared(self, call: object, draft: Draft, limit: int) -> NewJob:
        match call:
            # First, since nearly every call is one.
            case tuple() if not isinstance(call, NewJob):
                return self._filled(draft, call, {}, limit=limit)
            case dict():
                return self._filled(draft, (), call, limit=limit)
            case NewJob(name=self.name):
                return call
            case NewJob():
                message = f"this was prepared for {call.name}; enqueue([…]) takes jobs of several kinds"
            case _:
                message = (
                    f"a call of type {type(call).__name__}; give a tuple of arguments, as (5,), a dict of them, or "
                    "prepare(…)"
                )
        raise TypeError(message)


class Performer(Enqueuer[Args], Generic[Call, Args, Result]):
    """A function registered under a stable name, with its policy. Called plainly, it is that function.

    Its jobs are queued as the policy says; what the policy doesn't say comes from the settings.
    """

    def __init__(
        self,
        function: Callable[Call, Result],
        *,
        name: str,
        aliases: tuple[str, ...] = (),
        takes_attempt: bool = False,
        options: Options | None = None,
    ) -> None:
        update_wrapper(self, function)
        signature = _queued_signature(function, name, takes_attempt=takes_attempt)
        super().__init__(name=name, signature=signature, options=options or Options())
        self.function = function
        self.aliases = aliases
        self.takes_attempt = takes_attempt
        self.is_async = inspect.iscoroutinefunction(function)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, /, *args: Call.args, **kwargs: Call.kwargs) -> Result:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Performer {self.name}>"

    @property
    def is_atomic(self) -> bool:
        """Whether its body and the end of its job are one transaction."""
        return self.options.atomic is True

    @property
    def backoff(self) -> Backoff | Unset:
        """How long to wait after a failed attempt, where the policy says it."""
        return self.options.backoff

    @property
    def redact(self) -> frozenset[str]:
        """Names of arguments, and of keys within them, that are never shown."""
        return frozenset() if isinstance(self.options.redact, Unset) else self.options.redact

    def gives_up_on(self, error: BaseException) -> bool:
        """Whether the policy says that another attempt is pointless after this."""
        if not isinstance(error, Exception):
            return False
        given_up, retried = self.options.give_up_on, self.options.retry_on
        if not isinstance(given_up, Unset) and isinstance(error, given_up):
            return True
        return not isinstance(retried, Unset) and not isinstance(error, retried)


def _queued_signature(function: Callable[..., Any], name: str, *, takes_attempt: bool) -> inspect.Signature:
    """Give the signature as callers of `later` see it: without the attempt."""
    signature = _signature(function)
    if not takes_attempt:
        return signature
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in _POSITIONAL:
        message = f"{name}{signature}: takes_attempt=True needs a first positional parameter for the Attempt"
        raise TypeError(message)
    return signature.replace(parameters=parameters[1:])


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _counts_taken(signature: inspect.Signature) -> range:
    """Say how many positional arguments fit; none where a parameter is of another kind."""
    parameters = signature.parameters.values()
    if any(parameter.kind not in _POSITIONAL for parameter in parameters):
        return range(0)
    return range(sum(p.default is inspect.Parameter.empty for p in parameters), len(parameters) + 1)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # Annotations may name what only type checkers import.
        from annotationlib import Format  # noqa: PLC0415 - new in that Python

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
