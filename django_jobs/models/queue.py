"""Write: the queues that somebody paused."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_jobs.models.fields import InstantField


class Queue(models.Model):
    """What is known of a queue beside its jobs: whether it is paused, by whom, and why."""

    name = models.CharField(_("name"), max_length=100, primary_key=True, help_text="the queue's name")
    paused_at = InstantField(_("paused at"), null=True, blank=True, help_text="paused since; null: not paused")
    paused_by = models.CharField(
        _("paused by"), max_length=150, blank=True, default="", db_default="", help_text="who paused it"
    )
    reason = models.TextField(_("reason"), blank=True, default="", db_default="", help_text="why it is paused")

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering = ("name",)
        default_permissions = ("view",)
        permissions = (("pause_queue", "Can pause and resume queues"),)

    def __str__(self) -> str:
        return self.name
