"""Declare: `@job`, performers with their policy, the registry, and the ways to queue. Runs no job.

A performer stays callable like the function it was made of.
"""

from __future__ import annotations

from django_jobs import lifecycle
from django_jobs.conf import NAME
from django_jobs.performers.declare import job
from django_jobs.performers.instances import reference, resolve
from django_jobs.performers.naming import follow_up, named
from django_jobs.performers.options import UNSET, JobOptions, Options, Policy, Unset
from django_jobs.performers.performer import Enqueuer, Performer
from django_jobs.performers.queueing import aenqueue, enqueue, refuse_in_event_loop
from django_jobs.performers.registry import (
    AnyPerformer,
    clashes,
    discover,
    find_performer,
    forget,
    get_performer,
    known_names,
    registered,
    undiscovered,
)
from django_jobs.performers.scheduling import Declared, declared, every, schedule_clashes

__all__ = [
    "NAME", "UNSET", "AnyPerformer", "Declared", "Enqueuer", "JobOptions", "Options", "Performer", "Policy", "Unset",
    "aenqueue", "clashes", "declared", "discover", "enqueue", "every", "find_performer", "forget", "get_performer",
    "job", "known_names", "named", "reference", "refuse_in_event_loop", "registered", "resolve", "schedule_clashes",
    "undiscovered",
]  # fmt: skip

lifecycle.prepare_follow_ups_by(follow_up)
