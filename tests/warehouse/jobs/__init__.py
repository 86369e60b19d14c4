"""A `jobs` package: its submodules are found too, all but those that are no part of the program."""

from __future__ import annotations

from django_jobs import job


@job
def count_stock(shelf: int) -> int:
    return shelf
