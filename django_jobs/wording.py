"""Write: what texts for people have in common. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

MOST_NAMED = 10
"""So many jobs are named in a line."""


def one_line(text: object) -> str:
    """Keep a text from looking like lines of its own."""
    return " ".join(str(text).split())


def few(ids: Collection[int]) -> str:
    """Name jobs by their ids, the first ten of them: "#1, #2 …"."""
    shown = ", ".join(f"#{job_id}" for job_id in islice(ids, MOST_NAMED))
    return f"{shown} …" if len(ids) > MOST_NAMED else shown
