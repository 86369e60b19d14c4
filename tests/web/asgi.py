"""A site with a worker in its processes, as servers of ASGI load it."""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

from django_jobs import embedded
from tests.web import outside

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
site = get_asgi_application()
embedded.start()


async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
    """Be what most projects have: nothing hears that the server shuts down."""
    if scope.get("path") == outside.PATH:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": outside.answer()})
    else:
        await site(scope, receive, send)


application = embedded.lifespan(without_lifespan)
