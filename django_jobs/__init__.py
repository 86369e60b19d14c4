"""Background jobs for Django, kept as rows in the database the project already has.

The public names are loaded when first used, so importing this package touches neither Django nor a setting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs import backoff
    from django_jobs.context import Attempt, current_attempt
    from django_jobs.exceptions import Cancel, GiveUp, Retry, Snooze
    from django_jobs.performers import aenqueue, enqueue, every, get_performer, job, named, registered
    from django_jobs.queue_handles import queues
    from django_jobs.schedules import preview
    from django_jobs.worker.turn import work_one

__version__ = "0.1.0"

__all__ = [
    "Attempt", "Cancel", "GiveUp", "Retry", "Snooze", "aenqueue", "backoff", "current_attempt", "enqueue",
    "every", "get_performer", "job", "named", "preview", "queues", "registered", "work_one",
]  # fmt: skip

_HOMES = {
    "Attempt": "context",
    "Cancel": "exceptions",
    "GiveUp": "exceptions",
    "Retry": "exceptions",
    "Snooze": "exceptions",
    "aenqueue": "performers",
    "current_attempt": "context",
    "enqueue": "performers",
    "every": "performers",
    "get_performer": "performers",
    "job": "performers",
    "named": "performers",
    "preview": "schedules",
    "queues": "queue_handles",
    "registered": "performers",
    "work_one": "worker.turn",
}


def __getattr__(name: str) -> Any:
    if name == "backoff":
        return import_module("django_jobs.backoff")
    if name in _HOMES:
        return getattr(import_module(f"django_jobs.{_HOMES[name]}"), name)
    message = f"module 'django_jobs' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
