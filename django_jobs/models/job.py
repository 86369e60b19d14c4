"""Write: the table of jobs, and the words to find and move them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from asgiref.sync import sync_to_async
from django.db import models, router
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_jobs import clock, lifecycle
from django_jobs.models.facts import explained
from django_jobs.models.fields import DatabaseNow, InstantField
from django_jobs.models.waiting import await_result, wait_result
from django_jobs.performers.options import Reschedule, check_places
from django_jobs.performers.redaction import redact_job, redact_key, redact_part
from django_jobs.records import Draft, Inserted, Moved, NewJob
from django_jobs.states import FINISHED, State

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from django_jobs.durations import Duration
    from django_jobs.records import Claim

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


def _refuse(call: str) -> NoReturn:
    message = (
        f"{call} would write past the verbs that keep jobs safe; queue with performer.later(), later_many() or "
        "enqueue(), and move jobs with retry(), cancel() or delete(). update() is the documented escape hatch."
    )
    raise TypeError(message)


class JobQuerySet(models.QuerySet["Job", "Job"]):
    """Words to find jobs; what comes back is newest first and never cut silently."""

    def ready(self) -> JobQuerySet:
        """Find jobs that wait to run, due or not."""
        return self.filter(state=State.READY)

    def due(self) -> JobQuerySet:
        """Find jobs that wait to run and may run now."""
        return self.ready().filter(run_at__lte=DatabaseNow())

    def running(self) -> JobQuerySet:
        """Find jobs that a worker runs."""
        return self.filter(state=State.RUNNING)

    def succeeded(self) -> JobQuerySet:
        """Find jobs that have succeeded."""
        return self.filter(state=State.SUCCESSFUL)

    def failed(self) -> JobQuerySet:
        """Find jobs that failed for good."""
        return self.filter(state=State.FAILED)

    def cancelled(self) -> JobQuerySet:
        """Find jobs that were cancelled, have expired or were superseded, held or not."""
        return self.filter(state=State.CANCELLED)

    def in_queue(self, queue: str) -> JobQuerySet:
        """Find the jobs of one queue."""
        return self.filter(queue=queue)

    def named(self, name: str) -> JobQuerySet:
        """Find the jobs of one performer, by its stored name."""
        return self.filter(name=name)

    def before(self, job_id: int) -> JobQuerySet:
        """Find jobs older than the one with that id: the next page of a listing."""
        return self.filter(pk__lt=job_id)

    def stored_names(self) -> list[str]:
        """List the names of the performers that these jobs are for, sorted."""
        return list(self.order_by("name").exclude(name="").values_list("name", flat=True).distinct())

    def counts(self) -> dict[str, dict[str, int]]:
        """Count jobs per queue and state; READY is split into "due" and "not due", and no state is left out."""
        due = Q(state=State.READY, run_at__lte=DatabaseNow())
        columns = {"due": due, "not due": Q(state=State.READY) & ~due}
        columns |= {state.value: Q(state=state) for state in State if state is not State.READY}
        counted = {f"n{place}": models.Count("pk", filter=where) for place, where in enumerate(columns.values())}
        rows: Any = self.order_by("queue").values("queue").annotate(**counted)
        return {row["queue"]: {word: row[f"n{place}"] for place, word in enumerate(columns)} for row in rows}

    def retry(self) -> Moved:
        """Make these jobs READY now, and say which it moved and why the others stay.

        Running, stopping and succeeded ones stay, and those whose key another job holds.
        """
        return self._moved("retried", lifecycle.retry)

    retry.alters_data = True  # type: ignore[attr-defined]  # no template may call it

    def cancel(self, reason: str = "") -> Moved:
        """Cancel these jobs, and say which it moved and why the others stay: they have come to their end."""
        return self._moved("cancelled", partial(lifecycle.cancel, reason=reason))

    cancel.alters_data = True  # type: ignore[attr-defined]

    def reschedule(self, **places: Unpack[Reschedule]) -> Moved:
        """Give those of these jobs that wait another `queue`, `priority`, `run_at` (aware) or `max_attempts`.

        Says which it moved and why the others stay. Raises TypeError or ValueError for wrong values.
        """
        return self._moved("rescheduled", partial(lifecycle.reschedule, places=check_places(places)))

    reschedule.alters_data = True  # type: ignore[attr-defined]

    def _moved(self, done: str, verb: Callable[..., list[int]]) -> Moved:
        ids = self._ids()
        return lifecycle.moved_and_why(ids, verb(ids, using=self.db), done, using=self.db)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete these jobs but those that are held, which are logged, and say how many went."""
        deleted = lifecycle.delete(self._ids(), using=self.db)
        return len(deleted), {self.model._meta.label: len(deleted)}

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]  # as Django's own: the manager must not delete all rows

    async def areschedule(self, **places: Unpack[Reschedule]) -> Moved:
        """Do as `reschedule`, from async code."""
        return await sync_to_async(partial(self.reschedule, **places))()

    async def aretry(self) -> Moved:
        """Do as `retry`, from async code."""
        return await sync_to_async(self.retry)()

    async def acancel(self, reason: str = "") -> Moved:
        """Do as `cancel`, from async code."""
        return await sync_to_async(self.cancel)(reason)

    async def astored_names(self) -> list[str]:
        """Do as `stored_names`, from async code."""
        return await sync_to_async(self.stored_names)()

    async def acounts(self) -> dict[str, dict[str, int]]:
        """Do as `counts`, from async code."""
        return await sync_to_async(self.counts)()

    async def aprune(self) -> int:
        """Do as `prune`, from async code."""
        return await sync_to_async(self.prune)()

    def prune(self) -> int:
        """Delete all finished jobs whose keeping is over, whatever this QuerySet filters, and say how many went."""
        self._for_write = True
        return lifecycle.prune(using=self.db)

    prune.alters_data = True  # type: ignore[attr-defined]

    def _ids(self) -> list[int]:
        # What a verb is about is read where it writes; `db` is then no replica.
        self._for_write = True
        # A slice has an order of its own, which says what is in it.
        jobs = self if self.query.is_sliced else self.order_by("pk")
        return list(jobs.values_list("pk", flat=True))

    def create(self, **kwargs: Any) -> NoReturn:
        _refuse("create()")

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("bulk_create()")

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("bulk_update()")

    def get_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("get_or_create()")

    def update_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("update_or_create()")

    async def acreate(self, **kwargs: Any) -> NoReturn:
        _refuse("acreate()")

    async def abulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("abulk_create()")

    async def abulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("abulk_update()")

    async def aget_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("aget_or_create()")

    async def aupdate_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("aupdate_or_create()")


class Job(models.Model):
    """One job: a performer's name, arguments, a queue, when it may run, how it went.

    `args`, `kwargs` and `result` hold the codec's JSON. `timeout`, `keep` and `keep_failed` are seconds.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(
        _("job"), max_length=100, default="", db_default="",
        help_text="stable name of the performer; empty for rows of the low level",
    )  # fmt: skip
    queue = models.CharField(_("queue"), max_length=100, help_text="the queue it waits under")
    priority = models.SmallIntegerField(_("priority"), default=0, db_default=0, help_text="-100 to 100, higher first")
    args = models.JSONField(_("arguments"), default=list, db_default=[], help_text="positional arguments, encoded")
    kwargs = models.JSONField(
        _("keyword arguments"), default=dict, db_default={}, help_text="keyword arguments, encoded"
    )
    state = models.CharField(
        _("state"), max_length=10, choices=State.choices, default=State.READY, db_default=State.READY.value,
        help_text="READY, RUNNING, SUCCESSFUL, FAILED or CANCELLED",
    )  # fmt: skip
    run_at = InstantField(_("run at"), db_default=Now(), help_text="may not start before this")
    expires_at = InstantField(_("expires at"), null=True, help_text="must not start at or after this")
    attempts = models.IntegerField(_("attempts"), default=0, db_default=0, help_text="attempts begun and counted")
    max_attempts = models.IntegerField(_("max attempts"), default=20, db_default=20, help_text="fails for good after")
    crashes = models.IntegerField(_("crashes"), default=0, db_default=0, help_text="deaths of its process under it")
    max_crashes = models.IntegerField(_("max crashes"), default=3, db_default=3, help_text="fails for good after")
    alone = models.BooleanField(
        _("alone"), default=False, db_default=False, help_text="suspected of killing its process: runs by itself"
    )
    restart = models.BooleanField(
        _("restart"), default=True, db_default=True, help_text="false: once started, never starts again by itself"
    )
    timeout = models.FloatField(_("timeout"), null=True, help_text="seconds an attempt may take; null: no limit")
    keep = models.FloatField(
        _("keep"), null=True, help_text="seconds a succeeded job stays; 0: not at all; null: for ever"
    )
    keep_failed = models.FloatField(
        _("keep failed"), null=True, help_text="seconds a failed or cancelled job stays; null: for ever"
    )
    on_failure = models.CharField(
        _("on failure"), max_length=100, default="", db_default="",
        help_text="name of the performer to queue when this fails; empty: none",
    )  # fmt: skip
    enqueued_at = InstantField(_("enqueued at"), db_default=Now(), help_text="when the row was inserted")
    first_started_at = InstantField(_("first started at"), null=True, help_text="first claim since it was queued")
    started_at = InstantField(_("started at"), null=True, help_text="latest claim")
    finished_at = InstantField(_("finished at"), null=True, help_text="set exactly when the job is finished")
    prune_at = InstantField(_("prune at"), null=True, help_text="may be deleted after this; null: kept for ever")
    token = models.BigIntegerField(
        _("token"), null=True, help_text="the latest claim's; stays after the end to say which claim ended it"
    )
    lease_expires_at = InstantField(_("lease expires at"), null=True, help_text="the claim holds until this")
    deadline_at = InstantField(_("deadline at"), null=True, help_text="last resort: claim + timeout + grace + lease")
    worker = models.CharField(
        _("worker"), max_length=150, null=True, help_text="identity of the process that holds it; null: not held"
    )
    last_worker = models.CharField(
        _("last worker"), max_length=150, null=True, help_text="identity of the latest process that held it"
    )
    unique_key = models.CharField(
        _("unique key"), max_length=300, null=True, help_text="one job per key waiting, running or held"
    )
    unique_until = InstantField(
        _("unique until"), null=True, help_text="the key holds until this, whether ended or not"
    )
    waiting_key = models.CharField(
        _("waiting key"), max_length=300, null=True, help_text="one job per key waiting to start"
    )
    errors = models.JSONField(
        _("errors"), default=list, db_default=[], help_text="what went wrong, oldest first; the first and newest 19"
    )
    fingerprint = models.CharField(
        _("fingerprint"), max_length=40, null=True, help_text="equal for failures of one job at one place"
    )
    result = models.JSONField(_("result"), null=True, help_text="what the performer returned, encoded")
    progress = models.JSONField(_("progress"), null=True, help_text="done, total and message, as the job said")
    meta = models.JSONField(
        _("meta"), default=dict, db_default={}, help_text="language, time zone, trace headers, what the caller adds"
    )
    schedule = models.CharField(
        _("schedule"), max_length=200, null=True, help_text="name of the schedule that fired it"
    )
    tick = InstantField(_("tick"), null=True, help_text="the due moment of the schedule it was fired for")

    duplicate: bool = False
    """Whether this was given in place of a job that was asked for, whose key it holds."""
    replaced: bool = False
    """Whether it got the arguments and the time of that one."""

    # As type checkers without a plugin see it: it has all the words but `delete`.
    objects: ClassVar[JobQuerySet] = models.Manager.from_queryset(JobQuerySet)()  # type: ignore[assignment]

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ("-id",)
        default_permissions = ("view", "delete")
        permissions = (
            ("retry_job", "Can retry, run now and copy jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("reschedule_job", "Can move jobs to another queue, priority or time"),
            ("run_job", "Can enqueue jobs and run schedules now"),
            ("view_job_args", "Can see arguments and results of jobs"),
        )
        indexes = (
            models.Index(
                F("queue"), F("priority").desc(), F("run_at"), F("id"),
                name="django_jobs_claim", condition=Q(state=State.READY, name__gt=""),
            ),
            models.Index(
                F("queue"), F("priority").desc(), F("run_at"), F("id"),
                name="django_jobs_take", condition=Q(state=State.READY, name=""),
            ),
            models.Index(fields=("worker",), name="django_jobs_held", condition=Q(worker__isnull=False)),
            models.Index(
                fields=("expires_at",), name="django_jobs_expiry",
                condition=Q(state=State.READY, expires_at__isnull=False),
            ),
            models.Index(fields=("prune_at",), name="django_jobs_prune", condition=Q(prune_at__isnull=False)),
            models.Index(fields=("fingerprint", "id"), name="django_jobs_trouble", condition=Q(state=State.FAILED)),
            models.Index(fields=("schedule", "id"), name="django_jobs_fired", condition=Q(schedule__isnull=False)),
        )  # fmt: skip
        constraints = (
            models.UniqueConstraint(
                fields=("unique_key",), name="django_jobs_unique",
                condition=Q(unique_key__isnull=False)
                & (Q(state__in=(State.READY, State.RUNNING)) | Q(worker__isnull=False) | Q(unique_until__isnull=False)),
            ),
            models.UniqueConstraint(
                fields=("waiting_key",), name="django_jobs_waiting",
                condition=Q(state=State.READY, waiting_key__isnull=False),
            ),
            models.CheckConstraint(name="django_jobs_state", condition=Q(state__in=State.values)),
            models.CheckConstraint(
                name="django_jobs_running",
                condition=~Q(state=State.RUNNING)
                | Q(token__isnull=False, worker__isnull=False, lease_expires_at__isnull=False),
            ),
            models.CheckConstraint(
                name="django_jobs_holding",
                condition=Q(worker__isnull=True)
                | Q(
                    state__in=(State.RUNNING, State.CANCELLED), token__isnull=False, lease_expires_at__isnull=False
                ),
            ),
            models.CheckConstraint(
                name="django_jobs_finished",
                condition=Q(state__in=FINISHED, finished_at__isnull=False)
                | Q(state__in=(State.READY, State.RUNNING), finished_at__isnull=True),
            ),
            models.CheckConstraint(
                name="django_jobs_priority", condition=Q(priority__gte=LOWEST_PRIORITY, priority__lte=HIGHEST_PRIORITY)
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.name or '(pushed)'} #{self.pk}"

    @classmethod
    def mirror(cls, new: NewJob, inserted: Inserted, *, using: str) -> Job:
        """Give the row that was just inserted, without asking the database again."""
        draft = new.draft
        values = _blank() | {
            "id": inserted.id, "name": draft.name, "queue": draft.queue, "priority": draft.priority,
            "args": json.loads(new.args), "kwargs": _mapping(new.kwargs), "run_at": inserted.run_at,
            "expires_at": inserted.expires_at, "max_attempts": draft.max_attempts, "max_crashes": draft.max_crashes,
            "restart": draft.restart, "timeout": draft.timeout, "keep": draft.keep, "keep_failed": draft.keep_failed,
            "enqueued_at": inserted.enqueued_at, "errors": [], "meta": _mapping(draft.meta),
            "on_failure": draft.on_failure, "unique_key": new.unique_key, "waiting_key": new.waiting_key,
            "unique_until": _until(new, inserted),
        }  # fmt: skip
        # As Django makes an instance of a row: by place, which takes half as long as by name.
        return cls.from_db(using, values.keys(), values.values())

    @classmethod
    def to_come(cls, new: NewJob, *, using: str) -> Job:
        """Give a job that isn't inserted yet: it has no id, and the times of this host's clock."""
        now, draft = clock.now(), new.draft
        run_at = draft.run_at or now + draft.delay
        expires_at = None if draft.expires is None else run_at + draft.expires
        job = cls.mirror(new, Inserted(id=0, enqueued_at=now, run_at=run_at, expires_at=expires_at), using=using)
        job.pk, job._state.adding = None, True
        return job

    def become(self, other: Job) -> None:
        """Be that row from now on."""
        vars(self).update(vars(other))

    @classmethod
    def of_claim(cls, claim: Claim, result: str | None = None) -> Job:
        """Give what was the row of a job that has succeeded and, since its keeping is 0, is gone."""
        return cls(
            id=claim.id, name=claim.name, queue=claim.queue, priority=claim.priority, args=json.loads(claim.args),
            kwargs=json.loads(claim.kwargs), meta=json.loads(claim.meta), state=State.SUCCESSFUL, run_at=claim.run_at,
            attempts=claim.attempt, max_attempts=claim.max_attempts, crashes=claim.crashes,
            max_crashes=claim.max_crashes, restart=claim.restart, timeout=claim.timeout, keep=claim.keep,
            enqueued_at=claim.enqueued_at, first_started_at=claim.first_started_at, started_at=claim.started_at,
            finished_at=clock.now(), token=claim.token, result=None if result is None else json.loads(result),
            schedule=claim.schedule, tick=claim.tick, waiting_key=claim.waiting_key, on_failure=claim.on_failure,
        )  # fmt: skip

    @property
    def is_due(self) -> bool:
        """Whether the job waits and its time has come, by the clock of this host."""
        return self.state == State.READY and self.run_at <= clock.now()

    @property
    def is_exhausted(self) -> bool:
        """Whether no attempt is left."""
        return self.attempts >= self.max_attempts

    def as_dict(self, *, redacted: bool = True) -> dict[str, Any]:
        """Give the row, as this instance has it, as plain values that JSON knows, by the names of its columns.

        Instants are ISO 8601 texts in UTC, lengths of time seconds; `args`, `kwargs` and `result` are in the form in
        which they are stored, and what `redact`, REDACT and Django's own patterns name is masked, unless asked for. The
        token stays here: who knows it could write in the name of the claim.
        """
        fields = [field.attname for field in self._meta.concrete_fields if field.attname != "token"]
        row = {name: _plain(getattr(self, name)) for name in fields}
        if redacted:
            row["args"], row["kwargs"] = redact_job(self.name, self.args, self.kwargs)
            row |= {part: redact_part(self.name, row[part]) for part in ("result", "meta")}
            row |= {key: row[key] and redact_key(row[key]) for key in ("unique_key", "waiting_key")}
        return row

    def retry(self) -> None:
        """Make the job READY now, with at least one more attempt.

        Raises JobRunning, JobStopping (cancelled, and its body may still be running), JobSucceeded, KeyHeld (by
        another job) or JobGone.
        """
        lifecycle.retry_one(self._queued_id(), using=self._written_at())
        self.refresh_from_db(using=self._written_at())

    retry.alters_data = True  # type: ignore[attr-defined]  # no template may call it

    def cancel(self, reason: str = "") -> None:
        """Cancel the job; a running one is CANCELLED at once and held until its body has stopped.

        Raises JobFinished (JobSucceeded where it has succeeded) or JobGone.
        """
        lifecycle.cancel_one(self._queued_id(), reason=reason, using=self._written_at())
        self.refresh_from_db(using=self._written_at())

    cancel.alters_data = True  # type: ignore[attr-defined]

    def reschedule(self, **places: Unpack[Reschedule]) -> None:
        """Have the job wait under another `queue`, with another `priority`, `run_at` (aware) or `max_attempts`.

        Raises JobRunning, JobStopping, JobFinished (JobSucceeded where it has succeeded) or JobGone, and TypeError or
        ValueError for wrong values.
        """
        lifecycle.reschedule_one(self._queued_id(), check_places(places), using=self._written_at())
        self.refresh_from_db(using=self._written_at())

    reschedule.alters_data = True  # type: ignore[attr-defined]

    def copy(self) -> Job:
        """Queue another job with the same arguments, options and key, to run now and without an expiry, and give it.

        Raises DuplicateJob where a job holds the key.
        """
        using, new = self._written_at(), self._as_new()
        return self.mirror(new, lifecycle.enqueue(new, using=using), using=using)

    copy.alters_data = True  # type: ignore[attr-defined]

    def _as_new(self) -> NewJob:
        kept = None if self.unique_until is None else (self.unique_until - self.enqueued_at).total_seconds()
        draft = Draft(
            name=self.name, queue=self.queue, priority=self.priority, max_attempts=self.max_attempts,
            max_crashes=self.max_crashes, restart=self.restart, timeout=self.timeout, keep=self.keep,
            keep_failed=self.keep_failed, meta=_text(self.meta), on_failure=self.on_failure, on_duplicate="raise",
            unique_for=kept,
        )  # fmt: skip
        return NewJob(draft, _text(self.args), _text(self.kwargs), self.unique_key, self.waiting_key)

    def wait_result(self, timeout: Duration | None) -> Any:
        """Wait until the job has succeeded, and give its result as it was returned; then the instance is as its row.

        It looks at the row, first after 20 ms and then ever more seldom, at least once a second. `timeout` is a
        duration; with 0 it looks once, and None waits for as long as it takes. Raises WaitFailed, WaitCancelled,
        WaitGone (the row was deleted; one with keep=0 goes as it succeeds), TimeoutError; at once RuntimeError within
        `atomic()` on the jobs' database, and SynchronousOnlyOperation in a running event loop; UndecodableValue and
        InstanceGone where the result can't be read.
        """
        return wait_result(self, timeout, using=self._written_at())

    async def await_result(self, timeout: Duration | None) -> Any:
        """Do as `wait_result`, from async code; the event loop is free meanwhile."""
        return await await_result(self, timeout, using=self._written_at())

    def explain(self) -> str:
        """Say in plain words why the job doesn't run just now, or what it came to: a line for each thing.

        It is read anew, with its queue, the workers, and how many due jobs come before it; this instance stays.
        """
        if self._state.adding:
            return "It isn't queued yet: it has an id after the commit of the transaction."
        return explained(self.pk, using=self._written_at())

    async def aexplain(self) -> str:
        """Do as `explain`, from async code."""
        return await sync_to_async(self.explain)()

    async def areschedule(self, **places: Unpack[Reschedule]) -> None:
        """Do as `reschedule`, from async code."""
        await sync_to_async(partial(self.reschedule, **places))()

    async def acopy(self) -> Job:
        """Do as `copy`, from async code."""
        return await sync_to_async(self.copy)()

    async def aretry(self) -> None:
        """Do as `retry`, from async code."""
        await sync_to_async(self.retry)()

    async def acancel(self, reason: str = "") -> None:
        """Do as `cancel`, from async code."""
        await sync_to_async(self.cancel)(reason)

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:  # noqa: FBT001, FBT002
        """Delete the row. Raises JobRunning or JobStopping while it is held, JobGone when there is no such row."""
        lifecycle.delete_one(self._queued_id(), using=using or self._written_at())
        return 1, {self._meta.label: 1}

    def _queued_id(self) -> int:
        """Give the id. Raises RuntimeError where the commit that is to bring it hasn't come."""
        job_id: int | None = self.pk
        if job_id is None:
            message = "this job isn't queued yet; it has an id after the commit of the transaction"
            raise RuntimeError(message)
        return job_id

    def _written_at(self) -> str:
        """Name the database that writes go to; the one it was read from may be a replica."""
        return router.db_for_write(type(self), instance=self)

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("Job.save()")

    async def asave(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("Job.asave()")


def _until(new: NewJob, inserted: Inserted) -> datetime | None:
    if new.unique_key is None or new.draft.unique_for is None:
        return None
    return inserted.enqueued_at + timedelta(seconds=new.draft.unique_for)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _mapping(text: str) -> dict[str, Any]:
    """Read a JSON object; nearly all are empty."""
    return {} if text == "{}" else json.loads(text)


@cache
def _blank() -> dict[str, Any]:
    """Give what stands in a new row of which nothing was said, by column, in the order of the model's fields."""
    return {field.attname: field.get_default() for field in Job._meta.concrete_fields}
