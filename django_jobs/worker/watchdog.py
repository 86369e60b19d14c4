"""Drive: a watchdog over our own statements: one that gets no answer within its bound doesn't keep us waiting.

A server that is stopped, or a network that swallows packets, never says that it is gone. So the statement is cancelled
first, which also frees one that only waits in the server, and half a bound later the socket is shut: whoever waits at
it gets an OperationalError then, as from any connection that broke.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from django_jobs import clock, lifecycle, signals

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

LOOKS = 4
"""So many times a bound the watchdog looks."""

LONGEST_LOOK_AWAY = 1.0
"""Seconds between two looks at the most."""

SHORTEST_CANCEL = 1.0
"""Seconds that a cancel has at the least."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Wait:
    connection: BaseDatabaseWrapper
    bound: float
    since: float
    is_cancelled: bool = False


class Watchdog:
    """Knows what is waited for. A thread of its own looks while any connection is open; tests look themselves."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know of nothing: what a forked child has from its parent, that thread and those waits, isn't there."""
        self._lock = Lock()
        self._waits: set[_Wait] = set()
        self._interval = LONGEST_LOOK_AWAY
        self._connections = 0
        self._thread: Thread | None = None
        self._over = Event()

    def engage(self) -> None:
        """Take note of a connection that is opened."""
        with self._lock:
            self._connections += 1
            if self._thread is None:
                self._over = Event()
                self._thread = Thread(target=self._patrol, args=(self._over,), name="django_jobs watchdog", daemon=True)
                self._thread.start()

    def release(self) -> None:
        """Take note of a connection that is closed; with the last one the thread ends."""
        with self._lock:
            self._connections -= 1
            thread = None if self._connections else self._thread
            if thread is not None:
                self._thread = None
                self._over.set()
        if thread is not None:
            thread.join(timeout=1.0)

    @contextmanager
    def watch(self, connection: BaseDatabaseWrapper, bound: float) -> Iterator[None]:
        """Have whatever waits at this connection now wait no longer than about one and a half bounds.

        Of a short bound a busy machine makes a second more.
        """
        wait = _Wait(connection=connection, bound=bound, since=clock.monotonic())
        with self._lock:
            self._waits.add(wait)
            self._interval = min(self._interval, bound / LOOKS)
        try:
            yield
        finally:
            with self._lock:
                self._waits.discard(wait)

    def look(self) -> None:
        """Cancel what waits for longer than its bound, and shut the socket of what doesn't end then."""
        now = clock.monotonic()
        late: list[_Wait] = []
        # Under the lock nobody stops waiting, so nobody closes a socket whose number another may get.
        with self._lock:
            for wait in self._waits:
                waited = now - wait.since
                if waited >= wait.bound + max(wait.bound / 2, SHORTEST_CANCEL):
                    # Whatever a driver says of a socket that is just breaking, the watch goes on.
                    with suppress(Exception):
                        lifecycle.hang_up(wait.connection)
                elif waited >= wait.bound and not wait.is_cancelled:
                    wait.is_cancelled = True
                    late.append(wait)
        for wait in late:
            message = f"the database gave no answer for {wait.bound:g} s: the statement is ended, and tried again"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
            # To ask for a cancel takes a connection, which may not come about either.
            Thread(target=_cancel, args=(wait,), name="django_jobs cancel", daemon=True).start()

    def _patrol(self, over: Event) -> None:
        while not over.wait(self._interval):
            self.look()


def _cancel(wait: _Wait) -> None:
    with suppress(Exception):
        lifecycle.cancel_statement(wait.connection, timeout=wait.bound)
