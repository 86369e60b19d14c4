"""Front door: how far a job is, as JSON, to whoever holds its signed id. Tells nothing else, and changes nothing."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, JsonResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from django_jobs import progress as values
from django_jobs.conf import settings
from django_jobs.models import Job
from django_jobs.models.words import state_word

SALT = "django_jobs.progress"

LIFE = timedelta(days=7)
"""So long a signed id may be shown."""


def progress_url(job_id: int) -> str:
    """Give the address that tells for seven days, to whoever has it, how far a job is.

    Raises ImproperlyConfigured where the project doesn't include `django_jobs.urls`.
    """
    try:
        return reverse("django_jobs:progress", args=[signing.dumps(job_id, salt=SALT)])
    except NoReverseMatch as error:
        message = (
            'the progress of jobs has no address in this project: add path("jobs/", include("django_jobs.urls")) to '
            "the urlpatterns of your ROOT_URLCONF"
        )
        raise ImproperlyConfigured(message) from error


@login_not_required
@cache_control(no_store=True)
@require_safe
def progress(_request: HttpRequest, signed_id: str) -> JsonResponse:
    """Tell `state` (the word that people see), `done`, `total` (both null where unknown) and `message` of a job.

    404 for an id that was forged, is older than seven days, or whose job is gone.
    """
    try:
        job_id = signing.loads(signed_id, salt=SALT, max_age=LIFE)
    except signing.BadSignature:
        return _not_found()
    rows = Job.objects.using(settings().database).filter(pk=job_id).annotate(word=state_word())
    for word, stored in rows.values_list("word", "progress"):
        said = values.read(stored)
        known = {"done": None, "total": None, "message": ""} if said is None else said.values
        return JsonResponse({"state": word, **known})
    return _not_found()


def _not_found() -> JsonResponse:
    """Say the same whatever the reason: a stranger learns nothing of it."""
    return JsonResponse({"error": _("There is no such job, or not any more.")}, status=404)
