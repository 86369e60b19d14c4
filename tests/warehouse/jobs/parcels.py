from __future__ import annotations

from django_jobs import job
from tests.warehouse.labels import print_label

__all__ = ["pack", "print_label"]


@job
def pack(parcel: int) -> int:
    return parcel
