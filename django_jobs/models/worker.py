"""Write: the processes that say they are alive."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.models.fields import InstantField


class Worker(models.Model):
    """One process life that claims and runs jobs."""

    identity = models.CharField(
        _("identity"), max_length=150, primary_key=True, help_text="host, process id and a random part"
    )
    host = models.CharField(_("host"), max_length=255, help_text="name of the host")
    pid = models.IntegerField(_("process id"), help_text="process id on that host")
    queues = models.JSONField(
        _("queues"), default=list, db_default=[], help_text="names of the queues served; empty: all"
    )
    slots = models.IntegerField(_("slots"), default=0, db_default=0, help_text="jobs it can run at once")
    started_at = InstantField(_("started at"), help_text="when the process began")
    claimed_at = InstantField(
        _("claimed at"),
        null=True,
        help_text="when the database last answered a claim of it, or it had no room for more, as of its beat",
    )
    beat_at = InstantField(_("beat at"), help_text="when it last said that it is alive")
    versions = models.JSONField(
        _("versions"), default=dict, db_default={}, help_text="releases of the app, Django and Python"
    )

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("identity",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.identity
