"""The word to stop: Ctrl-C and its like, heard by whoever waits."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


class Stop:
    """Said once, this program ends in order; said again, `hurry` is called."""

    def __init__(self) -> None:
        self.hurry: Callable[[], None] = lambda: None
        self._said = Event()

    def say(self) -> None:
        """Say the word."""
        if self._said.is_set():
            self.hurry()
        self._said.set()

    @property
    def is_said(self) -> bool:
        """Whether the word was said."""
        return self._said.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long for the word, and tell whether it came."""
        return self._said.wait(seconds)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Have the signals that end a program say the word instead."""
    stop = Stop()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.say()

    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
