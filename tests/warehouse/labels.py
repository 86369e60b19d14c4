"""No `jobs` module, but imported by one."""

from __future__ import annotations

from django_jobs import job


@job
def print_label(text: str) -> str:
    return text
