"""One key, and several that want it at one instant, over real connections: queued, claimed, ended, or moved by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, transaction

from django_jobs import enqueue, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import DuplicateJob, KeyContended, KeyHeld
from django_jobs.models import Job
from django_jobs.outcomes import Failed, Outcome, Released, Retried, Snoozed, Succeeded
from django_jobs.performers import AnyPerformer, Enqueuer
from django_jobs.records import Claim
from django_jobs.states import State
from django_jobs.stores import store_for
from django_jobs.transitions import Place
from tests.declaring import declared
from tests.factories import NOON, claim_one, failure, place_of, read, seconds, take, write
from tests.lifecycle.hearing import Heard, connection, settle
from tests.racing import PATIENCE, Somebody, at_once, between, somebody
from tests.system.processes import until

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS = 8

LONG_AGO = NOON - seconds(200 * 365 * 86_400)

LATER: Outcome = Snoozed(delay=seconds(5))


@pytest.fixture
def other() -> Iterator[Somebody]:
    with somebody() as other:
        yield other


@pytest.fixture
def third() -> Iterator[Somebody]:
    with somebody() as third:
        yield third


@pytest.fixture
def impatience() -> None:
    """Have what waits for somebody's lock in this thread give up after 20 s, as SQLite does by itself."""
    if connection().vendor == "postgresql":
        with connection().cursor() as cursor:
            cursor.execute("set statement_timeout = '20s'")


@pytest.fixture
def row_locks(impatience: None) -> None:
    """See that rows are locked one by one."""
    if connection().vendor != "postgresql":
        pytest.skip("this database locks whole files, not rows")


def arguments() -> dict[int, int]:
    """Give the argument of each job."""
    return {pk: number for pk, [number] in Job.objects.values_list("pk", "args")}


# -- twins that aren't committed


@pytest.mark.parametrize("call", ["later", "later_many"])
@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
def test_who_meets_an_uncommitted_twin_waits_for_what_becomes_of_it(
    keyed: Enqueuer[...], other: Somebody, third: Somebody, *, call: str, is_committed: bool
) -> None:
    def ask() -> tuple[int, bool]:
        if call == "later":
            job = keyed.later(2)
            return job.pk, job.duplicate
        [queued] = keyed.later_many([(2,)])
        return queued.id, queued.duplicate

    with other.in_transaction(is_committed=is_committed):
        first = other.does(lambda: keyed.later(1))
        asked = third.starts(ask)
        third.waits(asked)
    pk, is_duplicate = asked.result(timeout=PATIENCE)
    assert is_duplicate is is_committed
    assert arguments() == ({first.pk: 1} if is_committed else {pk: 2})


def test_of_many_that_wait_for_a_twin_which_is_rolled_back_one_gets_a_row(
    keyed: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    with other.in_transaction(is_committed=False):
        other.does(lambda: keyed.later(0))
        asked = third.starts(lambda: at_once(CALLERS, lambda number: keyed.later(number + 1)))
        third.waits(asked)
    jobs = asked.result(timeout=PATIENCE)
    assert len({job.pk for job in jobs}) == 1
    assert sorted(job.duplicate for job in jobs) == [False] + [True] * (CALLERS - 1)


# -- a holder that a caller has asked for


def claim_and_look() -> tuple[list[int], bool]:
    """Claim what is due, and tell whether the change is visible then."""
    claims = take().claims
    return [claim.id for claim in claims], Group.objects.filter(name="changed").exists()


def test_a_holder_that_waits_is_not_claimed_before_the_change_is_visible_for_which_it_was_asked_again(
    keyed: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    is_server = connection().vendor == "postgresql"
    holder = keyed.later(1)
    with other.in_transaction():
        other.does(lambda: Group.objects.create(name="changed"))
        assert other.does(lambda: keyed.later(2)).pk == holder.pk
        claimed = third.starts(claim_and_look)
        # It is passed over; where the file is locked, the claim waits.
        assert not is_server or claimed.result(timeout=PATIENCE) == ([], False)
    if is_server:
        claimed = third.starts(claim_and_look)
    assert claimed.result(timeout=PATIENCE) == ([holder.pk], True)


def test_a_bulk_call_locks_the_holders_that_wait(
    act: AnyPerformer, other: Somebody, third: Somebody, row_locks: None
) -> None:
    for kind in ("unique", "unique_while_waiting"):
        keyed = act.using(**{kind: str})
        holders = [queued.id for queued in keyed.later_many([(1,), (2,)])]
        with other.in_transaction():
            asked = other.does(partial(keyed.later_many, [(2,), (1,), (3,)]))
            assert [queued.id for queued in asked[:2]] == holders[::-1]
            assert third.does(take).claims == ()
        assert [claim.id for claim in third.does(take).claims] == [*holders, asked[2].id]


def test_any_number_of_callers_may_have_asked_for_one_holder(
    keyed: Enqueuer[...], other: Somebody, third: Somebody, row_locks: None
) -> None:
    holder = keyed.later(1)
    with other.in_transaction(), third.in_transaction():
        assert other.does(lambda: keyed.later(2)).pk == holder.pk
        assert third.does(lambda: keyed.later(3)).pk == holder.pk
    assert [claim.id for claim in take().claims] == [holder.pk]


def test_the_holder_that_a_refusal_names_is_not_locked(keyed: Enqueuer[...], other: Somebody, row_locks: None) -> None:
    def ask() -> None:
        with pytest.raises(DuplicateJob):
            keyed.using(on_duplicate="raise").later(2)

    holder = keyed.later(1)
    with other.in_transaction():
        other.does(ask)
        assert [claim.id for claim in take().claims] == [holder.pk]


def test_a_holder_that_runs_is_held_up_by_no_caller(unique: Enqueuer[...], other: Somebody, row_locks: None) -> None:
    unique.later(1)
    claim = claim_one()
    with other.in_transaction():
        for keyed in (unique, unique.using(on_duplicate="replace")):
            asked = other.does(partial(keyed.later, 2))
            assert (asked.pk, asked.duplicate, asked.replaced) == (claim.id, True, False)
        assert lifecycle.renew(connection(), [claim.lease]) == {claim.lease: State.RUNNING}
        assert settle(claim, LATER) == []
        assert place_of(claim.id) is Place.READY


# -- what isn't ours to settle


def test_a_holder_that_has_come_since_the_snapshot_is_a_serialisation_error(
    keyed: Enqueuer[...], other: Somebody, row_locks: None
) -> None:
    with transaction.atomic():
        with connection().cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
            cursor.execute("select count(*) from django_jobs_job")
        other.does(lambda: keyed.later(1))
        with pytest.raises(OperationalError, match="could not serialize access"):
            keyed.later(2)
        transaction.set_rollback(True)
    assert keyed.later(3).duplicate


def test_two_keys_in_two_orders_are_a_deadlock_that_the_database_ends(
    act: AnyPerformer, other: Somebody, third: Somebody, row_locks: None
) -> None:
    def came_to(asked: Future[Job]) -> str:
        try:
            return "duplicate" if asked.result(timeout=PATIENCE).duplicate else "queued"
        except OperationalError as error:
            return str(error).partition("\n")[0]

    first, second = (act.using(unique=key) for key in "ab")
    ends = []
    with ExitStack() as transactions:
        for who, mine in ((other, first), (third, second)):
            transactions.enter_context(who.in_transaction())
            who.does(lambda mine=mine: mine.later(1))  # type: ignore[misc]
        asked = other.starts(lambda: second.later(2))
        other.waits(asked)
        ends = [came_to(third.starts(lambda: first.later(2)))]
        if ends == ["deadlock detected"]:
            third.does(lambda: transaction.set_rollback(True))
        ends.append(came_to(asked))
    assert ends.count("deadlock detected") == 1


# -- replacing


def test_who_replaces_waits_for_a_claim_that_was_first_and_changes_nothing_of_what_runs(
    unique: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    holder = unique.later(1)
    with other.in_transaction():
        assert [claim.id for claim in other.does(take).claims] == [holder.pk]
        asked = third.starts(lambda: unique.using(on_duplicate="replace").later(2))
        third.waits(asked)
    job = asked.result(timeout=PATIENCE)
    assert (job.pk, job.duplicate, job.replaced, job.args, job.state) == (holder.pk, True, False, [1], "RUNNING")


def test_who_replaces_what_is_claimed_meanwhile_queues_a_job_where_only_waiting_ones_hold_the_key(
    waiting: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    holder = waiting.later(1)
    with other.in_transaction():
        assert [claim.id for claim in other.does(take).claims] == [holder.pk]
        asked = third.starts(lambda: waiting.using(on_duplicate="replace").later(2))
        third.waits(asked)
    assert not asked.result(timeout=PATIENCE).duplicate
    assert sorted(arguments().values()) == [1, 2]


def test_what_was_replaced_is_not_claimed_with_its_old_arguments(
    keyed: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    is_server = connection().vendor == "postgresql"
    holder = keyed.later(1)
    with other.in_transaction():
        assert other.does(lambda: keyed.using(on_duplicate="replace").later(2)).replaced
        claimed = third.starts(take)
        assert not is_server or claimed.result(timeout=PATIENCE).claims == ()
    if is_server:
        claimed = third.starts(take)
    [claim] = claimed.result(timeout=PATIENCE).claims
    assert (claim.id, claim.args) == (holder.pk, "[2]")


def test_a_job_runs_with_the_arguments_of_the_last_who_was_told_that_he_replaced_them(keyed: Enqueuer[...]) -> None:
    """Half of them replace, the others claim; each claim has what the row was given last before it."""
    keyed = keyed.using(on_duplicate="replace")

    def work(number: int) -> list[tuple[str, int, int]]:
        said = []
        for turn in range(40):
            if number % 2:
                with suppress(KeyContended):
                    job = keyed.later(100 * turn + number)
                    if not job.duplicate or job.replaced:
                        said.append(("asked", job.pk, 100 * turn + number))
            else:
                for claim in take(worker=f"worker-{number}", limit=1).claims:
                    said.append(("ran", claim.id, int(claim.args.strip("[]"))))
                    assert lifecycle.settle(connection(), [(claim, Succeeded())]) in ([], [(claim, Succeeded())])
        return said

    said = [entry for mine in at_once(CALLERS, work) for entry in mine]
    asked = {(pk, number) for word, pk, number in said if word == "asked"}
    ran = [(pk, number) for word, pk, number in said if word == "ran"]
    assert len({pk for pk, _ in ran}) == len(ran)
    assert set(ran) <= asked
    assert set(arguments().items()) <= asked


# -- holders that come and go


class Holders:
    """Has a holder of the key end, and another come, around the statement that looks for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keyed: Enqueuer[...], *, times: int) -> None:
        self.keyed, self.left, self.inserts = keyed, times, 0
        self._insert, self._is_mine = store_for("default").insert_keyed, False
        monkeypatch.setattr(store_for("default"), "insert_keyed", self.insert)

    def insert(self, *given: Any) -> Any:
        """Insert while there is a holder, who is gone as soon as that has met him."""
        if self._is_mine:
            return self._insert(*given)
        self.inserts += 1
        if not self.left:
            return self._insert(*given)
        self.left -= 1
        self._is_mine = True
        holder = self.keyed.later(0)
        self._is_mine = False
        inserted = self._insert(*given)
        lifecycle.delete_one(holder.pk)
        return inserted


@pytest.mark.parametrize("reaction", ["return", "replace", "raise"])
def test_who_finds_each_holder_gone_is_told_so_after_three_tries(
    keyed: Enqueuer[...], monkeypatch: pytest.MonkeyPatch, reaction: Any
) -> None:
    holders = Holders(monkeypatch, keyed, times=3)
    with pytest.raises(KeyContended) as caught:
        keyed.using(on_duplicate=reaction).later(1)
    assert (caught.value.key, holders.inserts) == ("shop.act/k", 3)
    assert arguments() == {}


@pytest.mark.parametrize("times", [1, 2])
def test_who_finds_the_holder_gone_takes_the_key(
    keyed: Enqueuer[...], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    Holders(monkeypatch, keyed, times=times)
    job = keyed.later(1)
    assert (job.duplicate, arguments()) == (False, {job.pk: 1})


def test_a_running_job_with_the_same_text_as_its_other_kind_of_key_is_no_holder(
    act: AnyPerformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = act.using(unique="k").later(7)
    claim_one()
    keyed = act.using(unique_while_waiting="k")
    Holders(monkeypatch, keyed, times=1)
    job = keyed.later(1)
    assert (job.duplicate, arguments()) == (False, {running.pk: 7, job.pk: 1})


def test_a_failure_is_written_later_where_holders_of_the_key_of_what_hears_of_it_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hear(job_id: int) -> None: ...

    with (
        declared(hear, name="shop.hear", unique="k") as hearing,
        declared(hear, name="shop.fail", on_failure=hearing) as performer,
    ):
        performer.later(1)
        claim = claim_one()
        run = (claim, Failed(failure=failure()))
        Holders(monkeypatch, hearing, times=3)
        assert lifecycle.settle(connection(), [run]) == [run]
        assert place_of(claim.id) is Place.RUNNING
        assert lifecycle.settle(connection(), [run]) == []
    assert place_of(claim.id) is Place.FAILED
    assert Job.objects.filter(name="shop.hear").get().args == [claim.id]


def test_a_bulk_call_that_finds_each_holder_gone_queues_nothing(
    keyed: Enqueuer[...], monkeypatch: pytest.MonkeyPatch
) -> None:
    Holders(monkeypatch, keyed, times=3)
    jobs = [keyed.using(unique="a", unique_while_waiting=None).prepare(1), keyed.prepare(2)]
    with transaction.atomic():
        with pytest.raises(KeyContended):
            enqueue(jobs)
        assert arguments() == {}
    assert not keyed.later(3).duplicate


@pytest.mark.parametrize("times", [2, 3])
def test_who_was_given_a_holder_that_is_gone_when_it_is_read_asks_again(
    keyed: Enqueuer[...], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Without a transaction around it each statement sees what others have done since."""
    store, left = store_for("default"), times
    lock_holders = store.lock_holders

    def lock_and_lose(*given: Any, **options: Any) -> Any:
        nonlocal left
        found = lock_holders(*given, **options)
        for holder in found.values():
            lifecycle.delete_one(holder.id)
        if left := left - 1:
            keyed.using(on_duplicate="raise").later(0)
        return found

    monkeypatch.setattr(store, "lock_holders", lock_and_lose)
    keyed.later(0)
    if times < 3:
        assert keyed.later(1).args == [1]
    else:
        with pytest.raises(KeyContended):
            keyed.later(1)


# -- who is told


@pytest.mark.parametrize("call", ["later", "later_many"])
def test_only_new_jobs_and_replaced_ones_are_told(keyed: Enqueuer[...], heard: list[Heard], call: str) -> None:
    def ask(number: int, reaction: Any) -> None:
        asking = keyed.using(on_duplicate=reaction)
        if call == "later":
            asking.later(number)
        else:
            asking.later_many([(number,), (number,)])

    told = []
    for number, reaction in enumerate(["return", "return", "replace"]):
        heard.clear()
        ask(number, reaction)
        told.append([(one.signal, one.said["job_id"]) for one in heard])
    [job_id] = arguments()
    # Of twins in one call that replace, each has replaced something.
    assert told == [
        [("job_enqueued", job_id)],
        [],
        [("job_enqueued", job_id)] * (1 if call == "later" else 2),
    ]


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
def test_a_holder_that_has_expired_is_told_when_the_caller_that_met_it_has_committed(
    keyed: Enqueuer[...], heard: list[Heard], frozen: FrozenClock, *, is_committed: bool
) -> None:
    holder = keyed.using(expires=5).later(1)
    frozen.advance(seconds(5))
    heard.clear()
    with transaction.atomic():
        assert not keyed.later(2).duplicate
        assert heard == []
        transaction.set_rollback(not is_committed)
    told = [one.said["ids"] for one in heard if one.signal == "jobs_expired"]
    assert told == ([(holder.pk,)] if is_committed else [])
    assert place_of(holder.pk) is (Place.CANCELLED if is_committed else Place.READY)


# -- a time that is over


@pytest.mark.parametrize("call", ["later", "later_many"])
def test_of_many_that_find_the_time_of_a_key_over_one_gets_a_row(act: AnyPerformer, call: str) -> None:
    keyed = act.using(unique=str, unique_for="1h")
    keys = range(12)
    for key in keys:
        keyed.later(key)
    for claim in take(limit=100).claims:
        settle(claim, Succeeded())
    ended = dict(Job.objects.values_list("args__0", "pk"))
    Job.objects.update(unique_until=LONG_AGO)

    def ask(number: int) -> list[tuple[int, int, bool]]:
        wanted = random.Random(number).sample(keys, len(keys))
        if call == "later_many":
            queued = keyed.later_many([(key,) for key in wanted])
            return [(key, one.id, one.duplicate) for key, one in zip(wanted, queued, strict=True)]
        return [(key, job.pk, job.duplicate) for key in wanted for job in [keyed.later(key)]]

    got = [entry for mine in at_once(CALLERS, ask) for entry in mine]
    assert sorted(key for key, _, is_duplicate in got if not is_duplicate) == list(keys)
    assert len({(key, pk) for key, pk, _ in got}) == len(keys)
    assert {pk for _, pk, _ in got}.isdisjoint(ended.values())
    assert Job.objects.count() == 2 * len(keys)


def test_a_key_whose_time_is_over_stays_with_a_job_that_has_not_ended(act: AnyPerformer) -> None:
    keyed = act.using(unique="k", unique_for="1h")
    holder = keyed.later()
    write(holder.pk, unique_until=LONG_AGO)
    assert keyed.later().pk == holder.pk
    claim = claim_one()
    assert keyed.later().pk == holder.pk
    lifecycle.cancel_one(holder.pk)
    assert keyed.later().pk == holder.pk
    settle(claim, Succeeded())
    assert not keyed.later().duplicate


# -- superseding


def run_and_queue(waiting: Enqueuer[...]) -> tuple[Claim, Job]:
    """Have one job run, and another with its key wait for a day."""
    waiting.later(1)
    claim = claim_one()
    return claim, waiting.after(days=1).later(2)


def check_is_superseded(claim: Claim, rival: Job) -> None:
    row, other = read(claim.id), read(rival.pk)
    assert (row.state, row.errors[-1]["reason"]) == ("CANCELLED", f"superseded by #{rival.pk}")
    assert other.state == "READY"
    # It was to run in five seconds.
    assert other.run_at < other.enqueued_at + seconds(3_600)


def test_an_end_waits_for_a_caller_that_has_asked_for_the_rival(
    waiting: Enqueuer[...], other: Somebody, third: Somebody
) -> None:
    claim, rival = run_and_queue(waiting)
    run = (claim, LATER)
    with other.in_transaction():
        assert other.does(lambda: waiting.later(3)).pk == rival.pk
        written = third.starts(lambda: lifecycle.settle(connection(), [run]))
        if connection().vendor == "postgresql":
            assert written.result(timeout=PATIENCE) == [run]
            assert [place_of(claim.id), place_of(rival.pk)] == [Place.RUNNING, Place.READY]
    if connection().vendor == "postgresql":
        written = third.starts(lambda: lifecycle.settle(connection(), [run]))
    assert written.result(timeout=PATIENCE) == []
    check_is_superseded(claim, rival)


def claims_it(rival: Job) -> None:
    write(rival.pk, run_at=rival.enqueued_at)
    assert [claim.id for claim in take(worker="worker-2").claims] == [rival.pk]


def cancels_it(rival: Job) -> None:
    lifecycle.cancel_one(rival.pk)


def deletes_it(rival: Job) -> None:
    lifecycle.delete_one(rival.pk)


every_loss = pytest.mark.parametrize("loses", [claims_it, cancels_it, deletes_it], ids=lambda loses: loses.__name__)


@every_loss
@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
def test_an_end_waits_for_who_is_about_to_take_the_rival_away(
    waiting: Enqueuer[...], other: Somebody, row_locks: None, loses: Callable[[Job], None], *, is_committed: bool
) -> None:
    claim, rival = run_and_queue(waiting)
    run = (claim, LATER)
    with other.in_transaction(is_committed=is_committed):
        other.does(partial(loses, rival))
        assert lifecycle.settle(connection(), [run]) == [run]
        assert place_of(claim.id) is Place.RUNNING
    assert lifecycle.settle(connection(), [run]) == []
    if is_committed:
        assert place_of(claim.id) is Place.READY
        assert not Job.objects.filter(pk=rival.pk, state="READY").exists()
    else:
        check_is_superseded(claim, rival)


@every_loss
@pytest.mark.parametrize("moment", ["forward", "settle"])
def test_an_end_whose_rival_is_gone_just_before_it_is_written_waits_again(
    waiting: Enqueuer[...], other: Somebody, monkeypatch: pytest.MonkeyPatch, moment: str,
    loses: Callable[[Job], None], impatience: None,
) -> None:  # fmt: skip
    claim, rival = run_and_queue(waiting)
    # Due, so that nothing is to be brought forward, and so locked.
    write(rival.pk, run_at=rival.enqueued_at)
    between(monkeypatch, moment, lambda: other.does(partial(loses, rival)))
    run = (claim, LATER)
    assert lifecycle.settle(connection(), [run]) == [run]
    assert place_of(claim.id) is Place.RUNNING
    assert lifecycle.settle(connection(), [run]) == []
    assert place_of(claim.id) is Place.READY


def test_an_end_is_not_written_unless_the_rival_was_brought_forward(
    waiting: Enqueuer[...], other: Somebody, monkeypatch: pytest.MonkeyPatch, row_locks: None
) -> None:
    """A caller locks it just when it is brought forward, and is gone when the end is written."""
    claim, rival = run_and_queue(waiting)
    transactions = [other.in_transaction()]
    transactions[0].__enter__()
    other.does(lambda: waiting.later(3))
    between(monkeypatch, "settle", lambda: transactions[0].__exit__(None, None, None))
    run = (claim, LATER)
    assert lifecycle.settle(connection(), [run]) == [run]
    assert place_of(claim.id) is Place.RUNNING
    assert lifecycle.settle(connection(), [run]) == []
    check_is_superseded(claim, rival)


def test_a_rival_that_comes_just_before_the_end_is_written_supersedes_it(
    waiting: Enqueuer[...], other: Somebody, monkeypatch: pytest.MonkeyPatch, impatience: None
) -> None:
    waiting.later(1)
    claim = claim_one()
    rivals: list[Job] = []
    between(monkeypatch, "settle", lambda: rivals.append(other.does(lambda: waiting.after(days=1).later(2))))
    assert settle(claim, LATER) == []
    check_is_superseded(claim, rivals[0])


def test_rivals_that_come_just_before_a_batch_is_written_hold_no_other_end_up(
    act: AnyPerformer, other: Somebody, monkeypatch: pytest.MonkeyPatch, impatience: None
) -> None:
    keyed = act.using(unique_while_waiting=str)
    keyed.later_many([(number,) for number in range(6)])
    claims = sorted(take().claims, key=lambda claim: claim.id)
    between(monkeypatch, "settle", lambda: other.does(lambda: keyed.after(days=1).later_many([(1,), (4,)])))
    assert lifecycle.settle(connection(), [(claim, LATER) for claim in claims]) == []
    assert [read(claim.id).state for claim in claims] == [
        "READY", "CANCELLED", "READY", "READY", "CANCELLED", "READY",
    ]  # fmt: skip
    assert Job.objects.filter(state="READY").count() == 6


def test_an_end_never_waits_for_a_caller_who_is_about_to_queue_a_rival(
    act: AnyPerformer, other: Somebody, row_locks: None
) -> None:
    """His transaction may last: it would hold up the ends of all other jobs of the worker, and its claims."""
    keyed = act.using(unique_while_waiting=str)
    keyed.later_many([(1,), (2,)])
    act.later(3)
    first, second, plain = sorted(take().claims, key=lambda claim: claim.id)
    runs: list[Any] = [(first, LATER), (second, LATER), (plain, Succeeded())]
    with other.in_transaction():
        rival = other.does(lambda: keyed.after(days=1).later(1))
        assert lifecycle.settle(connection(), runs) == [(first, LATER)]
        assert [place_of(claim.id) for claim in (first, second, plain)] == [
            Place.RUNNING, Place.READY, Place.SUCCESSFUL,
        ]  # fmt: skip
    assert lifecycle.settle(connection(), [(first, LATER)]) == []
    check_is_superseded(first, rival)


def test_a_reclaim_never_waits_for_a_caller_who_is_about_to_queue_a_rival(
    waiting: Enqueuer[...], other: Somebody, row_locks: None
) -> None:
    waiting.later(1)
    claim = claim_one()
    write(claim.id, lease_expires_at=LONG_AGO)
    with other.in_transaction(is_committed=False):
        other.does(lambda: waiting.later(2))
        lifecycle.reclaim(connection())
        assert place_of(claim.id) is Place.RUNNING
    lifecycle.reclaim(connection())
    assert place_of(claim.id) is Place.READY


def test_a_failure_never_waits_for_a_caller_who_is_about_to_queue_what_hears_of_it(
    act: AnyPerformer, other: Somebody, row_locks: None
) -> None:
    def hear(job_id: int) -> None: ...

    with declared(hear, name="shop.hear", unique="the one", on_duplicate="raise") as hearing:
        with declared(hear, name="shop.fail", on_failure=hearing) as performer:
            performer.later(1)
        claim = claim_one()
        run = (claim, Failed(failure=failure()))
        with other.in_transaction():
            asked = other.does(lambda: hearing.later(0))
            assert lifecycle.settle(connection(), [run]) == [run]
            assert place_of(claim.id) is Place.RUNNING
        assert lifecycle.settle(connection(), [run]) == []
    assert place_of(claim.id) is Place.FAILED
    assert Job.objects.filter(name="shop.hear").get().pk == asked.pk


def test_however_workers_and_people_meet_no_end_is_lost_and_no_two_jobs_give_way_to_each_other(
    act: AnyPerformer,
) -> None:
    keyed = act.using(unique_while_waiting=str)

    def work(number: int) -> list[Claim]:
        """Run jobs, or queue, cancel and retry them; give what couldn't be written for a lock."""
        order = random.Random(number)
        left: list[Any] = []
        for turn in range(30):
            if number % 2:
                key = order.randrange(3)
                with suppress(KeyContended):
                    keyed.after(order.choice([0, 60])).later(key)
                ids = list(Job.objects.filter(args=[key]).values_list("pk", flat=True))
                if turn % 3 == 0:
                    lifecycle.cancel(order.sample(ids, 1))
                elif turn % 3 == 1:
                    lifecycle.retry(order.sample(ids, min(3, len(ids))))
            else:
                claims = take(worker=f"worker-{number}", limit=3, empty_handed=True).claims
                outcomes = [
                    Snoozed(delay=seconds(0)),
                    Retried(failure=failure(), delay=seconds(0)),
                    Released(started=True),
                    Succeeded(),
                ]
                left = lifecycle.settle(connection(), [*left, *((claim, order.choice(outcomes)) for claim in claims)])
        until(lambda: not lifecycle.settle(connection(), left), what="every end is written")
        return [claim for claim, _ in left]

    at_once(CALLERS, work)
    assert not Job.objects.filter(worker__isnull=False).exists()
    for row in Job.objects.filter(state="CANCELLED"):
        if row.errors[-1]["kind"] == "superseded":
            rival = read(int(row.errors[-1]["reason"].partition("#")[2].partition(";")[0]))
            assert rival.args == row.args
            # One that was retried by hand since then may still tell of the time before.
            assert rival.state != "CANCELLED" or f"superseded by #{row.pk}" not in str(rival.errors[-1:])


# -- by hand


def ended(keyed: Enqueuer[...], count: int) -> list[int]:
    """Queue and cancel so many jobs with one key, one after the other."""
    ids = []
    for number in range(count):
        job = keyed.later(number)
        lifecycle.cancel_one(job.pk)
        ids.append(job.pk)
    return ids


def test_of_jobs_with_one_key_that_are_retried_at_once_one_moves_and_nobody_gets_an_error(
    keyed: Enqueuer[...],
) -> None:
    for _ in range(10):
        ids = ended(keyed, 4)
        moved = at_once(4, lambda number, ids=ids: lifecycle.retry([ids[number]]))  # type: ignore[misc]
        assert len([job_id for mine in moved for job_id in mine]) == 1
        lifecycle.cancel(ids)


def test_many_that_retry_all_jobs_at_once_move_one_of_each_key(act: AnyPerformer) -> None:
    keyed = act.using(unique_while_waiting=str)
    for _ in range(2):
        keyed.later_many([(number,) for number in range(20)])
        lifecycle.cancel(Job.objects.filter(state="READY").values_list("pk", flat=True))
    ids = list(Job.objects.values_list("pk", flat=True))

    def retry(number: int) -> list[int]:
        return lifecycle.retry(random.Random(number).sample(ids, len(ids)))

    at_once(4, retry)
    assert sorted(args for [args] in Job.objects.filter(state="READY").values_list("args", flat=True)) == [*range(20)]


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("way", ["autocommit", "atomic", "by hand"])
def test_a_retry_waits_for_who_is_about_to_take_the_key_and_breaks_no_transaction(
    keyed: Enqueuer[...], other: Somebody, third: Somebody, way: str, *, is_committed: bool
) -> None:
    def retry() -> str:
        try:
            if way == "atomic":
                with transaction.atomic():
                    return said()
            if way == "autocommit":
                return said()
            transaction.set_autocommit(False)
            try:
                return said()
            finally:
                transaction.commit()
        finally:
            if not transaction.get_autocommit():
                transaction.set_autocommit(True)

    def said() -> str:
        try:
            lifecycle.retry_one(first)
        except KeyHeld as error:
            return str(error)
        finally:
            Group.objects.create(name="the transaction goes on")
        return "moved"

    [first] = ended(keyed, 1)
    with other.in_transaction(is_committed=is_committed):
        holder = other.does(lambda: keyed.later(2))
        moved = third.starts(retry)
        third.waits(moved)
    if is_committed:
        assert moved.result(timeout=PATIENCE) == f"key held by #{holder.pk}, so job {first} was not retried"
    else:
        assert moved.result(timeout=PATIENCE) == "moved"
    assert place_of(first) is (Place.CANCELLED if is_committed else Place.READY)
    assert Group.objects.count() == 1


def test_a_retry_of_several_moves_those_whose_keys_are_free(
    act: AnyPerformer, other: Somebody, third: Somebody, impatience: None
) -> None:
    keyed = act.using(unique=str)
    keyed.later_many([(number,) for number in range(5)])
    ids = sorted(Job.objects.values_list("pk", flat=True))
    lifecycle.cancel(ids)
    with other.in_transaction():
        other.does(lambda: keyed.later_many([(1,), (3,)]))
        moved = third.starts(lambda: lifecycle.retry(ids))
        third.waits(moved)
    assert moved.result(timeout=PATIENCE) == [ids[0], ids[2], ids[4]]


def test_a_job_whose_key_is_held_past_its_time_by_one_that_has_ended_is_retried(act: AnyPerformer) -> None:
    keyed = act.using(unique="k", unique_for="1h")
    [first] = ended(act.using(unique="k"), 1)
    holder = keyed.later()
    settle(claim_one(), Succeeded())
    with pytest.raises(KeyHeld, match=f"#{holder.pk}"):
        lifecycle.retry_one(first)
    write(holder.pk, unique_until=LONG_AGO)
    lifecycle.retry_one(first)
    assert [place_of(first), place_of(holder.pk)] == [Place.READY, Place.SUCCESSFUL]
