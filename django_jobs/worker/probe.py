"""Drive: a port that tells an orchestrator whether this command works. Answers from memory, whoever dawdles meanwhile.

One thread with an event loop of its own: a client costs no thread, has two seconds for all, and where too many are
connected the oldest has to go.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from threading import Thread
from typing import TypeAlias

Answers: TypeAlias = Callable[[str], str | None]
"""Path -> one word, OK where all is well; None for a path that isn't known."""

OK = "ok"

CLIENT_BOUND = 2.0
"""Seconds that a client has for asking and for taking the answer."""

MOST_CLIENTS = 32
HEAD_BYTES = 8_192


class Probe:
    """Listens from its making on; answers from `start` to `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError where the address can't be listened on."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self._answers: Answers = lambda _: None
        self._clients: dict[asyncio.Task[None] | None, None] = {}
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Where it can be asked."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self, answers: Answers) -> None:
        """Answer in a thread."""
        self._answers = answers
        self._thread = Thread(target=self._serve, name="django_jobs probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more, and give the port back."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join(CLIENT_BOUND)
        else:
            self._loop.close()
        self._socket.close()

    def _serve(self) -> None:
        # Whoever is still connected at the end is left by the runner.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._meet, sock=self._socket, limit=HEAD_BYTES)
        await self._is_over.wait()
        server.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if len(self._clients) >= MOST_CLIENTS and (oldest := next(iter(self._clients))) is not None:
            del self._clients[oldest]
            oldest.cancel()
        self._clients[task] = None
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(CLIENT_BOUND):
                    writer.write(self._response(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        finally:
            self._clients.pop(task, None)
            writer.close()

    def _response(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _written(HTTPStatus.BAD_REQUEST, "bad")
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _written(HTTPStatus.METHOD_NOT_ALLOWED, "method", more="Allow: GET, HEAD\r\n")
        word = self._answers(target.partition("?")[0])
        if word is None:
            status, word = HTTPStatus.NOT_FOUND, "unknown"
        else:
            status = HTTPStatus.OK if word == OK else HTTPStatus.SERVICE_UNAVAILABLE
        return _written(status, word, has_body=method == "GET")


def _written(status: HTTPStatus, word: str, *, more: str = "", has_body: bool = True) -> bytes:
    body = f"{word}\n"
    return (
        f"HTTP/1.1 {status} {status.phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{more}\r\n{body if has_body else ''}"
    ).encode()
