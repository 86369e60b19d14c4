"""Atomic performers: their body and the end of their job are one transaction, and only a success is committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, IntegrityError, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase

from django_jobs import Cancel, GiveUp, Retry, Snooze, lifecycle, runner, signals, work_one
from django_jobs.exceptions import Interruption, JobCancelled, JobLost, JobTimeout
from django_jobs.lifecycle import running
from django_jobs.models import Job
from django_jobs.outcomes import (
    Cancelled,
    Committed,
    Ending,
    Failed,
    GaveUp,
    InDoubt,
    Outcome,
    Released,
    Retried,
    Snoozed,
    Succeeded,
)
from django_jobs.records import Claim
from django_jobs.stores import store_for
from django_jobs.transitions import Place
from django_jobs.worker.body import run_in
from django_jobs.worker.seat import ThreadSeat
from tests.declaring import declared
from tests.factories import another_connection, claim_one, place_of, read, write
from tests.lifecycle.conftest import heard  # noqa: F401 - a fixture
from tests.lifecycle.hearing import Heard, words
from tests.performing import POLICY, Run, perform
from tests.runner.conftest import Options
from tests.shop import jobs

committing = pytest.mark.django_db(transaction=True)

ATOMIC: dict[str, Any] = {**POLICY, "atomic": True}

PATIENCE = 20.0


def atomically(body: Callable[..., Any], *args: Any, **policy: Any) -> Run:
    """Run a function as an atomic job, by `work_one`."""
    return perform(body, *args, policy={"atomic": True, **policy})


def run(body: Callable[..., Any], *args: Any, before: Callable[[Claim], object] = id, **policy: Any) -> Ending:
    """Run a function as an atomic job, and give what the run came to before it is settled."""
    with declared(body, **{**ATOMIC, **policy}) as performer:
        performer.later(*args)
        claim = claim_one()
        before(claim)
        return runner.run(claim)


def write_group(name: str = "done") -> None:
    Group.objects.create(name=name)


def groups() -> list[str]:
    """Give the names of the groups as any other process sees them."""
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("select name from auth_group order by name")
        return [name for (name,) in cursor.fetchall()]


def state_elsewhere(job_id: int) -> str:
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute(f'select state from "{Job._meta.db_table}" where id = %s', [job_id])
        state: str = cursor.fetchone()[0]
        return state


@pytest.fixture
def postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite nobody else writes during an atomic body, and no server cuts connections")


# -- one transaction


@committing
def test_the_work_and_the_end_of_the_job_become_visible_together() -> None:
    def body() -> list[object]:
        write_group()
        return [groups(), state_elsewhere(Job.objects.get().pk)]

    ran = atomically(body)
    assert ran.result == [[], "RUNNING"]
    assert (ran.outcome, ran.job.state) == (Succeeded(result='[[],"RUNNING"]'), "SUCCESSFUL")
    assert (groups(), state_elsewhere(ran.job.pk)) == (["done"], "SUCCESSFUL")


@committing
def test_the_end_is_the_last_statement_before_the_commit() -> None:
    statements: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql.lower())
        return execute(sql, params, many, context)

    def body() -> None:
        write_group()

    with connection.execute_wrapper(note):
        assert isinstance(run(body), Committed)
    [place] = [number for number, sql in enumerate(statements) if 'into "auth_group"' in sql]
    # Between the body's last statement and the end of the transaction there is ours alone.
    [last] = statements[place + 1 :]
    assert "set state = 'successful'" in last


@pytest.mark.django_db
def test_in_the_transaction_of_a_test_all_of_it_is_part_of_that() -> None:
    ran = atomically(write_group)
    assert (ran.outcome, ran.job.state, ran.job.token is not None) == (Succeeded(), "SUCCESSFUL", True)
    assert (Group.objects.count(), groups()) == (1, [])


@committing
def test_within_a_callers_atomic_block_work_and_end_share_its_fate() -> None:
    with declared(write_group, **ATOMIC) as performer:
        job = performer.later()
        with suppress(LookupError), transaction.atomic():
            assert work_one() == Succeeded()
            raise LookupError
        assert (groups(), state_elsewhere(job.pk)) == ([], "READY")
        with transaction.atomic():
            assert work_one() == Succeeded()
        assert (groups(), state_elsewhere(job.pk)) == (["done"], "SUCCESSFUL")


@committing
def test_a_project_without_autocommit_gets_its_commit_too(options: Options) -> None:
    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        options(AUTOCOMMIT=False)
        assert isinstance(runner.run(claim), Committed)
    assert (groups(), state_elsewhere(claim.id)) == (["done"], "SUCCESSFUL")


@committing
def test_the_attempt_and_nested_blocks_work_as_everywhere() -> None:
    def body(attempt: Any) -> int:
        with suppress(LookupError), transaction.atomic():
            write_group("undone")
            raise LookupError
        with transaction.atomic():
            write_group()
        number: int = attempt.number
        return number

    assert atomically(body, takes_attempt=True).result == 1
    assert groups() == ["done"]


@committing
def test_a_durable_block_within_is_refused_as_django_does() -> None:
    def body() -> None:
        with transaction.atomic(durable=True):
            write_group()

    ran = atomically(body)
    assert ran.reason == "A durable atomic block cannot be nested within another atomic block."
    assert groups() == []


# -- what isn't a success is rolled back


def raise_it(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        write_group()
        raise error

    return body


def return_it(value: object) -> Callable[[], object]:
    def body() -> object:
        write_group()
        return value

    return body


NOT_A_SUCCESS: list[tuple[str, Callable[[], object], type[Outcome], str]] = [
    ("an error", raise_it(ValueError("no")), Retried, "READY"),
    ("a system exit", raise_it(SystemExit(3)), Retried, "READY"),
    ("a retry", raise_it(Retry("later")), Retried, "READY"),
    ("a returned retry", return_it(Retry("later")), Retried, "READY"),
    ("a snooze", raise_it(Snooze("5m")), Snoozed, "READY"),
    ("a returned snooze", return_it(Snooze("5m")), Snoozed, "READY"),
    ("a cancel", raise_it(Cancel("not needed")), Cancelled, "CANCELLED"),
    ("a returned cancel", return_it(Cancel("not needed")), Cancelled, "CANCELLED"),
    ("giving up", raise_it(GiveUp("hopeless")), GaveUp, "FAILED"),
    ("a returned giving up", return_it(GiveUp("hopeless")), GaveUp, "FAILED"),
    ("a result that can't be stored", return_it(object()), Failed, "FAILED"),
]


@pytest.mark.parametrize(
    "tests_own",
    [pytest.param(False, marks=committing), pytest.param(True, marks=pytest.mark.django_db)],
    ids=["committed", "in a test's transaction"],
)
@pytest.mark.parametrize(
    ("body", "kind", "state"), [case[1:] for case in NOT_A_SUCCESS], ids=[case[0] for case in NOT_A_SUCCESS]
)
def test_everything_but_a_success_is_rolled_back_and_recorded(
    tests_own: bool, body: Callable[[], object], kind: type[Outcome], state: str
) -> None:
    ran = atomically(body)
    assert isinstance(ran.outcome, kind)
    assert (ran.job.state, ran.job.worker) == (state, None)
    assert Group.objects.count() == 0
    assert connection.in_atomic_block is tests_own


@committing
def test_the_last_attempt_fails_and_leaves_nothing() -> None:
    ran = atomically(raise_it(ValueError("no")), max_attempts=1)
    assert (ran.job.state, ran.error["kind"], groups()) == ("FAILED", "error", [])


# -- jobs queued within


@committing
def test_o70_a_job_queued_within_is_committed_with_the_end_or_not_at_all() -> None:
    def body(fails: bool) -> None:
        jobs.greet.later(name="Ada")
        jobs.greet.later_many([("Bo",)])
        if fails:
            raise ValueError("no")

    assert atomically(body, True).job.state == "READY"
    assert not Job.objects.named("tests.shop.greet").exists()
    assert atomically(body, False).job.state == "SUCCESSFUL"
    assert Job.objects.named("tests.shop.greet").ready().count() == 2


# -- a transaction that can't be committed


def swallow_an_error() -> None:
    write_group("twin")
    with suppress(IntegrityError):
        write_group("twin")


def mark_for_rollback() -> None:
    write_group()
    transaction.set_rollback(True)


def close_the_connection() -> None:
    write_group()
    connection.close()


def leave_a_block_marked() -> None:
    write_group()
    with suppress(LookupError), transaction.atomic(savepoint=False):
        raise LookupError


@committing
@pytest.mark.parametrize(
    "body", [swallow_an_error, mark_for_rollback, close_the_connection, leave_a_block_marked], ids=lambda b: b.__name__
)
def test_o72_a_body_that_leaves_its_transaction_broken_and_returns_has_failed(body: Callable[[], None]) -> None:
    ran = atomically(body)
    assert (ran.job.state, ran.error["kind"]) == ("READY", "error")
    assert ran.error["exception"] == "django.db.transaction.TransactionManagementError"
    assert ran.reason.startswith("nothing was committed, since the transaction of this atomic job was marked for roll")
    assert groups() == []
    assert atomically(write_group).job.state == "SUCCESSFUL"


@pytest.mark.django_db
@pytest.mark.parametrize("body", [swallow_an_error, mark_for_rollback, leave_a_block_marked], ids=lambda b: b.__name__)
def test_o72_in_the_transaction_of_a_test_the_next_job_works(body: Callable[[], None]) -> None:
    Group.objects.create(name="before")
    assert atomically(body).job.attempts == 1
    assert [group.name for group in Group.objects.all()] == ["before"]
    assert atomically(write_group).job.state == "SUCCESSFUL"


@committing
def test_o72_the_swallowed_error_is_named_and_an_older_one_is_not() -> None:
    swallowed = atomically(swallow_an_error)
    assert "IntegrityError" in swallowed.error["traceback"]
    marked = atomically(mark_for_rollback)
    assert "IntegrityError" not in marked.error["traceback"]


@committing
def test_o72_an_error_swallowed_where_django_does_not_see_it(postgresql: None) -> None:
    def body() -> None:
        write_group()
        with connection.cursor() as cursor, suppress(DatabaseError):
            cursor.execute("select 1/0")

    ran = atomically(body)
    assert (ran.job.state, ran.error["exception"]) == ("READY", "django.db.utils.InternalError")
    assert groups() == []


@committing
def test_o69_a_retry_asked_for_in_a_nested_block_rolls_everything_back_and_exists() -> None:
    def body() -> None:
        write_group("outer")
        with transaction.atomic():
            write_group("inner")
            raise Retry("the shop is closed")

    ran = atomically(body)
    assert (ran.job.state, ran.job.attempts, ran.reason) == ("READY", 1, "the shop is closed")
    assert groups() == []


@committing
def test_o69_half_of_the_work_is_never_committed_though_the_body_caught_the_error() -> None:
    def body() -> None:
        write_group("first half")
        try:
            with transaction.atomic():
                write_group("second half")
                raise LookupError
        except LookupError as error:
            raise Retry("the rest is for later") from error

    assert atomically(body).job.state == "READY"
    assert groups() == []


@committing
def test_an_error_of_the_commit_fails_the_attempt_and_rolls_back() -> None:
    def body() -> None:
        write_group()
        # Checked when the transaction is committed.
        User.groups.through.objects.create(user_id=123_456, group_id=123_456)

    ran = atomically(body)
    assert (ran.job.state, ran.job.attempts) == ("READY", 1)
    assert ran.error["exception"] == "django.db.utils.IntegrityError"
    assert isinstance(ran.outcome, Retried)
    assert (groups(), User.groups.through.objects.count()) == ([], 0)
    assert atomically(write_group).job.state == "SUCCESSFUL"


@committing
def test_an_error_of_our_own_statement_fails_the_attempt_and_rolls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select nothing from nowhere")

    monkeypatch.setattr(lifecycle, "settle_within", breaks)
    ran = atomically(write_group)
    assert (ran.job.state, groups()) == ("READY", [])
    assert ran.error["exception"] in {"django.db.utils.ProgrammingError", "django.db.utils.OperationalError"}


@committing
def test_a_connection_that_breaks_under_the_body_fails_the_attempt(options: Options) -> None:
    options(CONN_MAX_AGE=None)

    def body() -> None:
        write_group()
        connection.connection.close()

    ran = atomically(body)
    assert (ran.job.state, groups()) == ("READY", [])
    assert atomically(write_group).job.state == "SUCCESSFUL"


@committing
def test_o28_a_backend_that_is_killed_under_the_body_fails_the_attempt(postgresql: None) -> None:
    def body() -> None:
        write_group()
        terminate(connection.connection.info.backend_pid)
        Group.objects.count()

    ran = atomically(body)
    assert (ran.job.state, ran.error["exception"]) == ("READY", "django.db.utils.OperationalError")
    assert groups() == []


@committing
def test_o28_a_backend_that_was_killed_while_idle_costs_no_attempt(options: Options, postgresql: None) -> None:
    options(CONN_MAX_AGE=None)

    def cut(claim: Claim) -> None:
        terminate(connection.connection.info.backend_pid)

    assert isinstance(run(write_group, before=cut), Committed)
    assert groups() == ["done"]


def terminate(pid: int) -> None:
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 5000)", [pid])


# -- other databases


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_database_takes_no_part() -> None:
    def body() -> None:
        write_group()
        Group.objects.using("other").create(name="elsewhere")
        raise ValueError("no")

    assert atomically(body).job.state == "READY"
    assert (groups(), Group.objects.using("other").count()) == ([], 1)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_transaction_left_open_on_another_database_is_rolled_back() -> None:
    def body() -> None:
        write_group()
        connections["other"].set_autocommit(False)
        Group.objects.using("other").create(name="elsewhere")

    assert atomically(body).job.state == "SUCCESSFUL"
    assert (groups(), Group.objects.using("other").count()) == (["done"], 0)


# -- whose row it is


@committing
def test_a_run_whose_job_was_taken_away_cannot_commit(heard: list[Heard]) -> None:  # noqa: F811
    def take_away(claim: Claim) -> None:
        write(claim.id, token=claim.token + 1, worker="another")

    assert run(write_group, before=take_away) == Released(started=True)
    assert groups() == []
    assert Job.objects.get().worker == "another"


@committing
def test_a_run_whose_lease_was_reclaimed_cannot_commit() -> None:
    def lapse(claim: Claim) -> None:
        write(claim.id, lease_expires_at=claim.started_at, deadline_at=claim.started_at)
        assert lifecycle.reclaim(connection) == 1

    assert run(write_group, before=lapse) == Released(started=True)
    assert (groups(), Job.objects.get().state) == ([], "READY")


@committing
def test_a_run_whose_row_is_gone_cannot_commit() -> None:
    assert run(write_group, before=lambda claim: Job.objects.filter(pk=claim.id).update(token=1)) == Released(
        started=True
    )
    assert groups() == []


@committing
def test_a_cancelled_run_cannot_commit_and_lets_go() -> None:
    with declared(write_group, **ATOMIC) as performer:
        job = performer.later()
        claim = claim_one()
        job.cancel("not wanted")
        ending = runner.run(claim)
        assert ending == Cancelled(reason="cancelled while it ran")
        assert lifecycle.settle(connection, [(claim, ending)]) == []
    job.refresh_from_db()
    assert (job.state, job.worker, groups()) == ("CANCELLED", None, [])
    assert [error["reason"] for error in job.errors] == ["not wanted"]


@committing
def test_a_cancel_during_the_body_keeps_it_from_its_commit(postgresql: None) -> None:
    def body() -> None:
        write_group()
        cancel_elsewhere(Job.objects.get().pk)

    assert run(body) == Cancelled(reason="cancelled while it ran")
    assert groups() == []


def cancel_elsewhere(job_id: int) -> None:
    with another_connection() as other:
        assert store_for("default").cancel(other, [job_id], reason="") == {job_id}


@committing
def test_a_lease_that_is_over_but_was_not_taken_is_still_ours() -> None:
    ending = run(write_group, before=lambda claim: write(claim.id, lease_expires_at=claim.started_at))
    assert ending == Committed(success=Succeeded())
    assert groups() == ["done"]


# -- rows that somebody locks


class Sleeps:
    """Stands in for the clock of lifecycle: does something instead of sleeping, and counts."""

    def __init__(self, instead: Callable[[int], object] = id) -> None:
        self.count = 0
        self._instead = instead

    def sleep(self, seconds: float) -> None:
        self.count += 1
        self._instead(self.count)


@contextmanager
def locked_elsewhere(job_id: int) -> Iterator[BaseDatabaseWrapper]:
    """Give a connection that has a row locked in an open transaction."""
    with another_connection() as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = %s for update', [job_id])
        yield other
        other.rollback()


@committing
def test_a_row_that_is_locked_for_a_moment_is_waited_for(postgresql: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        with locked_elsewhere(claim.id) as other:
            sleeps = Sleeps(lambda count: other.rollback() if count == 3 else None)
            monkeypatch.setattr(running, "time", sleeps)
            assert isinstance(runner.run(claim), Committed)
    assert (sleeps.count, groups()) == (3, ["done"])


@committing
def test_a_renewal_during_the_body_is_no_conflict(
    postgresql: None, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    from psycopg import IsolationLevel

    def body() -> str:
        Group.objects.count()
        with another_connection() as other:
            assert lifecycle.renew(other, [claim.lease]) == {claim.lease: "RUNNING"}
        write_group()
        with connection.cursor() as cursor:
            cursor.execute("show transaction_isolation")
            isolation: str = cursor.fetchone()[0]
            return isolation

    with declared(body, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        options(OPTIONS={**connection.settings_dict["OPTIONS"], "isolation_level": IsolationLevel.SERIALIZABLE})
        assert runner.run(claim) == Committed(success=Succeeded(result='"read committed"'))
    assert groups() == ["done"]


@committing
def test_a_cancel_that_holds_the_lock_is_waited_for_and_heard(
    postgresql: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with declared(write_group, **ATOMIC) as performer:
        job = performer.later()
        claim = claim_one()
        with locked_elsewhere(claim.id) as other:

            def cancel(count: int) -> None:
                if count == 1:
                    assert store_for("default").cancel(other, [claim.id], reason="") == {job.pk}
                    other.commit()

            monkeypatch.setattr(running, "time", Sleeps(cancel))
            assert runner.run(claim) == Cancelled(reason="cancelled while it ran")
    assert groups() == []


@committing
def test_a_row_that_stays_locked_fails_the_attempt_within_a_bound(
    postgresql: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        with locked_elsewhere(claim.id):
            monkeypatch.setattr(running, "time", sleeps := Sleeps())
            ending = runner.run(claim)
            assert lifecycle.settle(connection, [(claim, ending)]) == [(claim, ending)]
        assert lifecycle.settle(connection, [(claim, ending)]) == []
    assert isinstance(ending, Retried)
    assert ending.failure.reason == f"the row of job {claim.id} was locked by somebody for 5 s"
    assert sleeps.count == len(lifecycle.LOCKED_PAUSES)
    assert (place_of(claim.id), groups()) == (Place.READY, [])


# -- SQLite: one writer


@pytest.fixture
def sqlite() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has many writers")


@committing
def test_the_file_is_the_bodys_from_its_beginning_so_that_its_picture_stays_the_newest(sqlite: None) -> None:
    def body() -> None:
        Group.objects.count()
        with another_connection() as other, other.cursor() as cursor:
            cursor.execute("pragma busy_timeout = 0")
            with pytest.raises(OperationalError, match="locked"):
                cursor.execute("insert into auth_group (name) values ('in between')")
        write_group()

    assert isinstance(run(body), Committed)
    assert groups() == ["done"]


@committing
def test_o45_the_beginning_waits_for_another_writer(sqlite: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from django_jobs.stores import sqlite as dialect

    with another_connection() as other:

        def let_go(seconds: float) -> None:
            with other.cursor() as cursor:
                cursor.execute("commit")

        def occupy(claim: Claim) -> None:
            with connection.cursor() as cursor:
                cursor.execute("pragma busy_timeout = 0")
            with other.cursor() as cursor:
                cursor.execute("begin immediate")
            monkeypatch.setattr(dialect, "time", SimpleNamespace(sleep=let_go, monotonic=lambda: 0.0))

        assert isinstance(run(write_group, before=occupy, max_attempts=1), Committed)
    connection.close()
    assert groups() == ["done"]


# -- keeping


@committing
def test_a_job_that_is_not_kept_stays_until_prune_so_that_its_commit_can_be_recognised() -> None:
    ran = atomically(write_group, keep=0)
    assert ran.job.state == "SUCCESSFUL"
    assert ran.job.prune_at == ran.job.finished_at
    assert lifecycle.prune(connection) == 1
    assert not Job.objects.exists()


# -- on_commit


@committing
def test_callbacks_run_after_the_end_is_recorded() -> None:
    seen: list[object] = []

    def body() -> None:
        write_group()
        job_id = Job.objects.get().pk
        transaction.on_commit(lambda: seen.append((groups(), state_elsewhere(job_id))))
        with suppress(LookupError), transaction.atomic():
            transaction.on_commit(lambda: seen.append("of a block that was rolled back"))
            raise LookupError

    assert isinstance(run(body), Committed)
    assert seen == [(["done"], "SUCCESSFUL")]


@committing
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), Retry("again")], ids=["error", "exit", "retry"])
def test_what_a_callback_raises_is_logged_and_the_job_has_succeeded(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    def fail() -> None:
        raise error

    def body() -> None:
        write_group()
        transaction.on_commit(fail)
        transaction.on_commit(lambda: called.append("the next one"))

    ran = atomically(body)
    assert (ran.job.state, ran.outcome, groups()) == ("SUCCESSFUL", Succeeded(), ["done"])
    assert called == ["the next one"]
    assert f"tests.nowhere.body #{ran.job.pk} has succeeded, but an on_commit callback of it failed" in caplog.text


@committing
def test_a_callback_that_leaves_a_transaction_open_or_queues_works_as_everywhere() -> None:
    def queue() -> None:
        jobs.greet.later(name="Ada")
        transaction.set_autocommit(False)
        write_group("left open")

    def body() -> None:
        transaction.on_commit(queue)

    assert atomically(body).job.state == "SUCCESSFUL"
    assert (groups(), Job.objects.named("tests.shop.greet").count()) == ([], 1)


@committing
def test_callbacks_of_what_is_rolled_back_never_run() -> None:
    called: list[str] = []

    def body() -> None:
        transaction.on_commit(lambda: called.append("called"))
        raise ValueError("no")

    assert atomically(body).job.state == "READY"
    assert called == []


class TestCallbacksInATest(TestCase):
    def test_they_run_when_the_tests_transaction_would_be_committed(self) -> None:
        called: list[str] = []

        def body() -> None:
            transaction.on_commit(lambda: called.append("called"))

        with self.captureOnCommitCallbacks(execute=True):
            atomically(body)
            assert called == []
        assert called == ["called"]


# -- a COMMIT whose answer is lost


class Lost(OperationalError):
    """What a client meets whose server doesn't answer."""


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Have the body's COMMIT replaced."""
    yield lambda instead: monkeypatch.setattr(connection, "commit", instead)
    connection.close()


@committing
def test_a_commit_that_came_through_though_its_answer_was_lost_is_recognised(
    commit: Callable[..., None],
    heard: list[Heard],  # noqa: F811
) -> None:
    through = connection.commit

    def lose_the_answer() -> None:
        through()
        connection.connection.close()
        raise Lost("server closed the connection unexpectedly")

    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        commit(lose_the_answer)
        ending = runner.run(claim)
    assert isinstance(ending, InDoubt)
    heard.clear()
    with another_connection() as other:
        assert lifecycle.settle(other, [(claim, ending)]) == []
        assert lifecycle.came_to(other, claim, ending) == Succeeded()
    assert (groups(), state_elsewhere(claim.id)) == (["done"], "SUCCESSFUL")
    [told] = heard
    assert (told.signal, told.said["outcome"]) == ("job_finished", Succeeded())


@committing
@pytest.mark.parametrize("keep", [0, None])
def test_it_is_recognised_after_a_prune_too_where_nothing_is_kept(
    commit: Callable[..., None],
    heard: list[Heard],  # noqa: F811
    keep: int | None,
) -> None:
    through = connection.commit

    def lose_the_answer() -> None:
        through()
        raise Lost

    with declared(write_group, **ATOMIC, keep=keep) as performer:
        performer.later()
        claim = claim_one()
        commit(lose_the_answer)
        ending = runner.run(claim)
    if keep == 0:
        assert lifecycle.prune(connection) == 1
    else:
        lifecycle.delete_one(claim.id)
    heard.clear()
    assert lifecycle.settle(connection, [(claim, ending)]) == []
    # Somebody deleted the other one meanwhile: whether it had succeeded can't be told any more.
    assert words(heard) == (["job_finished"] if keep == 0 else ["job_lost"])
    assert groups() == ["done"]


@committing
def test_a_commit_that_never_arrived_is_a_failed_attempt(commit: Callable[..., None]) -> None:
    def never_arrive() -> None:
        connection.connection.close()
        raise Lost("server closed the connection unexpectedly")

    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        commit(never_arrive)
        ending = runner.run(claim)
    assert isinstance(ending, InDoubt)
    with another_connection() as other:
        assert lifecycle.settle(other, [(claim, ending)]) == []
    row = read(claim.id)
    assert (row.state, row.attempts, row.errors[0]["reason"]) == (
        "READY",
        1,
        "server closed the connection unexpectedly",
    )
    assert groups() == []


@committing
@pytest.mark.parametrize("is_committed", [True, False])
def test_while_the_server_may_still_be_committing_nothing_is_guessed(
    commit: Callable[..., None],
    postgresql: None,
    heard: list[Heard],  # noqa: F811
    is_committed: bool,
) -> None:
    left: list[Any] = []

    def hang() -> None:
        # The connection breaks for us alone: the server has yet to read what was sent.
        left.append(connection.connection)
        connection.connection = None
        raise Lost

    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        commit(hang)
        ending = runner.run(claim)
    assert isinstance(ending, InDoubt)
    heard.clear()
    [raw] = left
    with another_connection() as other:
        assert lifecycle.settle(other, [(claim, ending)]) == [(claim, ending)]
        assert (heard, place_of(claim.id)) == ([], Place.RUNNING)
        raw.commit() if is_committed else raw.rollback()
        assert lifecycle.settle(other, [(claim, ending)]) == []
    raw.close()
    assert words(heard) == ["job_finished"]
    assert heard[0].said["outcome"] == (Succeeded() if is_committed else ending.failure)
    assert (place_of(claim.id), groups()) == ((Place.SUCCESSFUL, ["done"]) if is_committed else (Place.READY, []))


@committing
@pytest.mark.parametrize("is_committed", [True, False])
def test_work_one_says_what_it_came_to(commit: Callable[..., None], is_committed: bool) -> None:
    through = connection.commit

    def lose_the_answer() -> None:
        if is_committed:
            through()
        connection.connection.close()
        raise Lost("no answer")

    with declared(write_group, **ATOMIC) as performer:
        performer.later()
        with claims_before(lambda: commit(lose_the_answer)):
            outcome = work_one()
    assert isinstance(outcome, Succeeded if is_committed else Retried)
    assert (Job.objects.get().state, groups()) == (("SUCCESSFUL", ["done"]) if is_committed else ("READY", []))


@contextmanager
def claims_before(change: Callable[[], object]) -> Iterator[None]:
    """Do something between a claim and the body."""

    def hear(**_: object) -> None:
        change()

    signals.job_started.connect(hear)
    yield
    signals.job_started.disconnect(hear)


# -- interruptions


class Spin:
    """A body that says when it has begun, and then runs until it is interrupted."""

    def __init__(self, *, swallows: bool) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self._swallows = swallows

    def __call__(self) -> str:
        write_group()
        self.has_begun.set()
        with suppress(Interruption if self._swallows else ()):
            for _ in range(int(PATIENCE * 1000)):
                self.may_end.wait(0.001)
        return "done"


@committing
@pytest.mark.parametrize("swallows", [False, True], ids=["let through", "swallowed"])
@pytest.mark.parametrize(
    ("kind", "outcome", "state"),
    [
        (JobTimeout, Retried, "READY"),
        (JobCancelled, Cancelled, "CANCELLED"),
        (JobLost, Released, "READY"),
    ],
    ids=["timeout", "cancelled", "lost"],
)
def test_a_body_that_was_interrupted_is_rolled_back_even_if_it_swallowed_that(
    kind: type[Interruption], outcome: type[Outcome], state: str, swallows: bool
) -> None:
    spin = Spin(swallows=swallows)

    def body() -> str:
        return spin()

    ran: list[object] = []

    def work_in_seat() -> None:
        try:
            seat = ThreadSeat()
            seats.append(seat)
            ending, interruption = run_in(seat, claim)
            assert interruption is not None
            ran.append(runner.interrupted(claim, interruption, ending))
        finally:
            connections.close_all()

    seats: list[ThreadSeat] = []
    with declared(body, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        thread = threading.Thread(target=work_in_seat)
        thread.start()
        assert spin.has_begun.wait(PATIENCE)
        assert seats[0].interrupt(claim.lease, kind)
        thread.join(PATIENCE)
    [ending] = ran
    assert isinstance(ending, outcome)
    assert lifecycle.settle(connection, [(claim, ending)]) == []
    assert (Job.objects.get().state, groups()) == (state, [])


@committing
def test_nothing_strikes_once_the_body_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = ThreadSeat()
    struck: list[bool] = []
    settle_within = lifecycle.settle_within

    def strike(*given: Any, **named: Any) -> Any:
        struck.append(seat.interrupt(claim.lease, JobTimeout))
        return settle_within(*given, **named)

    def body() -> None:
        write_group()
        transaction.on_commit(lambda: struck.append(seat.interrupt(claim.lease, JobLost)))

    monkeypatch.setattr(lifecycle, "settle_within", strike)
    with declared(body, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
        assert run_in(seat, claim) == (Committed(success=Succeeded()), None)
    assert struck == [False, False]
    assert groups() == ["done"]


@pytest.mark.parametrize("kind", [JobTimeout, JobCancelled, JobLost])
@pytest.mark.django_db
def test_what_is_committed_or_in_doubt_stays_so_whatever_interrupts(kind: type[Interruption]) -> None:
    def body() -> None: ...

    with declared(body, **ATOMIC) as performer:
        performer.later()
        claim = claim_one()
    for ending in (
        Committed(success=Succeeded()),
        InDoubt(success=Succeeded(), failure=Released(started=True)),
    ):
        assert runner.interrupted(claim, kind, ending) is ending
