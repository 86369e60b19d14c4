"""Find the projects' `jobs` modules when Django starts, and connect checks and logs."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DjangoJobsConfig(AppConfig):
    """The app `django_jobs`."""

    name = "django_jobs"
    verbose_name = _("Jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every module called `jobs` in the installed apps, packages with their submodules."""
        from django_jobs import checks, conf, logs, performers  # noqa: PLC0415 - settings and models are there only now

        performers.discover(conf.autodiscover())
        logs.connect()
        checks.register()
