"""The jobs of the shop that the suite uses. Small, and each for one kind of behaviour."""

from __future__ import annotations

from django_jobs import backoff, job

greeted: list[str] = []


@job(backoff=backoff.polynomial(), max_attempts=5, keep=0)
def greet(name: str) -> None:
    greeted.append(name)


@job(backoff=backoff.polynomial(), max_attempts=5)
def broken() -> None:
    raise RuntimeError("it broke")
