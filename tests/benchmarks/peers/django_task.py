"""The measured job, as a task of Django: imported in a peer's environment only, after Django is set up."""

from __future__ import annotations

from django.tasks import task

from tests.benchmarks import notes


@task
def noop(number: int) -> None:
    notes.own().begin(number)
