"""A TCP proxy before the database, with which tests lose answers, cut connections, and let them fall silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

READY = b"Z\x00\x00\x00\x05I"
"""With this the server ends an answer: everything is committed, and it waits for the next statement."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Pair:
    """One client's connection, and the one to the server behind it."""

    client: socket.socket
    server: socket.socket
    said: bytes = b""
    loses: bool = False
    flows: threading.Event = field(default_factory=threading.Event)

    def cut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Trap:
    """Waits for a statement that has a text. `sprung` says that one came."""

    text: bytes
    silences: bool
    sprung: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Passes everything on, until a test says otherwise."""

    def __init__(self) -> None:
        self.accepted = 0
        """How many connections came."""
        self._refuses = False
        self._is_silent = False
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._traps: list[Trap] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    # -- what a test says

    def lose_answer(self, text: str) -> Trap:
        """Let the next statement with this text reach the server; cut its connection before the answer comes back."""
        return self._lay(Trap(text=text.encode(), silences=False))

    def silence(self, text: str) -> Trap:
        """Let the next statement with this text reach the server; nothing gets through on its connection from then."""
        return self._lay(Trap(text=text.encode(), silences=True))

    def fall_silent(self) -> None:
        """Let nothing through any more, also on new connections, and tell nobody."""
        with self._lock:
            self._is_silent = True
            for pair in self._pairs:
                pair.flows.clear()

    def speak(self) -> None:
        """Let everything through again; connections that were silent break."""
        with self._lock:
            self._is_silent = False
        self.cut()

    def refuse(self) -> None:
        """Cut what there is, and every connection that comes from now on."""
        with self._lock:
            self._refuses = True
        self.cut()

    def admit(self) -> None:
        """Take connections again."""
        self._refuses = False

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.cut()
            pair.flows.set()

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self._refuses = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    # -- how it is done

    def _lay(self, trap: Trap) -> Trap:
        with self._lock:
            self._traps.append(trap)
        return trap

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                pair = _Pair(client=client, server=_connect_to_server())
            except OSError:
                client.close()
                continue
            with self._lock:
                if admitted := not self._refuses:
                    self._pairs.add(pair)
                    if not self._is_silent:
                        pair.flows.set()
            if not admitted:
                pair.cut()
                continue
            for carry in (self._carry_questions, self._carry_answers):
                threading.Thread(target=self._carry, args=(carry, pair), daemon=True).start()

    def _carry(self, carry: Any, pair: _Pair) -> None:
        with suppress(OSError):
            while carry(pair):
                pass
        pair.cut()
        with self._lock:
            self._pairs.discard(pair)

    def _carry_questions(self, pair: _Pair) -> bool:
        data = pair.client.recv(65_536)
        pair.flows.wait()
        # A text may come in pieces.
        pair.said = pair.said[-10_000:] + data
        silences = False
        with self._lock:
            if trap := next((trap for trap in self._traps if trap.text in pair.said), None):
                self._traps.remove(trap)
                silences = trap.silences
                pair.loses = not silences
                if silences:
                    pair.flows.clear()
        pair.server.sendall(data)
        if trap:
            trap.sprung.set()
        return bool(data)

    def _carry_answers(self, pair: _Pair) -> bool:
        data = pair.server.recv(65_536)
        pair.flows.wait()
        if pair.loses:
            return bool(data) and not data.endswith(READY)
        pair.client.sendall(data)
        return bool(data)


def _connect_to_server() -> socket.socket:
    host, port = server_address()
    if host.startswith("/"):
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server
    return socket.create_connection((host, port), timeout=None)


def server_address() -> tuple[str, int]:
    """Say where the database of the test is: the folder of its socket, or its address."""
    info = connections.settings["default"]
    host = info["HOST"] or info["OPTIONS"].get("host") or "/var/run/postgresql"
    return str(host), int(info["PORT"] or info["OPTIONS"].get("port") or 5432)


@contextmanager
def proxied() -> Iterator[Proxy]:
    """Put a proxy before the database of the test."""
    proxy = Proxy()
    try:
        yield proxy
    finally:
        proxy.close()


def through(proxy: Proxy) -> dict[str, Any]:
    """Say how the database is reached through it, as a change to its entry in DATABASES."""
    # Unencrypted, so that the proxy can read along.
    return {"HOST": "127.0.0.1", "PORT": str(proxy.port), "OPTIONS": {"sslmode": "disable", "gssencmode": "disable"}}
