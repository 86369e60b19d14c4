"""Write: the words that people see for where a job is, said once for queries and once for a job at hand. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from django.db.models import Case, CharField, F, Q, Value, When
from django.utils.translation import gettext_lazy as _

from django_jobs import clock
from django_jobs.models.fields import DatabaseNow
from django_jobs.states import State

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    from django_jobs.models.job import Job

    Text: TypeAlias = str | _StrPromise

_NOW = DatabaseNow()

PLACES: dict[str, Q] = {
    "scheduled": Q(state=State.READY, run_at__gt=_NOW, attempts=0),
    "waiting": Q(state=State.READY, run_at__lte=_NOW),
    "retrying": Q(state=State.READY, run_at__gt=_NOW, attempts__gt=0),
    "running": Q(state=State.RUNNING),
    "stopping": Q(state=State.CANCELLED, worker__isnull=False),
    "succeeded": Q(state=State.SUCCESSFUL),
    "failed": Q(state=State.FAILED),
    "cancelled": Q(state=State.CANCELLED, worker__isnull=True),
}
"""The words that people see for where a job is, and the rows that each of them means. Every row has exactly one."""

LABELS: dict[str, Text] = {
    "scheduled": _("scheduled"),
    "waiting": _("waiting"),
    "retrying": _("retrying"),
    "running": _("running"),
    "stopping": _("stopping"),
    "succeeded": _("succeeded"),
    "failed": _("failed"),
    "cancelled": _("cancelled"),
}

OVER = frozenset({"succeeded", "failed", "cancelled"})
"""The words after which nothing more happens by itself."""


def state_word() -> Case:
    """Give the expression for a job's word, by the database's clock: `Job.objects.annotate(word=state_word())`."""
    return Case(
        *(When(rows, then=Value(word)) for word, rows in PLACES.items()),
        default=F("state"),
        output_field=CharField(),
    )


def word_of(job: Job) -> str:
    """Give the word of a job as it was read, by the clock of this host."""
    state = State(job.state)
    match state:
        case State.READY:
            if job.run_at <= clock.now():
                return "waiting"
            return "retrying" if job.attempts else "scheduled"
        case State.RUNNING:
            return "running"
        case State.SUCCESSFUL:
            return "succeeded"
        case State.FAILED:
            return "failed"
        case State.CANCELLED:
            return "cancelled" if job.worker is None else "stopping"
        case _:
            assert_never(state)
