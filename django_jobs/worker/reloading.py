"""Drive: see whether the project's code has changed, by looking at its files. No thread, no signal, no autoreloader.

Looked at are the files of all modules that this process has loaded, and the Python files of the project's own apps,
which workers may load later than we.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from django.apps import apps

INTERVAL = 1.0
"""Seconds between two looks."""

_LEFT_OUT = {"__pycache__", "node_modules"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What tells two editions of a file apart, and when it came to its place, in nanoseconds."""

    written: int
    size: int
    placed: int


Seen: TypeAlias = Mapping[str, Stamp]
"""The stamp of each file, by its path."""


class Reloading:
    """Compares what files look like now with what they looked like before."""

    def __init__(self, look: Callable[[], Seen]) -> None:
        self._look = look
        self._seen = look()
        self._look_at = 0.0

    def changed(self, now: float) -> str | None:
        """Name a file that was written, made or deleted since the last look; None before it is time for one."""
        if now < self._look_at:
            return None
        self._look_at = now + INTERVAL
        before, self._seen = self._seen, self._look()
        return difference(before, self._seen)


def difference(before: Seen, after: Seen) -> str | None:
    """Name one file that was written, made or deleted in between.

    One that only came into sight, since its module was loaded meanwhile, is older than the newest of before.
    """
    newest = max((stamp.placed for stamp in before.values()), default=0)
    for path, stamp in sorted(after.items()):
        known = before.get(path)
        if stamp.placed > newest if known is None else (stamp.written, stamp.size) != (known.written, known.size):
            return path
    return min(before.keys() - after.keys(), default=None)


def look() -> Seen:
    """Look at the files of the project's code as they are now."""
    seen: dict[str, Stamp] = {}
    for path in {*_loaded_files(), *_files_of_apps()}:
        with suppress(OSError):
            status = Path(path).stat()
            seen[path] = Stamp(written=status.st_mtime_ns, size=status.st_size, placed=status.st_ctime_ns)
    return seen


def _loaded_files() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(path, str) and path.endswith(".py") and not _is_installed(path):
            yield path


def _files_of_apps() -> Iterator[str]:
    for app in apps.get_app_configs():
        if _is_installed(app.path):
            continue
        for folder, folders, files in os.walk(app.path):
            folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(".")]
            yield from (str(Path(folder, name)) for name in files if name.endswith(".py"))


def _is_installed(path: str) -> bool:
    """Whether it belongs to Python or to an installed package: that changes with a deploy, not while somebody edits."""
    return path.startswith(_INSTALLED)


_INSTALLED = tuple(
    {
        str(Path(folder)) + os.sep
        for folder in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            *site.getsitepackages(),
            site.getusersitepackages(),
        )
        if folder
    }
)
