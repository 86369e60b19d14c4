"""A site with a worker in its processes, as servers of WSGI load it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.core.wsgi import get_wsgi_application

from django_jobs import embedded
from tests.web import outside

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
site = get_wsgi_application()
embedded.start()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == outside.PATH:
        start_response("200 OK", [("Content-Type", "application/json")])
        return [outside.answer()]
    return site(environ, start_response)
