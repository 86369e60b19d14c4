"""Drive: where a body runs, and how it is interrupted there. An interruption never reaches the next job.

A thread is interrupted by CPython's own means for that (`PyThreadState_SetAsyncExc`): the exception is raised at the
next instruction of Python code. A call into C that doesn't return can't be interrupted; its process is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections

from django_jobs.exceptions import Interruption
from django_jobs.records import Lease

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_FUNCTION = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
_send = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(_FUNCTION)
_withdraw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(_FUNCTION)


class Seat(Protocol):
    """Where one body runs."""

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        """Interrupt the body if it still is that job's and wasn't interrupted before, and tell whether it was done."""

    @property
    def sent(self) -> type[Interruption] | None:
        """What the body was interrupted with."""


class ThreadSeat:
    """A thread that runs one body after the other. Made, entered and left by that thread; interrupted by any other.

    An interruption may strike anywhere from within `enter` until `leave` has begun, so the caller guards both, and
    leaves again where it struck on the way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        # The wrappers of a thread live as long as it does; their connections come and go.
        self._wrappers = [connections[alias] for alias in connections]
        self._lease: Lease | None = None
        self._sent: type[Interruption] | None = None

    def enter(self, lease: Lease) -> None:
        """Say whose body runs from now on."""
        # In this order, and without the lock: while nobody sits here, nobody interrupts.
        self._sent = None
        self._lease = lease

    def leave(self) -> type[Interruption] | None:
        """Say that nothing may interrupt the thread any more, and give what did, whether or not it arrived.

        An atomic performer's run leaves before it commits, and its worker once more.
        """
        while True:
            # What was sent may arrive in here, once: nothing is sent to a seat that nobody sits in.
            try:
                with self._lock:
                    self._lease = None
                    if self._sent is not None:
                        _withdraw(self._thread, None)
                return self._sent  # noqa: TRY300 - belongs to the try
            except Interruption:
                continue

    @property
    def sent(self) -> type[Interruption] | None:
        """What the body was interrupted with, whether or not it arrived."""
        return self._sent

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        """Raise `kind` in the thread, and end what it asks of a database just now."""
        with self._lock:
            if self._lease != lease or self._sent is not None:
                return False
            self._sent = kind
            _send(self._thread, kind)
            # Within the lock: the body can't have left, so that no query of the next job is hit.
            self._cancel_queries()
        return True

    def _cancel_queries(self) -> None:
        for wrapper in self._wrappers:
            with suppress(Exception):
                _cancel_query(wrapper)


def _cancel_query(wrapper: BaseDatabaseWrapper) -> None:
    raw = wrapper.connection
    if raw is None:
        return
    if wrapper.vendor == "postgresql":
        raw.cancel_safe(timeout=2.0)
    elif wrapper.vendor == "sqlite":
        raw.interrupt()


class TaskSeat:
    """A task of the event loop that runs one body. Interrupted from any thread."""

    def __init__(self, lease: Lease, loop: asyncio.AbstractEventLoop) -> None:
        self._lock = threading.Lock()
        self._lease: Lease | None = lease
        self._loop = loop
        self._task: asyncio.Future[Any] | None = None
        self._sent: type[Interruption] | None = None

    def enter(self, task: asyncio.Future[Any]) -> None:
        """Say which task runs the body; one that was interrupted before it began is cancelled at once."""
        with self._lock:
            self._task = task
            if self._sent is not None:
                task.cancel()

    def leave(self) -> type[Interruption] | None:
        """Say that the body has ended, and give what it was interrupted with."""
        with self._lock:
            self._lease = None
            return self._sent

    @property
    def sent(self) -> type[Interruption] | None:
        """What the body was interrupted with."""
        return self._sent

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        """Cancel the task; what it ends with then is told as `kind`."""
        with self._lock:
            if self._lease != lease or self._sent is not None:
                return False
            self._sent = kind
            if self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            return True


class Seats:
    """Which seat each running job has. Each step on the dict is one that no other thread comes in between."""

    def __init__(self) -> None:
        self._seats: dict[Lease, Seat] = {}

    def seat(self, lease: Lease, seat: Seat) -> None:
        """Note where a job runs."""
        self._seats[lease] = seat

    def clear(self, lease: Lease) -> None:
        """Note that its body has ended."""
        self._seats.pop(lease, None)

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        """Interrupt one job, if it runs and wasn't interrupted before."""
        seat = self._seats.get(lease)
        return seat is not None and seat.interrupt(lease, kind)

    def __iter__(self) -> Iterator[Lease]:
        return iter(list(self._seats))
