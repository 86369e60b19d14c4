"""Front door: what tests use to run queued jobs, within the test's own transaction."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Retried, Snoozed, Succeeded
from django_jobs.records import Claim
from django_jobs.worker.turn import work_claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a run of jobs came to: how many ended how, and the runs in their order."""

    succeeded: int = 0
    retried: int = 0
    snoozed: int = 0
    cancelled: int = 0
    failed: int = 0
    runs: tuple[tuple[Claim, Outcome], ...] = ()


def run_jobs(queue: str | None = None, *, max_jobs: int = 1_000) -> Drained:
    """Run the jobs that are due, of `queue` or of all, and those that they queue, until nothing is due.

    Everything happens on the test's own connection and in its transaction, so it works in a plain TestCase, and all of
    it vanishes with the test. Raises RuntimeError when more than `max_jobs` ran: jobs that queue each other never end.
    """
    runs: list[tuple[Claim, Outcome]] = []
    while (run := work_claim(queue)) is not None:
        runs.append(run)
        if len(runs) > max_jobs:
            message = f"more than {max_jobs} jobs ran, {run[0].name} the last; do they queue each other? (max_jobs)"
            raise RuntimeError(message)
    outcomes = [outcome for _, outcome in runs]
    return Drained(
        succeeded=_count(outcomes, Succeeded),
        retried=_count(outcomes, Retried),
        snoozed=_count(outcomes, Snoozed),
        cancelled=_count(outcomes, Cancelled),
        failed=_count(outcomes, Failed, GaveUp),
        runs=tuple(runs),
    )


def _count(outcomes: list[Outcome], *kinds: type) -> int:
    return sum(isinstance(outcome, kinds) for outcome in outcomes)
