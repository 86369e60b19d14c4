"""Front door: jobs, queues and schedules in Django's admin. Shows rows; every button is a call to lifecycle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as confirm_deletion
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.db.models import Func, Model, QuerySet, TextField
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_jobs import lifecycle, performers, schedules
from django_jobs.conf import settings
from django_jobs.exceptions import VerbRefused
from django_jobs.models import Job, Queue, Schedule
from django_jobs.models.words import LABELS, PLACES, state_word
from django_jobs.performers.redaction import redact_job, redact_key, redact_part
from django_jobs.states import State

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler
    from django.http import HttpRequest, HttpResponse
    from django.utils.functional import _StrPromise

    Text: TypeAlias = str | _StrPromise
    ReadOnlyBase = admin.ModelAdmin[Model]
else:
    ReadOnlyBase = admin.ModelAdmin

AUDITED = 1_000
"""Above so many jobs at once, the log of the admin gets one line for all instead of one for each."""

BIGGEST_ID = 2**63 - 1

NONE = "-"
"""What stands where there is nothing, as elsewhere in the admin."""


class LastReason(Func):
    """The reason in the newest of a job's errors, read inside the database: the list needs no more of them."""

    arity = 1
    output_field = TextField()

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> tuple[str, Any]:
        return super().as_sql(compiler, connection, template="(%(expressions)s #>> '{-1,reason}')")

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> tuple[str, Any]:
        return super().as_sql(compiler, connection, template="JSON_EXTRACT(%(expressions)s, '$[#-1].reason')")


# -- what all pages have in common


class ReadOnly(ReadOnlyBase):
    """Pages that show and don't change."""

    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).using(settings().database)
        return rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def _instant(name: str, label: Text) -> Callable[[Any], str]:
    """Show an instant to the second, in the active zone, with and without USE_TZ."""

    @admin.display(description=label)
    def shown(row: Any) -> str:
        value: datetime | None = getattr(row, name)
        return NONE if value is None else timezone.make_naive(value).isoformat(" ", "seconds")

    # Django takes it for the name of a CSS class.
    shown.__name__ = f"{name}_shown"
    return shown


def _span(name: str, label: Text, none: Text) -> Callable[[Any], str]:
    """Show a number of seconds as a length of time."""

    @admin.display(description=label)
    def shown(row: Any) -> str:
        value: float | None = getattr(row, name)
        return str(none if value is None else timedelta(seconds=value))

    shown.__name__ = f"{name}_shown"
    return shown


def _block(value: object) -> str:
    """Show text as it stands. Data is escaped like any other."""
    return format_html("<pre>{}</pre>", value)


def _json(value: object) -> str:
    return _block(json.dumps(value, indent=2, ensure_ascii=False))


# -- jobs


class StateFilter(admin.SimpleListFilter):
    """Jobs by the word for where they are."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, Text]]:
        return LABELS.items()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        value = self.value()
        return queryset.filter(PLACES[value]) if value in PLACES else None


class QueueFilter(admin.SimpleListFilter):
    """Jobs by queue. The choices are what is declared and what was paused: asking the rows would read all of them."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, Text]]:
        names = {queue for name in performers.registered() if isinstance(queue := _queue_of(name), str)}
        names |= {settings().default_queue, *Queue.objects.using(settings().database).values_list("name", flat=True)}
        return [(name, name) for name in sorted(names)]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        value = self.value()
        return None if value is None else queryset.filter(queue=value)


def _queue_of(name: str) -> object:
    return performers.get_performer(name).options.queue


class JobChangeList(ChangeList):
    """The list asks for what it shows and leaves arguments, results and errors where they are."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        rows = rows.annotate(last_reason=LastReason("errors"))
        return rows.defer("args", "kwargs", "result", "errors", "meta", "progress")


class JobAdmin(ReadOnly):
    """Jobs: a list, a page for each, and the actions retry, cancel and delete."""

    list_display: tuple[Any, ...] = (
        "id", "job", "word", "queue", "tries", "reason",
        _instant("run_at", gettext_lazy("run at")),
        _instant("started_at", gettext_lazy("started")),
        _instant("finished_at", gettext_lazy("finished")),
        "priority",
    )  # fmt: skip
    list_filter = (StateFilter, QueueFilter)
    search_fields = ("name",)
    search_help_text = gettext_lazy("A number finds the job; anything else is looked for in names.")
    actions = ("retry_jobs", "cancel_jobs", "delete_selected")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(word_key=state_word())
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip().removeprefix("#")
        if term.isascii() and term.isdigit():
            return queryset.filter(pk=min(int(term[:20]), BIGGEST_ID)), False
        return (queryset.filter(name__icontains=term) if term else queryset), False

    # -- columns and fields

    @admin.display(description=gettext_lazy("job"))
    def job(self, job: Job) -> str:
        """Show the performer's name; rows of the low level have none."""
        return job.name or _("(pushed)")

    @admin.display(description=gettext_lazy("state"))
    def word(self, job: Any) -> str:
        """Show the word for where the job is."""
        return str(LABELS.get(job.word_key, job.word_key))

    @admin.display(description=gettext_lazy("attempts"))
    def tries(self, job: Job) -> str:
        """Show how many attempts are used up."""
        return f"{job.attempts}/{job.max_attempts}"

    @admin.display(description=gettext_lazy("last reason"))
    def reason(self, job: Any) -> str:
        """Show what went wrong last, where it still matters."""
        return NONE if job.state == State.SUCCESSFUL else Truncator(job.last_reason or NONE).chars(80)

    @admin.display(description=gettext_lazy("arguments"))
    def arguments(self, job: Job) -> str:
        """Show the positional arguments as they are stored, without what is hidden."""
        return _json(_arguments(job)[0])

    @admin.display(description=gettext_lazy("keyword arguments"))
    def keyword_arguments(self, job: Job) -> str:
        """Show the keyword arguments as they are stored, without what is hidden."""
        return _json(_arguments(job)[1])

    @admin.display(description=gettext_lazy("result"))
    def returned(self, job: Job) -> str:
        """Show what the performer returned, as it is stored, without what is hidden."""
        return _json(redact_part(job.name, job.result))

    @admin.display(description=gettext_lazy("meta"))
    def beside(self, job: Job) -> str:
        """Show what was stored with the job beside its arguments, without what is hidden."""
        return _json(redact_part(job.name, job.meta))

    @admin.display(description=gettext_lazy("unique key"))
    def held_key(self, job: Job) -> str:
        """Show the key, which may be made of arguments, without what is hidden."""
        return NONE if job.unique_key is None else redact_key(job.unique_key)

    @admin.display(description=gettext_lazy("waiting key"))
    def held_waiting_key(self, job: Job) -> str:
        """Show the key that is held while the job waits, without what is hidden."""
        return NONE if job.waiting_key is None else redact_key(job.waiting_key)

    @admin.display(description=gettext_lazy("what went wrong"))
    def failures(self, job: Job) -> str:
        """Show the errors, the newest first."""
        return _block("\n\n".join(_told(entry) for entry in reversed(job.errors))) if job.errors else NONE

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[Text | None, dict[str, Any]]]:  # type: ignore[override]
        about = ("id", "job", "word", "queue", "priority", "tries", "worker", "last_worker", "progress")
        sets: list[tuple[Text | None, dict[str, Any]]] = [
            (None, {"fields": about}),
            (gettext_lazy("Errors"), {"fields": ("failures",)}),
            (gettext_lazy("Times"), {"fields": _INSTANTS}),
            (gettext_lazy("Policy"), {"fields": _POLICY}),
        ]
        if self.has_view_job_args_permission(request):
            fields = ("arguments", "keyword_arguments", "returned", "beside", "held_key", "held_waiting_key")
            sets.insert(1, (gettext_lazy("Arguments and result"), {"fields": fields}))
        return sets

    # -- permissions

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("django_jobs.delete_job")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Tell whether this person may retry jobs; Django asks when it draws the action, and when it is posted."""
        return request.user.has_perm("django_jobs.retry_job")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Tell whether this person may cancel jobs."""
        return request.user.has_perm("django_jobs.cancel_job")

    def has_view_job_args_permission(self, request: HttpRequest) -> bool:
        """Tell whether this person may see arguments and results."""
        return request.user.has_perm("django_jobs.view_job_args")

    # -- actions

    @admin.action(permissions=["retry"], description=gettext_lazy("Retry selected %(verbose_name_plural)s"))
    def retry_jobs(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make the selected jobs ready now; running and succeeded ones stay as they are."""
        jobs = _by_id(queryset)
        moved = lifecycle.retry(jobs, using=queryset.db)
        _audit(request, [jobs[job_id] for job_id in moved], CHANGE, "Retried.")
        done = ngettext("%(count)d job was retried.", "%(count)d jobs were retried.", len(moved))
        self._report(request, done, moved=len(moved), skipped=len(jobs) - len(moved))

    @admin.action(permissions=["cancel"], description=gettext_lazy("Cancel selected %(verbose_name_plural)s"))
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Cancel the selected jobs; finished ones stay as they are."""
        jobs = _by_id(queryset)
        moved = lifecycle.cancel(jobs, reason=f"cancelled by {request.user.get_username()}", using=queryset.db)
        _audit(request, [jobs[job_id] for job_id in moved], CHANGE, "Cancelled.")
        done = ngettext("%(count)d job was cancelled.", "%(count)d jobs were cancelled.", len(moved))
        self._report(request, done, moved=len(moved), skipped=len(jobs) - len(moved))

    @admin.action(permissions=["delete"], description=gettext_lazy("Delete selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Delete the selected jobs after Django's page to confirm; those that are held stay."""
        if not request.POST.get("post"):
            return confirm_deletion(self, request, queryset)
        jobs = _by_id(queryset)
        moved = lifecycle.delete(jobs, using=queryset.db)
        _audit(request, [jobs[job_id] for job_id in moved], DELETION)
        done = ngettext("%(count)d job was deleted.", "%(count)d jobs were deleted.", len(moved))
        self._report(request, done, moved=len(moved), skipped=len(jobs) - len(moved))
        return None

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Delete one job, or say why it stays."""
        try:
            return super().delete_view(request, object_id, extra_context)
        except VerbRefused as refused:
            self.message_user(request, str(refused), messages.WARNING)
            return redirect(reverse("admin:django_jobs_job_changelist", current_app=self.admin_site.name))

    def _report(self, request: HttpRequest, done: str, *, moved: int, skipped: int) -> None:
        parts = [done % {"count": moved}]
        if skipped:
            left = ngettext(
                "%(count)d was skipped: its state doesn't allow it.",
                "%(count)d were skipped: their states don't allow it.",
                skipped,
            )
            parts.append(left % {"count": skipped})
        self.message_user(request, " ".join(parts), messages.WARNING if skipped else messages.SUCCESS)


_INSTANTS = tuple(
    _instant(name, label)
    for name, label in (
        ("enqueued_at", gettext_lazy("queued")),
        ("run_at", gettext_lazy("run at")),
        ("expires_at", gettext_lazy("expires")),
        ("first_started_at", gettext_lazy("first started")),
        ("started_at", gettext_lazy("started")),
        ("lease_expires_at", gettext_lazy("lease until")),
        ("deadline_at", gettext_lazy("deadline")),
        ("finished_at", gettext_lazy("finished")),
        ("prune_at", gettext_lazy("kept until")),
        ("tick", gettext_lazy("tick")),
    )
)
_POLICY = (
    "max_attempts",
    _span("timeout", gettext_lazy("timeout"), gettext_lazy("no limit")),
    _span("keep", gettext_lazy("kept when succeeded"), gettext_lazy("for ever")),
    _span("keep_failed", gettext_lazy("kept when failed"), gettext_lazy("for ever")),
    "restart", "crashes", "max_crashes", "alone", "on_failure", "schedule",
)  # fmt: skip


def _arguments(job: Job) -> tuple[object, object]:
    """Give the arguments as they may be shown; somebody may have written anything into the columns."""
    if isinstance(job.args, list) and isinstance(job.kwargs, dict):
        return redact_job(job.name, job.args, job.kwargs)
    return redact_part(job.name, job.args), redact_part(job.name, job.kwargs)


def _told(entry: Any) -> str:
    """Tell one entry of `errors` as text."""
    if not isinstance(entry, dict):
        return str(entry)
    head = f"{entry.get('at')}  attempt {entry.get('attempt')}  {entry.get('kind')}"
    what = ": ".join(filter(None, (entry.get("exception"), entry.get("reason"))))
    return "\n".join(filter(None, (head, what, (entry.get("traceback") or "").rstrip())))


def _by_id(queryset: QuerySet[Any]) -> dict[int, Job]:
    return {job_id: Job(id=job_id, name=name) for job_id, name in queryset.values_list("pk", "name")}


def _audit(request: HttpRequest, jobs: Sequence[Job], flag: int, message: str = "") -> None:
    """Write down in the admin's log who did this to which jobs."""
    user = request.user.pk
    assert user is not None
    if len(jobs) <= AUDITED:
        LogEntry.objects.log_actions(user_id=user, queryset=jobs, action_flag=flag, change_message=message)
        return
    LogEntry.objects.create(
        user_id=user,
        content_type=ContentType.objects.get_for_model(Job),
        object_repr=_("%(count)d jobs") % {"count": len(jobs)},
        action_flag=flag,
        change_message=message,
    )


# -- queues and schedules


class QueueAdmin(ReadOnly):
    """Queues that were paused once, and whether they still are."""

    list_display: tuple[Any, ...] = (
        "name",
        "paused",
        _instant("paused_at", gettext_lazy("since")),
        "paused_by",
        "reason",
    )
    search_fields = ("name",)

    @admin.display(description=gettext_lazy("paused"), boolean=True)
    def paused(self, queue: Queue) -> bool:
        """Show whether the queue is paused."""
        return queue.paused_at is not None

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        return self.list_display


class ScheduleAdmin(ReadOnly):
    """Schedules and when they fire."""

    list_display: tuple[Any, ...] = (
        "name", "performer", "when", "time_zone", "enabled", "origin",
        _instant("last_at", gettext_lazy("last")),
        _instant("next_at", gettext_lazy("next")),
        "error",
    )  # fmt: skip
    search_fields = ("name", "performer")

    @admin.display(description=gettext_lazy("when"))
    def when(self, schedule: Schedule) -> str:
        """Show the cron line and what it says in words, or the interval; of what can't be read, the line alone."""
        try:
            words = schedules.describe(schedule)
        except (TypeError, ValueError):
            return schedule.cron or NONE
        return f"{schedule.cron}: {words}" if schedule.cron else words

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[Any, ...]:
        more = ("queue", "priority", "missed", "overlap", "jitter", "owner", "removed", "skipped")
        moments = (_instant("starts", gettext_lazy("starts")), _instant("ends", gettext_lazy("ends")))
        return (*self.list_display, *moments, *more)


def register(site: admin.AdminSite) -> None:
    """Show jobs, queues and schedules on a site; the default one has them already."""
    site.register(Job, JobAdmin)
    site.register(Queue, QueueAdmin)
    site.register(Schedule, ScheduleAdmin)


register(admin.site)
