"""The listener, by its ticks, on real connections. A tick hears for a second at the most."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections
from django.test import override_settings

from django_jobs import lifecycle, signals
from django_jobs.clock import FrozenClock
from django_jobs.worker.link import Link
from django_jobs.worker.listener import Listener, check_way_to_listen, listening
from tests.factories import new_job, seconds

pytestmark = pytest.mark.django_db(transaction=True)

only_postgresql = pytest.mark.skipif(
    connections["default"].vendor != "postgresql", reason="only PostgreSQL says of which queue, and may fall deaf"
)


class Ear:
    """A listener, and all it has said."""

    def __init__(self, queues: frozenset[str] | None, speaker: str) -> None:
        self.link = Link("default")
        self.said: list[object] = []
        self.listener = Listener(
            link=self.link,
            speaker=Link(speaker),
            queues=queues,
            wake=lambda: self.said.append("wake"),
            tell=self.said.append,
        )

    def tick(self) -> list[object]:
        """Tick once, and give what was said meanwhile."""
        self.said.clear()
        assert self.listener.tick() == 0.0
        return list(self.said)


MakeEar = Callable[..., Ear]


@pytest.fixture
def make_ear() -> Iterator[MakeEar]:
    ears: list[Ear] = []

    def make(*queues: str, speaker: str = "default") -> Ear:
        ears.append(Ear(frozenset(queues) or None, speaker))
        return ears[-1]

    yield make
    for ear in ears:
        ear.listener.close()


@pytest.fixture
def odd() -> Iterator[list[tuple[str, int]]]:
    told: list[tuple[str, int]] = []

    def note(*, message: str, level: int, **_: Any) -> None:
        told.append((message, level))

    signals.odd.connect(note)
    yield told
    signals.odd.disconnect(note)


def enqueue(queue: str) -> None:
    """Queue a job on the connection of the test, which isn't the listener's."""
    lifecycle.enqueue(new_job(queue=queue), using="default")


def test_the_first_tick_wakes_and_tells_that_it_hears(make_ear: MakeEar) -> None:
    assert make_ear().tick() == ["wake", True]


def test_a_new_job_wakes(make_ear: MakeEar) -> None:
    ear = make_ear()
    ear.tick()
    enqueue("listened-1")
    assert ear.tick() == ["wake"]


def test_a_new_job_of_a_queue_that_is_served_wakes(make_ear: MakeEar) -> None:
    ear = make_ear("listened-2", "another")
    ear.tick()
    enqueue("listened-2")
    assert ear.tick() == ["wake"]


@only_postgresql
def test_a_new_job_of_a_queue_that_is_not_served_does_not_wake(make_ear: MakeEar) -> None:
    ear = make_ear("another")
    ear.tick()
    enqueue("listened-3")
    assert ear.tick() == []


@only_postgresql
def test_the_proofs_of_others_do_not_wake(make_ear: MakeEar) -> None:
    ear = make_ear()
    ear.tick()
    lifecycle.notify(connections["default"], ["proof:of-another"])
    assert ear.tick() == []


@only_postgresql
def test_that_it_hears_is_proven_again_every_half_minute(make_ear: MakeEar, frozen: FrozenClock) -> None:
    ear = make_ear("nothing")
    assert ear.tick() == ["wake", True]
    frozen.advance(seconds(30))
    # The proof is heard at once, and changes nothing.
    assert ear.tick() == []
    assert ear.listener._expected == ""


@only_postgresql
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_where_proofs_do_not_arrive_there_is_one_warning_and_no_hearing(
    make_ear: MakeEar, frozen: FrozenClock, odd: list[tuple[str, int]]
) -> None:
    # What is said in another database isn't heard, as if a pooler gave each transaction another session.
    ear = make_ear(speaker="other")
    assert ear.tick() == ["wake"]
    assert odd == []
    frozen.advance(seconds(60))
    enqueue("listened-4")
    assert ear.tick() == ["wake"]
    frozen.advance(seconds(60))
    enqueue("listened-5")
    assert ear.tick() == ["wake"]
    message = (
        "LISTEN doesn't hear through this connection (a pooler?): polling instead; "
        "DJANGO_JOBS['LISTEN_DATABASE'] may name a direct one"
    )
    assert odd == [(message, logging.WARNING)]


@only_postgresql
def test_after_its_connection_broke_it_tells_so_listens_again_and_wakes(
    make_ear: MakeEar, odd: list[tuple[str, int]]
) -> None:
    ear = make_ear("listened-6")
    ear.tick()
    with ear.link.connected() as own, connections["default"].cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 5000)", [own.connection.info.backend_pid])
    ear.said.clear()
    with pytest.raises(OperationalError):
        ear.listener.tick()
    assert ear.said == [False]
    assert ear.tick() == ["wake", True]
    enqueue("listened-6")
    assert ear.tick() == ["wake"]
    assert odd == []


@only_postgresql
def test_a_proof_that_a_break_swallowed_is_held_against_nobody(
    make_ear: MakeEar, frozen: FrozenClock, odd: list[tuple[str, int]]
) -> None:
    ear = make_ear(speaker="default")
    ear.tick()
    frozen.advance(seconds(30))
    with ear.link.connected() as own:
        own.connection.close()
    with pytest.raises(OperationalError):
        ear.listener.tick()
    frozen.advance(seconds(10))
    assert ear.tick() == ["wake", True]
    assert odd == []


@only_postgresql
def test_a_connection_that_fell_silent_is_replaced_without_a_warning(
    make_ear: MakeEar, frozen: FrozenClock, odd: list[tuple[str, int]]
) -> None:
    """As when its packets are swallowed on the way: it was heard before, so no pooler is to blame."""
    ear = make_ear("nothing")
    ear.tick()
    with ear.link.connected() as silent, silent.cursor() as cursor:
        cursor.execute("unlisten *")
    frozen.advance(seconds(30))
    assert ear.tick() == []
    frozen.advance(seconds(5))
    assert ear.tick() == [False, "wake", True]
    with ear.link.connected() as fresh:
        assert fresh is not silent
    assert odd == []


@only_postgresql
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_where_proofs_do_not_arrive_nobody_listens_until_the_next_try(make_ear: MakeEar, frozen: FrozenClock) -> None:
    """What a pooler's session still listened for would be told to whoever gets that session next."""
    ear = make_ear(speaker="other")
    ear.tick()
    frozen.advance(seconds(5))
    ear.said.clear()
    assert ear.listener.tick() == 55.0
    assert ear.said == []
    assert ear.link._connection is None
    frozen.advance(seconds(55))
    assert ear.tick() == ["wake"]


def listen(**settings: Any) -> int:
    """Count what listens under these settings."""
    with override_settings(DJANGO_JOBS=settings):
        listeners = listening("default", queues=None, wake=do_nothing, tell=tell_nobody)
    return len(listeners)


def do_nothing() -> None:
    pass


def tell_nobody(is_hearing: bool) -> None:
    pass


def test_there_is_one_listener() -> None:
    assert listen() == 1


@only_postgresql
def test_listening_can_be_switched_off() -> None:
    assert listen(LISTEN=False) == 0


@pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="only SQLite has a file to look at")
def test_a_file_is_looked_at_whatever_is_said_of_listen() -> None:
    assert listen(LISTEN=False) == 1


@override_settings(DJANGO_JOBS={"LISTEN_DATABASE": "nowhere"})
def test_a_way_to_listen_that_is_not_there_is_refused() -> None:
    message = r"^DJANGO_JOBS\['LISTEN_DATABASE'\] is 'nowhere', which DATABASES doesn't have$"
    with pytest.raises(ImproperlyConfigured, match=message):
        check_way_to_listen("default")


@pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="PostgreSQL can be listened to")
@override_settings(DJANGO_JOBS={"LISTEN_DATABASE": "other"})
def test_a_way_to_listen_to_sqlite_is_refused() -> None:
    message = r"^DJANGO_JOBS\['LISTEN_DATABASE'\] is for PostgreSQL, but the database 'default' is sqlite$"
    with pytest.raises(ImproperlyConfigured, match=message):
        check_way_to_listen("default")


def test_without_a_way_of_its_own_there_is_nothing_to_refuse() -> None:
    check_way_to_listen("default")
