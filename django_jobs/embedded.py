"""Front door: a worker inside a web server's process: it begins with the first request and ends with the process.

The request pays for the start of one thread; all else, the first query too, is that thread's. Signals and the exit
code stay the server's. Each process that serves requests has a worker of its own, also where it was forked from one
that has.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_started
from django.db import connections

from django_jobs import clock, signals
from django_jobs.conf import settings
from django_jobs.performers.modes import INLINE
from django_jobs.wording import one_line
from django_jobs.worker import fitness
from django_jobs.worker.listener import check_way_to_listen
from django_jobs.worker.plan import Plan, new_identity, read_concurrency, read_queues, with_default_caps
from django_jobs.worker.process import ALL_WRITTEN, LAST_MOMENT, Process

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until the next try, where a worker can't begin or has broken; doubled with each."""

LONG_ENOUGH = 60.0
"""Seconds of work after which what broke before is forgotten."""

CLEARING_UP = 5.0
"""Seconds that a worker has beyond its grace to stop its loops and close its connections."""

NOBODY = "no worker runs beside the server"

NONE_HERE = "none"
"""What `health` says where no worker runs."""

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What `start` was asked for."""

    queues: Mapping[str, int | None] | None
    concurrency: int

    def __str__(self) -> str:
        return f"queues={self.queues!r}, concurrency={self.concurrency}"


_order: _Order | None = None
_lock = threading.Lock()
_worker: _Worker | None = None
_is_stopped = False
_try_at = 0.0
_inherited: list[_Worker] = []
"""Workers of processes that this one was forked from, kept: with them their connections would be closed."""


def start(queues: Sequence[str] | Mapping[str, int | None] | None = None, concurrency: int = 2) -> None:
    """Have a worker run in this process from its first request on; call it in wsgi.py or asgi.py.

    `queues` are all by default; a mapping gives caps. Called again with the same arguments it does nothing.

    Raises TypeError or ValueError for what can't be read, RuntimeError where it was called with other arguments before.
    """
    global _order  # noqa: PLW0603 - said once
    order = _Order(queues=read_queues(queues), concurrency=read_concurrency(concurrency))
    if _order not in (None, order):
        message = f"embedded.start({order}) was called before with {_order}; call it once, or with the same arguments"
        raise RuntimeError(message)
    if _order is None:
        _order = order
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_to_parent)
        request_started.connect(_on_request, dispatch_uid="django_jobs.embedded")


def stop() -> bool:
    """Stop this process's worker, and tell whether every end is written; no other begins in this process.

    Running jobs have the setting GRACE to end, and are interrupted then. It happens by itself when the interpreter
    ends; a server that can say earlier that a process ends may call it from there.
    """
    global _is_stopped  # noqa: PLW0603 - one for each process
    with _lock:
        _is_stopped = True
        worker = _worker
    return worker is None or worker.end()


def lifespan(application: Application) -> Application:
    """Wrap an ASGI application such that the server's word that it shuts down ends the worker, before it ends itself.

    For servers that die of the signal which stopped them, as uvicorn does: nothing of Python runs then.
    """

    async def application_with_worker(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await application(scope, receive, send)
            return
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await sync_to_async(stop, thread_sensitive=False)()
        await send({"type": "lifespan.shutdown.complete"})

    return application_with_worker


def health() -> str:
    """Say in a word how this process's worker is: ok or another word of `/ready`, none where there is none."""
    worker = _worker
    return NONE_HERE if worker is None else worker.health()


# -- the first request


def _on_request(*, sender: object, **_: Any) -> None:
    global _try_at  # noqa: PLW0603 - as above
    if _worker is not None:
        return
    try:
        if _serves(sender) and not _is_testing() and clock.monotonic() >= _try_at:
            _try_at = clock.monotonic() + LONGEST_PAUSE
            _begin()
    except Exception as error:  # noqa: BLE001 - whatever it is, the request goes on
        _tell(f"{NOBODY}: {error!r}", level=logging.ERROR, exception=error)


def _serves(sender: object) -> bool:
    """Whether a request comes from a server: test clients and commands have handlers of their own, or none."""
    return isinstance(sender, type) and issubclass(sender, (WSGIHandler, ASGIHandler))


def _is_testing() -> bool:
    """Whether a test runner has set up its environment: its database isn't this worker's to work on."""
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def _begin() -> None:
    global _worker  # noqa: PLW0603 - as above
    with _lock:
        if _worker is not None or _is_stopped:
            return
        assert _order is not None
        # Of what runs at the interpreter's end this comes first: before executors close, which jobs may be using, and
        # also in children of multiprocessing, which may skip atexit. concurrent.futures does so; no public way does.
        getattr(threading, "_register_atexit", atexit.register)(stop)
        worker = _Worker(order=_order)
        worker.begin()
        _worker = worker


def _leave_to_parent() -> None:
    """Begin anew in a forked child: the parent's threads, connections and locks aren't here."""
    global _lock, _worker, _is_stopped, _try_at  # noqa: PLW0603 - as above
    _lock, _is_stopped, _try_at = threading.Lock(), False, 0.0
    if _worker is not None:
        _inherited.append(_worker)
        _worker = None


# -- the worker


class _Worker:
    """The worker of one process: a thread that runs it, and runs it again where it has broken."""

    def __init__(self, order: _Order) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._code = ALL_WRITTEN
        self._is_ending = threading.Event()
        self._is_over = threading.Event()

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._live, name="django_jobs embedded", daemon=True).start()

    def end(self) -> bool:
        """Have it end, wait for that, and tell whether every end is written."""
        with self._lock:
            is_first = not self._is_ending.is_set()
            self._is_ending.set()
            process = self._process
        if process is None:
            # It asks whether it could begin, and won't any more; or it has ended.
            self._is_over.wait(CLEARING_UP)
            return self._code == ALL_WRITTEN
        if is_first:
            process.ask_to_stop()
        try:
            self._is_over.wait(settings().grace.total_seconds() + LAST_MOMENT + CLEARING_UP)
        except (KeyboardInterrupt, SystemExit):
            # Somebody is impatient. Raised further from the interpreter's end it would be shown, and what else has to
            # happen there be skipped.
            process.stop_now()
            with suppress(KeyboardInterrupt, SystemExit):
                self._is_over.wait(LAST_MOMENT + CLEARING_UP)
        return self._is_over.is_set() and self._code == ALL_WRITTEN

    def health(self) -> str:
        """Say in a word how it is."""
        process = self._process
        if self._is_over.is_set():
            return NONE_HERE
        return "starting" if process is None else process.readiness

    def _live(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._is_ending.is_set():
                began = clock.monotonic()
                if not self._has_trouble(pause):
                    return
                self._is_ending.wait(pause)
                is_forgotten = clock.monotonic() - began >= pause + LONG_ENOUGH
                pause = FIRST_PAUSE if is_forgotten else min(pause * 2, LONGEST_PAUSE)
        finally:
            try:
                connections.close_all()
            finally:
                self._is_over.set()

    def _has_trouble(self, pause: float) -> bool:
        """Work until asked to end, and tell, also the log, whether something else was the end."""
        error: BaseException | None = None
        try:
            trouble = self._work()
        except ImproperlyConfigured as wrong:
            trouble = f"{NOBODY}: {one_line(wrong)}"
        except BaseException as broken:  # noqa: BLE001 - nobody else would hear of it
            trouble, error = f"the worker beside the server broke down: {broken!r}", broken
        finally:
            self._process = None
        if trouble:
            _tell(f"{trouble}; trying again in {pause:g} s", level=logging.ERROR, exception=error)
        return bool(trouble)

    def _work(self) -> str:
        """Work until asked to end; give what was in the way, '' for nothing."""
        if settings().mode == INLINE:
            _tell("MODE is 'inline': jobs run where they are queued, and no worker runs beside the server")
            return ""
        plan = self._plan()
        check_way_to_listen(plan.alias)
        if (why := fitness.refusal(plan)) is not None:
            return f"{NOBODY}: {why}"
        fitness.warn_of_unserved(plan, who="the worker beside the server")
        process = Process(plan)
        with self._lock:
            if self._is_ending.is_set():
                return ""
            self._process = process
        self._code = process.run()
        is_wanted = self._is_ending.is_set()
        return "" if is_wanted else f"the worker beside the server ended by itself, with code {self._code}"

    def _plan(self) -> Plan:
        return Plan(
            alias=settings().database,
            identity=new_identity(f"embedded@{socket.gethostname()}"),
            **with_default_caps(self._order.queues),
            concurrency=self._order.concurrency,
            grace=settings().grace.total_seconds(),
        )


def _tell(message: str, *, level: int = logging.INFO, exception: BaseException | None = None) -> None:
    signals.tell(signals.odd, None, message=message, exception=exception, level=level)
