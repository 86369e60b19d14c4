"""Drive: the rows that say which workers are alive. Written for people and their checks: no job depends on them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

import django
from django.db import DatabaseError, InterfaceError

import django_jobs
from django_jobs import clock, lifecycle, schedules
from django_jobs.records import WorkerLife
from django_jobs.worker.board import Board
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan

BEAT_INTERVAL = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker process of this command, as its supervisor, or it itself, knows it."""

    plan: Plan
    identity: str
    pid: int
    board: Board
    started_at: float

    @classmethod
    def this_process(cls, plan: Plan, board: Board) -> Member:
        """Give the member that is this process itself."""
        return cls(plan=plan, identity=plan.identity, pid=os.getpid(), board=board, started_at=clock.monotonic())

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another job."""
        return self.board.in_hand >= self.plan.concurrency

    def life(self) -> WorkerLife:
        """Say what its row shall say now."""
        now = clock.monotonic()
        claimed_at = now if self.is_full else self.board.claimed_at
        return WorkerLife(
            identity=self.identity,
            host=socket.gethostname()[:255],
            pid=self.pid,
            queues=tuple(self.plan.queues or ()),
            slots=self.plan.concurrency,
            versions=_versions(self.identity),
            age=now - self.started_at,
            claim_age=now - claimed_at if claimed_at else None,
        )


@lru_cache(maxsize=256)
def _versions(_identity: str) -> dict[str, str]:
    """Read which releases are installed as a worker starts; those of this process may be older."""
    return {
        "django_jobs": _installed("django-jobs-queue") or django_jobs.__version__,
        "django": _installed("django") or django.get_version(),
        "python": python_version(),
        "schedules": schedules.code_set().said,
    }


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


class Beat:
    """Beats for all workers of a command in one statement, and deletes the rows of those that are gone."""

    def __init__(self, *, link: Link, members: Callable[[], Iterable[Member]]) -> None:
        self._link = link
        self._members = members
        self._written: set[str] = set()
        self.answered_at = 0.0
        """When the database last took a beat, 0 for never."""

    def tick(self) -> float:
        """Beat, and give the seconds until the next beat. Whoever starts or buries a worker has it come at once."""
        lives = [member.life() for member in self._members()]
        self._delete(self._written - {life.identity for life in lives})
        # Noted before: a statement that got no answer may have been carried out.
        self._written |= {life.identity for life in lives}
        with self._link.connected() as connection:
            lifecycle.beat(connection, lives)
        self.answered_at = clock.monotonic()
        return BEAT_INTERVAL

    def close(self) -> None:
        """Delete the rows of all, as far as the database lets us, and close the connection."""
        with suppress(DatabaseError, InterfaceError):
            self._delete(set(self._written))
        self._link.close()

    def _delete(self, gone: set[str]) -> None:
        if gone:
            with self._link.connected() as connection:
                lifecycle.sign_off(connection, gone)
            self._written -= gone
