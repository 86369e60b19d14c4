"""Drive: hear the database and wake the crews. A hint: where it hears nothing, the poll finds the rows.

That it hears is proven by a round trip from another connection, at the start and every half minute; behind a pooler
that gives each transaction another session it isn't, and there is one warning, and polling. The setting LISTEN_DATABASE
names a direct way to the same database for this connection alone; LISTEN = False polls without trying.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_jobs import clock, lifecycle, signals
from django_jobs.conf import settings
from django_jobs.worker.link import Link

PATIENCE = 0.25
"""Seconds of hearing without a break; who stops waits for that long at the most."""

PROOF_INTERVAL = 30.0
PROOF_BOUND = 5.0
DEAF_INTERVAL = 60.0
"""Seconds between two proofs, those that one may take, and those after which it is tried again where nothing is heard.

Each try wakes all crews, which poll meanwhile anyway.
"""

PROOF = "proof:"

DEAF = (
    "LISTEN doesn't hear through this connection (a pooler?): polling instead; "
    "DJANGO_JOBS['LISTEN_DATABASE'] may name a direct one"
)


def listening(
    alias: str,
    *,
    queues: frozenset[str] | None,
    wake: Callable[[], None],
    tell: Callable[[bool], None],
) -> list[Listener]:
    """Give what listens for news of the jobs in `alias`; none where the settings want none."""
    if not settings().listen and lifecycle.needs_proof(connections[alias]):
        return []
    link, speaker = Link(settings().listen_database or alias), Link(alias)
    return [Listener(link=link, speaker=speaker, queues=queues, wake=wake, tell=tell)]


def check_way_to_listen(alias: str) -> None:
    """Raise ImproperlyConfigured where the setting LISTEN_DATABASE is no way to the database `alias`."""
    way = settings().listen_database
    if way is None:
        return
    if way not in connections:
        message = f"DJANGO_JOBS['LISTEN_DATABASE'] is {way!r}, which DATABASES doesn't have"
        raise ImproperlyConfigured(message)
    for each in (alias, way):
        if (vendor := connections[each].vendor) != "postgresql":
            message = f"DJANGO_JOBS['LISTEN_DATABASE'] is for PostgreSQL, but the database {each!r} is {vendor}"
            raise ImproperlyConfigured(message)


class Listener:
    """Keeps one connection listening. `wake` is called for news, `tell` with whether hearing is proven."""

    def __init__(
        self,
        *,
        link: Link,
        speaker: Link,
        queues: frozenset[str] | None,
        wake: Callable[[], None],
        tell: Callable[[bool], None],
    ) -> None:
        self._link = link
        self._speaker = speaker
        self._queues = queues
        self._wake = wake
        self._tell = tell
        self._mark: Any = None
        self._is_listening = False
        self._is_proven = False
        self._has_warned = False
        self._expected = ""
        self._listen_at = 0.0
        self._prove_at = 0.0
        self._doubt_at = 0.0

    def tick(self) -> float:
        """Hear for a moment. After a break everything may have been missed, so that wakes, too."""
        if self._expected and clock.monotonic() >= self._doubt_at:
            self._stop_listening()
        if not self._is_listening and clock.monotonic() < self._listen_at:
            return self._listen_at - clock.monotonic()
        try:
            with self._link.connected() as connection:
                if not self._is_listening:
                    self._mark = lifecycle.listen(connection)
                    self._is_listening = True
                    self._expected, self._prove_at = "", 0.0
                    self._wake()
                if lifecycle.needs_proof(connection):
                    self._prove()
                else:
                    self._set_proven(is_proven=True)
                heard, self._mark = lifecycle.hear(connection, self._mark, timeout=PATIENCE)
        except BaseException:
            self._expected, self._is_listening = "", False
            self._set_proven(is_proven=False)
            raise
        self._take_in(heard)
        return 0.0

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._speaker.close()

    def _stop_listening(self) -> None:
        """Give up a connection on which the proof didn't arrive: at once where it was heard before, and has broken."""
        self._expected, self._is_listening = "", False
        if self._is_proven:
            self._set_proven(is_proven=False)
            self._link.close()
            return
        self._listen_at = self._prove_at - PROOF_INTERVAL + DEAF_INTERVAL
        if not self._has_warned:
            self._has_warned = True
            signals.tell(signals.odd, None, message=DEAF, exception=None, level=logging.WARNING)
        with self._link.connected() as connection:
            lifecycle.unlisten(connection)
        self._link.close()

    def _prove(self) -> None:
        now = clock.monotonic()
        if now >= self._prove_at:
            self._prove_at = now + PROOF_INTERVAL
            self._doubt_at = now + PROOF_BOUND
            self._expected = f"{PROOF}{secrets.token_hex(8)}"
            with self._speaker.connected() as connection:
                lifecycle.notify(connection, [self._expected])

    def _take_in(self, heard: set[str]) -> None:
        if self._expected in heard:
            self._expected = ""
            self._set_proven(is_proven=True)
        news = {word for word in heard if not word.startswith(PROOF)}
        if news and (self._queues is None or "" in news or not self._queues.isdisjoint(news)):
            self._wake()

    def _set_proven(self, *, is_proven: bool) -> None:
        if is_proven != self._is_proven:
            self._is_proven = is_proven
            self._tell(is_proven)
