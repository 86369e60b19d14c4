"""What tests ask a server with a worker in it."""

from __future__ import annotations

import json
import os

from django.http import HttpRequest, HttpResponse

from django_jobs import embedded, enqueue, named


def queue(request: HttpRequest) -> HttpResponse:
    """Queue a job, and say its id."""
    [queued] = enqueue([named(request.GET["job"], *json.loads(request.GET["args"]))])
    return HttpResponse(str(queued.id))


def health(request: HttpRequest) -> HttpResponse:
    """Say which process answers, and how its worker is."""
    return HttpResponse(f"{os.getpid()} {embedded.health()}")
