"""Declare: what the setting META adds to the meta of new jobs. Asks the project's functions, and queues nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from django_jobs import codec
from django_jobs.conf import MetaProvider
from django_jobs.exceptions import UnencodableValue
from django_jobs.records import Draft, NewJob

OURS = frozenset({"language", "time_zone"})
"""Keys that say what is active in the body."""


class Adding:
    """Adds to jobs of one kind what each function says. Jobs of which they say the same share a draft."""

    def __init__(self, providers: tuple[MetaProvider, ...], draft: Callable[[Mapping[str, object]], Draft]) -> None:
        self._providers = providers
        # Makes a draft whose meta holds these, too.
        self._draft = draft
        self._drafts: dict[str, Draft] = {}

    def to(self, job: NewJob) -> NewJob:
        """Give the job with what was said of it.

        Raises what a function raises, with a note that names it; TypeError or ValueError, naming it, where it gives
        anything but a dict, or a key that is ours; UnencodableValue with the path of what can't be stored.
        """
        said = [(provider, _said(provider, job)) for provider in self._providers]
        added: dict[str, object] = {}
        for _, some in said:
            added |= some
        if not added:
            return job
        text = _encoded(added, said)
        draft = self._drafts.get(text)
        if draft is None:
            draft = self._drafts[text] = self._draft(added)
        return job._replace(draft=draft)


def _said(provider: MetaProvider, job: NewJob) -> Mapping[str, object]:
    try:
        said: Any = provider(job)
    except Exception as error:
        error.add_note(f"in META: {_name(provider)}, of a job of {job.name}")
        raise
    if not isinstance(said, Mapping):
        if inspect.iscoroutine(said):
            said.close()
        message = f"META: {_name(provider)} gave a value of type {type(said).__name__}; let it give a dict, maybe empty"
        raise TypeError(message)
    if taken := sorted(OURS & said.keys()):
        message = (
            f"META: {_name(provider)} gave {taken[0]!r}, which says what is active in the body; activate it where the "
            "job is queued, or say using(meta=…)"
        )
        raise ValueError(message)
    return said


def _encoded(added: Mapping[str, object], said: list[tuple[MetaProvider, Mapping[str, object]]]) -> str:
    try:
        return codec.encode(added, path="meta")
    except UnencodableValue:
        # Whose value it is; one that a later function has replaced is nobody's trouble, but tells of the same mistake.
        for provider, some in said:
            codec.encode(dict(some), path=f"META: what {_name(provider)} gave")
        raise


def _name(provider: MetaProvider) -> str:
    name = getattr(provider, "__qualname__", None)
    return repr(provider)[:120] if name is None else f"{provider.__module__}.{name}"
