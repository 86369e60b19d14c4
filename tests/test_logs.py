"""One line for each event, at the right level, on the right logger, and never with a job's arguments or result."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import django
import pytest
from django.core import mail
from django.db import IntegrityError, connection
from django.test import override_settings
from django.utils.log import AdminEmailHandler

from django_jobs import Cancel, GiveUp, Retry, Snooze, enqueue, lifecycle, logs, named, signals, transitions, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Outcome, Succeeded
from django_jobs.records import Claim, Failure, Lease
from django_jobs.transitions import End
from django_jobs.worker.plan import Plan
from django_jobs.worker.process import Process
from tests.declaring import declared
from tests.factories import claim_one, queue_job, write
from tests.performing import perform, work

pytestmark = pytest.mark.django_db


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.list: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.list.append(record)

    @property
    def everything(self) -> str:
        """What any handler could write of these records."""
        formatter = logging.Formatter()
        return "\n".join(f"{formatter.format(record)}\n{vars(record)!r}" for record in self.list)


@pytest.fixture
def records() -> Iterator[Records]:
    """Keep what is logged from now on, at every level."""
    kept, logger = Records(), logging.getLogger("django_jobs")
    before = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.DEBUG)
    yield kept
    logger.setLevel(before)
    logger.removeHandler(kept)


def line(record: logging.LogRecord) -> tuple[str, str, str]:
    return record.name, record.levelname, record.getMessage()


def raising(error: BaseException) -> Any:
    def body() -> NoReturn:
        raise error

    return body


# -- one job


def test_a_start_and_a_success(records: Records, frozen: FrozenClock) -> None:
    def body() -> str:
        frozen.advance(timedelta(seconds=1.5))
        return "done"

    job = perform(body).job
    assert [line(record) for record in records.list] == [
        ("django_jobs.job", "DEBUG", f"▶ tests.nowhere.body #{job.pk} default attempt 1"),
        ("django_jobs.job", "INFO", f"✔ tests.nowhere.body #{job.pk} default 1.500s"),
    ]


def test_every_line_about_a_job_says_which(records: Records, frozen: FrozenClock) -> None:
    def body() -> None:
        frozen.advance(timedelta(seconds=1.5))

    with declared(body, name="shop.count") as performer:
        job = work(performer.using(queue="stock").later()).job
    names = ("event", "job_id", "job_name", "queue", "attempt", "run_s")
    assert [tuple(getattr(record, name, None) for name in names) for record in records.list] == [
        ("job.started", job.pk, "shop.count", "stock", 1, None),
        ("job.succeeded", job.pk, "shop.count", "stock", 1, 1.5),
    ]


@pytest.mark.parametrize(
    ("error", "level", "event", "told"),
    [
        (LookupError("no such"), "WARNING", "job.retried", "✖ {} attempt 1/3, again in 10s: LookupError: no such"),
        (
            LookupError("two\n  lines"),
            "WARNING",
            "job.retried",
            "✖ {} attempt 1/3, again in 10s: LookupError: two lines",
        ),
        (MemoryError(), "WARNING", "job.retried", "✖ {} attempt 1/3, again in 10s: MemoryError"),
        (Retry("closed", after=90), "WARNING", "job.retried", "✖ {} attempt 1/3, again in 90s: Retry: closed"),
        (Snooze("1h", "closed"), "INFO", "job.snoozed", "↻ {} snoozed, again in 3600s: closed"),
        (Snooze("1h"), "INFO", "job.snoozed", "↻ {} snoozed, again in 3600s: no reason given"),
        (Cancel("withdrawn"), "INFO", "job.cancelled", "◌ {} cancelled: withdrawn"),
        (Cancel(), "INFO", "job.cancelled", "◌ {} cancelled: no reason given"),
        (GiveUp("stolen"), "ERROR", "job.failed", "✖ {} failed for good: GiveUp: stolen"),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else "",
)
def test_every_other_end_has_its_line(
    records: Records, frozen: FrozenClock, error: BaseException, level: str, event: str, told: str
) -> None:
    job = perform(raising(error)).job
    record = records.list[-1]
    assert line(record) == ("django_jobs.job", level, told.format(f"tests.nowhere.body #{job.pk} default 0.000s"))
    assert (record.event, record.job_id) == (event, job.pk)


def test_a_job_without_a_performer_is_told_by_its_reason(records: Records, frozen: FrozenClock) -> None:
    [queued] = enqueue([named("missing", options={"max_attempts": 3})])
    work_one()
    [record] = records.list
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"✖ missing #{queued.id} default attempt 1/3, again in ")
    assert record.getMessage().endswith(": no performer is named missing")
    assert not hasattr(record, "run_s")


def test_the_final_failure_is_an_error_with_its_traceback(records: Records) -> None:
    perform(raising(LookupError("no such customer")), policy={"max_attempts": 1})
    record = records.list[-1]
    assert (record.name, record.levelname) == ("django_jobs.job", "ERROR")
    assert record.getMessage().endswith("failed for good: LookupError: no such customer")
    lines = logging.Formatter().format(record).splitlines()
    assert "Traceback (most recent call last):" in lines
    assert any(line.endswith(", in body") for line in lines)
    assert lines[-1] == "LookupError: no such customer"


@override_settings(ADMINS=["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")])
def test_admins_get_the_final_failure_with_its_traceback_in_the_mail_and_one_line_as_its_subject() -> None:
    handler = AdminEmailHandler()
    logs.job_log.addHandler(handler)
    try:
        perform(raising(LookupError("no such customer")), policy={"max_attempts": 1})
    finally:
        logs.job_log.removeHandler(handler)
    sent = mail.outbox[-1]
    assert sent.subject.endswith("failed for good: LookupError: no such customer")
    assert "Traceback" not in sent.subject
    assert ", in body" in sent.body


def test_a_release_is_told(records: Records) -> None:
    queue_job()
    lifecycle.release(connection, [claim_one()])
    assert [(record.levelname, record.event) for record in records.list] == [("INFO", "job.released")]


def test_an_end_that_met_no_row_is_told_as_lost(records: Records) -> None:
    def body() -> None:
        Job.objects.all().update(token=5)

    perform(body)
    record = records.list[-1]
    assert (record.levelname, record.event) == ("WARNING", "job.lost")
    assert record.getMessage().endswith(" was taken away or cancelled while it ran; its end was not written")


# -- several jobs


def test_what_was_reclaimed_is_told_by_its_ids(records: Records, frozen: FrozenClock) -> None:
    ids = [queue_job(), queue_job(max_attempts=1), queue_job()]
    for _ in ids:
        claim_one()
    lifecycle.cancel([ids[2]])
    frozen.advance(timedelta(seconds=60))
    for number, job_id in enumerate(ids):
        write(job_id, worker=f"gone-{number}")
    lifecycle.reclaim(connection)
    assert [(record.name, record.levelname, record.event) for record in records.list] == [
        ("django_jobs.worker", "WARNING", "jobs.reclaimed"),
        ("django_jobs.job", "ERROR", "job.failed"),
    ]
    told, failed = records.list
    assert told.getMessage() == (
        f"reclaimed 2 jobs (#{ids[0]}, #{ids[1]}), let go of 1 cancelled: their lease or deadline was over"
    )
    assert failed.job_id == ids[1]
    assert failed.getMessage().startswith(f"✖ #{ids[1]} failed for good: the lease of worker gone-1 ran out")


def test_expired_and_pruned_jobs_are_counted(records: Records, frozen: FrozenClock) -> None:
    queue_job(expires=timedelta(minutes=1), keep_failed=60.0)
    frozen.advance(timedelta(minutes=1))
    lifecycle.expire(connection)
    frozen.advance(timedelta(minutes=1))
    lifecycle.prune(connection)
    assert [line(record) for record in records.list] == [
        ("django_jobs.worker", "INFO", "1 job expired before starting"),
        ("django_jobs.worker", "INFO", "pruned 1 job past keeping"),
    ]


# -- a worker


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_of_its_start_and_its_end(records: Records) -> None:
    Process(
        Plan(alias="default", identity="web1:5", queues={"mail": None, "stock": 2}, concurrency=2, drain=True)
    ).run()
    *lines, (_, _, last) = [line(record) for record in records.list]
    assert lines == [
        ("django_jobs.worker", "INFO", "worker web1:5 · 2 slots · queues: mail, stock"),
        ("django_jobs.worker", "INFO", "worker web1:5 stopped"),
    ]
    assert last.startswith("stopped after ")
    assert last.endswith(": 0 succeeded, 0 failed, 0 released")


def test_a_worker_that_left_jobs_behind_says_so(records: Records) -> None:
    signals.tell(signals.worker_stopped, None, identity="web1:5", written=False)
    [record] = records.list
    assert record.levelname == "WARNING"
    assert "while jobs still ran" in record.getMessage()


def test_odd_events_come_with_their_traceback(records: Records) -> None:
    signals.tell(signals.odd, None, message="a round failed", exception=LookupError("x"), level=logging.ERROR)
    signals.tell(signals.odd, None, message="finishing 3 jobs", exception=None, level=logging.INFO)
    first, second = records.list
    assert line(first) == ("django_jobs.worker", "ERROR", "a round failed")
    assert first.exc_info is not None
    assert line(second) == ("django_jobs.worker", "INFO", "finishing 3 jobs")
    assert second.exc_info is None


# -- nothing of what a job was given or gave back

MARK = "s3cret-0f1e2d"


def fail(*args: object, **kwargs: object) -> NoReturn:
    raise LookupError("no such customer")


def say(word: BaseException) -> Any:
    def body(*args: object, **kwargs: object) -> NoReturn:
        raise word

    return body


def give_back(*args: object, **kwargs: object) -> list[object]:
    return [MARK, args, kwargs]


def give_what_cannot_be_stored(*args: object, **kwargs: object) -> dict[str, object]:
    return {MARK: [MARK, object()]}


def take_nothing() -> None:
    pass


def choose_badly(attempt: int, error: BaseException | None) -> str:
    return "soon"


def given() -> tuple[tuple[object, ...], dict[str, object]]:
    return (MARK, [MARK, {MARK: MARK}], MARK.encode()), {"password": MARK, "more": {MARK: [MARK]}}


def test_no_line_ever_carries_arguments_or_results(records: Records, frozen: FrozenClock) -> None:
    args, kwargs = given()
    bodies = {
        "succeed": give_back, "fail": fail, "retry": say(Retry("closed")), "snooze": say(Snooze(60, "closed")),
        "cancel": say(Cancel("withdrawn")), "give_up": say(GiveUp("stolen")), "leave": say(SystemExit(3)),
        "unstorable": give_what_cannot_be_stored, "misfit": fail, "unreadable": fail, "unread_key": fail, "gone": fail,
        "expire": fail, "lapse": fail, "cancelled": fail, "deleted": fail,
    }  # fmt: skip
    with ExitStack() as stack:
        queued: dict[str, Job] = {}
        for name, body in bodies.items():
            performer = stack.enter_context(
                declared(body, name=name, max_attempts=2, backoff=choose_badly if name == "fail" else lambda _: 10)
            )
            queued[name] = performer.using(meta={"note": MARK}, expires=1 if name == "expire" else None).later(
                *args, **kwargs
            )
        enqueue([named("unknown", *args, options={"max_attempts": 1}, **kwargs)])
        stack.enter_context(declared(take_nothing, name="misfit"))
        write(queued["unreadable"].pk, args=[{"$enum": f"{MARK}:{MARK}.{MARK}"}])
        write(queued["unread_key"].pk, kwargs={MARK: {"$datetime": MARK}})
        write(queued["gone"].pk, args=[{"$model": {"label": "auth.Group", "pk": 5, "alias": "default"}}])
        write(queued["cancelled"].pk, state="READY")
        queued["cancelled"].cancel("withdrawn by hand")
        queued["deleted"].delete()
        frozen.advance(timedelta(seconds=1))
        write(queued["lapse"].pk, priority=100)
        assert claim_one(queues=("default",)).id == queued["lapse"].pk
        while frozen.elapsed < 86_400:
            while work_one() is not None:
                pass
            frozen.advance(timedelta(hours=1))
            lifecycle.reclaim(connection)
            lifecycle.expire(connection)
        frozen.advance(timedelta(days=30))
        lifecycle.prune(connection)
    events = {record.event for record in records.list}
    assert events == {
        "job.started", "job.succeeded", "job.failed", "job.retried", "job.snoozed", "job.cancelled", "jobs.reclaimed",
        "jobs.expired", "jobs.pruned", "worker.odd",
    }  # fmt: skip
    assert len(records.list) > 30
    assert MARK not in records.everything


def test_what_a_database_says_of_a_rows_values_is_left_out(records: Records) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite says nothing of values")
    with connection.cursor() as cursor:
        cursor.execute("alter table django_jobs_job add constraint never check (state <> 'SUCCESSFUL')")
    perform(give_back, MARK)
    odd = records.list[-1]
    assert odd.levelname == "ERROR"
    assert "violates check constraint" in odd.getMessage()
    assert MARK not in records.everything


@pytest.mark.parametrize("said", ["{}", "{!r}"])
def test_only_the_first_line_of_what_a_database_refuses_is_told(records: Records, said: str) -> None:
    error = IntegrityError(f"new row violates a constraint\nDETAIL:  Failing row contains ({MARK}).\n")
    signals.tell(signals.odd, None, message=f"crew: {said.format(error)}", exception=error, level=logging.ERROR)
    [record] = records.list
    assert "violates a constraint" in record.getMessage()
    assert MARK not in records.everything


# -- stderr


@contextmanager
def untouched() -> Iterator[logging.Logger]:
    """Make our logger look as if nobody had set up anything."""
    logger = logging.getLogger("django_jobs")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers[:], logger.propagate = [], False
    logger.setLevel(logging.NOTSET)
    try:
        yield logger
    finally:
        logger.handlers[:], level, logger.propagate = before
        logger.setLevel(level)


def test_lines_go_to_stderr_where_nobody_said_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with untouched():
        logs.show_on_stderr()
        logs.show_on_stderr()
        logs.job_log.info("a line")
        logs.job_log.debug("hidden")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [text.partition(" ")[2] for text in captured.err.splitlines()] == ["a line"]


def end_of(claim: Claim, outcome: Outcome, seconds: float | None = 0.25) -> End:
    return End(claim, outcome, transitions.settle(claim, outcome), seconds)


def test_many_ends_come_to_stderr_in_their_order_whatever_wrote_them(capsys: pytest.CaptureFixture[str]) -> None:
    queue_job()
    claim = claim_one()._replace(lease=Lease(7, 1))
    failed = Failed(failure=Failure(kind="error", reason="no such customer", traceback="no such place"))
    ends = [end_of(claim, Succeeded()), end_of(claim, failed), end_of(claim, Succeeded(), None)]
    with untouched():
        logs.show_on_stderr()
        signals.ends.tell(ends)
    lines = capsys.readouterr().err.splitlines()
    told = [line.partition(" ")[2] for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert told == [
        "✔ shop.greet #7 default 0.250s",
        "✖ shop.greet #7 default 0.250s failed for good: no such customer",
        "✔ shop.greet #7 default",
    ]
    assert "no such place" in lines


@contextmanager
def handled(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_whoever_else_listens_gets_a_record_of_each_success() -> None:
    queue_job()
    end = end_of(claim_one(), Succeeded())
    with untouched() as logger:
        logs.show_on_stderr()
        for heard_by in (logger, logs.job_log):
            with handled(heard_by, kept := Records()):
                signals.ends.tell([end, end])
            assert [record.event for record in kept.list] == ["job.succeeded"] * 2
        logger.propagate = True
        with handled(logging.getLogger(), kept := Records()):
            signals.ends.tell([end])
        assert [record.run_s for record in kept.list] == [0.25]


def test_what_looks_at_records_on_their_way_sees_each_success(capsys: pytest.CaptureFixture[str]) -> None:
    queue_job()
    end = end_of(claim_one(), Succeeded())

    def refuse(record: logging.LogRecord) -> bool:
        return "default" not in record.getMessage()

    with untouched() as logger:
        logs.show_on_stderr()
        [handler] = logger.handlers
        for watched in (logs.job_log, handler):
            watched.addFilter(refuse)
            signals.ends.tell([end])
            watched.removeFilter(refuse)
        handler.setLevel(logging.WARNING)
        signals.ends.tell([end])
        handler.setLevel(logging.NOTSET)
        logger.setLevel(logging.WARNING)
        signals.ends.tell([end])
        logger.setLevel(logging.INFO)
        handler.setFormatter(logging.Formatter("said: %(message)s"))
        signals.ends.tell([end])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "said: ✔ shop.greet" in lines[0]


def test_what_a_project_has_set_up_stays() -> None:
    handler = logging.NullHandler()
    with untouched() as logger:
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logs.show_on_stderr()
        assert (logger.handlers, logger.level) == ([handler], logging.ERROR)
