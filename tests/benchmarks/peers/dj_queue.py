"""dj-queue: two worker processes of eight threads, as in its example for production."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.peers import django_environment

PACKAGE = "dj-queue"
REQUIREMENTS = ("dj-queue", "psycopg[binary,pool]")
WORKERS = 1
SUCCEEDED = "select count(*) from dj_queue_jobs where finished_at is not null"


def _set_up() -> None:
    workers = [{"queues": "*", "threads": 8, "processes": 2, "polling_interval": 0.1}]
    backend = {"BACKEND": "dj_queue.backend.DjQueueBackend", "QUEUES": [], "OPTIONS": {"workers": workers}}
    django_environment.set_up("dj_queue", backend=backend, routers=("dj_queue.routers.DjQueueRouter",))


def prepare() -> None:
    _set_up()
    django_environment.migrate()


def wipe() -> None:
    _set_up()
    django_environment.truncate("dj_queue_")


class Client:
    def __init__(self) -> None:
        _set_up()
        from tests.benchmarks.peers.django_task import noop

        self._noop = noop

    def one(self, number: int) -> None:
        self._noop.enqueue(number)

    def many(self, numbers: Sequence[int]) -> None:
        self._noop.get_backend().enqueue_all([(self._noop, [number], {}) for number in numbers])


def work() -> None:
    _set_up()
    from django.core.management import call_command

    call_command("dj_queue", skip_recurring=True)
