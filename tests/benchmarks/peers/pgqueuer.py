"""pgqueuer: async workers, batches of 100 as its documentation advises for short jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

PACKAGE = "pgqueuer"
REQUIREMENTS = ("pgqueuer[asyncpg]",)
WORKERS = 2
# Jobs that have succeeded move to its log.
SUCCEEDED = "select count(*) from pgqueuer_log where status = 'successful'"
BATCH = 100


def prepare() -> None:
    import subprocess

    subprocess.run([sys.executable, "-m", "pgqueuer", "install"], check=True)


def wipe() -> None:
    async def truncate() -> None:
        import asyncpg

        connection = await asyncpg.connect()
        await connection.execute("truncate pgqueuer, pgqueuer_log")
        await connection.close()

    asyncio.run(truncate())


class Client:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._queries = self._loop.run_until_complete(self._connected())

    async def _connected(self) -> Any:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        return Queries(AsyncpgDriver(await asyncpg.connect()))

    def one(self, number: int) -> None:
        self._loop.run_until_complete(self._queries.enqueue("noop", f"{number}".encode()))

    def many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        payloads = [f"{number}".encode() for number in numbers]
        self._loop.run_until_complete(self._queries.enqueue(["noop"] * count, payloads, [0] * count))


def work() -> None:
    """Work as its command does, which doesn't start with every release of the library that reads its flags."""
    import uvloop

    uvloop.run(_worked())


async def _worked() -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver

    from tests.benchmarks import notes

    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect()))

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        notes.own().begin(int(job.payload))

    await queue.run(batch_size=BATCH)
