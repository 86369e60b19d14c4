"""Many jobs queued at once, in one transaction or by many callers: who is told, how often, and who comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.lifecycle import waking
from django_jobs.models import Job
from django_jobs.performers import AnyPerformer
from django_jobs.stores import store_for
from django_jobs.worker.board import Board
from django_jobs.worker.crew import Crew
from django_jobs.worker.link import Link
from django_jobs.worker.listener import Listener
from django_jobs.worker.loop import Loop
from tests.declaring import declared
from tests.factories import new_job, seconds
from tests.system.processes import until
from tests.worker.conftest import make_board, make_crew

__all__ = ["make_crew"]

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 8
A_LONG_TIME = 3_600.0

only_postgresql = pytest.mark.skipif(
    connections["default"].vendor != "postgresql", reason="only PostgreSQL notifies; workers on SQLite watch the file"
)


class Notes:
    """What was notified on a connection: queues, a list for each statement, and whether any was in a transaction."""

    def __init__(self) -> None:
        self.queues: list[list[str]] = []
        self.were_inside = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        notify = store_for("default").notify

        def note(connection: BaseDatabaseWrapper, queues: list[str]) -> None:
            self.queues.append(list(queues))
            self.were_inside |= connection.in_atomic_block
            notify(connection, queues)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_for("default"), "notify", note)
            yield


@pytest.fixture
def notes() -> Iterator[Notes]:
    taken = Notes()
    waking._notified.clear()
    with taken.taken():
        yield taken


# -- O78: one notification for each transaction and queue


def test_o78_a_transaction_notifies_each_queue_once_though_its_hooks_take_their_time(
    notes: Notes, frozen: FrozenClock
) -> None:
    with transaction.atomic():
        for number in range(100):
            lifecycle.enqueue(new_job(queue=f"queue-{number % 2}"), using="default")
            transaction.on_commit(lambda: frozen.advance(seconds(1)))
        assert notes.queues == []
    assert notes.queues == [["queue-0"], ["queue-1"]]
    assert not notes.were_inside


def test_o78_the_next_transaction_notifies_again(notes: Notes, frozen: FrozenClock) -> None:
    for _ in range(2):
        with transaction.atomic():
            transaction.on_commit(lambda: frozen.advance(seconds(1)))
            lifecycle.enqueue(new_job(), using="default")
    assert notes.queues == [["default"], ["default"]]


def test_o78_a_job_that_a_hook_queues_is_told_of_by_itself(notes: Notes, frozen: FrozenClock) -> None:
    with transaction.atomic():
        lifecycle.enqueue(new_job(), using="default")
        transaction.on_commit(lambda: frozen.advance(seconds(1)))
        transaction.on_commit(lambda: lifecycle.enqueue(new_job(), using="default"))
    assert notes.queues == [["default"], ["default"]]


def test_o78_a_transaction_after_one_that_was_rolled_back_notifies(notes: Notes) -> None:
    for is_kept in (False, True):
        with transaction.atomic():
            lifecycle.enqueue(new_job(), using="default")
            transaction.set_rollback(not is_kept)
    assert notes.queues == [["default"]]


def test_o78_a_savepoint_that_is_rolled_back_takes_its_own_queue_along_and_no_other(notes: Notes) -> None:
    with transaction.atomic():
        with transaction.atomic():
            lifecycle.enqueue(new_job(queue="lost"), using="default")
            lifecycle.enqueue(new_job(queue="kept"), using="default")
            transaction.set_rollback(True)
        lifecycle.enqueue(new_job(queue="kept"), using="default")
    assert notes.queues == [["kept"]]


def test_o78_any_number_of_jobs_queued_by_one_call_are_told_of_by_one_statement(notes: Notes) -> None:
    lifecycle.enqueue_many([new_job(queue=f"queue-{number % 3}") for number in range(3_000)], using="default")
    assert notes.queues == [["queue-0", "queue-1", "queue-2"]]


# -- the switch


def test_o78_where_the_settings_want_nobody_to_listen_nobody_is_notified(notes: Notes) -> None:
    with override_settings(DJANGO_JOBS={"LISTEN": False}):
        lifecycle.enqueue(new_job(), using="default")
        lifecycle.enqueue_many([new_job()], using="default")
    assert notes.queues == []


def test_o78_what_nobody_was_told_of_is_found_by_the_poll(room: Room) -> None:
    with override_settings(DJANGO_JOBS={"LISTEN": False}):
        room.open(count=1, poll=0.05, is_heard=False)
        room.performer.later_many([()] * 3)
        room.wait_for_the_end()


# -- all workers come


class Room:
    """Crews of one slot each that nothing but a wake brings to look, as in the processes of one command."""

    def __init__(self, make: Callable[..., Crew], performer: AnyPerformer) -> None:
        self.make = make
        self.performer = performer
        self.crews: list[Crew] = []
        self.loop: Loop | None = None

    def open(self, *, count: int = WORKERS, poll: float = A_LONG_TIME, is_heard: bool = True) -> None:
        """Start crews, and wait until each has looked in vain and the listener hears."""
        boards: list[Board] = [make_board() for _ in range(count)]
        self.crews += [
            self.make(board=board, identity=f"worker-{number}", concurrency=1, poll=poll)
            for number, board in enumerate(boards)
        ]
        for crew in self.crews:
            crew.start()
        until(lambda: all(board.claimed_at for board in boards), what="each worker has looked for jobs")
        if is_heard:
            self.listen()

    def listen(self) -> None:
        hears = threading.Event()
        listener = Listener(
            link=Link("default"), speaker=Link("default"), queues=None, wake=self.wake, tell=lambda _: hears.set()
        )
        self.loop = Loop("listener", listener.tick, on_end=listener.close)
        self.loop.start()
        assert hears.wait(60.0)

    def wake(self) -> None:
        for crew in self.crews:
            crew.wake()

    def wait_for_the_end(self) -> None:
        """Wait until all jobs are done, for as long as there are fewer and fewer."""
        while waiting := self.waiting():
            until(lambda waiting=waiting: self.waiting() < waiting, what=f"fewer than {waiting} jobs wait")

    def waiting(self) -> int:
        return Job.objects.exclude(state="SUCCESSFUL").count()

    def close(self) -> None:
        if self.loop is not None:
            self.loop.stop()
            assert self.loop.join(20.0)


came: set[int] = set()
meeting = threading.Barrier(WORKERS)


def meet() -> None:
    """Wait, for the first time in a thread, until a thread of each worker is here."""
    if (me := threading.get_ident()) not in came:
        came.add(me)
        meeting.wait(60.0)


def do_nothing() -> None:
    pass


@pytest.fixture
def room(make_crew: Callable[..., Crew]) -> Iterator[Room]:
    with declared(do_nothing) as performer:
        room = Room(make_crew, performer)
        yield room
        room.close()


@pytest.fixture
def meeting_room(make_crew: Callable[..., Crew]) -> Iterator[Room]:
    came.clear()
    meeting.reset()
    with declared(meet, timeout=None) as performer:
        room = Room(make_crew, performer)
        yield room
        room.close()


def check_bulk(room: Room, notes: Notes, count: int) -> None:
    room.open()
    waking._notified.clear()
    notes.queues.clear()
    with transaction.atomic():
        room.performer.later_many([()] * (count - 100))
        for _ in range(100):
            room.performer.later()
    assert notes.queues == [["default"]]
    room.wait_for_the_end()
    assert Job.objects.count() == count
    # They met: nobody goes on alone.
    assert len(came) == WORKERS
    assert len(set(Job.objects.values_list("last_worker", flat=True))) == WORKERS


def test_o78_all_idle_workers_join_in_when_one_transaction_queues_many_jobs(meeting_room: Room, notes: Notes) -> None:
    check_bulk(meeting_room, notes, 400)


@pytest.mark.soak
def test_o78_all_idle_workers_join_in_when_one_transaction_queues_50_000_jobs(meeting_room: Room, notes: Notes) -> None:
    check_bulk(meeting_room, notes, 50_000)


def check_clients(room: Room, notes: Notes, *, clients: int, transactions: int) -> None:
    room.open()
    errors: list[BaseException] = []

    def queue() -> None:
        try:
            for _ in range(transactions):
                with transaction.atomic():
                    room.performer.later()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=queue) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    room.wait_for_the_end()
    assert Job.objects.count() == clients * transactions
    assert not notes.were_inside


def test_o78_of_many_callers_that_queue_in_transactions_of_their_own_no_job_is_left_waiting(
    room: Room, notes: Notes
) -> None:
    check_clients(room, notes, clients=8, transactions=10)


@pytest.mark.soak
@only_postgresql
def test_o78_of_64_callers_that_queue_in_transactions_of_their_own_no_job_is_left_waiting(
    room: Room, notes: Notes
) -> None:
    check_clients(room, notes, clients=64, transactions=100)
