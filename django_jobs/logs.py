"""Know: the only room that logs. Receivers of signals write one line each; no line carries arguments or results."""

from __future__ import annotations

import logging
import re
import sys
from collections import OrderedDict
from typing import Any

from django.db import DataError, IntegrityError

from django_jobs import clock, signals
from django_jobs.outcomes import Outcome, Released, Snoozed
from django_jobs.records import Claim, Failure, Lease
from django_jobs.states import State
from django_jobs.transitions import Change

job_log = logging.getLogger("django_jobs.job")
worker_log = logging.getLogger("django_jobs.worker")

TIME_FORMAT = "%H:%M:%S"

MOST_BEGUN = 10_000
"""So many runs are timed at once. An end may never be told: its row was locked until its lease was over, for one."""

_begun: OrderedDict[Lease, float] = OrderedDict()


class JobFailed(Exception):
    """Carries a failure's traceback, which is text by now, to handlers that ask for an exception."""


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
        signal.hear(receiver)


def show_on_stderr(level: int = logging.INFO) -> None:
    """Write to stderr, unless the project has said where our lines, or all lines, go."""
    root = logging.getLogger("django_jobs")
    if not root.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(Lines())
        root.addHandler(handler)
    if root.level == logging.NOTSET:
        root.setLevel(level)


class Lines(logging.Formatter):
    """The time of day before each message. A thousand lines a second share it, so it is written once."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", TIME_FORMAT)
        self._second: tuple[int, str] = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's own
        """Give the time of day of a record."""
        second, text = self._second
        if second != int(record.created):
            text = super().formatTime(record, datefmt)
            self._second = (int(record.created), text)
        return text


# -- one job


def _say(level: int, message: str, *values: object, extra: dict[str, Any], exc_info: Any = None) -> None:
    """Log a line about a job. Where in the code it comes from is always here, so nobody looks for that."""
    if job_log.isEnabledFor(level):
        traced = (type(exc_info), exc_info, exc_info.__traceback__) if exc_info else None
        record = job_log.makeRecord(job_log.name, level, __file__, 0, message, values, traced, "_say", extra)
        job_log.handle(record)


def _on_started(*, claim: Claim, **_: Any) -> None:
    if len(_begun) >= MOST_BEGUN:
        _begun.popitem(last=False)
    _begun[claim.lease] = clock.monotonic()
    if job_log.isEnabledFor(logging.DEBUG):
        _say(logging.DEBUG, "▶ %s attempt %d", _who(claim), claim.attempt, extra=_extra("job.started", claim))


def _on_finished(*, claim: Claim, outcome: Outcome, change: Change, **_: Any) -> None:
    begun = _begun.pop(claim.lease, None)
    if change.state is State.SUCCESSFUL and not job_log.isEnabledFor(logging.INFO):
        return
    seconds = None if begun is None else clock.monotonic() - begun
    who = _who(claim) if seconds is None else f"{_who(claim)} {seconds:.3f}s"
    timed = {} if seconds is None else {"run_s": seconds}
    match change.state:
        case State.SUCCESSFUL:
            _say(logging.INFO, "✔ %s", who, extra=_extra("job.succeeded", claim) | timed)
        case State.FAILED:
            extra = _extra("job.failed", claim) | timed
            _say(logging.ERROR, "✖ %s failed for good: %s", who, _why(change), exc_info=_traced(change), extra=extra)
        case State.CANCELLED:
            _say(logging.INFO, "◌ %s cancelled: %s", who, _why(change), extra=_extra("job.cancelled", claim) | timed)
        case _:
            _on_again(claim, outcome, change, who=who, timed=timed)


def _on_again(claim: Claim, outcome: Outcome, change: Change, *, who: str, timed: dict[str, float]) -> None:
    after = "now" if change.delay is None else f"in {change.delay.total_seconds():g}s"
    match outcome:
        case Snoozed(reason=reason):
            why = _one_line(reason) or "no reason given"
            _say(
                logging.INFO, "↻ %s snoozed, again %s: %s", who, after, why, extra=_extra("job.snoozed", claim) | timed
            )
        case Released():
            _say(logging.INFO, "↻ %s released", who, extra=_extra("job.released", claim) | timed)
        case _:
            of = f"attempt {claim.attempt}/{change.max_attempts}"
            message = "✖ %s %s, again %s: %s"
            _say(logging.WARNING, message, who, of, after, _why(change), extra=_extra("job.retried", claim) | timed)


def _on_lost(*, claim: Claim, **_: Any) -> None:
    _begun.pop(claim.lease, None)
    message = "⚠ %s was taken away or cancelled while it ran; its end was not written"
    _say(logging.WARNING, message, _who(claim), extra=_extra("job.lost", claim))


# -- several jobs


def _on_reclaimed(*, changes: list[Change], let_go: list[int], because: str, **_: Any) -> None:
    some = ", ".join(f"#{change.lease.id}" for change in changes[:10])
    ids = f"{some} …" if len(changes) > 10 else some or "none"
    message = "reclaimed %d jobs (%s), let go of %d cancelled ones: %s"
    worker_log.warning(message, len(changes), ids, len(let_go), because, extra={"event": "jobs.reclaimed"})
    for change in changes:
        if change.state is State.FAILED:
            extra = {"event": "job.failed", "job_id": change.lease.id, "attempt": change.attempts}
            _say(logging.ERROR, "✖ #%d failed for good: %s", change.lease.id, _why(change), extra=extra)


def _on_expired(*, ids: tuple[int, ...], **_: Any) -> None:
    worker_log.info("%d jobs expired before they could start", len(ids), extra={"event": "jobs.expired"})


def _on_pruned(*, count: int, **_: Any) -> None:
    worker_log.info("pruned %d finished jobs", count, extra={"event": "jobs.pruned"})


# -- a worker


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
    if isinstance(exception, (IntegrityError, DataError)):
        # Below its first line a database quotes the values of a row, which may be a job's arguments.
        message, exception = _LINE_END.split(message)[0], None
    worker_log.log(level, "%s", message, exc_info=exception, extra={"event": "worker.odd"})


_LINE_END = re.compile(r"\n|\\n")
"""The end of a line, also within a repr."""


# -- words


def _who(claim: Claim) -> str:
    return f"{claim.name} #{claim.id} {claim.queue}"


def _why(change: Change) -> str:
    match change.failure:
        case None:
            return "no reason given"
        case Failure(kind="misfit"):
            return "its stored arguments don't fit the code; its errors say where"
        case Failure(kind="result"):
            return "its result can't be stored; its errors say why"
        case Failure(reason=reason, exception=path):
            words = dict.fromkeys((path.rpartition(".")[2], _one_line(reason)))
            return ": ".join(filter(None, words)) or "no reason given"


def _one_line(text: str) -> str:
    """Keep a text from looking like lines of its own."""
    return " ".join(text.split())


def _traced(change: Change) -> JobFailed | None:
    failure = change.failure
    # Those two speak of values that no line may carry.
    if failure is None or not failure.traceback or failure.kind in {"misfit", "result"}:
        return None
    return JobFailed(f"\n{failure.traceback.rstrip()}")


def _extra(event: str, claim: Claim) -> dict[str, Any]:
    return {
        "event": event, "job_id": claim.id, "job_name": claim.name, "queue": claim.queue, "attempt": claim.attempt,
    }  # fmt: skip
