from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.records import Claim, Claimed, Lease
from django_jobs.states import State
from django_jobs.stores.base import Store
from tests.factories import NOON, locked, new_job, queue_job, queue_jobs, read, request, seconds, take, write

pytestmark = pytest.mark.django_db


def ids_of(claimed: Claimed) -> list[int]:
    return [claim.id for claim in claimed.claims]


# -- which rows


def test_only_due_rows_are_claimed(frozen: FrozenClock) -> None:
    due, _later = queue_job(), queue_job(delay=timedelta(microseconds=1))
    assert ids_of(take()) == [due]


def test_a_row_is_due_at_its_very_instant(frozen: FrozenClock) -> None:
    job_id = queue_job(delay=seconds(10))
    frozen.advance(seconds(10))
    assert ids_of(take()) == [job_id]


def test_a_claim_takes_no_more_than_asked_for() -> None:
    ids = queue_jobs(5)
    assert ids_of(take(limit=3)) == ids[:3]


def test_a_limit_counts_over_all_queues_and_priorities() -> None:
    ids = [queue_job(queue=queue, priority=priority) for priority in (5, 0) for queue in ("a", "b", "c")]
    assert ids_of(take(limit=4)) == ids[:4]


def test_a_second_claim_finds_nothing() -> None:
    queue_jobs(2)
    take()
    assert take() == Claimed(claims=(), expired=())


def test_an_empty_table_gives_nothing() -> None:
    assert take() == Claimed(claims=(), expired=())
    assert take(queues=("mail",)) == Claimed(claims=(), expired=())


@pytest.mark.parametrize("state", ["SUCCESSFUL", "FAILED", "CANCELLED"])
def test_a_finished_row_is_not_claimed(frozen: FrozenClock, state: str) -> None:
    write(queue_job(), state=state, finished_at=NOON)
    assert ids_of(take()) == []


def test_only_the_named_queues_are_served() -> None:
    mail, _bulk, push = queue_job(queue="mail"), queue_job(queue="bulk"), queue_job(queue="push")
    assert ids_of(take(queues=("mail", "push", "unheard-of"))) == [mail, push]


def test_serving_no_queue_by_name_gives_nothing() -> None:
    queue_job()
    assert ids_of(take(queues=())) == []


def test_serving_all_queues_takes_from_each() -> None:
    ids = [queue_job(queue=queue) for queue in ("a", "b", "c", "d")]
    assert ids_of(take()) == ids


def test_rows_of_the_low_level_are_never_claimed() -> None:
    queue_job(name="", priority=100)
    queue_job(name="", queue="pushed")
    job_id = queue_job()
    assert ids_of(take()) == [job_id]
    assert ids_of(take(queues=("default", "pushed"))) == []


def test_a_claim_may_be_limited_to_some_names() -> None:
    _greet, bill, ship = queue_job(name="shop.greet"), queue_job(name="shop.bill"), queue_job(name="shop.ship")
    assert ids_of(take(names=("shop.bill", "shop.ship"))) == [bill, ship]


def test_a_claim_limited_to_no_name_gives_nothing() -> None:
    queue_job()
    assert ids_of(take(names=())) == []


def test_a_paused_queue_is_left_out(frozen: FrozenClock) -> None:
    queue_job(queue="mail", priority=9)
    other = queue_job(queue="bulk")
    Queue.objects.create(name="mail", paused_at=NOON)
    assert ids_of(take()) == [other]
    assert ids_of(take(queues=("mail",))) == []


def test_a_resumed_queue_is_served() -> None:
    job_id = queue_job(queue="mail")
    Queue.objects.create(name="mail", paused_at=None)
    assert ids_of(take()) == [job_id]


def test_expired_rows_of_a_paused_queue_stay(frozen: FrozenClock) -> None:
    job_id = queue_job(queue="mail", expires=seconds(1))
    Queue.objects.create(name="mail", paused_at=NOON)
    frozen.advance(seconds(1))
    assert take().expired == ()
    assert read(job_id).state == "READY"


# -- one that is named


def test_a_job_may_be_claimed_by_its_id_due_or_not(
    frozen: FrozenClock, store: Store, connection: BaseDatabaseWrapper
) -> None:
    other, job_id = queue_job(), queue_job(priority=-100, delay=seconds(60), timeout=30.0)
    asked = request(worker="worker-7", lease=seconds(20), grace=seconds(5))
    frozen.advance(seconds(10))
    claim = store.claim_this(connection, job_id, asked, 77)
    assert claim is not None
    assert (claim.lease, claim.attempt, claim.alone, claim.restart) == (Lease(id=job_id, token=77), 1, False, True)
    row, now = read(job_id), NOON + seconds(10)
    assert (row.state, row.token, row.attempts) == ("RUNNING", 77, 1)
    assert (row.worker, row.last_worker) == ("worker-7", "worker-7")
    assert (row.first_started_at, row.started_at) == (now, now)
    assert (row.lease_expires_at, row.deadline_at) == (now + seconds(20), now + seconds(30 + 5 + 20))
    assert read(other).state == "READY"


def test_a_further_claim_by_id_counts_on_and_keeps_the_first_start(
    frozen: FrozenClock, store: Store, connection: BaseDatabaseWrapper
) -> None:
    job_id = queue_job()
    write(job_id, attempts=2, first_started_at=NOON - seconds(5))
    claim = store.claim_this(connection, job_id, request(), 77)
    assert claim is not None
    assert (claim.attempt, claim.first_started_at, claim.started_at) == (3, NOON - seconds(5), NOON)
    row = read(job_id)
    assert (row.attempts, row.first_started_at, row.started_at) == (3, NOON - seconds(5), NOON)


def test_what_does_not_wait_is_not_claimed_by_its_id(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = queue_job()
    take()
    before = read(job_id)
    assert store.claim_this(connection, job_id, request(), 77) is None
    assert store.claim_this(connection, job_id + 1, request(), 77) is None
    assert (read(job_id).token, read(job_id).state) == (before.token, "RUNNING")


# -- in which order


def test_higher_priority_goes_first_whatever_the_queue() -> None:
    low, high, lowest, middle = (
        queue_job(queue=queue, priority=priority) for queue, priority in (("a", -5), ("z", 7), ("a", -100), ("m", 0))
    )
    assert ids_of(take()) == [high, middle, low, lowest]


def test_within_a_queue_the_older_run_at_goes_first_then_the_lower_id(frozen: FrozenClock) -> None:
    second, third, first = queue_job(delay=seconds(2)), queue_job(delay=seconds(2)), queue_job(delay=seconds(1))
    frozen.advance(seconds(5))
    assert ids_of(take()) == [first, second, third]


def test_claiming_one_by_one_gives_the_same_order(frozen: FrozenClock) -> None:
    ids = [
        queue_job(priority=priority, delay=seconds(delay))
        for priority, delay in ((0, 3), (0, 1), (4, 2), (4, 0), (-4, 0))
    ]
    frozen.advance(seconds(5))
    expected = [ids[3], ids[2], ids[1], ids[0], ids[4]]
    assert [ids_of(take(limit=1))[0] for _ in range(5)] == expected


@pytest.mark.parametrize("queues", [None, ("c", "a", "b")])
@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("a", ["b", "c", "a"]),
        ("b", ["c", "a", "b"]),
        ("c", ["a", "b", "c"]),
        ("bb", ["c", "a", "b"]),
    ],
)
def test_queues_of_one_priority_begin_after_the_last_one(
    queues: tuple[str, ...] | None, last: str, expected: list[str]
) -> None:
    for queue in ("b", "c", "a"):
        queue_job(queue=queue)
    assert [claim.queue for claim in take(last_queue=last, queues=queues).claims] == expected


def test_one_slot_visits_every_queue_before_any_twice() -> None:
    for queue in ("a", "b", "c"):
        queue_jobs(3, queue=queue)
    visited, last = [], ""
    for _ in range(6):
        [claim] = take(limit=1, last_queue=last).claims
        last = claim.queue
        visited.append(last)
    assert visited == ["a", "b", "c", "a", "b", "c"]


def test_queues_take_turns_by_their_names_also_where_caps_are_given() -> None:
    for queue in "cba":
        queue_job(queue=queue)
    visited = ["a"]
    for _ in range(3):
        [claim] = take(limit=1, last_queue=visited[-1], rooms={"elsewhere": 1}).claims
        visited.append(claim.queue)
    assert visited == ["a", "b", "c", "a"]


def test_rotation_never_passes_over_a_higher_priority() -> None:
    urgent, normal = queue_job(queue="a", priority=1), queue_job(queue="b")
    assert ids_of(take(last_queue="a")) == [urgent, normal]


def test_rows_of_a_higher_priority_that_are_not_due_hold_nobody_up(frozen: FrozenClock) -> None:
    queue_jobs(3, priority=50, delay=seconds(60))
    queue_job(queue="other", priority=60, delay=seconds(60))
    job_id = queue_job(priority=-50)
    assert ids_of(take(limit=1)) == [job_id]


# -- caps


def test_a_capped_queue_gives_no_more_than_its_room() -> None:
    mail, bulk = queue_jobs(4, queue="mail"), queue_jobs(4, queue="bulk")
    claimed = take(queues=("mail", "bulk"), rooms={"mail": 2})
    assert ids_of(claimed) == [*bulk, *mail[:2]]


def test_room_counts_over_the_priorities_of_a_queue() -> None:
    ids = [queue_job(queue="mail", priority=priority) for priority in (1, 1, 2, 3)]
    assert ids_of(take(queues=("mail",), rooms={"mail": 3})) == [ids[3], ids[2], ids[0]]


def test_a_queue_without_room_gives_nothing() -> None:
    queue_jobs(2, queue="mail", priority=5)
    bulk = queue_job(queue="bulk")
    assert ids_of(take(queues=("mail", "bulk"), rooms={"mail": 0})) == [bulk]


def test_what_a_cap_leaves_is_filled_from_other_queues_up_to_the_limit() -> None:
    mail, bulk = queue_jobs(9, queue="mail", priority=5), queue_jobs(9, queue="bulk")
    assert ids_of(take(queues=("mail", "bulk"), rooms={"mail": 1}, limit=4)) == [mail[0], *bulk[:3]]


def test_rows_beyond_a_cap_take_no_place_from_other_queues() -> None:
    mail = [queue_job(queue="mail", priority=priority) for priority in (9, 8, 7)]
    bulk = queue_job(queue="bulk")
    assert ids_of(take(queues=("mail", "bulk"), rooms={"mail": 1}, limit=2)) == [mail[0], bulk]


@pytest.mark.parametrize(
    "asked", [{"rooms": {"default": 2}}, {"limit": 2}, {"limit": 2, "rooms": {"default": 3}}], ids=str
)
def test_where_not_all_fit_the_later_ones_of_the_lowest_priority_are_left(
    frozen: FrozenClock, asked: dict[str, Any]
) -> None:
    first, later, sooner = queue_job(priority=5), queue_job(), queue_job()
    write(later, run_at=NOON - seconds(1))
    write(sooner, run_at=NOON - seconds(2))
    assert ids_of(take(**asked)) == [first, sooner]


def test_each_capped_queue_has_a_room_of_its_own() -> None:
    a, b = queue_jobs(3, queue="a"), queue_jobs(3, queue="b")
    assert ids_of(take(queues=("a", "b"), rooms={"a": 2, "b": 1})) == [*a[:2], b[0]]


def test_a_cap_holds_where_every_queue_is_served() -> None:
    mail, bulk = queue_jobs(3, queue="mail", priority=5), queue_jobs(3, queue="bulk")
    assert ids_of(take(rooms={"mail": 2, "unheard-of": 1})) == [*mail[:2], *bulk]


# -- expired rows


def test_an_expired_row_is_cancelled_in_passing_and_told(frozen: FrozenClock) -> None:
    expired, good = queue_job(expires=seconds(10)), queue_job()
    frozen.advance(seconds(10))
    claimed = take()
    assert (ids_of(claimed), claimed.expired) == ([good], (expired,))
    row = read(expired)
    assert (row.state, row.finished_at, row.prune_at) == (
        "CANCELLED",
        datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC),
        datetime(2026, 3, 15, 12, 0, 10, tzinfo=UTC),
    )


def test_an_expired_row_says_so_in_its_errors(frozen: FrozenClock) -> None:
    job_id = queue_job(expires=seconds(10))
    frozen.advance(seconds(10))
    take()
    assert read(job_id).errors == [
        {
            "attempt": 0,
            "started_at": None,
            "at": "2026-03-01T12:00:10.000000Z",
            "worker": None,
            "kind": "expired",
            "exception": "",
            "reason": "expired before it could start",
            "traceback": "",
        }
    ]


def test_an_expired_row_was_never_held_nor_counted(frozen: FrozenClock) -> None:
    job_id = queue_job(expires=seconds(10))
    frozen.advance(seconds(10))
    take()
    row = read(job_id)
    never = (row.attempts, row.token, row.worker, row.last_worker, row.started_at, row.first_started_at)
    assert never == (0, None, None, None, None, None)
    assert (row.lease_expires_at, row.deadline_at) == (None, None)


def test_a_row_that_expires_a_moment_later_is_claimed(frozen: FrozenClock) -> None:
    job_id = queue_job(expires=timedelta(seconds=10))
    frozen.advance(timedelta(seconds=9, microseconds=999_999))
    assert ids_of(take()) == [job_id]


def test_expired_rows_count_towards_the_limit(frozen: FrozenClock) -> None:
    expired = queue_jobs(2, expires=seconds(1), priority=1)
    queue_jobs(2)
    frozen.advance(seconds(1))
    claimed = take(limit=2)
    assert (ids_of(claimed), claimed.expired) == ([], tuple(expired))


# -- jobs that run alone


def suspect(**changes: object) -> int:
    job_id = queue_job(**changes)
    write(job_id, alone=True)
    return job_id


def test_empty_hands_take_a_suspect_and_nothing_beside_it() -> None:
    first, _second = suspect(), queue_job()
    assert ids_of(take()) == [first]


def test_only_empty_hands_take_a_suspect() -> None:
    suspect(priority=10)
    other = queue_job()
    assert ids_of(take(empty_handed=False)) == [other]


def test_rows_before_a_suspect_come_without_it() -> None:
    before, _suspect, _after = queue_jobs(2), suspect(), queue_job()
    assert ids_of(take()) == before


def test_a_suspect_waits_for_its_turn_and_is_then_taken() -> None:
    before, job_id, after = queue_jobs(2), suspect(), queue_job()
    assert [ids_of(take()) for _ in range(3)] == [before, [job_id], [after]]


def test_two_suspects_come_one_at_a_time() -> None:
    first, second = suspect(), suspect(queue="other")
    assert [ids_of(take()) for _ in range(3)] == [[first], [second], []]


def test_a_suspect_without_room_holds_nobody_up() -> None:
    suspect(queue="mail", priority=5)
    bulk = queue_job(queue="bulk")
    assert ids_of(take(queues=("mail", "bulk"), rooms={"mail": 0})) == [bulk]


def test_a_suspect_beyond_its_room_holds_nobody_up() -> None:
    mail = queue_job(queue="mail", priority=6)
    suspect(queue="mail", priority=5)
    bulk = queue_job(queue="bulk")
    assert ids_of(take(queues=("mail", "bulk"), rooms={"mail": 1})) == [mail, bulk]


def test_an_expired_suspect_is_cancelled(frozen: FrozenClock) -> None:
    job_id = suspect(expires=seconds(1))
    frozen.advance(seconds(1))
    assert take().expired == (job_id,)


# -- what a claim writes and tells


def test_a_claim_writes_every_column_it_owns(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job(timeout=30.0)
    frozen.advance(seconds(3))
    store.claim(connection, request(lease=seconds(60), grace=seconds(5)), 77)
    row = read(job_id)
    moment = datetime(2026, 3, 1, 12, 0, 3, tzinfo=UTC)
    assert (row.state, row.token, row.worker, row.last_worker) == ("RUNNING", 77, "worker-1", "worker-1")
    assert (row.attempts, row.started_at, row.first_started_at) == (1, moment, moment)
    assert row.lease_expires_at == datetime(2026, 3, 1, 12, 1, 3, tzinfo=UTC)
    assert row.deadline_at == datetime(2026, 3, 1, 12, 1, 38, tzinfo=UTC)
    assert (row.run_at, row.enqueued_at) == (NOON, NOON)
    assert (row.finished_at, row.prune_at, row.errors) == (None, None, [])


def test_a_job_without_timeout_has_no_deadline(store: Store, connection: BaseDatabaseWrapper) -> None:
    job_id = queue_job(timeout=None)
    take()
    assert read(job_id).deadline_at is None


def test_a_later_claim_keeps_the_first_start(
    store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock
) -> None:
    job_id = queue_job()
    take(worker="worker-1")
    write(job_id, state="READY", worker=None, lease_expires_at=None)
    frozen.advance(seconds(60))
    [claim] = take(worker="worker-2").claims
    row = read(job_id)
    assert (row.first_started_at, row.started_at) == (NOON, datetime(2026, 3, 1, 12, 1, tzinfo=UTC))
    assert (row.attempts, row.last_worker, claim.attempt) == (2, "worker-2", 2)


def test_a_claim_tells_all_that_a_run_needs(store: Store, connection: BaseDatabaseWrapper, frozen: FrozenClock) -> None:
    job = new_job(
        queue="mail", priority=3, args='["a"]', kwargs='{"b":1}', meta='{"c":[2]}', restart=False, timeout=1.5
    )
    job_id = store.insert(connection, job).id
    write(job_id, schedule="nightly", tick=NOON, crashes=1)
    frozen.advance(seconds(1))
    [claim] = store.claim(connection, request(), 2**62).claims
    assert [text.replace(" ", "") for text in (claim.args, claim.kwargs, claim.meta)] == [
        '["a"]',
        '{"b":1}',
        '{"c":[2]}',
    ]
    moment = datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
    assert claim == Claim(
        lease=Lease(id=job_id, token=4_611_686_018_427_387_904),
        name="shop.greet",
        queue="mail",
        priority=3,
        args=claim.args,
        kwargs=claim.kwargs,
        meta=claim.meta,
        attempt=1,
        max_attempts=3,
        crashes=1,
        max_crashes=3,
        alone=False,
        restart=False,
        timeout=1.5,
        keep=86_400.0,
        schedule="nightly",
        waiting_key=None,
        on_failure="",
        instants=claim.instants,
    )
    assert (claim.enqueued_at, claim.run_at, claim.tick) == (NOON, NOON, NOON)
    assert (claim.first_started_at, claim.started_at) == (moment, moment)


def test_one_token_fences_all_rows_of_a_claim(store: Store, connection: BaseDatabaseWrapper) -> None:
    ids = queue_jobs(2)
    claims = store.claim(connection, request(), 123).claims
    assert [claim.lease for claim in claims] == [Lease(id=ids[0], token=123), Lease(id=ids[1], token=123)]


def test_every_claim_draws_a_token_of_its_own() -> None:
    queue_jobs(3)
    tokens = {take(limit=1).claims[0].token for _ in range(3)}
    assert len(tokens) == 3
    assert all(0 < token < 2**63 for token in tokens)


def test_an_id_beyond_32_bits_can_be_claimed_and_settled(store: Store, connection: BaseDatabaseWrapper) -> None:
    Job.objects.filter(pk=queue_job()).update(id=5_000_000_000)
    [claim] = take().claims
    assert store.renew(connection, [claim.lease], lease=seconds(60)) == {claim.lease: State.RUNNING}
    assert store.delete(connection, [5_000_000_000]) == set()


def test_a_claim_that_is_rolled_back_took_nothing() -> None:
    job_id = queue_job()
    with transaction.atomic():
        take()
        transaction.set_rollback(True)
    assert read(job_id).state == "READY"


# -- rows that contradict expectations (O46)


def test_a_row_whose_errors_are_no_list_expires_all_the_same(frozen: FrozenClock) -> None:
    job_id = queue_job(expires=seconds(1))
    write(job_id, errors={"not": "a list"})
    frozen.advance(seconds(1))
    take()
    assert [entry["kind"] for entry in read(job_id).errors] == ["expired"]


def test_arguments_of_the_wrong_shape_are_claimed_as_they_are() -> None:
    job_id = queue_job()
    write(job_id, args=7, kwargs=[1], meta="text")
    [claim] = take().claims
    assert (claim.args, claim.kwargs, claim.meta) == ("7", "[1]", '"text"')


# -- row locks


@pytest.mark.django_db(transaction=True)
def test_a_row_in_other_hands_is_passed_over_without_waiting(row_locks: None) -> None:
    first, second, third = queue_jobs(3)
    with locked(first):
        assert ids_of(take(limit=1)) == [second]
        assert ids_of(take()) == [third]
    assert ids_of(take()) == [first]
