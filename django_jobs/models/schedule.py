"""Write: the table of schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, models, router
from django.db.models import F
from django.utils.translation import gettext_lazy as _

from django_jobs import lifecycle, ticks
from django_jobs.lifecycle import scheduling
from django_jobs.models.fields import InstantField
from django_jobs.performers import find_performer, registered
from django_jobs.performers.scheduling import timing_of

NOTED = frozenset({"last_at", "skipped"})
"""Columns that only firing writes: a picture from before a tick must not take it back."""


class Schedule(models.Model):
    """A cron line, or an interval, with a performer and arguments. `args` and `kwargs` are plain JSON.

    One that is made or saved fires from its next time on; whatever it was to fire before is not made up for. `update()`
    writes past that.
    """

    class Origin(models.TextChoices):
        CODE = "code", _("in code")
        ADMIN = "admin", _("in the admin")

    class Missed(models.TextChoices):
        ONCE = "once", _("run once")
        SKIP = "skip", _("skip")
        ALL = "all", _("run all")

    class Overlap(models.TextChoices):
        ALLOW = "allow", _("allow")
        SKIP = "skip", _("skip")

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200, unique=True, help_text="what people call it")
    owner = models.CharField(
        _("owner"),
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="the project whose code declares it",
    )
    version = models.BigIntegerField(_("version"), default=1, db_default=1, help_text="raised by every edit")
    cron = models.CharField(
        _("cron line"), max_length=200, blank=True, default="", db_default="", help_text="empty for an interval"
    )
    every_seconds = models.FloatField(
        _("every seconds"), null=True, blank=True, help_text="the interval; null for a cron line"
    )
    time_zone = models.CharField(
        _("time zone"), max_length=100, blank=True, default="", db_default="", help_text="empty: the setting's"
    )
    performer = models.CharField(_("job"), max_length=100, help_text="name of the performer")
    args = models.JSONField(
        _("arguments"), default=list, db_default=[], blank=True, help_text="positional arguments, encoded"
    )
    kwargs = models.JSONField(
        _("keyword arguments"), default=dict, db_default={}, blank=True, help_text="keyword arguments, encoded"
    )
    queue = models.CharField(
        _("queue"), max_length=100, blank=True, default="", db_default="", help_text="empty: the performer's"
    )
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True, help_text="null: the performer's")
    enabled = models.BooleanField(_("enabled"), default=True, db_default=True, help_text="fires while true")
    removed = models.BooleanField(
        _("removed"), default=False, db_default=False, help_text="no longer declared by its owner's code"
    )
    origin = models.CharField(
        _("origin"), max_length=10, choices=Origin.choices, default=Origin.ADMIN, db_default=Origin.ADMIN.value,
        help_text="code or admin",
    )  # fmt: skip
    missed = models.CharField(
        _("missed runs"), max_length=10, choices=Missed.choices, default=Missed.ONCE, db_default=Missed.ONCE.value,
        help_text="what to do with ticks that passed while nothing ran: once, skip or all",
    )  # fmt: skip
    overlap = models.CharField(
        _("overlap"), max_length=10, choices=Overlap.choices, default=Overlap.ALLOW, db_default=Overlap.ALLOW.value,
        help_text="allow, or skip while the earlier run waits or runs",
    )  # fmt: skip
    jitter = models.FloatField(_("jitter"), default=0, db_default=0.0, help_text="up to so many seconds late")
    starts = InstantField(_("starts"), null=True, blank=True, help_text="no tick before this")
    ends = InstantField(_("ends"), null=True, blank=True, help_text="no tick after this")
    last_at = InstantField(_("last at"), null=True, blank=True, help_text="the latest tick that fired")
    next_at = InstantField(_("next at"), null=True, blank=True, help_text="the tick that fires next")
    skipped = models.BigIntegerField(_("skipped"), default=0, db_default=0, help_text="ticks that were skipped")
    error = models.TextField(
        _("error"), blank=True, default="", db_default="", help_text="why it can't fire; empty: it can"
    )

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        indexes = (
            models.Index(
                fields=("next_at",), name="django_jobs_due_tick",
                condition=models.Q(enabled=True, removed=False, next_at__isnull=False),
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the row, to fire from its next time on. Raises ValueError for what no schedule can have.

        What firing notes in a row that is there already is left as it is, and read.
        """
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        for name in ("starts", "ends"):
            field: Any = self._meta.get_field(name)
            setattr(self, name, field.to_python(getattr(self, name)))
        is_new = self._state.adding
        version: Any = self.version if is_new else F("version") + 1
        changed = {"version": version, "next_at": self._first_tick(using), "error": ""}
        for name, value in changed.items():
            setattr(self, name, value)
        if (fields := kwargs.get("update_fields")) is not None:
            kwargs["update_fields"] = {*fields, *changed}
        elif not is_new:
            own = {field.name for field in self._meta.concrete_fields if not field.primary_key} - NOTED
            kwargs["update_fields"] = own - self.get_deferred_fields()
        super().save(*args, **kwargs)
        if not is_new:
            self.refresh_from_db(using=using, fields=["version", *NOTED])

    def _first_tick(self, using: str) -> datetime | None:
        """Find the first tick from now on, by the database's clock; None where it doesn't fire."""
        timing = timing_of(self)
        if not self.enabled or self.removed:
            return None
        return ticks.first_tick(timing, lifecycle.pulse(connections[using]).now, starts=self.starts, ends=self.ends)

    def clean(self) -> None:
        """Check what a form was given. Raises ValidationError, by field."""
        try:
            timing_of(self)
        except (TypeError, ValueError) as error:
            field = "time_zone" if str(error).startswith("time zone") else "cron" if self.cron else "every_seconds"
            raise ValidationError({field: str(error)}) from error
        if (performer := find_performer(self.performer)) is None:
            message = f"no job is named {self.performer}; there are {', '.join(registered())}"
            raise ValidationError({"performer": message})
        if not isinstance(self.args, list) or not isinstance(self.kwargs, dict):
            raise ValidationError({"args": "give a list of arguments, and an object of those by name"})
        try:
            performer.check_fit(self.args, self.kwargs)
        except TypeError as error:
            raise ValidationError({"args": f"{performer.name}{performer.signature}: {error}"}) from error

    def enable(self) -> bool:
        """Fire again, from the next time on, and say whether it was disabled; then the instance is as its row."""
        return self._switched(enabled=True)

    def disable(self) -> bool:
        """Fire no more until it is enabled, and say whether it was; then the instance is as its row."""
        return self._switched(enabled=False)

    enable.alters_data = disable.alters_data = True  # type: ignore[attr-defined]  # no template may call them

    def _switched(self, *, enabled: bool) -> bool:
        using = router.db_for_write(type(self), instance=self)
        self.refresh_from_db(using=using)
        self.enabled = enabled
        is_new = scheduling.switch(self.pk, enabled=enabled, next_at=self._first_tick(using), using=using)
        self.refresh_from_db(using=using)
        return is_new


class ScheduleSet(models.Model):
    """All schedules that one release of a project's code declares, by their hash; the latest to take over counts.

    A worker of another release, an older one in a rolling deploy, is told from one of a new release by it: only what
    never counted before takes over at once.
    """

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(_("owner"), max_length=200, help_text="the project whose code declares it")
    hash = models.CharField(_("hash"), max_length=64, help_text="what its schedules say, in short")
    counts_since = InstantField(_("counts since"), help_text="when it last took over")

    class Meta:
        verbose_name = _("set of schedules")
        verbose_name_plural = _("sets of schedules")
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("owner", "hash"), name="django_jobs_schedule_set"),)

    def __str__(self) -> str:
        return f"{self.owner} {self.hash[:8]}"
