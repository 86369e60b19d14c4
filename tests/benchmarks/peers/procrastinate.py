"""procrastinate: async workers with eight jobs at once, woken by LISTEN as by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PACKAGE = "procrastinate"
REQUIREMENTS = ("procrastinate", "psycopg[binary,pool]")
WORKERS = 2
SUCCEEDED = "select count(*) from procrastinate_jobs where status = 'succeeded'"
CONCURRENCY = 8


def _app() -> Any:
    from procrastinate import App, PsycopgConnector

    from tests.benchmarks import notes

    app = App(connector=PsycopgConnector())

    @app.task(name="noop")
    async def noop(number: int) -> None:
        notes.own().begin(number)

    return app


def prepare() -> None:
    with _app().open() as app:
        app.schema_manager.apply_schema()


def wipe() -> None:
    import psycopg

    with psycopg.connect() as connection:
        connection.execute("truncate procrastinate_jobs cascade")


class Client:
    def __init__(self) -> None:
        app = _app()
        app.open()
        self._noop = app.tasks["noop"]

    def one(self, number: int) -> None:
        self._noop.defer(number=number)

    def many(self, numbers: Sequence[int]) -> None:
        self._noop.batch_defer(*({"number": number} for number in numbers))


def work() -> None:
    _app().run_worker(concurrency=CONCURRENCY)
