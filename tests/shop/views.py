"""Views that queue jobs."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse

from tests.shop.jobs import greet


def sign_up(request: HttpRequest) -> HttpResponse:
    """Write a row and queue a job, in whatever transaction the request has, and fail afterwards when asked to."""
    name = request.POST["name"]
    Group.objects.create(name=name)
    greet.later(name=name)
    if "fail" in request.POST:
        raise RuntimeError("the view failed after it had queued a job")
    return HttpResponse(status=201)


async def sign_up_async(request: HttpRequest) -> HttpResponse:
    """Do the same from async code."""
    name = request.POST["name"]
    await Group.objects.acreate(name=name)
    await greet.alater(name=name)
    if "fail" in request.POST:
        raise RuntimeError("the view failed after it had queued a job")
    return HttpResponse(status=201)
