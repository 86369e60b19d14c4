"""What a worker has in hand isn't taken back by time while its process lives, where the database is a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connections, transaction

from django_jobs import lifecycle, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.stores import lives, store_for
from django_jobs.worker.crew import Crew
from django_jobs.worker.seat import ThreadSeat
from tests.declaring import declared
from tests.yard import jobs

pytestmark = pytest.mark.django_db(transaction=True)

MakeCrew = Callable[..., Crew]

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def only_in_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without the claims that other tests left in hand, and leave no life behind."""
    if connections["default"].vendor != "sqlite":
        pytest.skip("a server's workers live on other hosts, so time alone judges them")
    monkeypatch.setattr(lives, "_files", {})
    yield
    assert mine() == set()
    for file in lives._files.values():
        os.close(file.fd)


def mine() -> set[int]:
    """Give the tokens that this process shows to have in hand."""
    return {token for file in lives._files.values() for token in file.mine}


def reclaim_a_day_later(frozen: FrozenClock) -> int:
    frozen.advance(DAY)
    return lifecycle.reclaim(connections["default"])


def finish(crew: Crew) -> None:
    claim = crew._next()
    assert claim is not None
    crew.perform(claim, ThreadSeat())


def test_a_crew_shows_its_life_from_the_claim_until_the_last_end_is_written(
    make_crew: MakeCrew, frozen: FrozenClock
) -> None:
    jobs.note.later_many([(1,), (2,)])
    crew = make_crew(concurrency=2)
    crew.turn()
    assert reclaim_a_day_later(frozen) == 0
    finish(crew)
    crew.turn()
    assert reclaim_a_day_later(frozen) == 0
    finish(crew)
    assert reclaim_a_day_later(frozen) == 0
    crew.turn()
    assert (mine(), set(Job.objects.values_list("state", flat=True))) == (set(), {"SUCCESSFUL"})


def test_a_crew_shows_its_life_before_the_claim_is_committed(
    make_crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.note.later(1)
    shown: list[bool] = []
    claim = lifecycle.claim

    def look(connection: Any, request: Any, *, token: int) -> Any:
        shown.append(token in mine())
        return claim(connection, request, token=token)

    monkeypatch.setattr(lifecycle, "claim", look)
    crew = make_crew(concurrency=1)
    crew.turn()
    assert shown == [True]
    finish(crew)
    crew.turn()


def test_a_claim_without_an_answer_is_in_hand_until_it_is_given_back(
    make_crew: MakeCrew, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.note.later(1)
    claim = lifecycle.claim

    def lose_the_answer(*arguments: Any, **named: Any) -> None:
        claim(*arguments, **named)
        raise OperationalError("gone")

    crew = make_crew(concurrency=1)
    with monkeypatch.context() as patched:
        patched.setattr(lifecycle, "claim", lose_the_answer)
        with pytest.raises(OperationalError):
            crew.turn()
    assert reclaim_a_day_later(frozen) == 0
    crew.close()
    crew.turn()
    assert (mine(), Job.objects.get().state) == (set(), "READY")


def test_a_leaked_row_comes_back_by_time_though_its_process_lives(
    make_crew: MakeCrew, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.note.later(1)
    crew = make_crew(concurrency=1)
    finish(crew)

    def refuse(*_: Any) -> None:
        raise IntegrityError("somebody's constraint")

    with monkeypatch.context() as patched:
        patched.setattr(store_for("default"), "settle", refuse)
        crew.close()
        crew.turn()
    assert Job.objects.get().state == "RUNNING"
    assert reclaim_a_day_later(frozen) == 1


def test_a_turn_in_the_calling_thread_shows_its_life_while_it_runs(frozen: FrozenClock) -> None:
    found: list[int] = []

    def body() -> None:
        found.append(reclaim_a_day_later(frozen))

    with declared(body, timeout=None) as performer:
        performer.later()
        work_one()
        assert work_one() is None
    assert found == [0]


def test_within_a_transaction_nobody_else_sees_the_claim_so_nothing_is_shown() -> None:
    shown: list[set[int]] = []

    def body() -> None:
        shown.append(mine())

    with declared(body) as performer, transaction.atomic():
        performer.later()
        work_one()
    assert shown == [set()]
