"""How a plan's slots and caps are dealt out to worker processes."""

from __future__ import annotations

import pytest

from django_jobs.worker.plan import Plan


def plan(**changes: object) -> Plan:
    return Plan(**{"alias": "default", "identity": "w", "concurrency": 10, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("concurrency", "processes", "shares"),
    [(10, 1, [10]), (10, 3, [4, 3, 3]), (4, 4, [1, 1, 1, 1]), (7, 2, [4, 3])],
)
def test_slots_are_dealt_out_evenly_and_none_is_lost(concurrency: int, processes: int, shares: list[int]) -> None:
    assert [dealt.concurrency for dealt in plan(concurrency=concurrency).dealt(processes)] == shares


def test_each_process_serves_an_uncapped_queue_without_a_cap() -> None:
    assert [dealt.queues for dealt in plan(queues={"mail": None}).dealt(2)] == [{"mail": None}, {"mail": None}]


def test_caps_are_dealt_out_and_their_sums_kept() -> None:
    dealt = plan(queues={"mail": 4, "pdf": 3, "misc": None}).dealt(3)
    assert [one.queues for one in dealt] == [
        {"mail": 2, "pdf": 1, "misc": None},
        {"mail": 1, "pdf": 1, "misc": None},
        {"mail": 1, "pdf": 1, "misc": None},
    ]


def test_a_process_whose_share_of_a_cap_is_nothing_does_not_serve_that_queue() -> None:
    dealt = plan(queues={"mail": 1, "misc": None}).dealt(3)
    assert [one.queues for one in dealt] == [{"mail": 1, "misc": None}, {"misc": None}, {"misc": None}]
    assert [one.queue_names for one in dealt] == [{"mail", "misc"}, {"misc"}, {"misc"}]


def test_a_process_that_is_left_without_queues_serves_none_and_not_all() -> None:
    _, idle = plan(queues={"mail": 1}).dealt(2)
    assert idle.queue_names == frozenset()
    assert idle.request(limit=5, in_hand={}, last_queue="").queues == ()


def test_where_every_queue_is_served_each_process_serves_every_queue() -> None:
    assert [dealt.queues for dealt in plan(queues=None).dealt(2)] == [None, None]


def test_whatever_is_not_dealt_out_is_the_same_for_all() -> None:
    first, second = plan(name="web1", grace=7.0, drain=True).dealt(2)
    for dealt in (first, second):
        assert (dealt.alias, dealt.name, dealt.grace, dealt.drain) == ("default", "web1", 7.0, True)


@pytest.mark.parametrize(
    ("poll", "processes", "dealt"),
    [(None, 1, 15.0), (None, 2, 16.0), (None, 10, 80.0), (0.5, 1, 15.0), (3600.0, 4, 3600.0)],
)
def test_a_worker_looks_by_itself_the_more_seldom_the_more_of_them_there_are(
    poll: float | None, processes: int, dealt: float
) -> None:
    assert {each.poll for each in plan(poll=poll).dealt(processes)} == {dealt}
