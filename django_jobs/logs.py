"""Know: the only room that logs. Receivers of signals write one line each; no line carries arguments or results."""

from __future__ import annotations

import logging
import sys
from typing import Any

from django_jobs import clock, signals
from django_jobs.outcomes import Outcome, Released, Snoozed
from django_jobs.records import Claim, Lease
from django_jobs.states import State
from django_jobs.transitions import Change

job_log = logging.getLogger("django_jobs.job")
worker_log = logging.getLogger("django_jobs.worker")

FORMAT = "%(asctime)s %(message)s"
TIME_FORMAT = "%H:%M:%S"

_begun: dict[Lease, float] = {}


def connect() -> None:
    """Connect the receivers."""
    for signal, receiver in (
        (signals.job_started, _on_started),
        (signals.job_finished, _on_finished),
        (signals.job_lost, _on_lost),
        (signals.jobs_reclaimed, _on_reclaimed),
        (signals.jobs_expired, _on_expired),
        (signals.jobs_pruned, _on_pruned),
        (signals.worker_started, _on_worker_started),
        (signals.worker_stopped, _on_worker_stopped),
        (signals.odd, _on_odd),
    ):
        signal.connect(receiver, dispatch_uid="django_jobs.logs")


def show_on_stderr(level: int = logging.INFO) -> None:
    """Write to stderr, unless the project has said where our lines, or all lines, go."""
    root = logging.getLogger("django_jobs")
    if not root.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
        root.addHandler(handler)
    if root.level == logging.NOTSET:
        root.setLevel(level)


def _on_started(*, claim: Claim, **_: Any) -> None:
    _begun[claim.lease] = clock.monotonic()
    job_log.debug("▶ %s #%d attempt %d", claim.name, claim.id, claim.attempt, extra=_extra("job.started", claim))


def _on_finished(*, claim: Claim, outcome: Outcome, change: Change, **_: Any) -> None:
    seconds = _seconds(claim)
    match change.state:
        case State.SUCCESSFUL:
            message, event, level = f"✔ {_who(claim)} {seconds:.3f}s", "job.succeeded", logging.INFO
        case State.FAILED:
            message, event, level = (
                f"✖ {_who(claim)} {seconds:.3f}s failed for good: {_why(change)}",
                "job.failed",
                logging.ERROR,
            )
        case State.CANCELLED:
            message, event, level = f"◌ {_who(claim)} cancelled: {_why(change)}", "job.cancelled", logging.INFO
        case _:
            message, event, level = _again(claim, outcome, change, seconds)
    if change.state is State.FAILED and change.failure and change.failure.traceback:
        message = f"{message}\n{change.failure.traceback.rstrip()}"
    job_log.log(level, "%s", message, extra=_extra(event, claim) | {"run_s": seconds})


def _again(claim: Claim, outcome: Outcome, change: Change, seconds: float) -> tuple[str, str, int]:
    after = "now" if change.delay is None else f"in {change.delay.total_seconds():g}s"
    match outcome:
        case Snoozed(reason=reason):
            return f"↻ {_who(claim)} snoozed, again {after} {reason}".rstrip(), "job.snoozed", logging.INFO
        case Released():
            return f"↻ {_who(claim)} released", "job.released", logging.INFO
        case _:
            of = f"attempt {claim.attempt}/{claim.max_attempts}"
            return f"✖ {_who(claim)} {seconds:.3f}s {of}, again {after}: {_why(change)}", "job.retried", logging.WARNING


def _on_lost(*, claim: Claim, **_: Any) -> None:
    _seconds(claim)
    job_log.warning(
        "⚠ %s was taken away or cancelled while it ran; its end was not written",
        _who(claim),
        extra=_extra("job.lost", claim),
    )


def _on_reclaimed(*, changes: list[Change], let_go: list[int], **_: Any) -> None:
    ids = ", ".join(f"#{change.lease.id}" for change in changes[:10])
    worker_log.warning(
        "reclaimed %d jobs whose lease was over %s; let go of %d cancelled ones",
        len(changes), ids, len(let_go), extra={"event": "jobs.reclaimed"},
    )  # fmt: skip


def _on_expired(*, ids: tuple[int, ...], **_: Any) -> None:
    worker_log.info("%d jobs expired before they could start", len(ids), extra={"event": "jobs.expired"})


def _on_pruned(*, count: int, **_: Any) -> None:
    worker_log.info("pruned %d finished jobs", count, extra={"event": "jobs.pruned"})


def _on_worker_started(*, identity: str, queues: dict[str, int | None] | None, concurrency: int, **_: Any) -> None:
    served = "all queues" if queues is None else f"queues: {', '.join(queues)}"
    worker_log.info("worker %s · %d slots · %s", identity, concurrency, served, extra={"event": "worker.started"})


def _on_worker_stopped(*, identity: str, written: bool, **_: Any) -> None:
    if written:
        worker_log.info("worker %s stopped", identity, extra={"event": "worker.stopped"})
    else:
        message = "worker %s stopped while jobs still ran; their leases run out and they run again"
        worker_log.warning(message, identity, extra={"event": "worker.stopped"})


def _on_odd(*, message: str, exception: BaseException | None, level: int, **_: Any) -> None:
    is_serious = exception is not None and level >= logging.ERROR
    worker_log.log(level, "%s", message, exc_info=exception if is_serious else None, extra={"event": "worker.odd"})


def _who(claim: Claim) -> str:
    return f"{claim.name} #{claim.id} {claim.queue}"


def _why(change: Change) -> str:
    if change.failure is None:
        return ""
    kind = change.failure.exception.rpartition(".")[2]
    return f"{kind}: {change.failure.reason}" if kind else change.failure.reason


def _seconds(claim: Claim) -> float:
    begun = _begun.pop(claim.lease, None)
    return 0.0 if begun is None else clock.monotonic() - begun


def _extra(event: str, claim: Claim) -> dict[str, Any]:
    return {
        "event": event, "job_id": claim.id, "job_name": claim.name, "queue": claim.queue, "attempt": claim.attempt,
    }  # fmt: skip
