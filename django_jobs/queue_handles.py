"""Front door: `queues["mail"]`, by which queues are paused, resumed and counted. Reads, and calls lifecycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async
from django.apps import apps

from django_jobs import lifecycle
from django_jobs.conf import settings
from django_jobs.performers.options import check_name
from django_jobs.states import State

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_jobs.models import Job, Queue


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """A queue by its name, whether it has jobs or not: `queues["mail"]`."""

    name: str

    def pause(self, reason: str = "", *, by: str = "") -> bool:
        """Have no job of this queue start, in the caller's transaction, and say whether it was not paused before.

        Jobs that run go on to their end, and so does what a worker has claimed ahead: two hundred jobs that take less
        than some milliseconds, at the most. Everything else waits: jobs that come back from a worker that died, that
        are retried, queued or fired meanwhile. Who pauses a queue again says anew why, and `by` whom; since when stays.
        """
        return lifecycle.pause(self.name, by=by, reason=reason)

    def resume(self) -> bool:
        """Have its jobs start again, and say whether it was paused."""
        return lifecycle.resume(self.name)

    @property
    def is_paused(self) -> bool:
        """Whether it is paused now."""
        return _paused().filter(name=self.name).exists()

    def counts(self) -> dict[str, int]:
        """Count its jobs by state; READY is split into "due" and "not due", and no state is left out."""
        jobs: type[Job] = apps.get_model("django_jobs", "Job")
        nothing = dict.fromkeys(("due", "not due", *(state.value for state in State if state is not State.READY)), 0)
        return jobs.objects.using(settings().database).in_queue(self.name).counts().get(self.name, nothing)

    async def apause(self, reason: str = "", *, by: str = "") -> bool:
        """Do as `pause`, from async code."""
        return await sync_to_async(self.pause)(reason, by=by)

    async def aresume(self) -> bool:
        """Do as `resume`, from async code."""
        return await sync_to_async(self.resume)()

    async def acounts(self) -> dict[str, int]:
        """Do as `counts`, from async code."""
        return await sync_to_async(self.counts)()

    def __str__(self) -> str:
        return self.name


class Queues:
    """All queues: any name is one, as soon as a job waits under it."""

    def __getitem__(self, name: str) -> QueueHandle:
        """Give the queue of that name. Raises TypeError or ValueError for what can't be one, naming the rule."""
        return QueueHandle(check_name("queue", name))

    def paused(self) -> list[Queue]:
        """List the queues that are paused, by name; each says since when (`paused_at`), `paused_by` whom and why."""
        return list(_paused().order_by("name"))

    async def apaused(self) -> list[Queue]:
        """Do as `paused`, from async code."""
        return await sync_to_async(self.paused)()

    def __repr__(self) -> str:
        return 'queues: queues["mail"].pause()'


def _paused() -> QuerySet[Queue]:
    rows: type[Queue] = apps.get_model("django_jobs", "Queue")
    return rows._base_manager.using(settings().database).filter(paused_at__isnull=False)


queues = Queues()
