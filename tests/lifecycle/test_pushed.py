"""What is told of pushed rows, once it is committed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction

from django_jobs import lowlevel
from django_jobs.clock import FrozenClock
from django_jobs.exceptions import LeaseLost
from tests.factories import seconds
from tests.lifecycle.hearing import Heard

pytestmark = pytest.mark.django_db(transaction=True)


def taken(**options: Any) -> lowlevel.Taken:
    claim = lowlevel.take("mail", **options)
    assert claim is not None
    return claim


def test_who_is_pushed_taken_put_back_and_acked_is_no_news(heard: list[Heard]) -> None:
    lowlevel.push("mail", 1)
    lowlevel.retry(lowlevel.extend(taken()), "no")
    lowlevel.ack(taken())
    assert heard == []


def test_a_row_that_came_back_by_itself_is_told(heard: list[Heard], frozen: FrozenClock) -> None:
    row_id = lowlevel.push("mail", 1)
    taken(lease=1)
    frozen.advance(seconds(1))
    taken()
    [told] = heard
    assert (told.signal, told.said["level"]) == ("odd", logging.WARNING)
    assert told.said["message"] == f"taken back from consumers of mail that let the lease run out: #{row_id}"


def test_of_many_that_came_back_ten_are_named(heard: list[Heard], frozen: FrozenClock) -> None:
    for _ in range(11):
        lowlevel.push("mail", 1)
        last = taken(lease=1)
    frozen.advance(seconds(1))
    taken()
    message = heard[0].said["message"]
    assert (message.count("#"), message.endswith(" …"), f"#{last.id}" in message) == (10, True, False)


def test_a_row_that_is_dead_is_told_with_the_reason_on_one_line(heard: list[Heard]) -> None:
    row_id = lowlevel.push("mail", 1)
    lowlevel.retry(taken(), "no\nsuch address", max_attempts=1)
    [told] = heard
    assert (told.signal, told.said["level"]) == ("odd", logging.ERROR)
    assert told.said["message"] == f"row {row_id} pushed to mail is dead after attempt 1: no such address"


def test_a_death_without_a_reason_says_so(heard: list[Heard]) -> None:
    lowlevel.push("mail", 1)
    lowlevel.retry(taken(), max_attempts=1)
    assert heard[0].said["message"].endswith("is dead after attempt 1: no reason given")


def test_nothing_is_told_of_what_is_rolled_back(heard: list[Heard]) -> None:
    lowlevel.push("mail", 1)
    claim = taken()
    with transaction.atomic():
        assert lowlevel.retry(claim, "no", max_attempts=1) == "dead"
        transaction.set_rollback(True)
    assert heard == []
    assert lowlevel.ack(claim)


def test_nothing_is_told_of_a_row_that_somebody_else_has(heard: list[Heard], frozen: FrozenClock) -> None:
    lowlevel.push("mail", 1)
    late = taken(lease=1)
    frozen.advance(seconds(1))
    taken()
    heard.clear()
    with pytest.raises(LeaseLost):
        lowlevel.retry(late, "no", max_attempts=1)
    assert heard == []
