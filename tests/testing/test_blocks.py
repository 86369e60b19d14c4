"""Whether a call is the subject of a `with` statement."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, Self

from django_jobs.testing.blocks import is_block


class Said:
    """What a call was told about itself."""

    def __init__(self, *, block: bool) -> None:
        self.block = block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def ask(*_: Any, **__: Any) -> Said:
    return Said(block=is_block())


class Asking:
    ask = staticmethod(ask)


def test_a_call_by_itself_is_none() -> None:
    said = ask()
    assert not said.block
    assert not ask(1, word=2).block
    ask().__enter__()
    assert [ask().block for _ in range(2)] == [False, False]


def test_a_call_in_a_with_statement_is_one() -> None:
    with ask() as said:
        assert said.block
    options: dict[str, Any] = {"word": 2}
    with Asking.ask(1, word=2) as first, Asking().ask(*(1, 2)) as second, ask(**options) as third:
        assert (first.block, second.block, third.block) == (True, True, True)
    with ask(
        1,
        word=2,
    ) as said:
        assert said.block


def test_what_is_made_before_its_with_statement_is_none() -> None:
    said = ask()
    with said:
        assert not said.block
    with ExitStack() as stack:
        assert not stack.enter_context(ask()).block
    with ask() as outer, ask(ask()) as inner:
        assert (outer.block, inner.block) == (True, True)


def test_a_call_in_a_block_is_none_of_its_own() -> None:
    with ask():
        assert not ask().block


async def in_async_code() -> tuple[bool, bool, bool]:
    plain = ask()
    with ask() as block:
        async with ask() as async_block:
            return plain.block, block.block, async_block.block


def test_async_code_is_read_too() -> None:
    assert asyncio.run(in_async_code()) == (False, True, True)


def test_a_block_may_be_written_in_a_loop_and_in_a_nested_function() -> None:
    def nested() -> list[bool]:
        found = []
        for _ in range(300):
            with ask() as said:
                found.append(said.block)
            found.append(not ask().block)
        return found

    assert all(nested())
