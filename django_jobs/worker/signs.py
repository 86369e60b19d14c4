"""Drive: what shows others that this command works: a file that it touches, and a port that it answers on."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django_jobs import clock, signals
from django_jobs.worker.probe import Answers, Probe

TOUCH_INTERVAL = 1.0

DEFAULT_HOST = "127.0.0.1"
"""A port that nobody asked to be open to the network isn't; an orchestrator that asks from outside needs 0.0.0.0."""


class HeartbeatFile:
    """A file whose time of change tells when the command was last well."""

    def __init__(self, path: str) -> None:
        """Raises ValueError, with the remedy, where the file can't be written."""
        self._path = Path(path)
        self._touch_at = 0.0
        self._is_broken = False
        if self._path.exists() and not self._path.is_file():
            message = f"--heartbeat-file {path}: is no ordinary file, and would be deleted at the end; name another"
            raise ValueError(message)
        try:
            self._path.open("ab").close()
        except OSError as error:
            message = f"--heartbeat-file {path}: can't be written: {error.strerror}"
            raise ValueError(message) from error

    def touch(self) -> None:
        """Say that all is well; once a second is enough. A file that can't be written any more is told of once."""
        now = clock.monotonic()
        if now < self._touch_at:
            return
        self._touch_at = now + TOUCH_INTERVAL
        try:
            self._path.open("ab").close()
            os.utime(self._path)
            self._is_broken = False
        except OSError as error:
            if not self._is_broken:
                self._is_broken = True
                message = f"the heartbeat file {self._path} can't be written any more: {error.strerror}"
                signals.tell(signals.odd, None, message=message, exception=None, level=logging.ERROR)

    def remove(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._path.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The signs that were asked for."""

    file: HeartbeatFile | None = None
    probe: Probe | None = None

    @classmethod
    def opened(cls, *, file: str | None = None, port: str | int | None = None, host: str | None = None) -> Signs:
        """Give the signs for these flags. Raises ValueError with the remedy, where one can't be given."""
        probe = None if port is None else _opened(host or DEFAULT_HOST, port)
        try:
            return cls(file=None if file is None else HeartbeatFile(file), probe=probe)
        except ValueError:
            if probe is not None:
                probe.close()
            raise

    def show(self, answers: Answers) -> None:
        """Answer on the port from now on."""
        if self.probe is not None:
            self.probe.start(answers)
            message = f"probes on {self.probe.url}: /live /ready /started"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.INFO)

    def take_down(self) -> None:
        """Close the port and remove the file: this command works no more."""
        if self.probe is not None:
            self.probe.close()
        if self.file is not None:
            self.file.remove()


NO_SIGNS = Signs()


def _opened(host: str, port: str | int) -> Probe:
    if not str(port).isdigit() or int(port) > 65_535:
        message = f"--probe-port {port}: give a port from 1 to 65535, or 0 for any that is free"
        raise ValueError(message)
    try:
        return Probe(host, int(port))
    except OSError as error:
        # The words of the system alone: newer Pythons say the address once more. Those of the resolver have no number.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        message = f"--probe-port {port}: {host} can't be listened on there: {why}"
        raise ValueError(message) from error
