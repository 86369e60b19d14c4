"""Front door: a real worker beside a test, in threads of this process and on connections of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread

from django.db import connections

from django_jobs.conf import settings
from django_jobs.performers import modes
from django_jobs.runner.surroundings import is_in_transaction
from django_jobs.testing.targets import rows
from django_jobs.worker.plan import Plan, new_identity, read_concurrency, read_queues
from django_jobs.worker.process import ALL_WRITTEN, Process

GLANCE = 0.01
"""Seconds between two looks of `wait`."""

_running = 0


def is_running() -> bool:
    """Whether a live worker of this process is at work."""
    return _running > 0


class LiveWorker:
    """A worker beside a test, as `live_worker` gives it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process = Process(plan)
        self._code: int | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._work, name="django_jobs live worker", daemon=True)

    def wait(self, timeout: float = 10.0) -> None:
        """Wait until no job that the worker serves is due or running; raises TimeoutError, naming those that are."""
        give_up = time.monotonic() + timeout
        while left := self._in_the_way():
            self._raise_if_dead()
            if time.monotonic() > give_up:
                message = f"after {timeout:g} s there were still jobs due or running: {', '.join(left[:10])}"
                raise TimeoutError(message)
            time.sleep(GLANCE)
        self._raise_if_dead()

    def _in_the_way(self) -> list[str]:
        # In one look: a job that begins, or one that queues another and ends, would be missed between two.
        found = rows().due() | rows().filter(worker__isnull=False)
        if self._plan.queues is not None:
            found = found.filter(queue__in=tuple(self._plan.queues))
        return [f"{job} ({job.state})" for job in found]

    def _start(self) -> None:
        self._thread.start()

    def _stop(self) -> None:
        self._process.ask_to_stop()
        self._thread.join(self._plan.grace + 5.0)
        if self._thread.is_alive() or self._code != ALL_WRITTEN:
            self._raise_if_dead()
            message = f"live_worker() didn't come to its end within {self._plan.grace:g} s: a job goes on and on"
            raise RuntimeError(message)

    def _work(self) -> None:
        try:
            self._code = self._process.run()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self._error = error
        finally:
            connections.close_all()

    def _raise_if_dead(self) -> None:
        if self._error is not None:
            message = "live_worker() has died"
            raise RuntimeError(message) from self._error


@contextmanager
def live_worker(
    queues: Sequence[str] | Mapping[str, int | None] | None = None, concurrency: int = 2, *, grace: float = 15.0
) -> Iterator[LiveWorker]:
    """Have a real worker at work during the block, as `runjobs --processes 0` is; it gives what `wait()`s for jobs.

    `queues` are all by default; a mapping gives caps. The worker has threads and connections of its own, so it needs
    committed rows: a TransactionTestCase, a LiveServerTestCase, or @pytest.mark.django_db(transaction=True). When the
    block ends it claims nothing more, and running jobs have `grace` seconds.

    Raises RuntimeError within a transaction, on an SQLite database in memory, in the mode "inline", and
    where the worker doesn't come to its end; ValueError and TypeError for what can't be read.
    """
    global _running  # noqa: PLW0603 - how many there are
    plan = _plan(queues, concurrency, grace)
    _refuse_what_cannot_work(plan.alias)
    worker = LiveWorker(plan)
    _running += 1
    try:
        worker._start()  # noqa: SLF001 - its other half
        try:
            yield worker
        finally:
            worker._stop()  # noqa: SLF001
    finally:
        _running -= 1


def _plan(queues: Sequence[str] | Mapping[str, int | None] | None, concurrency: int, grace: float) -> Plan:
    return Plan(
        alias=settings().database,
        identity=new_identity(),
        queues=read_queues(queues),
        concurrency=read_concurrency(concurrency),
        grace=grace,
    )


def _refuse_what_cannot_work(alias: str) -> None:
    connection = connections[alias]
    if is_in_transaction(connection):
        message = (
            "live_worker() works on connections of its own, which don't see what the transaction of this test wrote; "
            "use TransactionTestCase, LiveServerTestCase or @pytest.mark.django_db(transaction=True), or run_jobs() "
            "instead"
        )
        raise RuntimeError(message)
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined] # SQLite's own
        message = (
            "live_worker() can't share an SQLite database in memory, whose tables lock each other out; have the tests "
            f'use a file: DATABASES[{alias!r}]["TEST"] = {{"NAME": BASE_DIR / "test.sqlite3"}}'
        )
        raise RuntimeError(message)
    if modes.carried() == "inline":
        message = "live_worker() within jobs_mode('inline') would have nothing to run; leave one of them out"
        raise RuntimeError(message)
