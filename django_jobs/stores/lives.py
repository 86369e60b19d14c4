"""Know: whether the process that has a claim in hand still lives, where the database is a file of this host.

A lease can run out while its holder lives: the process was stopped, the host slept, its clock was set, or somebody
locked the file so that nobody could renew. A second run beside the first would follow. So a process that claims locks,
in an empty file beside the database (`<database>-django-jobs-lives`), the one byte whose number is the claim's token,
before it claims and until nothing of that claim is in its hands. The kernel lets go of the lock when the process ends,
however it ends, and keeps it while the process is only stopped. Who reclaims by time, be it by the lease or by the
deadline in the row, asks for that byte first. Tokens are random, so no two claims share a byte; if they did, a reclaim
would only be later.

The locks are those of an open file description (Linux): other than POSIX locks they survive that a job opens and closes
the same file, as a backup does. What a job starts by exec doesn't inherit the file (Python's rule), and what it forks
closes it, so that no child keeps the life of a dead worker. Where the system has no such locks (macOS, BSD), POSIX
locks serve: a job that opens and closes this very file drops them, which leaves the lease alone to judge. On Windows,
for a database in memory, and where the file can't be opened, which is told once, the lease alone judges, too.

The file stays empty: locks need no bytes behind them. We never delete it, since somebody might lock it at that very
moment; whoever does while workers run leaves them without this, until their next claims.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Protocol, TypeAlias

from django_jobs import signals

if sys.platform != "win32":
    import fcntl

End: TypeAlias = Callable[[], None]
"""Ends a life."""

SUFFIX = "-django-jobs-lives"


class _Locks(Protocol):
    """How one byte of an open file is locked. All holders share a lock, so that none can keep another out."""

    access: int
    """What the file has to be open for."""

    def take(self, fd: int, byte: int) -> None:
        """Lock the byte."""

    def give_back(self, fd: int, byte: int) -> None:
        """Let go of the byte."""

    def is_taken(self, fd: int, byte: int) -> bool:
        """Whether somebody else has locked the byte."""


class DescriptionLocks:
    """Locks of the open file description; asking for one needs no more than to read the file."""

    access = os.O_RDONLY
    _FORM = "hhqqi0q"

    def take(self, fd: int, byte: int) -> None:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, self._flock(fcntl.F_RDLCK, byte))

    def give_back(self, fd: int, byte: int) -> None:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, self._flock(fcntl.F_UNLCK, byte))

    def is_taken(self, fd: int, byte: int) -> bool:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, self._flock(fcntl.F_WRLCK, byte))
        return bool(struct.unpack(self._FORM, answer)[0] != fcntl.F_UNLCK)

    def _flock(self, kind: int, byte: int) -> bytes:
        """Write a `struct flock` of Linux: kind, whence, start, length, process."""
        return struct.pack(self._FORM, kind, os.SEEK_SET, byte, 1, 0)


class ProcessLocks:
    """POSIX locks, which belong to the process; they are asked for by trying to take one."""

    access = os.O_RDWR

    def take(self, fd: int, byte: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)

    def give_back(self, fd: int, byte: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, byte)

    def is_taken(self, fd: int, byte: int) -> bool:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return True
        self.give_back(fd, byte)
        return False


@dataclass(slots=True, kw_only=True)
class _File:
    """A file of lives as this process has opened it, with the bytes that it locks itself."""

    fd: int
    identity: tuple[int, int]
    mine: set[int] = field(default_factory=set)


def _locks_of_this_system() -> _Locks | None:
    if sys.platform == "win32":
        return None
    return DescriptionLocks() if sys.platform == "linux" else ProcessLocks()


_locks = _locks_of_this_system()
_files: dict[str, _File] = {}
_replaced: list[_File] = []
_told: set[str] = set()
_guard = Lock()


def begin(database: str, token: int) -> End:
    """Say that this process is about to claim under `token` in a database file ('' for none); gives what ends that."""
    if not database or _locks is None:
        return _nothing
    path = database + SUFFIX
    try:
        with _guard:
            file = _opened(path, beside=database)
            _locks.take(file.fd, token)
            file.mine.add(token)
    except OSError as error:
        _tell(path, error)
        return _nothing
    return partial(_end, file, token)


def is_there(database: str, token: int) -> bool:
    """Whether a living process of this host has the claim of `token` in hand."""
    if not database or _locks is None:
        return False
    path = database + SUFFIX
    try:
        with _guard:
            if any(token in file.mine for file in (*_files.values(), *_replaced)):
                return True
            return _locks.is_taken(_opened(path).fd, token)
    except FileNotFoundError:
        return False
    except OSError as error:
        _tell(path, error)
        return False


def _end(file: _File, token: int) -> None:
    with _guard:
        # Not so in a child that was forked meanwhile: what it gave back would be its parent's.
        if token in file.mine and _locks is not None:
            file.mine.remove(token)
            with suppress(OSError):
                _locks.give_back(file.fd, token)
            _close_unused()


def _nothing() -> None:
    pass


def _opened(path: str, *, beside: str | None = None) -> _File:
    """Give the open file, made new `beside` a database where there is none. Raises OSError.

    It is opened once and stays open: closing it would drop POSIX locks. Where another one stands in its place by now,
    that is the one to look at.
    """
    file = _files.get(path)
    with suppress(FileNotFoundError):
        if file is not None and file.identity == _identity(os.stat(path)):  # noqa: PTH116 - a hot path
            return file
    fd = _open(path, beside)
    if file is not None:
        _replaced.append(file)
        _close_unused()
    _files[path] = file = _File(fd=fd, identity=_identity(os.fstat(fd)))
    return file


def _close_unused() -> None:
    """Close files in whose place another stands by now, once nothing is locked in them."""
    for file in [file for file in _replaced if not file.mine]:
        _replaced.remove(file)
        os.close(file.fd)


def _open(path: str, beside: str | None) -> int:
    assert _locks is not None
    try:
        return os.open(path, _locks.access)
    except FileNotFoundError:
        if beside is None:
            raise
    fd = os.open(path, _locks.access | os.O_CREAT, 0o600)
    # As SQLite does with its own companions of a database: whoever may use that may use this.
    like = os.stat(beside)  # noqa: PTH116 - as above
    with suppress(OSError):
        os.fchmod(fd, like.st_mode & 0o666)
        if os.geteuid() == 0:
            os.fchown(fd, like.st_uid, like.st_gid)
    return fd


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _tell(path: str, error: OSError) -> None:
    if path in _told:
        return
    _told.add(path)
    message = (
        f"{path} can't be locked ({error.strerror}). Jobs run all the same, but one whose worker is stopped, or can't "
        "write for longer than a lease, may be run a second time beside the first: let workers write in this folder"
    )
    signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)


def _forget() -> None:
    """In a forked child: none of this is its own. Closing gives nothing back while the parent has the file open."""
    for file in (*_files.values(), *_replaced):
        file.mine.clear()
        with suppress(OSError):
            os.close(file.fd)
    _files.clear()
    _replaced.clear()
    _guard.release()


if _locks is not None:
    os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forget)
