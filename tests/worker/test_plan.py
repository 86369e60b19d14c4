from __future__ import annotations

import pytest
from django.test import override_settings

from django_jobs.worker.plan import Plan, new_identity, parse_queues, with_default_caps


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("", None),
        ("a", {"a": None}),
        ("a,b:4", {"a": None, "b": 4}),
        (" a , b:12 ", {"a": None, "b": 12}),
        ("tenant:mail", {"tenant:mail": None}),
        ("tenant:mail:3", {"tenant:mail": 3}),
    ],
)
def test_queues_are_read_with_their_caps(text: str, queues: dict[str, int | None] | None) -> None:
    assert parse_queues(text) == queues


def test_a_cap_below_one_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="mail:0: a cap below 1 would run nothing; leave the queue out, or pause it"):
        parse_queues("a,mail:0")


def test_a_name_that_no_queue_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="queue 'b c': give 1 to 100 letters"):
        parse_queues("a,b c")


def test_a_request_names_the_room_left_in_each_capped_queue_and_leaves_full_ones_out() -> None:
    plan = Plan(alias="default", identity="w", queues={"a": None, "b": 4, "c": 1}, concurrency=10)
    request = plan.request(limit=5, in_hand={"a": 3, "b": 1, "c": 1}, last_queue="a")
    assert request.queues == ("a", "b")
    assert request.rooms == {"b": 3}
    assert request.limit == 5
    assert not request.empty_handed


def test_a_request_for_all_queues_has_no_rooms() -> None:
    request = Plan(alias="default", identity="w", concurrency=10).request(limit=5, in_hand={}, last_queue="")
    assert request.queues is None
    assert request.rooms == {}
    assert request.empty_handed
    assert request.names is None


@override_settings(DJANGO_JOBS={"UNKNOWN_JOBS": "leave"})
def test_where_unknown_jobs_are_left_a_request_names_the_known_ones() -> None:
    request = Plan(alias="default", identity="w", concurrency=10).request(limit=5, in_hand={}, last_queue="")
    assert request.names is not None
    assert "tests.yard.note" in request.names


def test_two_lives_of_a_process_have_two_identities() -> None:
    assert new_identity() != new_identity()
    assert new_identity("web1").startswith("web1:")


@override_settings(DJANGO_JOBS={"QUEUES": {"mail": {"concurrency": 4}, "default": {}}})
def test_the_caps_of_the_setting_are_the_default_of_the_command() -> None:
    assert with_default_caps(None) == {"queues": None, "caps": {"mail": 4}}
    assert with_default_caps({"mail": None, "default": None}) == {"queues": {"mail": 4, "default": None}, "caps": {}}
    assert with_default_caps({"mail": 1}) == {"queues": {"mail": 1}, "caps": {}}


def test_caps_hold_where_every_queue_is_served_too() -> None:
    plan = Plan(alias="default", identity="w", caps={"mail": 4, "slow": 1}, concurrency=10)
    request = plan.request(limit=5, in_hand={"mail": 3, "slow": 1, "other": 2}, last_queue="")
    assert request.queues is None
    assert request.rooms == {"mail": 1, "slow": 0}
    assert [dealt.caps for dealt in plan.dealt(2)] == [{"mail": 2, "slow": 1}, {"mail": 2, "slow": 0}]


@pytest.mark.parametrize(
    ("queues", "concurrency", "most"),
    [
        (None, 3, 3),
        ({"mail": 1}, 4, 1),
        ({"mail": 1, "slow": 2}, 4, 2),
        ({"mail": 9}, 4, 4),
        ({"mail": 1, "misc": None}, 4, 4),
    ],
)
def test_it_says_how_many_processes_have_something_to_serve(
    queues: dict[str, int | None] | None, concurrency: int, most: int
) -> None:
    plan = Plan(alias="default", identity="w", queues=queues, concurrency=concurrency)
    assert plan.most_processes == most
    # Dealt out to so many, each serves something; to one more, one wouldn't.
    assert all(dealt.concurrency and dealt.queues != {} for dealt in plan.dealt(most))
    beyond = plan.dealt(most + 1)[-1]
    assert beyond.concurrency == 0 or beyond.queues == {}


def test_what_is_held_back_is_taken_from_every_cap() -> None:
    plan = Plan(alias="default", identity="w", queues={"a": None, "b": 4, "c": 1}, concurrency=10)
    request = plan.request(limit=5, in_hand={"b": 1}, last_queue="a", held_back=1)
    assert request.queues == ("a", "b")
    assert request.rooms == {"b": 2}
