"""Declare and run: run(claim) -> Outcome, sync and async. The only room where user code is called; writes nothing.

Whatever a performer raises becomes an outcome; nothing it raises gets out of here, and nothing it activated stays: the
language, the time zone, context variables (the decimal context is one) and transactions are fresh for each job. Not
covered is what belongs to the thread or the process: thread-locals, the working directory, the environment, the locale.
"""

from __future__ import annotations

from django_jobs.runner.middleware import prepare
from django_jobs.runner.run import arun, broken, interrupted, is_async, note_errors, rehearse, run, unreported
from django_jobs.runner.surroundings import close_connections

__all__ = [
    "arun",
    "broken",
    "close_connections",
    "interrupted",
    "is_async",
    "note_errors",
    "prepare",
    "rehearse",
    "run",
    "unreported",
]
