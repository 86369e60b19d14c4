"""Consumers with real connections: who has a row, where several ask for it or hold on to it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from django_jobs import clock, lowlevel
from django_jobs.exceptions import LeaseLost
from django_jobs.lowlevel import Taken
from django_jobs.models import Job
from tests.factories import read, write
from tests.racing import at_once, somebody

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def impatient(row_locks: None) -> Iterator[None]:
    """Have nothing on the test's own connection wait for a row."""
    with connections["default"].cursor() as cursor:
        cursor.execute("set lock_timeout = '500ms'")
        yield
        cursor.execute("reset lock_timeout")


def let_lapse(row_id: int) -> None:
    write(row_id, lease_expires_at=clock.now() - timedelta(days=1))


def lapsed() -> Taken:
    """Give the claim of a row whose lease is over."""
    lowlevel.push("mail", 1)
    claim = lowlevel.take("mail")
    assert claim is not None
    let_lapse(claim.id)
    return claim


def held(verb: Callable[[Taken], object], claim: Taken) -> bool:
    """Say whether the claim still held its row."""
    try:
        return verb(claim) is not False
    except LeaseLost:
        return False


every_verb = pytest.mark.parametrize("verb", [lowlevel.ack, lowlevel.retry, lowlevel.extend])


def test_consumers_that_take_at_once_never_get_the_same_row() -> None:
    ids = [lowlevel.push("mail", n) for n in range(60)]

    def take_all(number: int) -> list[int]:
        mine: list[int] = []
        while (claim := lowlevel.take("mail")) is not None:
            mine.append(claim.id)
        return mine

    taken = [row_id for mine in at_once(4, take_all) for row_id in mine]
    assert sorted(taken) == ids
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}


def test_a_lapsed_row_comes_back_to_one_of_those_that_take_at_once() -> None:
    ids = [lowlevel.push("mail", n) for n in range(3)]
    for _ in ids:
        lowlevel.take("mail")
    for row_id in ids:
        let_lapse(row_id)
    found = at_once(5, lambda number: lowlevel.take("mail"))
    again = [claim for claim in found if claim is not None]
    # Where others have rows locked a take may come away with none; the next one gets it.
    while (claim := lowlevel.take("mail")) is not None:
        again.append(claim)
    assert sorted(claim.id for claim in again) == ids
    assert {claim.attempts for claim in again} == {2}


def test_who_takes_passes_over_a_row_that_another_is_about_to_take(impatient: None) -> None:
    first, second = lowlevel.push("mail", 1), lowlevel.push("mail", 2)
    with somebody() as other, other.in_transaction():
        mine = other.does(lambda: lowlevel.take("mail"))
        yours = lowlevel.take("mail")
        assert mine is not None
        assert yours is not None
        assert (mine.id, yours.id) == (first, second)
        assert lowlevel.take("mail") is None


@every_verb
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_claim_holds_no_more_once_a_take_that_brought_its_row_back_is_committed(
    verb: Callable[[Taken], Any], is_committed: bool
) -> None:
    claim = lapsed()
    with somebody() as other, somebody() as late:
        with other.in_transaction(is_committed=is_committed):
            again = other.does(lambda: lowlevel.take("mail"))
            assert again is not None
            asked = late.starts(lambda: held(verb, claim))
            late.waits(asked)
        assert asked.result(timeout=60) is not is_committed
    assert again.id == claim.id
    if is_committed:
        assert read(claim.id).token == again.token


@every_verb
def test_a_take_leaves_a_lapsed_row_to_who_is_just_ending_it(verb: Callable[[Taken], Any], impatient: None) -> None:
    claim = lapsed()
    with somebody() as consumer:
        with consumer.in_transaction(is_committed=False):
            assert consumer.does(lambda: held(verb, claim))
            assert lowlevel.take("mail") is None
        again = lowlevel.take("mail")
        assert again is not None
        assert (again.id, again.attempts) == (claim.id, 2)


def test_work_and_ack_that_are_rolled_back_leave_the_row_to_the_next() -> None:
    claim = lapsed()
    with somebody() as consumer, consumer.in_transaction(is_committed=False):
        assert consumer.does(lambda: lowlevel.ack(claim))
    again = lowlevel.take("mail")
    assert again is not None
    assert again.id == claim.id
    assert lowlevel.ack(claim) is False
    assert lowlevel.ack(again) is True


def test_a_push_is_seen_by_nobody_before_it_is_committed() -> None:
    with somebody() as other:
        with other.in_transaction():
            row_id = other.does(lambda: lowlevel.push("mail", 1))
            assert not Job.objects.filter(pk=row_id).exists()
        found = lowlevel.take("mail")
        assert found is not None
        assert found.id == row_id


def test_a_cancel_that_comes_first_is_the_end(row_locks: None) -> None:
    row_id = lowlevel.push("mail", 1)
    claim = lowlevel.take("mail")
    assert claim is not None
    with somebody() as person, somebody() as consumer:
        with person.in_transaction():
            person.does(lambda: read(row_id).cancel())
            asked = consumer.starts(lambda: lowlevel.ack(claim))
            consumer.waits(asked)
        assert asked.result(timeout=60) is False
    job = read(row_id)
    assert (job.state, job.worker) == ("CANCELLED", None)


def test_no_lock_beside_the_database_keeps_a_lapsed_row_from_the_next_take() -> None:
    """The process that took it lives, on SQLite as elsewhere: of what was taken by hand its lease alone judges."""
    claim = lapsed()
    connections["default"].close()
    again = lowlevel.take("mail")
    assert again is not None
    assert (again.id, again.token == claim.token) == (claim.id, False)
