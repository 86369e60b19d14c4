"""Decide: the five stored states of a job. Imports nothing of ours; holds no rule about moves (see transitions)."""

from __future__ import annotations

from django.db.models import TextChoices


class State(TextChoices):
    """What the column `state` may hold; the first four are `django.tasks`' own words."""

    READY = "READY"
    RUNNING = "RUNNING"
    SUCCESSFUL = "SUCCESSFUL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


FINISHED = (State.SUCCESSFUL, State.FAILED, State.CANCELLED)
"""A finished job has `finished_at`; the others don't."""
