"""A consumer's mistakes. Each mark names what mypy, and behind the bar basedpyright, report in its line; no more."""

from __future__ import annotations

from datetime import date

from django_jobs import Attempt, aenqueue, enqueue, every, job, named, preview
from django_jobs.conf import DjangoJobs
from django_jobs.models import Job
from django_jobs.testing import assert_enqueued, jobs_mode, perform, run_jobs
from tests.typing.consumer import charge, deliver, send_welcome, watch, with_everything, without_arguments

# -- arguments that don't fit

send_welcome.later("x")  # E: arg-type | reportArgumentType
send_welcome.later()  # E: call-arg | reportCallIssue
send_welcome.later(1, "hi", 3)  # E: call-arg | reportCallIssue
send_welcome.later(1, greting="hi")  # E: call-arg | reportCallIssue
send_welcome.later(1, greeting=2)  # E: arg-type | reportArgumentType
without_arguments.later(1)  # E: call-arg | reportCallIssue
with_everything.later("1")  # E: arg-type | reportArgumentType
send_welcome("x")  # E: arg-type | reportArgumentType
send_welcome.prepare("x")  # E: arg-type | reportArgumentType
send_welcome.using(queue="bulk").later("x")  # E: arg-type | reportArgumentType
send_welcome.after(10).later()  # E: call-arg | reportCallIssue
send_welcome.at(date(2026, 3, 1)).later(1)  # E: arg-type | reportArgumentType

# -- the attempt is given by the worker


def with_an_attempt(attempt: Attempt) -> None:
    charge.later(attempt, 5)  # E: arg-type call-arg | reportCallIssue
    charge.later(attempt)  # E: arg-type | reportArgumentType
    charge.later(attempt=attempt, invoice_id=5)  # E: call-arg | reportCallIssue
    charge(5)  # E: arg-type call-arg | reportCallIssue
    charge(attempt, "5")  # E: arg-type | reportArgumentType
    watch.later(attempt)  # E: arg-type | reportArgumentType


@job(takes_attempt=True)  # E: arg-type | reportArgumentType
def takes_none() -> None: ...


# -- options of single jobs

send_welcome.using(prio=1)  # E: call-arg | reportCallIssue
send_welcome.using(priority="high")  # E: arg-type | reportArgumentType
send_welcome.using(restart=False)  # E: call-arg | reportCallIssue
send_welcome.using(meta=5)  # E: arg-type | reportArgumentType
send_welcome.after(minute=5)  # E: call-arg | reportCallIssue
send_welcome.after([])  # E: arg-type | reportArgumentType
send_welcome.using(on_duplicate="ignore")  # E: arg-type | reportArgumentType
send_welcome.using(unique=5)  # E: arg-type | reportArgumentType
named("other.service", options={"prio": 1})  # E: arg-type | reportArgumentType
named("other.service", queue=5)  # E: arg-type | reportArgumentType
named(send_welcome)  # E: arg-type | reportArgumentType

# -- options of a performer

job(timeout=[])  # E: call-overload | reportArgumentType
job(max_tries=5)  # E: call-overload | reportCallIssue
job(backoff=5)  # E: call-overload | reportArgumentType
job(5)  # E: call-overload | reportArgumentType reportCallIssue
job(takes_attempt="yes")  # E: call-overload | reportArgumentType reportCallIssue

job(unique_while_waiting=7)  # E: call-overload | reportArgumentType
job(redact=5)  # E: call-overload | reportArgumentType
job(give_up_on=5)  # E: call-overload | reportArgumentType

# -- schedules

job(schedule=5)  # E: call-overload | reportArgumentType
every(5, send_welcome)  # E: arg-type | reportArgumentType
every("@daily", print)  # E: arg-type | reportArgumentType
every("@daily", send_welcome, missed="never")  # E: arg-type | reportArgumentType
every("@daily", send_welcome, kwargs=[1])  # E: arg-type | reportArgumentType
every("@daily", send_welcome, zone="UTC")  # E: call-arg | reportCallIssue
preview(5)  # E: arg-type | reportArgumentType

# -- verbs by hand

send_welcome.later(5).reschedule(prio=1)  # E: call-arg | reportCallIssue
Job.objects.failed().cancel(5)  # E: arg-type | reportArgumentType
Job.objects.cancel().skipped["running"].append(5)  # E: attr-defined | reportAttributeAccessIssue

# -- many

send_welcome.later_many([1, 2])  # E: list-item | reportArgumentType
send_welcome.later_many(5)  # E: arg-type | reportArgumentType
enqueue([send_welcome])  # E: list-item | reportArgumentType
enqueue(send_welcome.prepare(1))  # E: arg-type | reportArgumentType


# -- what comes of it

number: int = send_welcome(5)  # E: assignment | reportAssignmentType
row: int = send_welcome.later(5)  # E: assignment | reportAssignmentType
state = send_welcome.later(5).no_such_attribute  # E: attr-defined | reportAttributeAccessIssue
rows: list[Job] = send_welcome.later_many([(5,)])  # E: assignment | reportAssignmentType


async def from_async_code() -> str:
    await deliver.later("ada@example.org")  # E: misc | reportGeneralTypeIssues
    await deliver.alater(5)  # E: arg-type | reportArgumentType
    await aenqueue([deliver("ada@example.org")])  # E: list-item | reportArgumentType
    return await deliver("ada@example.org")  # E: return-value | reportReturnType


def without_await() -> Job:
    return deliver.alater("ada@example.org")  # E: return-value | reportReturnType


# -- testing

run_jobs(5)  # E: arg-type | reportArgumentType
run_jobs(max=5)  # E: call-arg | reportCallIssue
run_jobs(until=[])  # E: arg-type | reportArgumentType
jobs_mode("eager")  # E: arg-type | reportArgumentType
assert_enqueued(5)  # E: arg-type | reportArgumentType
assert_enqueued(send_welcome, queue=5)  # E: arg-type | reportArgumentType
text: bytes = perform(send_welcome, 5)  # E: assignment | reportAssignmentType

# -- the setting

DJANGO_JOBS: DjangoJobs = {"QUEUE": ["mail"]}  # E: typeddict-unknown-key | reportAssignmentType
OTHER_JOBS: DjangoJobs = {"LEASE": None}  # E: typeddict-item | reportAssignmentType
HOOKED_JOBS: DjangoJobs = {"META": [5]}  # E: list-item | reportAssignmentType
