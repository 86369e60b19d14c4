"""One job per key: raced for, freed by whatever ends its holder, and never at the cost of the caller's transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connections, transaction
from django.test import Client

from django_jobs import enqueue, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import DuplicateJob
from django_jobs.models import Job
from django_jobs.outcomes import Cancelled, Failed, GaveUp, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.performers import AnyPerformer, Enqueuer
from django_jobs.transitions import Place
from tests.declaring import declared
from tests.factories import claim_one, failure, place_of, read, seconds, take
from tests.lifecycle.hearing import Heard, connection, words
from tests.racing import at_once

CALLERS = 8

ROUNDS = 30


@pytest.fixture
def act() -> Iterator[AnyPerformer]:
    def act(a: Any = 1, b: Any = 2, **more: Any) -> None: ...

    with declared(act, name="shop.act", max_attempts=1, keep=100, keep_failed=100) as performer:
        yield performer


@pytest.fixture(params=["unique", "unique_while_waiting"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def first_argument(a: int) -> str:
    return str(a)


# -- O63


@pytest.mark.django_db(transaction=True)
def test_o63_of_many_that_ask_at_one_instant_one_gets_a_row_and_the_others_get_that_one(
    act: AnyPerformer, kind: str
) -> None:
    gate = threading.Barrier(CALLERS)

    def ask(number: int) -> list[tuple[int, bool]]:
        got = []
        for turn in range(ROUNDS):
            gate.wait(timeout=60)
            job = act.using(**{kind: str(turn)}).later(number)
            got.append((job.pk, job.duplicate))
        return got

    asked = at_once(CALLERS, ask)
    rows = sorted(Job.objects.values_list("pk", flat=True))
    assert len(rows) == ROUNDS
    for got in zip(*asked, strict=True):
        assert len({pk for pk, _ in got}) == 1
        assert sorted(is_duplicate for _, is_duplicate in got) == [False] + [True] * (CALLERS - 1)


@pytest.mark.django_db(transaction=True)
def test_o63_bulk_calls_in_any_order_share_out_the_keys_and_never_wait_for_each_other_crosswise(
    act: AnyPerformer, kind: str
) -> None:
    keyed = act.using(**{kind: first_argument})
    gate = threading.Barrier(CALLERS)
    keys = range(20)

    def ask(number: int) -> list[list[tuple[int, int, bool]]]:
        order = random.Random(number)
        rounds = []
        for turn in range(ROUNDS):
            wanted = [100 * turn + key for key in keys]
            order.shuffle(wanted)
            gate.wait(timeout=60)
            queued = keyed.later_many([(key,) for key in wanted])
            rounds.append([(key, one.id, one.duplicate) for key, one in zip(wanted, queued, strict=True)])
        return rounds

    asked = at_once(CALLERS, ask)
    got = [entry for rounds in asked for entries in rounds for entry in entries]
    rows = {args[0]: pk for pk, args in Job.objects.values_list("pk", "args")}
    assert len(rows) == Job.objects.count() == ROUNDS * len(keys)
    assert {(key, pk) for key, pk, _ in got} == set(rows.items())
    assert sorted(key for key, _, is_duplicate in got if not is_duplicate) == sorted(rows)


@pytest.mark.django_db(transaction=True)
def test_o63_bulk_calls_of_several_statements_never_wait_for_each_other_crosswise(
    act: AnyPerformer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bulk call inserts a thousand rows at a time; here it is three."""
    monkeypatch.setattr("django_jobs.stores.base.MOST_INSERTED", 3)
    keyed = act.using(**{kind: lambda a: a})
    gate = threading.Barrier(CALLERS)
    # In the order of bytes they stand otherwise than in that of words.
    keys = [letter + more for letter in "aBcDé" for more in ("", "b", "-c", "D")]

    def ask(number: int) -> int:
        order, new = random.Random(number), 0
        for turn in range(ROUNDS):
            wanted = order.sample(keys, 13)
            gate.wait(timeout=60)
            new += sum(not one.duplicate for one in keyed.later_many([(f"{key}/{turn}",) for key in wanted]))
        return new

    assert sum(at_once(CALLERS, ask)) == Job.objects.count() <= ROUNDS * len(keys)


@pytest.mark.django_db(transaction=True)
def test_o63_single_and_bulk_calls_and_those_of_several_kinds_race_for_the_same_keys(act: AnyPerformer) -> None:
    def ask(number: int) -> int:
        order, new = random.Random(number), 0
        for turn in range(ROUNDS):
            kind = ("unique", "unique_while_waiting")[turn % 2]
            keys = [f"{turn}-{key}" for key in range(4)]
            order.shuffle(keys)
            if number % 2:
                new += sum(not act.using(**{kind: key}).later(number).duplicate for key in keys)
            else:
                jobs = [act.using(**{kind: key}).prepare(number) for key in keys]
                jobs += [act.using(unique_while_waiting=f"beside {keys[0]}").prepare(), act.prepare()]
                new += sum(not one.duplicate for one in enqueue(order.sample(jobs, len(jobs)))) - 1
        return new

    new = sum(at_once(CALLERS, ask))
    with_keys = Job.objects.exclude(unique_key=None, waiting_key=None)
    assert new == with_keys.count()
    assert with_keys.exclude(waiting_key__contains="beside").count() == 4 * ROUNDS


# -- O64


def claimed(job: Job) -> Any:
    claim = claim_one()
    assert claim.id == job.pk
    return claim


def ends(outcome: Outcome) -> Callable[[Job, FrozenClock], None]:
    """Have the holder run and come to this."""

    def end(job: Job, frozen: FrozenClock) -> None:
        assert lifecycle.settle(connection(), [(claimed(job), outcome)]) == []

    end.__name__ = type(outcome).__name__
    return end


def is_taken_back(job: Job, frozen: FrozenClock) -> None:
    claimed(job)
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1
    assert place_of(job.pk) is Place.FAILED


def is_buried_with_its_worker(job: Job, frozen: FrozenClock) -> None:
    claim = claimed(job)
    assert lifecycle.bury(connection(), "worker-1", running={claim.lease}, failure=failure(kind="crash")) == 1
    assert place_of(job.pk) is Place.FAILED


def is_cancelled(job: Job, frozen: FrozenClock) -> None:
    lifecycle.cancel_one(job.pk)


def is_cancelled_while_it_runs(job: Job, frozen: FrozenClock) -> None:
    claim = claimed(job)
    lifecycle.cancel_one(job.pk)
    assert lifecycle.settle(connection(), [(claim, Cancelled(reason="so it was wanted"))]) == []


def is_cancelled_and_its_worker_dies(job: Job, frozen: FrozenClock) -> None:
    claimed(job)
    lifecycle.cancel_one(job.pk)
    frozen.advance(seconds(61))
    assert lifecycle.reclaim(connection()) == 1


def is_pruned(job: Job, frozen: FrozenClock) -> None:
    lifecycle.cancel_one(job.pk)
    frozen.advance(seconds(100))
    assert lifecycle.prune() == 1


def is_deleted_in_the_admin(job: Job, frozen: FrozenClock) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="-"))
    client.post(f"/admin/django_jobs/job/{job.pk}/delete/", {"post": "yes"})
    assert place_of(job.pk) is Place.ABSENT


def is_found_expired_by_a_claim(job: Job, frozen: FrozenClock) -> None:
    frozen.advance(seconds(50))
    assert take().expired == (job.pk,)


def is_found_expired_by_the_chore(job: Job, frozen: FrozenClock) -> None:
    frozen.advance(seconds(50))
    assert lifecycle.expire(connection()) == 1


FREED = [
    ends(Succeeded()),
    ends(Failed(failure=failure())),
    ends(GaveUp(failure=failure())),
    ends(Cancelled(reason="sold out")),
    is_taken_back,
    is_buried_with_its_worker,
    is_cancelled,
    is_cancelled_while_it_runs,
    is_cancelled_and_its_worker_dies,
    is_pruned,
    is_deleted_in_the_admin,
    is_found_expired_by_a_claim,
    is_found_expired_by_the_chore,
]


@pytest.mark.django_db
@pytest.mark.parametrize("freed", FREED, ids=lambda freed: freed.__name__)
def test_o64_whatever_ends_the_holder_frees_its_key(
    act: AnyPerformer, frozen: FrozenClock, kind: str, freed: Callable[[Job, FrozenClock], None]
) -> None:
    keyed = act.using(**{kind: "k"}, expires=50)
    holder = keyed.later()
    assert keyed.later().duplicate
    freed(holder, frozen)
    successor = keyed.later()
    assert (successor.duplicate, successor.pk != holder.pk) == (False, True)
    assert keyed.later().pk == successor.pk


@pytest.mark.django_db
def test_o64_a_holder_without_a_keeping_frees_its_key_as_it_goes(act: AnyPerformer, kind: str) -> None:
    keyed = act.using(**{kind: "k"}, keep=0)
    holder = keyed.later()
    lifecycle.settle(connection(), [(claimed(holder), Succeeded())])
    assert place_of(holder.pk) is Place.ABSENT
    assert not keyed.later().duplicate


@pytest.mark.django_db
def test_o64_a_job_that_comes_back_from_a_dead_worker_is_still_the_one_with_its_key(
    act: AnyPerformer, frozen: FrozenClock, kind: str
) -> None:
    keyed = act.using(**{kind: "k"}, max_attempts=3)
    holder = keyed.later()
    claimed(holder)
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    assert place_of(holder.pk) is Place.READY
    assert keyed.later().pk == holder.pk
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_o64_a_cancelled_body_that_may_still_run_holds_its_unique_key(act: AnyPerformer) -> None:
    keyed = act.using(unique="k")
    holder = keyed.later()
    claimed(holder)
    lifecycle.cancel_one(holder.pk)
    assert place_of(holder.pk) is Place.STOPPING
    assert keyed.later().pk == holder.pk


@pytest.mark.django_db
def test_o64_a_key_that_is_held_for_a_while_outlives_its_jobs_end_and_not_its_time(
    act: AnyPerformer, frozen: FrozenClock
) -> None:
    keyed = act.using(unique="k", unique_for=200)
    holder = keyed.later()
    lifecycle.settle(connection(), [(claimed(holder), Succeeded())])
    frozen.advance(seconds(199))
    assert lifecycle.prune() == 0
    assert keyed.later().pk == holder.pk
    frozen.advance(seconds(1))
    assert not keyed.later().duplicate
    assert place_of(holder.pk) is Place.SUCCESSFUL
    assert lifecycle.prune() == 1


LATE: list[Outcome] = [
    Succeeded(result='"late"'),
    Failed(failure=failure()),
    Retried(failure=failure(), delay=seconds(0)),
    Snoozed(delay=seconds(0)),
    Cancelled(reason="late"),
    Released(started=True),
]


@pytest.mark.django_db
@pytest.mark.parametrize("is_running", [False, True], ids=["waits", "runs"])
@pytest.mark.parametrize("outcome", LATE, ids=lambda outcome: type(outcome).__name__)
def test_o64_a_zombie_that_ends_while_its_successor_holds_the_key_touches_neither(
    act: AnyPerformer, frozen: FrozenClock, heard: list[Heard], kind: str, outcome: Outcome, is_running: bool
) -> None:
    keyed = act.using(**{kind: "k"})
    zombie = claimed(keyed.later())
    frozen.advance(seconds(61))
    lifecycle.reclaim(connection())
    successor = keyed.later()
    assert not successor.duplicate
    if is_running:
        claim_one(worker="worker-2")
    before = list(Job.objects.order_by("pk").values())
    heard.clear()
    assert lifecycle.settle(connection(), [(zombie, outcome)]) == []
    assert list(Job.objects.order_by("pk").values()) == before
    assert words(heard) == ["job_lost"]
    if kind == "unique" or not is_running:
        assert keyed.later().pk == successor.pk


@pytest.mark.django_db
def test_o64_a_job_whose_key_was_free_and_is_held_again_is_not_retried_by_hand(act: AnyPerformer, kind: str) -> None:
    keyed = act.using(**{kind: "k"})
    first = keyed.later()
    lifecycle.cancel_one(first.pk)
    second = keyed.later()
    assert lifecycle.retry([first.pk, second.pk]) == [second.pk]
    assert place_of(first.pk) is Place.CANCELLED


# -- O65


def keys_of(act: AnyPerformer, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> int:
    """Queue these calls, and say how many jobs came of them."""
    keyed = act.using(unique=True)
    return len({keyed.later(*args, **kwargs).pk for args, kwargs in calls})


@pytest.mark.django_db
def test_o65_one_call_is_one_key_however_it_is_written(act: AnyPerformer) -> None:
    calls = [
        ((), {"a": 1, "b": 2}), ((), {"b": 2, "a": 1}), ((1, 2), {}), ((1,), {"b": 2}), ((1,), {}), ((), {"b": 2}),
        ((), {}),
    ]  # fmt: skip
    assert keys_of(act, *calls) == 1
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_o65_values_of_other_types_are_other_keys(act: AnyPerformer) -> None:
    values = [1, 1.0, True, "1", None, "None", "true", [1], (1,), {1}, frozenset({1}), b"1", 0, False, "", -0.0, 0.0]
    assert keys_of(act, *(((value,), {}) for value in values)) == len(values)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x": 1, "y": {"p": 2, "q": [{"m": 1, "n": 2}]}}, {"y": {"q": [{"n": 2, "m": 1}], "p": 2}, "x": 1}),
        ({"$x": 1, "a": {"$y": 2, "$set": 3}}, {"a": {"$set": 3, "$y": 2}, "$x": 1}),
        (set("abcdefgh"), set("hgfedcba")),
        ([{"seen": {3, 1, 2}}], [{"seen": {2, 3, 1}}]),
        ({frozenset({1, 2}), frozenset({"a", 3})}, {frozenset({3, "a"}), frozenset({2, 1})}),
    ],
)
def test_o65_the_order_of_what_has_none_makes_no_other_key(act: AnyPerformer, one: Any, other: Any) -> None:
    assert keys_of(act, ((one,), {}), ((other,), {}), ((), {"b": 2, "a": other})) == 1


@pytest.mark.django_db
def test_o65_the_order_of_a_list_and_of_a_tuple_makes_another_key(act: AnyPerformer) -> None:
    assert keys_of(act, (([1, 2],), {}), (([2, 1],), {}), (((1, 2),), {}), (((2, 1),), {})) == 4


@pytest.mark.django_db
def test_o65_further_keywords_are_one_key_in_any_order(act: AnyPerformer) -> None:
    assert keys_of(act, ((), {"x": 1, "y": 2}), ((), {"y": 2, "x": 1}), ((), {"more": {"x": 1, "y": 2}})) == 2


@pytest.mark.django_db
def test_o65_a_bulk_call_knows_its_twins_however_they_are_written(act: AnyPerformer) -> None:
    queued = act.using(unique=True).later_many([(1, 2), {"b": 2, "a": 1}, {"a": 1.0}, {}])
    assert [one.duplicate for one in queued] == [False, True, False, True]
    assert queued[1].id == queued[3].id == queued[0].id


# -- O66


@pytest.fixture
def keyed(act: AnyPerformer, kind: str) -> Enqueuer[...]:
    return act.using(**{kind: "k"})


def check_works(expected: int = 1) -> None:
    """See that the connection reads and writes as if nothing had been."""
    Group.objects.create(name=f"group {Group.objects.count()}")
    assert Job.objects.count() == expected


def ask_again(keyed: Enqueuer[...], holder: Job) -> None:
    """Ask for a twin in each way."""
    assert keyed.later(2).pk == holder.pk
    check_works()
    assert [one.id for one in keyed.later_many([(2,), (3,)])] == [holder.pk, holder.pk]
    check_works()
    assert keyed.using(on_duplicate="replace").later(4).pk == holder.pk
    check_works()
    for refused in (
        lambda: keyed.using(on_duplicate="raise").later(5),
        lambda: keyed.using(on_duplicate="raise").later_many([(5,), (6,)]),
    ):
        with pytest.raises(DuplicateJob) as caught:
            refused()
        assert caught.value.holder_id == holder.pk
        check_works()


@pytest.mark.django_db(transaction=True)
def test_o66_a_twin_breaks_nothing_in_autocommit(keyed: Enqueuer[...]) -> None:
    ask_again(keyed, keyed.later(1))
    assert connection().get_autocommit()
    assert Group.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_o66_a_twin_breaks_no_transaction_of_the_caller(keyed: Enqueuer[...]) -> None:
    holder = keyed.later(1)
    with transaction.atomic():
        ask_again(keyed, holder)
    assert Group.objects.count() == 5
    assert read(holder.pk).args == [4]


@pytest.mark.django_db(transaction=True)
def test_o66_a_twin_of_a_job_of_the_same_transaction_breaks_nothing(keyed: Enqueuer[...]) -> None:
    with transaction.atomic():
        ask_again(keyed, keyed.later(1))
    assert (Group.objects.count(), Job.objects.count()) == (5, 1)


@pytest.mark.django_db(transaction=True)
def test_o66_a_twin_in_a_savepoint_breaks_neither_that_nor_what_is_around_it(keyed: Enqueuer[...]) -> None:
    with transaction.atomic():
        holder = keyed.later(1)
        with transaction.atomic():
            ask_again(keyed, holder)
        with suppress(LookupError), transaction.atomic():
            keyed.using(on_duplicate="replace").later(7)
            raise LookupError
        check_works()
    assert Group.objects.count() == 6
    assert read(holder.pk).args == [4]


@pytest.mark.django_db(transaction=True)
def test_o66_the_twin_of_a_job_of_a_savepoint_that_was_rolled_back_gets_a_row(keyed: Enqueuer[...]) -> None:
    with transaction.atomic():
        with suppress(LookupError), transaction.atomic():
            keyed.later(1)
            raise LookupError
        assert not keyed.later(2).duplicate
    assert Job.objects.get().args == [2]


@pytest.mark.django_db(transaction=True)
def test_o66_a_twin_breaks_no_transaction_that_is_managed_by_hand(keyed: Enqueuer[...]) -> None:
    holder = keyed.later(1)
    transaction.set_autocommit(False)
    try:
        ask_again(keyed, holder)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert Group.objects.count() == 5
    assert read(holder.pk).args == [4]


@pytest.mark.django_db(transaction=True)
def test_o66_a_refused_bulk_call_leaves_nothing_behind_and_the_transaction_goes_on(
    act: AnyPerformer, kind: str
) -> None:
    keyed = act.using(**{kind: first_argument}, on_duplicate="raise")
    with transaction.atomic():
        holder = keyed.later(1)
        with pytest.raises(DuplicateJob) as caught:
            keyed.later_many([(2,), (1,), (3,)])
        assert caught.value.holder_id == holder.pk
        check_works()
        assert not keyed.later(2).duplicate
    assert sorted(args for [args] in Job.objects.values_list("args", flat=True)) == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_o66_a_query_that_the_caller_has_under_way_goes_on(keyed: Enqueuer[...]) -> None:
    Group.objects.bulk_create([Group(name=f"{number}") for number in range(5)])
    keyed.later(1)
    with transaction.atomic():
        names = []
        for group in Group.objects.order_by("pk").iterator(chunk_size=1):
            assert keyed.later(2).duplicate
            names.append(group.name)
    assert names == ["0", "1", "2", "3", "4"]
    assert connections["default"].get_autocommit()
