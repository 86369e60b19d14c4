"""Keys while the transactions of callers are open, on real connections: docs/keys.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar

import pytest
from django.db import OperationalError, connections, transaction

from django_jobs.models import Job
from django_jobs.performers import Enqueuer
from tests.declaring import declared
from tests.factories import claim_one, take
from tests.lifecycle.hearing import connection

pytestmark = pytest.mark.django_db(transaction=True)

Value = TypeVar("Value")
Elsewhere = Callable[[Callable[[], Value]], "Future[Value]"]


@pytest.fixture(params=["unique", "unique_while_waiting"])
def keyed(request: pytest.FixtureRequest) -> Iterator[Enqueuer[...]]:
    def act(number: int = 0) -> None: ...

    with declared(act, name="shop.act") as performer:
        yield performer.using(**{request.param: "k"})


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere[Any]]:
    """Do something on another connection, in another thread."""
    with ThreadPoolExecutor(4) as threads:

        def begin(do: Callable[[], Any]) -> Future[Any]:
            def done() -> Any:
                try:
                    return do()
                finally:
                    connections.close_all()

            return threads.submit(done)

        yield begin


def needs_a_server() -> None:
    if connection().vendor != "postgresql":
        pytest.skip("only a server locks rows")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_twin_that_is_not_committed_yet_is_waited_for(
    keyed: Enqueuer[...], elsewhere: Elsewhere[Job], is_committed: bool
) -> None:
    with transaction.atomic():
        first = keyed.later(1)
        second = elsewhere(lambda: keyed.later(2))
        with pytest.raises(NotYet):
            second.result(0.3)
        transaction.set_rollback(not is_committed)
    job = second.result(20)
    assert (job.duplicate, job.args) == (is_committed, [1] if is_committed else [2])
    assert list(Job.objects.values_list("pk", flat=True)) == [job.pk]
    assert job.pk == first.pk or not is_committed


def test_a_holder_that_waits_cannot_start_before_the_change_for_which_it_was_given_is_committed(
    keyed: Enqueuer[...], elsewhere: Elsewhere[int]
) -> None:
    holder = keyed.later()
    with transaction.atomic():
        assert keyed.later().duplicate
        claimed = elsewhere(lambda: len(take().claims))
        try:
            assert claimed.result(0.3) == 0  # A server's rows are passed over; a file is waited for.
        except NotYet:
            assert connection().vendor == "sqlite"
        assert Job.objects.get().state == "READY"
    assert claimed.result(20) == (connection().vendor == "sqlite")
    assert claimed.result() or claim_one().id == holder.pk


def test_any_number_may_be_given_the_same_holder_at_once(keyed: Enqueuer[...], elsewhere: Elsewhere[Job]) -> None:
    needs_a_server()
    keyed.later()
    with transaction.atomic():
        assert keyed.later().duplicate
        assert elsewhere(keyed.later).result(10).duplicate


def test_who_is_refused_locks_nothing(keyed: Enqueuer[...], elsewhere: Elsewhere[int]) -> None:
    needs_a_server()
    holder = keyed.later()
    with transaction.atomic():
        with pytest.raises(Exception, match="holds the key"):
            keyed.using(on_duplicate="raise").later()
        assert elsewhere(lambda: claim_one().id).result(10) == holder.pk


def test_a_holder_that_has_come_since_the_snapshot_is_a_serialisation_error(
    keyed: Enqueuer[...], elsewhere: Elsewhere[Job]
) -> None:
    needs_a_server()
    with transaction.atomic():
        with connection().cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
            cursor.execute("select count(*) from django_jobs_job")
        elsewhere(keyed.later).result(10)
        with pytest.raises(OperationalError, match="could not serialize access"):
            keyed.later()
        transaction.set_rollback(True)
    assert keyed.later().duplicate


def test_two_keys_in_two_orders_are_a_deadlock_that_the_database_ends(
    keyed: Enqueuer[...], elsewhere: Elsewhere[bool]
) -> None:
    needs_a_server()
    other = keyed.using(**{"unique": "k2"} if keyed.options.unique == "k" else {"unique_while_waiting": "k2"})
    with transaction.atomic():
        keyed.later()

        def cross() -> bool:
            with transaction.atomic():
                other.later()
                return keyed.later().duplicate

        crossed = elsewhere(cross)
        with pytest.raises(NotYet):
            crossed.result(0.3)
        ours = _ended(lambda: other.later().duplicate)
        transaction.set_rollback(ours == "deadlock detected")
    theirs = _ended(lambda: crossed.result(20))
    assert sorted(map(str, (ours, theirs))).count("deadlock detected") == 1


def _ended(do: Callable[[], bool]) -> bool | str:
    try:
        return do()
    except OperationalError as error:
        return str(error).partition("\n")[0]
