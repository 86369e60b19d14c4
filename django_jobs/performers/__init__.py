"""Declare: `@job`, performers with their policy, the registry, and the ways to queue. Runs no job.

A performer stays callable like the function it was made of.
"""

from __future__ import annotations

from django_jobs.performers.declare import job
from django_jobs.performers.options import NAME, UNSET, Options, Unset
from django_jobs.performers.performer import Enqueuer, Performer, aenqueue, enqueue, named
from django_jobs.performers.registry import (
    clashes,
    discover,
    find_performer,
    forget,
    get_performer,
    known_names,
    registered,
    undiscovered,
)

__all__ = [
    "NAME", "UNSET", "Enqueuer", "Options", "Performer", "Unset", "aenqueue", "clashes", "discover", "enqueue",
    "find_performer", "forget", "get_performer", "job", "known_names", "named", "registered", "undiscovered",
]  # fmt: skip
