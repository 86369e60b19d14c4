"""Know: the only room that logs. Receivers of signals write one line each; no line carries arguments or results."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any, TextIO, cast

from django.db import DataError, IntegrityError

from django_jobs import clock, signals
from django_jobs.outcomes import Released, Snoozed
from django_jobs.records import Claim, Failure
from django_jobs.states import State
from django_jobs.transitions import Change, End
from django_jobs.wording import few, one_line

job_log = logging.getLogger("django_jobs.job")
worker_log = logging.getLogger("django_jobs.worker")

TIME_FORMAT = "%H:%M:%S"


class JobFailed(Exception):
    """Carries a failure's traceback, which is text by now, to handlers that ask for an exception."""


def connect() -> None:
    """Connect the receivers."""
    signals.starts.hear(_on_started)
    signals.ends.hear(_on_ends)
    for signal, receiver in (
        (signals.job_lost, _on_lost),
        (signals.jobs_reclaimed, _on_reclaimed),
        (signals.jobs_expired, _on_expired),
        (signals.jobs_pruned, _on_pruned),
        (signals.schedule_fired, _on_schedule_fired),
        (signals.queue_paused, _on_queue_paused),
        (signals.queue_resumed, _on_queue_resumed),
        (signals.worker_started, _on_worker_started),
        (signals.worker_stopped, _on_worker_stopped),
        (signals.odd, _on_odd),
    ):
        signal.connect(receiver)


def show_on_stderr(level: int = logging.INFO) -> None:
    """Write to stderr, unless the project has said where our lines, or all lines, go."""
    root = logging.getLogger("django_jobs")
    if not root.hasHandlers():
        root.addHandler(Stderr())
    if root.level == logging.NOTSET:
        root.setLevel(level)


class Stderr(logging.StreamHandler[TextIO]):
    """Writes the time of day and the message. A thousand lines a second share the time, so it is written once."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._second: tuple[int, str] = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, and the traceback below it where there is one."""
        return f"{self._time_of(record.created)} {super().format(record)}"

    def write(self, messages: Iterable[str]) -> None:
        """Write messages as if each had been a record."""
        before = f"{self._time_of(clock.now().timestamp())} "
        text = f"{self.terminator}{before}".join(messages)
        with self.lock or nullcontext():
            self.stream.write(f"{before}{text}{self.terminator}")
            self.flush()

    def _time_of(self, moment: float) -> str:
        second, text = self._second
        if second != int(moment):
            second, text = self._second = int(moment), time.strftime(TIME_FORMAT, time.localtime(moment))
        return text


def _own_handler() -> Stderr | None:
    """Give our own handler where it is all that hears of a job, and nobody looks at the records on their way to it."""
    above = logging.getLogger("django_jobs")
    if job_log.handlers or job_log.filters or len(above.handlers) != 1:
        return None
    [handler] = above.handlers
    is_plain = type(handler) is Stderr and not handler.filters and handler.formatter is None
    is_only = job_log.propagate and not (above.propagate and logging.getLogger().handlers)
    is_watched = logging.getLogRecordFactory() is not logging.LogRecord or handler.level > logging.INFO
    return cast("Stderr", handler) if is_plain and is_only and not is_watched else None


# -- one job


def _say(level: int, message: str, *values: object, extra: dict[str, Any], exc_info: Any = None) -> None:
    """Log a line about a job. Where in the code it comes from is always here, so nobody looks for that."""
    if job_log.isEnabledFor(level):
        traced = (type(exc_info), exc_info, exc_info.__traceback__) if exc_info else None
        record = job_log.makeRecord(job_log.name, level, __file__, 0, message, values, traced, "_say", extra)
        job_log.handle(record)


def _on_started(claim: Claim) -> None:
    if job_log.isEnabledFor(logging.DEBUG):
        _say(logging.DEBUG, "▶ %s attempt %d", _who(claim), claim.attempt, extra=_extra("job.started", claim))


def _on_ends(ends: list[End]) -> None:
    """Write a line for each end. A record for each takes five times as long as the line, so none is made for nobody."""
    handler = _own_handler()
    is_told = job_log.isEnabledFor(logging.INFO)
    quick: list[str] = []
    for end in ends:
        if end.change.state is not State.SUCCESSFUL:
            _write(handler, quick)
            # Whatever a handler raises about one of them.
            with suppress(Exception):
                _on_finished(end)
        elif is_told and handler:
            quick.append(f"✔ {_timed(end)}")
        elif is_told:
            with suppress(Exception):
                _say(logging.INFO, "✔ %s", _timed(end), extra=_ended_extra("job.succeeded", end))
    _write(handler, quick)


def _write(handler: Stderr | None, lines: list[str]) -> None:
    """Write lines, and forget them: before a record is, so that all come in their order."""
    if handler and lines:
        with suppress(Exception):
            handler.write(lines)
    lines.clear()


def _timed(end: End) -> str:
    who, seconds = _who(end.claim), _body_seconds(end)
    return who if seconds is None else f"{who} {seconds:.3f}s"


def _body_seconds(end: End) -> float | None:
    failure = end.change.failure
    return None if failure and failure.kind == "unknown" else end.seconds


def _ended_extra(event: str, end: End) -> dict[str, Any]:
    seconds = _body_seconds(end)
    return _extra(event, end.claim) | ({} if seconds is None else {"run_s": seconds})


def _on_finished(end: End) -> None:
    change, who = end.change, _timed(end)
    match change.state:
        case State.FAILED:
            extra = _ended_extra("job.failed", end)
            _say(logging.ERROR, "✖ %s failed for good: %s", who, _why(change), exc_info=_traced(change), extra=extra)
        case State.CANCELLED:
            _say(logging.INFO, "◌ %s cancelled: %s", who, _why(change), extra=_ended_extra("job.cancelled", end))
        case _:
            _on_again(end, who)


def _on_again(end: End, who: str) -> None:
    claim, outcome, change, _ = end
    after = "now" if change.delay is None else f"in {change.delay.total_seconds():g}s"
    match outcome:
        case Snoozed(reason=reason):
            why = one_line(reason) or "no reason given"
            extra = _ended_extra("job.snoozed", end)
            _say(logging.INFO, "↻ %s snoozed, again %s: %s", who, after, why, extra=extra)
        case Released():
            _say(logging.INFO, "↻ %s released", who, extra=_ended_extra("job.released", end))
        case _:
            of = f"attempt {claim.attempt}/{change.max_attempts}"
            message = "✖ %s %s, again %s: %s"
            extra = _ended_extra("job.retried", end)
            _say(logging.WARNING, message, who, of, after, _why(change), extra=extra)


def _on_lost(*, claim: Claim, **_: Any) -> None:
    message = "⚠ %s was taken away or cancelled while it ran; its end was not written"
    _say(logging.WARNING, message, _who(claim), extra=_extra("job.lost", claim))


# -- several jobs


def _on_reclaimed(*, changes: list[Change], let_go: list[int], because: str, **_: Any) -> None:
    ids = few([change.lease.id for change in changes]) or "none"
    message = "reclaimed %s (%s), let go of %d cancelled: %s"
    worker_log.warning(message, _jobs(len(changes)), ids, len(let_go), because, extra={"event": "jobs.reclaimed"})
    for change in changes:
        if change.state is State.FAILED:
            extra = {"event": "job.failed", "job_id": change.lease.id, "attempt": change.attempts}
            _say(logging.ERROR, "✖ #%d failed for good: %s", change.lease.id, _why(change), extra=extra)


def _on_expired(*, ids: tuple[int, ...], **_: Any) -> None:
    worker_log.info("%s expired before starting", _jobs(len(ids)), extra={"event": "jobs.expired"})


def _on_pruned(*, count: int, **_: Any) -> None:
    worker_log.info("pruned %s past keeping", _jobs(count), extra={"event": "jobs.pruned"})


def _on_schedule_fired(*, name: str, job_ids: tuple[int, ...], skipped: int, **_: Any) -> None:
    ids = few(job_ids) or "no job"
    extra = {"event": "schedule.fired", "schedule": name}
    if skipped:
        message = "schedule %s: %s, and %s skipped"
        ticks = "1 tick" if skipped == 1 else f"{skipped} ticks"
        worker_log.warning(message, name, ids, ticks, extra=extra)
    else:
        worker_log.info("schedule %s: %s", name, ids, extra=extra)


def _on_queue_paused(*, queue: str, by: str, reason: str, **_: Any) -> None:
    said = ": ".join(filter(None, (one_line(by), one_line(reason))))
    extra = {"event": "queue.paused", "queue": queue}
    worker_log.warning("queue %s is paused%s", queue, f" ({said})" if said else "", extra=extra)


def _on_queue_resumed(*, queue: str, **_: Any) -> None:
    worker_log.warning("queue %s goes on", queue, extra={"event": "queue.resumed", "queue": queue})


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


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _who(claim: Claim) -> str:
    return f"{claim.name} #{claim.lease.id} {claim.queue}"


def _why(change: Change) -> str:
    match change.failure:
        case None:
            return "no reason given"
        case Failure(kind="misfit"):
            return "its stored arguments don't fit the code; its errors say where"
        case Failure(kind="result"):
            return "its result can't be stored; its errors say why"
        case Failure(reason=reason, exception=path):
            words = dict.fromkeys((path.rpartition(".")[2], one_line(reason)))
            return ": ".join(filter(None, words)) or "no reason given"


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
