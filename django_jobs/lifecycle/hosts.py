"""Write: the rows that say which workers are alive. Nothing of a job depends on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from django_jobs.conf import settings
from django_jobs.records import WorkerLife, WorkerSeen
from django_jobs.stores import store_for

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

SWEEP_AGE = timedelta(hours=1)
"""The row of a worker that no longer beats stays for people to see, so long at the least."""


def beat(connection: BaseDatabaseWrapper, lives: Sequence[WorkerLife]) -> None:
    """Say that these workers are alive; a row that is missing is written."""
    store_for(connection.alias).beat(connection, lives)


def sign_off(connection: BaseDatabaseWrapper, identities: Iterable[str]) -> None:
    """Delete the rows of workers that are gone."""
    store_for(connection.alias).sign_off(connection, identities)


def sweep(connection: BaseDatabaseWrapper) -> int:
    """Delete the rows of workers that haven't beaten for long, and say how many: their supervisor died with them."""
    return len(store_for(connection.alias).sweep(connection, age=max(10 * settings().lease, SWEEP_AGE)))


def workers(connection: BaseDatabaseWrapper) -> list[WorkerSeen]:
    """Read who is alive, and who was until lately."""
    return store_for(connection.alias).workers(connection)
