"""Decide: what a run came to, as a value. A closed set; transitions turns each into a change.

The end of an atomic job is written by the transaction of its body, so that its run gives more than an outcome: what is
written already, or what only the row can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from django_jobs.records import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The performer returned. `result` is JSON text, None where it returned None."""

    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job has failed for good."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The attempt failed, or asked for another; the next may start after `delay`.

    `patient` keeps the job from failing before an hour has passed since its first start (a name without performer heals
    when the deploy that brings it is through).
    """

    failure: Failure
    delay: timedelta
    patient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    """Not now: again after `delay`, the attempt isn't counted."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The performer said that the job is no longer needed."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The performer said that further attempts are pointless."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The worker gave the job back; the attempt isn't counted. `started` says whether its body had begun."""

    started: bool = False


Outcome: TypeAlias = Succeeded | Failed | Retried | Snoozed | Cancelled | GaveUp | Released


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An atomic performer returned, and the transaction of its body, which wrote the end too, is committed."""

    success: Succeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """An atomic performer returned, and what its COMMIT came to isn't known: the row alone tells.

    Either it is SUCCESSFUL under the token of the run, or `failure` is still to be written.
    """

    success: Succeeded
    failure: Outcome


Ending: TypeAlias = Outcome | Committed | InDoubt
"""What a run gives: an outcome to be written, or the end of an atomic job."""
