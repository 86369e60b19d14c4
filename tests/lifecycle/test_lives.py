"""Reclaim by time leaves alone what a living process has in hand, where the database is a file of this host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.records import Claim, Failure
from django_jobs.stores import lives
from django_jobs.transitions import Place
from tests.factories import claim_one, place_of, queue_job, run_job, seconds, take
from tests.lifecycle.hearing import Heard
from tests.stores.holding import Holder, holder

pytestmark = pytest.mark.django_db

Hold = Callable[[Claim], AbstractContextManager[Holder]]

DAY = timedelta(days=1)


@pytest.fixture
def hold() -> Hold:
    """Give what has another process hold a claim."""
    if connections["default"].vendor != "sqlite":
        pytest.skip("a server's workers live on other hosts, so time alone judges them")
    file = str(Path(connections["default"].settings_dict["NAME"]).resolve())
    return lambda claim: holder(file, claim.token)


def reclaim() -> int:
    return lifecycle.reclaim(connections["default"])


def test_a_lapsed_row_comes_back_only_when_its_holder_is_gone(hold: Hold, frozen: FrozenClock) -> None:
    claim = run_job()
    with hold(claim) as process:
        frozen.advance(seconds(60))
        assert (reclaim(), place_of(claim.id)) == (0, Place.RUNNING)
        process.stop()
        frozen.advance(seconds(60))
        assert (reclaim(), place_of(claim.id)) == (0, Place.RUNNING)
        process.kill()
        assert (reclaim(), place_of(claim.id)) == (1, Place.READY)


def test_a_lapsed_row_comes_back_when_its_holder_has_put_it_out_of_its_hands(hold: Hold, frozen: FrozenClock) -> None:
    claim = run_job()
    with hold(claim) as process:
        frozen.advance(seconds(60))
        process.do("end()")
        assert (reclaim(), place_of(claim.id)) == (1, Place.READY)


def test_the_deadline_in_the_row_takes_nothing_from_a_living_holder_either(hold: Hold, frozen: FrozenClock) -> None:
    """The clock that it is compared with may have been set, and the holder may have been stopped, or slept."""
    claim = run_job(timeout=300.0)
    with hold(claim) as process:
        frozen.advance(DAY)
        lifecycle.renew(connections["default"], [claim.lease])
        assert (reclaim(), place_of(claim.id)) == (0, Place.RUNNING)
        process.kill()
        assert (reclaim(), place_of(claim.id)) == (1, Place.READY)


def test_a_cancelled_row_stays_held_while_its_holder_lives(hold: Hold, frozen: FrozenClock) -> None:
    claim = run_job()
    lifecycle.cancel([claim.id])
    with hold(claim) as process:
        frozen.advance(DAY)
        assert (reclaim(), place_of(claim.id)) == (0, Place.STOPPING)
        process.kill()
        assert (reclaim(), place_of(claim.id)) == (1, Place.CANCELLED)


def test_what_a_living_holder_keeps_hides_no_other_row(hold: Hold, frozen: FrozenClock) -> None:
    kept, lost = run_job(), run_job()
    with hold(kept):
        frozen.advance(DAY)
        assert lifecycle.reclaim(connections["default"], limit=1) == 1
    assert (place_of(kept.id), place_of(lost.id)) == (Place.RUNNING, Place.READY)


def test_all_that_one_claim_took_is_kept(hold: Hold, frozen: FrozenClock) -> None:
    ids = [queue_job(), queue_job()]
    first, second = take().claims
    assert first.token == second.token
    with hold(first):
        frozen.advance(DAY)
        assert reclaim() == 0
    assert [place_of(job_id) for job_id in ids] == [Place.RUNNING, Place.RUNNING]


def test_who_knows_the_process_dead_need_not_ask(hold: Hold) -> None:
    claim = run_job(queue="aside")
    failure = Failure(kind="crash", reason="it died")
    with hold(claim):
        lifecycle.bury(connections["default"], "worker-1", running={claim.lease}, failure=failure)
    assert place_of(claim.id) is Place.READY


def test_it_is_said_once_of_each_worker_that_lives_past_its_lease(
    hold: Hold, frozen: FrozenClock, heard: list[Heard]
) -> None:
    queue_job(queue="beside")
    first, second = run_job(), claim_one(worker="worker-2", queues=("beside",))
    with hold(first), hold(second):
        frozen.advance(DAY)
        for _ in range(3):
            reclaim()
    said = [str(one.said["message"]) for one in heard if one.signal == "odd"]
    beginning = "the lease of worker {} ran out, but its process lives, so its jobs are left to it until it ends"
    assert [text.startswith(beginning.format(f"worker-{n}")) for n, text in enumerate(said, start=1)] == [True, True]


@pytest.fixture
def own_life(frozen: FrozenClock) -> Iterator[Claim]:
    """Have this process hold a claim."""
    claim = run_job()
    end = lifecycle.begin_life(connections["default"], claim.token)
    yield claim
    end()


def test_elsewhere_than_in_a_file_of_this_host_time_alone_judges(own_life: Claim, frozen: FrozenClock) -> None:
    frozen.advance(DAY)
    in_a_file = connections["default"].vendor == "sqlite"
    assert reclaim() == (0 if in_a_file else 1)


def test_without_locks_time_alone_judges(own_life: Claim, frozen: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen.advance(DAY)
    with monkeypatch.context() as patched:
        patched.setattr(lives, "_locks", None)
        assert reclaim() == 1
