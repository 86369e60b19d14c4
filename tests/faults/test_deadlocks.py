"""Verbs that write the same rows at once, each in an order of its own."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.outcomes import Failed, GaveUp, Outcome, Released, Retried, Succeeded
from django_jobs.records import Claim
from tests.factories import failure, new_job, request, seconds

ROWS = 1_000

OUTCOMES: list[Outcome] = [
    Succeeded(),
    Failed(failure=failure()),
    GaveUp(failure=failure()),
    Retried(failure=failure(), delay=seconds(0)),
    Released(started=True),
]


class Traffic:
    """Everything that writes rows, each in a thread and over a connection of its own, until the time is over."""

    def __init__(self, duration: float) -> None:
        self.until = time.monotonic() + duration
        self.rounds: Counter[str] = Counter()
        self.errors: list[str] = []
        self.claims: list[Claim] = []

    def run(self) -> None:
        verbs = [
            self.finish, self.finish, self.beat, self.sweep, self.expire, self.prune, self.cancel, self.cancel,
            self.cancel_in_a_view, self.retry, self.delete, self.refill,
        ]  # fmt: skip
        threads = [threading.Thread(target=self.repeat, args=(verb,)) for verb in verbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def repeat(self, verb: Callable[[BaseDatabaseWrapper], object]) -> None:
        connection = connections["default"]
        try:
            with connection.cursor() as cursor:
                cursor.execute("set deadlock_timeout = '50ms'")
            while time.monotonic() < self.until:
                verb(connection)
                self.rounds[verb.__name__] += 1
        except Exception as error:
            self.errors.append(f"{verb.__name__}: {error}")
        finally:
            connection.close()

    def some_ids(self) -> list[int]:
        """Give the ids of half the rows in any order, as a person's selection may have it."""
        ids = list(Job.objects.order_by().values_list("pk", flat=True))
        return random.sample(ids, len(ids) // 2)

    # -- what workers do

    def finish(self, connection: BaseDatabaseWrapper) -> None:
        # Leases are over at once, so that the sweep meets the same rows.
        asked = request(worker=threading.current_thread().name, limit=100, lease=timedelta(0), empty_handed=True)
        claims = list(lifecycle.claim(connection, asked).claims)
        self.claims = claims[::2] + self.claims[:200]
        random.shuffle(claims)
        lifecycle.settle(connection, [(claim, random.choice(OUTCOMES)) for claim in claims[:80]])

    def beat(self, connection: BaseDatabaseWrapper) -> None:
        leases = [claim.lease for claim in self.claims]
        random.shuffle(leases)
        lifecycle.renew(connection, leases)

    # -- chores

    def sweep(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.reclaim(connection)

    def expire(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.expire(connection)

    def prune(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.prune(connection)

    # -- people

    def cancel(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.cancel(self.some_ids())

    def cancel_in_a_view(self, connection: BaseDatabaseWrapper) -> None:
        with transaction.atomic():
            lifecycle.cancel(self.some_ids()[:1])
            time.sleep(0.005)

    def retry(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.retry(self.some_ids())

    def delete(self, connection: BaseDatabaseWrapper) -> None:
        lifecycle.delete(self.some_ids()[:20])

    def refill(self, connection: BaseDatabaseWrapper) -> None:
        missing = ROWS - Job.objects.count()
        jobs = [new_job(keep=0.01, keep_failed=0.01, expires=seconds(random.choice([0, 60]))) for _ in range(missing)]
        lifecycle.enqueue_many(jobs, using="default")


@pytest.fixture
def row_locks() -> None:
    if not connections["default"].features.has_select_for_update:
        pytest.skip("this database has one writer at a time, so that no two can wait for each other")


def every_verb_at_once(duration: float) -> None:
    traffic = Traffic(duration)
    traffic.run()
    assert traffic.errors == []
    verbs = {"finish", "beat", "sweep", "expire", "prune", "cancel", "cancel_in_a_view", "retry", "delete", "refill"}
    assert traffic.rounds.keys() == verbs


@pytest.mark.django_db(transaction=True)
def test_o81_verbs_over_the_same_rows_never_deadlock(row_locks: None) -> None:
    every_verb_at_once(5.0)


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_o81_verbs_over_the_same_rows_never_deadlock_for_two_minutes(row_locks: None) -> None:
    every_verb_at_once(120.0)


@pytest.mark.django_db(transaction=True)
def test_o81_two_sessions_that_lock_rows_crosswise_are_told_so(row_locks: None) -> None:
    """What the test above would see of a deadlock."""
    lifecycle.enqueue_many([new_job(), new_job()], using="default")
    first, second = Job.objects.order_by("pk").values_list("pk", flat=True)
    gate = threading.Barrier(2)
    errors: list[str] = []

    def lock(*ids: int) -> None:
        try:
            with connections["default"].cursor() as cursor:
                cursor.execute("set deadlock_timeout = '50ms'")
            with transaction.atomic():
                lifecycle.cancel(ids[:1])
                gate.wait(timeout=30)
                lifecycle.cancel(ids[1:])
        except OperationalError as error:
            errors.append(str(error))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=lock, args=order) for order in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [error] = errors
    assert error.startswith("deadlock detected")
