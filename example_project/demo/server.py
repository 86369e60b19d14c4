"""Serve the site from this process, in threads, with its static files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler, get_internal_wsgi_application

HOST = "127.0.0.1"


class _QuietHandler(WSGIRequestHandler):
    """Leaves the terminal to the worker's lines."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has in the standard library
        pass


@contextmanager
def served(port: int) -> Iterator[int]:
    """Serve on `port`, or on a free one if that is 0 or taken, and give the port."""
    server = _bound(port)
    server.set_app(StaticFilesHandler(get_internal_wsgi_application()))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="server", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _bound(port: int) -> ThreadedWSGIServer:
    try:
        return ThreadedWSGIServer((HOST, port), _QuietHandler)
    except OSError:
        if port == 0:
            raise
        return ThreadedWSGIServer((HOST, 0), _QuietHandler)
