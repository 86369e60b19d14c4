"""Front door: `{% load django_jobs %}`, tags for users' own pages. Shows a job as it was read, and asks no database."""

from __future__ import annotations

import json
from typing import Any

from django import template
from django.template.context import Context
from django.template.defaultfilters import floatformat
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from django_jobs import progress
from django_jobs.models import Job
from django_jobs.models.words import LABELS, OVER, word_of
from django_jobs.progress import Progress
from django_jobs.views import progress_url

register = template.Library()

UNDER_WAY = frozenset({"running", "stopping"})


@register.inclusion_tag("django_jobs/progress.html", takes_context=True)
def job_progress(context: Context, job: object, label: str = "") -> dict[str, Any]:
    """Show where a job is and how far, for whoever sees the page; by itself anew each second while it is seen.

    None is a job that is gone. `label` names the bar for those who can't see it. Raises TypeError for anything but a
    Job or None, and ImproperlyConfigured where the project doesn't include `django_jobs.urls`.
    """
    if job is None:
        return {"gone": _gone()}
    if not isinstance(job, Job):
        message = f"job_progress takes a Job, or None for one that is gone, and not {job!r:.80}"
        raise TypeError(message)
    word, said = word_of(job), progress.read(job.progress)
    # One that isn't in the table yet has no address.
    is_live = word not in OVER and job.pk is not None
    return {
        "word": word,
        "state": LABELS[word],
        "fraction": _fraction(word, said),
        "count": "" if said is None else _count(said),
        "message": "" if said is None else said.message,
        "label": label or _("Progress"),
        "url": progress_url(job.pk) if is_live else "",
        "texts": _texts() if is_live else "",
        "language": get_language(),
        "nonce": _nonce(context),
    }


def _fraction(word: str, said: Progress | None) -> str | None:
    """Give how much is done, from 0 to 1, as HTML writes numbers; None where a body is at it and nobody knows."""
    if said is not None and said.total is not None:
        return f"{min(said.done / said.total, 1.0):.4f}" if said.total else "1"
    if word in UNDER_WAY:
        return None
    return "1" if word == "succeeded" else "0"


def _count(said: Progress) -> str:
    if said.total is None:
        return _number(said.done)
    return _count_text() % {"done": _number(said.done), "total": _number(said.total)}


def _number(number: float) -> str:
    return str(floatformat(number, "-2g"))


def _texts() -> str:
    """Give what the page's script says by itself, in the language of the page."""
    return json.dumps(
        {
            "states": {word: str(label) for word, label in LABELS.items()},
            "count": _count_text(),
            "gone": _gone(),
            "lost": _("Lost contact, trying again."),
        }
    )


def _count_text() -> str:
    return _("%(done)s of %(total)s")


def _gone() -> str:
    return _("This job is no longer here.")


def _nonce(context: Context) -> object:
    """Give the nonce of the page, by Django's context processor or by the middleware of Django or django-csp."""
    if (nonce := context.get("csp_nonce")) is not None:
        return nonce
    request = context.get("request")
    return getattr(request, "_csp_nonce", getattr(request, "csp_nonce", None))
