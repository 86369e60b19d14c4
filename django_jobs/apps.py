"""Find the projects' `jobs` modules when Django starts, and connect checks and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_jobs.models import Job


class DjangoJobsConfig(AppConfig):
    """The app `django_jobs`."""

    name = "django_jobs"
    verbose_name = _("Jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every module called `jobs` in the installed apps, packages with their submodules."""
        from django_jobs import checks, conf, logs, performers  # noqa: PLC0415 - settings and models are there only now
        from django_jobs.performers import modes  # noqa: PLC0415 - as above

        modes.run_by(_run_at_once)
        performers.discover(conf.autodiscover())
        logs.connect()
        checks.register()


def _run_at_once(ids: Sequence[int]) -> list[Job]:
    from django_jobs.worker.inline import run_at_once  # noqa: PLC0415 - most processes never run a job

    return run_at_once(ids)
