"""Front door: whether a performer bears what a queue does to it: a second run, and a death in the middle of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core import mail
from django.db import connections, router

from django_jobs import lifecycle, runner
from django_jobs.conf import settings
from django_jobs.performers import AnyPerformer, Performer, get_performer, modes
from django_jobs.performers.queueing import refuse_in_event_loop
from django_jobs.records import Claim, Failure
from django_jobs.states import State
from django_jobs.testing.awaiting import awaited
from django_jobs.testing.modes import jobs_mode
from django_jobs.testing.performing import perform
from django_jobs.testing.targets import rows, whole
from django_jobs.worker.inline import own_traceback
from django_jobs.worker.plan import Plan

if TYPE_CHECKING:
    from django_jobs.models import Job

Snapshot = Callable[[], object]


def assert_idempotent(
    job: Performer[..., ..., Any], /, *args: Any, snapshot: Snapshot | None = None, **kwargs: Any
) -> None:
    """Assert that a second run of a performer with the same arguments changes nothing more.

    It is run twice as by `perform`. What `snapshot()` gives is compared after each; by default the number of rows of
    every model, jobs included, and of mails in `django.core.mail.outbox`. So name what the job changes within rows:
    `snapshot=lambda: list(Order.objects.values())`.

    Raises AssertionError with what differs, and what the body raised.
    """
    __tracebackhide__ = True
    refuse_in_event_loop("assert_idempotent", "aassert_idempotent")
    look = snapshot or _counts
    perform(job, *args, **kwargs)
    first = look()
    perform(job, *args, **kwargs)
    second = look()
    if first != second:
        raise AssertionError(f"{job.name} is not idempotent: its second run changed {_difference(first, second)}")


def _counts() -> dict[str, int]:
    """Count the rows of every model that has a table, and the mails that tests keep."""
    counts: dict[str, int] = {}
    for model in apps.get_models(include_auto_created=True):
        alias = router.db_for_read(model)
        if model._meta.managed and not model._meta.proxy and router.allow_migrate_model(alias, model):
            # What Django lets this test not read, the body can't have changed.
            with suppress(AssertionError):
                counts[model._meta.label] = model._base_manager.using(alias).count()
    return {**counts, "mail.outbox": len(getattr(mail, "outbox", ()))}


def _difference(first: object, second: object) -> str:
    if isinstance(first, dict) and isinstance(second, dict):
        keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
        return ", ".join(f"{key}: {first.get(key)!r:.200} -> {second.get(key)!r:.200}" for key in keys)
    return f"the snapshot: {first!r:.500} -> {second!r:.500}"


def crash_after(job: Job | Performer[..., ..., Any], n_queries: int, /, *args: Any, **kwargs: Any) -> Job:
    """Kill the body of a job after so many queries of its own, as if its worker had died, and give its row thereafter.

    `job` is one that waits, or a performer, of which one is queued with these arguments. The queries may be none; where
    the body makes exactly so many, it dies at its end, before that is written. A transaction that is open then is
    rolled back, as its database would, and what was written before stays; statements that open and close transactions
    aren't counted. What the body does without the database after that moment, in a `finally` for one, can't be kept
    from it.

    The row must come back then: READY again, with the attempt counted; run_jobs() runs it a second time. (A job
    declared with `restart=False`, or one that has crashed too often, is FAILED.) Raises AssertionError where it doesn't
    and where the body made fewer queries; what the body raised by itself; ValueError for a job that doesn't wait.
    """
    __tracebackhide__ = True
    refuse_in_event_loop("crash_after", "acrash_after")
    whole("n_queries", n_queries, 0)
    with jobs_mode("manual"):
        row = job.using().later(*args, **kwargs) if isinstance(job, Performer) else job
    connection = connections[settings().database]
    plan = Plan(alias=connection.alias, queues={row.queue: None}, concurrency=1)
    claim = lifecycle.claim_this(connection, row.pk, plan.request(limit=1, in_hand={}, last_queue=""))
    if claim is None:
        message = f"crash_after(): {row} doesn't wait to run, it is {rows().get(pk=row.pk).state}"
        raise ValueError(message)
    death, error = _die(claim, n_queries)
    failure = Failure(kind="crash", reason=f"its worker was killed by the test, after {n_queries} queries")
    lifecycle.bury(connection, plan.identity, running={claim.lease}, failure=failure)
    if not death.has_come and death.count < n_queries:
        if error is not None:
            raise error.with_traceback(own_traceback(error))
        message = f"{claim.name} made {death.count} queries and was through, so it can't die after {n_queries}"
        raise AssertionError(message)
    row = rows().get(pk=row.pk)
    if row.state not in (State.READY, State.FAILED):
        raise AssertionError(f"{row} hasn't come back from a crash: it is {row.state}")
    return row


aassert_idempotent = awaited(assert_idempotent)
acrash_after = awaited(crash_after)


class _Killed(BaseException):
    """What stands for the end of the process."""


_ABOUT_TRANSACTIONS = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK|BEGIN|COMMIT|SET TRANSACTION)\b", re.IGNORECASE)


class _Death:
    """Counts the queries of a body, and raises in place of the one that is too many, and of all thereafter."""

    def __init__(self, n_queries: int) -> None:
        self._allowed = n_queries
        self.has_begun = False
        self.is_over = False
        self.count = 0
        self.has_come = False

    def execute(self, call: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:  # noqa: FBT001 - as Django calls it
        """Run a statement, or die."""
        if not self.has_begun or _ABOUT_TRANSACTIONS.match(sql):
            return call(sql, params, many, context)
        if self.count == self._allowed:
            self.has_come = True
            raise _Killed
        self.count += not self.is_over
        return call(sql, params, many, context)


def _die(claim: Claim, n_queries: int) -> tuple[_Death, BaseException | None]:
    death = _Death(n_queries)
    context = Context()
    context.run(modes.carry, modes.carried())
    errors = runner.note_errors(context)
    with _watched(death, get_performer(claim.name)):
        runner.run(claim, context=context)
    return death, errors[-1] if errors else None


@contextmanager
def _watched(death: _Death, performer: AnyPerformer) -> Iterator[None]:
    """Count while the body is called: what opens its transaction, and the end of an atomic one, aren't its own."""
    function = performer.function

    def begun(*args: Any, **kwargs: Any) -> Any:
        death.has_begun = True
        try:
            return function(*args, **kwargs)
        finally:
            death.is_over = not performer.is_async

    performer.function = begun
    try:
        with ExitStack() as stack:
            for connection in connections.all():
                stack.enter_context(connection.execute_wrapper(death.execute))
            yield
    finally:
        performer.function = function
