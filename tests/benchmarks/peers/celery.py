"""Celery with Redis: two prefork processes, prefetching as its documentation advises for short tasks.

Its messages aren't on disk when `delay()` returns, as the rows of the others are.
"""

from __future__ import annotations

from typing import Any

PACKAGE = "celery"
REQUIREMENTS = ("celery[redis]",)
WORKERS = 1
SUCCEEDED = ""
REDIS = ("127.0.0.1", 6379)
QUEUE = "django-jobs-benchmark"


def _app() -> Any:
    from celery import Celery

    from tests.benchmarks import notes

    app = Celery("benchmark", broker=f"redis://{REDIS[0]}:{REDIS[1]}/9")
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=64,
        task_default_queue=QUEUE,
        broker_connection_retry_on_startup=True,
    )

    @app.task(name="noop")
    def noop(number: int) -> None:
        notes.own().begin(number)

    return app


def prepare() -> None:
    wipe()


def wipe() -> None:
    _app().control.purge()


class Client:
    """Its groups are sent one by one, too."""

    many = None

    def __init__(self) -> None:
        self._noop = _app().tasks["noop"]

    def one(self, number: int) -> None:
        self._noop.delay(number)


def work() -> None:
    _app().worker_main(
        ["worker", "--pool", "prefork", "-c", "2", "-l", "WARNING", "--without-gossip", "--without-mingle"]
    )
