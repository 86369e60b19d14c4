"""Seats: an interruption reaches the body it was meant for, once, and never the next one."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace

import pytest

from django_jobs.exceptions import Interruption, JobCancelled, JobLost, JobTimeout
from django_jobs.records import Lease
from django_jobs.worker.seat import Seats, TaskSeat, ThreadSeat

PATIENCE = 20.0

FIRST, SECOND = Lease(id=1, token=11), Lease(id=2, token=22)


@pytest.fixture(autouse=True)
def no_callbacks() -> Iterator[None]:
    """Have the garbage collector call nobody: an interruption that hits what it calls is swallowed there."""
    callbacks = gc.callbacks.copy()
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


class Body:
    """A thread that makes a seat, does what it is told in it, and keeps what that gave or raised."""

    def __init__(self, work: Callable[[ThreadSeat], object]) -> None:
        self.is_seated = threading.Event()
        self._work = work
        self._came_to: object = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.is_seated.wait(PATIENCE)

    def _run(self) -> None:
        self.seat = ThreadSeat()
        try:
            self._came_to = self._work(self._seated(self.seat))
        except BaseException as error:
            self._came_to = error

    def _seated(self, seat: ThreadSeat) -> ThreadSeat:
        seat.enter(FIRST)
        self.is_seated.set()
        return seat

    def came_to(self) -> object:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self._came_to


def go_on() -> None:
    """Run Python code until it is interrupted, or for as long as a test may take."""
    gate = threading.Event()
    for _ in range(int(PATIENCE * 1000)):
        gate.wait(0.001)


@pytest.fixture
def hurried() -> Iterator[None]:
    """Have threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class TestThreadSeat:
    def test_python_code_is_interrupted_with_the_kind(self) -> None:
        def work(seat: ThreadSeat) -> object:
            try:
                go_on()
            except Interruption as error:
                return type(error), seat.leave()

        body = Body(work)
        assert body.seat.interrupt(FIRST, JobTimeout)
        assert body.came_to() == (JobTimeout, JobTimeout)

    def test_except_exception_does_not_catch_it(self) -> None:
        def work(seat: ThreadSeat) -> object:
            try:
                go_on()
            except Exception:
                return "caught"

        body = Body(work)
        body.seat.interrupt(FIRST, JobCancelled)
        assert isinstance(body.came_to(), JobCancelled)

    def test_leaving_tells_the_kind_even_if_the_body_swallowed_it(self) -> None:
        def work(seat: ThreadSeat) -> object:
            with suppress(BaseException):
                go_on()
            return seat.leave()

        body = Body(work)
        body.seat.interrupt(FIRST, JobLost)
        assert body.came_to() is JobLost

    def test_a_body_that_was_left_alone_leaves_with_nothing(self) -> None:
        assert Body(ThreadSeat.leave).came_to() is None

    def test_it_is_sent_only_once(self) -> None:
        swallowed, again = threading.Event(), threading.Event()

        def work(seat: ThreadSeat) -> object:
            try:
                go_on()
            except Interruption:
                swallowed.set()
            assert again.wait(PATIENCE)
            return seat.leave()

        body = Body(work)
        assert body.seat.interrupt(FIRST, JobTimeout)
        assert swallowed.wait(PATIENCE)
        assert not body.seat.interrupt(FIRST, JobLost)
        again.set()
        assert body.came_to() is JobTimeout

    def test_an_interruption_meant_for_another_job_is_refused(self) -> None:
        gate = threading.Event()

        def work(seat: ThreadSeat) -> object:
            assert gate.wait(PATIENCE)
            return seat.leave()

        body = Body(work)
        assert not body.seat.interrupt(SECOND, JobTimeout)
        assert not body.seat.interrupt(Lease(id=1, token=12), JobTimeout)
        gate.set()
        assert body.came_to() is None

    def test_the_next_job_is_not_hit_by_what_was_meant_for_the_one_before(self) -> None:
        is_next, gate = threading.Event(), threading.Event()

        def work(seat: ThreadSeat) -> object:
            seat.leave()
            seat.enter(SECOND)
            is_next.set()
            assert gate.wait(PATIENCE)
            return seat.leave()

        body = Body(work)
        assert is_next.wait(PATIENCE)
        assert not body.seat.interrupt(FIRST, JobTimeout)
        gate.set()
        assert body.came_to() is None

    def test_nobody_is_interrupted_in_an_empty_seat(self) -> None:
        left, gate = threading.Event(), threading.Event()

        def work(seat: ThreadSeat) -> object:
            seat.leave()
            left.set()
            assert gate.wait(PATIENCE)
            return "in peace"

        body = Body(work)
        assert left.wait(PATIENCE)
        assert not body.seat.interrupt(FIRST, JobTimeout)
        gate.set()
        assert body.came_to() == "in peace"

    def test_a_seat_serves_again_after_an_interruption(self) -> None:
        is_next = threading.Event()

        def work(seat: ThreadSeat) -> object:
            kinds = []
            for lease in (FIRST, SECOND):
                try:
                    seat.enter(lease)
                    if lease == SECOND:
                        is_next.set()
                    go_on()
                except Interruption:
                    pass
                kinds.append(seat.leave())
            return kinds

        body = Body(work)
        assert body.seat.interrupt(FIRST, JobTimeout)
        assert is_next.wait(PATIENCE)
        assert body.seat.interrupt(SECOND, JobCancelled)
        assert body.came_to() == [JobTimeout, JobCancelled]

    def test_leaving_waits_until_queries_are_cancelled_so_that_none_of_the_next_job_is(self) -> None:
        is_cancelling, may_cancel = threading.Event(), threading.Event()
        is_leaving, order = threading.Event(), []

        class Raw:
            """What a driver's connection is to a seat."""

            def interrupt(self) -> None:
                is_cancelling.set()
                assert may_cancel.wait(PATIENCE)
                order.append("cancelled")

        def work(seat: ThreadSeat) -> object:
            seat._wrappers = [SimpleNamespace(vendor="sqlite", connection=Raw())]  # type: ignore[list-item]
            try:
                go_on()
            except Interruption:
                is_leaving.set()
            kind = seat.leave()
            order.append("left")
            return kind

        body = Body(work)
        watch = threading.Thread(target=body.seat.interrupt, args=(FIRST, JobTimeout), daemon=True)
        watch.start()
        assert is_cancelling.wait(PATIENCE)
        assert is_leaving.wait(PATIENCE)
        may_cancel.set()
        assert body.came_to() is JobTimeout
        watch.join(PATIENCE)
        assert order == ["cancelled", "left"]

    def test_an_error_while_queries_are_cancelled_keeps_nothing_from_being_interrupted(self) -> None:
        class Raw:
            def interrupt(self) -> None:
                raise RuntimeError("closed")

        def work(seat: ThreadSeat) -> object:
            try:
                go_on()
            except Interruption:
                return seat.leave()

        body = Body(work)
        body.seat._wrappers = [SimpleNamespace(vendor="sqlite", connection=Raw())]  # type: ignore[list-item]
        assert body.seat.interrupt(FIRST, JobTimeout)
        assert body.came_to() is JobTimeout

    @pytest.mark.usefixtures("hurried")
    def test_of_a_hail_of_interruptions_none_strikes_after_leaving(self) -> None:
        seat, is_over = ThreadSeat(), threading.Event()
        present, sent, told = [0], [], []
        ends_at = time.monotonic() + 6 * PATIENCE

        def hammer() -> None:
            while not is_over.is_set():
                lease = Lease(id=present[0], token=1)
                if seat.interrupt(lease, JobTimeout):
                    sent.append(lease.id)

        hammers = [threading.Thread(target=hammer, daemon=True) for _ in range(2)]
        for thread in hammers:
            thread.start()
        try:
            for number in count():
                present[0] = number
                # What struck outside of its guards would end the test here.
                if sat_through(seat, Lease(id=number, token=1), steps=number % 7) is not None:
                    told.append(number)
                # How many rounds that takes is up to how the machine takes turns.
                if len(told) == 200 or time.monotonic() > ends_at:
                    break
        finally:
            is_over.set()
        for thread in hammers:
            thread.join(PATIENCE)
        assert len(told) == 200
        assert told == sorted(sent)


def sat_through(seat: ThreadSeat, lease: Lease, *, steps: int) -> type[Interruption] | None:
    """Sit for so many steps, guarded as whoever uses a seat has to guard it."""
    try:
        with suppress(Interruption):
            seat.enter(lease)
            for _ in range(steps):
                pass
        return seat.leave()
    except Interruption:
        return seat.leave()


class TestTaskSeat:
    def test_the_task_is_cancelled(self) -> None:
        async def main() -> object:
            begun = asyncio.Event()

            async def body() -> None:
                begun.set()
                await asyncio.Event().wait()

            seat = TaskSeat(FIRST, asyncio.get_running_loop())
            task = asyncio.ensure_future(body())
            seat.enter(task)
            await begun.wait()
            assert await asyncio.to_thread(seat.interrupt, FIRST, JobTimeout)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), PATIENCE)
            return task.cancelled(), seat.leave()

        assert asyncio.run(main()) == (True, JobTimeout)

    def test_a_task_that_was_interrupted_before_it_began_never_begins(self) -> None:
        async def main() -> object:
            begun = []

            async def body() -> None:
                begun.append("begun")

            seat = TaskSeat(FIRST, asyncio.get_running_loop())
            assert seat.interrupt(FIRST, JobCancelled)
            task = asyncio.ensure_future(body())
            seat.enter(task)
            await asyncio.wait([task], timeout=PATIENCE)
            return begun, task.cancelled(), seat.leave()

        assert asyncio.run(main()) == ([], True, JobCancelled)

    def test_it_is_sent_only_once_and_only_to_its_own_job(self) -> None:
        async def main() -> object:
            cancelled = []

            async def body() -> None:
                for _ in range(2):
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        cancelled.append("cancelled")
                        return

            seat = TaskSeat(FIRST, asyncio.get_running_loop())
            task = asyncio.ensure_future(body())
            seat.enter(task)
            await asyncio.sleep(0)
            answers = [
                seat.interrupt(SECOND, JobLost),
                seat.interrupt(FIRST, JobTimeout),
                seat.interrupt(FIRST, JobLost),
            ]
            await asyncio.wait([task], timeout=PATIENCE)
            return answers, cancelled, seat.leave()

        assert asyncio.run(main()) == ([False, True, False], ["cancelled"], JobTimeout)

    def test_who_has_left_is_not_interrupted(self) -> None:
        async def main() -> object:
            seat = TaskSeat(FIRST, asyncio.get_running_loop())
            return seat.leave(), seat.interrupt(FIRST, JobLost), seat.leave()

        assert asyncio.run(main()) == (None, False, None)


class Recording:
    """A seat that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Lease, type[Interruption]]] = []

    def interrupt(self, lease: Lease, kind: type[Interruption]) -> bool:
        self.told.append((lease, kind))
        return True


class TestSeats:
    def test_each_job_is_interrupted_in_its_own_seat(self) -> None:
        seats, first, second = Seats(), Recording(), Recording()
        seats.seat(FIRST, first)
        seats.seat(SECOND, second)
        assert seats.interrupt(SECOND, JobLost)
        assert (first.told, second.told) == ([], [(SECOND, JobLost)])

    def test_a_job_without_a_seat_is_not_interrupted(self) -> None:
        seats, seat = Seats(), Recording()
        assert not seats.interrupt(FIRST, JobLost)
        seats.seat(FIRST, seat)
        seats.clear(FIRST)
        assert not seats.interrupt(FIRST, JobLost)
        assert seat.told == []

    def test_clearing_a_seat_that_nobody_has_does_nothing(self) -> None:
        seats = Seats()
        seats.clear(FIRST)
        assert list(seats) == []

    def test_the_jobs_with_seats_are_listed_and_may_leave_meanwhile(self) -> None:
        seats = Seats()
        seats.seat(FIRST, Recording())
        seats.seat(SECOND, Recording())
        listed = []
        for lease in seats:
            seats.clear(lease)
            listed.append(lease)
        assert listed == [FIRST, SECOND]
        assert list(seats) == []
