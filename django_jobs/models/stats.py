"""Write: the figures that feed every chart, per minute."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.models.fields import InstantField


class JobStat(models.Model):
    """How many runs of one job in one queue came to what, in one minute, as one process saw it."""

    id = models.BigAutoField(primary_key=True)
    minute = InstantField(_("minute"), help_text="the beginning of the minute, or of the hour once merged")
    queue = models.CharField(_("queue"), max_length=100, help_text="the jobs' queue")
    name = models.CharField(_("job"), max_length=100, help_text="the jobs' name")
    process = models.CharField(
        _("process"), max_length=150, default="", db_default="", help_text="who counted; empty once merged"
    )
    succeeded = models.BigIntegerField(_("succeeded"), default=0, db_default=0, help_text="jobs that succeeded")
    failed = models.BigIntegerField(_("failed"), default=0, db_default=0, help_text="jobs that failed for good")
    cancelled = models.BigIntegerField(_("cancelled"), default=0, db_default=0, help_text="jobs that were cancelled")
    retried = models.BigIntegerField(_("retried"), default=0, db_default=0, help_text="runs that will be followed")
    snoozed = models.BigIntegerField(_("snoozed"), default=0, db_default=0, help_text="runs put off")
    wait_seconds = models.FloatField(_("wait seconds"), default=0, db_default=0.0, help_text="sum of waiting times")
    run_seconds = models.FloatField(_("run seconds"), default=0, db_default=0.0, help_text="sum of running times")
    wait_buckets = models.JSONField(
        _("wait buckets"), default=list, db_default=[], help_text="histogram of waiting times"
    )
    run_buckets = models.JSONField(
        _("run buckets"), default=list, db_default=[], help_text="histogram of running times"
    )

    class Meta:
        verbose_name = _("figure")
        verbose_name_plural = _("figures")
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("minute", "queue", "name", "process"), name="django_jobs_stat"),)

    def __str__(self) -> str:
        return f"{self.name} in {self.queue} at {self.minute:%Y-%m-%d %H:%M}"
