"""Middleware for tests, by their dotted paths. What they do they note in `seen`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.auth.models import Group
from django.core.exceptions import MiddlewareNotUsed
from django.utils.decorators import async_only_middleware, sync_and_async_middleware, sync_only_middleware

from django_jobs import Attempt, Cancel, current_attempt

seen: list[Any] = []
instead: dict[str, Callable[[Attempt], Any]] = {}
"""What `either` does in the place of the body."""

Around = Callable[[Attempt], Any]


def outer(call_next: Around) -> Around:
    seen.append("outer is built")

    def around(attempt: Attempt) -> Any:
        seen.append("outer begins")
        value = call_next(attempt)
        seen.append("outer ends")
        return value

    return around


@sync_only_middleware
def inner(call_next: Around) -> Around:
    seen.append("inner is built")

    def around(attempt: Attempt) -> Any:
        seen.append("inner begins")
        value = call_next(attempt)
        seen.append("inner ends")
        return value

    return around


@async_only_middleware
def only_async(call_next: Callable[[Attempt], Awaitable[Any]]) -> Callable[[Attempt], Awaitable[Any]]:
    async def around(attempt: Attempt) -> Any:
        seen.append("async begins")
        value = await call_next(attempt)
        seen.append("async ends")
        return value

    return around


@sync_and_async_middleware
def either(call_next: Around) -> Around:
    """Do what `instead` says around the body, in the form that fits it."""
    if iscoroutinefunction(call_next):

        async def around_async(attempt: Attempt) -> Any:
            if "before" in instead:
                instead["before"](attempt)
            try:
                value = instead["body"](attempt) if "body" in instead else await call_next(attempt)
            except BaseException as error:
                if "caught" in instead:
                    return instead["caught"](attempt)
                seen.append(type(error).__name__)
                raise
            return instead["after"](value) if "after" in instead else value

        return around_async

    def around(attempt: Attempt) -> Any:
        if "before" in instead:
            instead["before"](attempt)
        try:
            value = instead["body"](attempt) if "body" in instead else call_next(attempt)
        except BaseException as error:
            if "caught" in instead:
                return instead["caught"](attempt)
            seen.append(type(error).__name__)
            raise
        return instead["after"](value) if "after" in instead else value

    return around


class Marking:
    """A class that serves both, as Django's own are."""

    sync_capable = True
    async_capable = True

    def __init__(self, call_next: Around) -> None:
        self.call_next = call_next
        if iscoroutinefunction(call_next):
            markcoroutinefunction(self)

    def __call__(self, attempt: Attempt) -> Any:
        seen.append("marked")
        return self.call_next(attempt)


class GivesSomethingElse(Marking):
    """It calls on with what `instead["give"]` gives."""

    def __call__(self, attempt: Attempt) -> Any:
        return self.call_next(instead["give"](attempt))


class AsyncCalled:
    """A class whose call is async by itself."""

    sync_capable = False
    async_capable = True

    def __init__(self, call_next: Around) -> None:
        self.call_next = call_next

    async def __call__(self, attempt: Attempt) -> Any:
        seen.append("called")
        return await self.call_next(attempt)


@sync_and_async_middleware
def tells_where(call_next: Around) -> Around:
    """Give the process that the body ran in, beside its value."""
    if iscoroutinefunction(call_next):

        async def around_async(attempt: Attempt) -> Any:
            return [os.getpid(), await call_next(attempt)]

        return around_async

    def around(attempt: Attempt) -> Any:
        return [os.getpid(), call_next(attempt)]

    return around


@sync_and_async_middleware
def calls_twice(call_next: Around) -> Around:
    if iscoroutinefunction(call_next):

        async def around_async(attempt: Attempt) -> Any:
            await call_next(attempt)
            return await call_next(attempt)

        return around_async

    def around(attempt: Attempt) -> Any:
        call_next(attempt)
        return call_next(attempt)

    return around


@async_only_middleware
def waits_for_it(call_next: Around) -> Around:
    async def around(attempt: Attempt) -> Any:
        return await asyncio.wait_for(call_next(attempt), 20.0)

    return around


def writes(call_next: Around) -> Around:
    def around(attempt: Attempt) -> Any:
        Group.objects.create(name=f"around {attempt.number}")
        return call_next(attempt)

    return around


def not_used(call_next: Around) -> Around:
    raise MiddlewareNotUsed


def cancels(call_next: Around) -> Around:
    def around(attempt: Attempt) -> Any:
        assert current_attempt() is attempt
        raise Cancel("not today")

    return around


# -- what can't be used


def fails(call_next: Around) -> Around:
    raise LookupError("no server\nwas named")


def gives_nothing(call_next: Around) -> None: ...


async def is_async_itself(call_next: Around) -> Around:
    return call_next


@sync_and_async_middleware
def always_plain(call_next: Around) -> Around:
    def around(attempt: Attempt) -> Any:
        return call_next(attempt)

    return around


def always_async(call_next: Around) -> Around:
    async def around(attempt: Attempt) -> Any:
        return call_next(attempt)

    return around


def neither(call_next: Around) -> Around:
    return call_next


neither.sync_capable = False  # type: ignore[attr-defined]

no_function = 5
