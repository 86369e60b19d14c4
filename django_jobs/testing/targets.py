"""Front door: which jobs a test means, by performer, by stored name, by queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from django.apps import apps

from django_jobs.conf import NAME, settings
from django_jobs.performers import Enqueuer, find_performer, get_performer

if TYPE_CHECKING:
    from django_jobs.models import Job
    from django_jobs.models.job import JobQuerySet

Target: TypeAlias = Enqueuer[...] | str
"""A performer, or the stored name of one."""


def name_of(target: object) -> str:
    """Give the stored name. Raises TypeError for what is no performer, ValueError for what can't be a name."""
    if isinstance(target, Enqueuer):
        return target.name
    if not isinstance(target, str):
        message = f"{target!r:.80} is no job; give what @job made, or its stored name"
        raise TypeError(message)
    if not NAME.fullmatch(target):
        message = f"{target!r:.80} can't be the name of a job; a queue is given as queue={target!r:.80}"
        raise ValueError(message)
    return target


def names_of(targets: Iterable[Target]) -> tuple[str, ...] | None:
    """Give all names that rows of these may carry, None for none given.

    Raises TypeError for what is no performer, and UnknownPerformer for a name that nobody has here.
    """
    names: list[str] = []
    for target in targets:
        performer = get_performer(name_of(target))
        names += [performer.name, *performer.aliases]
    return tuple(dict.fromkeys(names)) or None


def aliases_of(target: Target) -> tuple[str, ...]:
    """Give all names that rows of this one may carry, whoever performs them."""
    name = name_of(target)
    performer = find_performer(name)
    return (name,) if performer is None else (performer.name, *performer.aliases)


def enqueuer_of(target: Target) -> Enqueuer[Any] | None:
    """Give what knows the signature, None where nobody does."""
    return target if isinstance(target, Enqueuer) else find_performer(target)


def whole(said: str, value: object, lowest: int) -> int:
    """Give a whole number back. Raises ValueError, naming value and remedy, for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        message = f"{said} {value!r:.80}: give a whole number, {lowest} or more"
        raise ValueError(message)
    return value


def rows() -> JobQuerySet:
    """Find all jobs of performers, in the database that they are in, the oldest first."""
    model: type[Job] = apps.get_model("django_jobs", "Job")
    return model.objects.using(settings().database).exclude(name="").order_by("id")
