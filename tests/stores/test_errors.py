from __future__ import annotations

import json

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import transitions
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, Outcome, Retried, Snoozed
from django_jobs.records import Failure
from django_jobs.stores.base import Store
from tests.factories import failure, queue_job, read, run_job, seconds, take, write
from tests.stores.outcomes import settle

pytestmark = pytest.mark.django_db


# -- errors


def fail_often(store: Store, connection: BaseDatabaseWrapper, times: int) -> int:
    job_id = queue_job(max_attempts=100)
    for n in range(1, times + 1):
        [claim] = take().claims
        settle(store, connection, claim, Retried(failure=failure(reason=f"reason {n}"), delay=seconds(0)))
    return job_id


def test_the_first_entry_and_the_newest_19_stay(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = fail_often(store, connection, 25)
    assert [entry["attempt"] for entry in read(job_id).errors] == [1, *range(7, 26)]


def test_twenty_entries_stay_whole(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job_id = fail_often(store, connection, 20)
    assert [entry["reason"] for entry in read(job_id).errors] == [f"reason {n}" for n in range(1, 21)]


def test_the_fingerprint_is_that_of_the_latest_failure(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = queue_job(max_attempts=100)
    found: list[str | None] = []
    outcomes: list[Outcome] = [
        Retried(failure=failure(fingerprint="a1"), delay=seconds(0)),
        Snoozed(delay=seconds(0)),
        Retried(failure=failure(fingerprint="b2"), delay=seconds(0)),
        Retried(failure=failure(kind="timeout"), delay=seconds(0)),
    ]
    for outcome in outcomes:
        [claim] = take().claims
        settle(store, connection, claim, outcome)
        found.append(read(job_id).fingerprint)
    assert found == ["a1", "a1", "b2", None]


def test_a_lapse_ends_what_the_failure_before_was_known_by(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job()
    [claim] = take().claims
    settle(store, connection, claim, Retried(failure=failure(fingerprint="f1"), delay=seconds(0)))
    take()
    frozen.advance(seconds(60))
    [row] = store.lapsed(connection, limit=1)
    lapse = transitions.reclaim(row, failure=failure(kind="lapse"))
    store.reclaim(connection, [lapse])
    assert (read(job_id).fingerprint, len(read(job_id).errors)) == (None, 2)


def test_what_is_taken_back_without_a_failure_keeps_its_log(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job()
    [claim] = take().claims
    settle(store, connection, claim, Retried(failure=failure(fingerprint="f1"), delay=seconds(0)))
    take()
    frozen.advance(seconds(60))
    [row] = store.lapsed(connection, limit=1)
    assert store.reclaim(connection, [transitions.reclaim(row, failure=failure(), started=False)]) == {row.lease}
    assert (read(job_id).fingerprint, len(read(job_id).errors)) == ("f1", 1)


def test_an_entry_is_cut_to_3_kilobytes(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    huge = Failure(kind="error", reason="r" * 9_000, exception="e" * 9_000, traceback="t" * 9_000)
    settle(store, connection, claim, Failed(failure=huge))
    [entry] = read(claim.id).errors
    texts = [entry[word] for word in ("reason", "exception", "traceback")]
    assert sum(len(text.encode()) for text in texts) <= 3_000
    assert all("\n…\n" in text for text in texts)


def test_a_long_traceback_loses_its_middle_and_the_rest_stays_whole(
    store: Store, connection: BaseDatabaseWrapper
) -> None:
    claim = run_job()
    lines = "".join(f"line {n:05}\n" for n in range(1_000))
    settle(store, connection, claim, Failed(failure=failure(traceback=lines)))
    [entry] = read(claim.id).errors
    assert entry["traceback"].startswith("line 00000\n")
    assert entry["traceback"].endswith("line 00999\n")
    assert entry["reason"] == "no such customer"
    assert len(entry["traceback"].encode()) <= 3_000


def test_a_cut_never_splits_a_character(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    for_emoji = failure(reason="\N{PILE OF POO}" * 5_000, traceback="é" * 5_000)
    settle(store, connection, claim, Failed(failure=for_emoji))
    [entry] = read(claim.id).errors
    assert set(entry["reason"]) == {"\N{PILE OF POO}", "\n", "…"}
    assert set(entry["traceback"]) == {"é", "\n", "…"}


def test_what_a_database_cannot_store_is_replaced_in_errors(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    odd = Failure(kind="error", reason="a\0b", exception="c\ud800d", traceback="e\0f\udfffg")
    assert settle(store, connection, claim, Failed(failure=odd))
    [entry] = read(claim.id).errors
    assert (entry["reason"], entry["exception"], entry["traceback"]) == ("a\ufffdb", "c?d", "e\ufffdf?g")


def test_the_reason_of_a_cancel_is_cleaned_too(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    settle(store, connection, claim, Cancelled(reason="no\0more\ud800"))
    assert read(claim.id).errors[0]["reason"] == "no\ufffdmore?"


@pytest.mark.parametrize("text", ['quotes " and \\ and \n', "{now} %(now)s %s %%", "' or 1=1 --", "\N{SNOWMAN}"])
def test_any_text_is_kept_as_it_is(store: Store, connection: BaseDatabaseWrapper, text: str) -> None:
    claim = run_job()
    settle(store, connection, claim, Failed(failure=failure(reason=text, traceback=text)))
    [entry] = read(claim.id).errors
    assert (entry["reason"], entry["traceback"]) == (text, text)


@pytest.mark.parametrize("errors", [{"a": 1}, "text", 7, True, None])
def test_errors_that_are_no_list_hold_nothing_up(store: Store, connection: BaseDatabaseWrapper, errors: object) -> None:
    claim = run_job()
    with connection.cursor() as cursor:
        table = Job._meta.db_table
        cursor.execute(f'update "{table}" set errors = %s where id = %s', [json.dumps(errors), claim.id])
    assert settle(store, connection, claim, Failed(failure=failure()))
    assert [entry["reason"] for entry in read(claim.id).errors] == ["no such customer"]


def test_errors_of_any_kind_of_entry_are_kept(store: Store, connection: BaseDatabaseWrapper) -> None:
    claim = run_job()
    write(claim.id, errors=[None, "old", 3])
    settle(store, connection, claim, Failed(failure=failure()))
    assert read(claim.id).errors[:3] == [None, "old", 3]
