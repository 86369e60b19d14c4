"""Drive: hand workers over to the program that takes this process's place, so that they live through its exec.

What is handed over lies in a nameless file; its descriptor, those of the boards and those of the pipes stay open. From
the exec until the new program hears signals again these are blocked, and wait.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from django_jobs.records import Lease
from django_jobs.worker.board import Board, Counts, new_file
from django_jobs.worker.child import Child
from django_jobs.worker.succession import LAST_WORD
from django_jobs.worker.undertaker import Case

FORMAT = 2
"""Raised with every change of what is handed over, of the board's layout, or of the words in the pipes."""

VARIABLE = "_DJANGO_JOBS_HANDOVER"

HEARD = (signal.SIGTERM, signal.SIGINT) + (
    () if sys.platform == "win32" else (signal.SIGHUP, signal.SIGTTIN, signal.SIGCHLD)
)
"""The signals that a supervisor hears."""


def _start_folder() -> Path:
    """Give the folder in which the command was started, through the links by which the shell came there.

    A link that a deploy has put elsewhere since leads to the new code.
    """
    here = Path.cwd()
    said = os.environ.get("PWD", "")
    with suppress(OSError):
        if said and here.samefile(said):
            return Path(said)
    return here


START_FOLDER = _start_folder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estate:
    """What a supervisor leaves to its successor. `cases` are the dead that are to be buried, with the moment for it."""

    children: list[Child]
    cases: list[tuple[float, Case]]
    began: float
    counts: Counts
    taken: int

    def dismiss(self) -> None:
        """Have the workers give their jobs back, and end: nobody is there to take them over."""
        for child in self.children:
            child.say("now")
        for child in self.children:
            child.end(within=LAST_WORD)


def exec_again(estate: Estate) -> NoReturn:
    """Put a new image of the same command into this process; with it goes the estate. Raises OSError.

    Loops must have ended, and `hear_later` must have been called. The workers see nothing of it.
    """
    content = json.dumps(_as_json(estate)).encode()
    fd = new_file(len(content), name="django_jobs handover")
    os.pwrite(fd, content, 0)
    for handed_over in (fd, *_descriptors(estate)):
        os.set_inheritable(handed_over, True)  # noqa: FBT003 - the system's own
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(START_FOLDER)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, VARIABLE: str(fd)})  # noqa: S606


def hear_later() -> None:
    """Have signals wait, in this thread, in those that it starts, and over an exec."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)


def hear_once_more(numbers: Iterable[int]) -> None:
    """Have signals that were taken already come again, for the image after this one."""
    for number in numbers:
        signal.pthread_kill(threading.get_ident(), number)


def hear_again() -> None:
    """Let signals through that have waited."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)


def inherited() -> Estate | None:
    """Give what an image of this command before us has handed over; None where it is the first.

    An image of another version may have left what we can't read. Then its workers are left alone: they give their jobs
    back and end.
    """
    said = os.environ.pop(VARIABLE, "")
    if not said.isdigit():
        return None
    fd = int(said)
    try:
        found = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
    except (OSError, ValueError):
        # Some other process's variable.
        return None
    os.close(fd)
    if found["pid"] != os.getpid():
        return None
    if found["format"] != FORMAT:
        for descriptor in found["descriptors"]:
            os.close(descriptor)
        return None
    return _from_json(found)


def _descriptors(estate: Estate) -> list[int]:
    boards = [child.board.fd for child in estate.children if child.board.fd is not None]
    lives = [child.life for child in estate.children if child.life is not None]
    return [*boards, *lives, *(child.control for child in estate.children)]


def _as_json(estate: Estate) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "pid": os.getpid(),
        "descriptors": _descriptors(estate),
        "children": [
            {
                "place": child.place,
                "identity": child.identity,
                "pid": child.pid,
                "board": child.board.fd,
                "control": child.control,
                "started_at": child.started_at,
                "concurrency": child.concurrency,
                "timed_out": _leases_as_json(child.timed_out),
                "is_killed": child.is_killed,
                "leave_at": child.leave_at,
                "held_back": child.held_back,
                "is_followed": child.is_followed,
                "life": child.life,
            }
            for child in estate.children
        ],
        "cases": [
            {
                "moment": moment,
                "worker": case.worker,
                "running": _leases_as_json(case.running),
                "ended": _leases_as_json(case.ended),
                "timed_out": _leases_as_json(case.timed_out),
                "reason": case.reason,
                "is_blamed": case.is_blamed,
            }
            for moment, case in estate.cases
        ],
        "began": estate.began,
        "counts": asdict(estate.counts),
        "taken": estate.taken,
    }


def _from_json(found: dict[str, Any]) -> Estate:
    for descriptor in found["descriptors"]:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the system's own
    return Estate(
        children=[_child(said) for said in found["children"]],
        cases=[(said.pop("moment"), _case(said)) for said in found["cases"]],
        began=found["began"],
        counts=Counts(**found["counts"]),
        taken=found["taken"],
    )


def _child(said: dict[str, Any]) -> Child:
    return Child(**said | {"board": Board.attach(said["board"]), "timed_out": set(_leases(said["timed_out"]))})


def _case(said: dict[str, Any]) -> Case:
    leases = {name: _leases(said[name]) for name in ("running", "ended", "timed_out")}
    return Case(**said | leases)


def _leases_as_json(leases: set[Lease] | frozenset[Lease]) -> list[tuple[int, int]]:
    return sorted((lease.id, lease.token) for lease in leases)


def _leases(said: list[tuple[int, int]]) -> frozenset[Lease]:
    return frozenset(Lease(id=job, token=token) for job, token in said)
