from __future__ import annotations

from django_jobs import job


@job("warehouse.freeze", aliases=["warehouse.chill"])
def freeze(degrees: int) -> int:
    return degrees
