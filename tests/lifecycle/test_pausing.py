"""Who hears of it that a queue stands still, or goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction

from django_jobs import lifecycle, queues
from tests.factories import another_connection

pytestmark = pytest.mark.django_db


def test_both_are_told_after_the_commit_and_only_where_something_changed(
    heard: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        queues["mail"].pause("why", by="ann")
        queues["mail"].pause("why again")
        assert heard == []
    assert [(one.signal, one.said) for one in heard] == [
        ("queue_paused", {"queue": "mail", "by": "ann", "reason": "why"})
    ]
    heard.clear()
    with django_capture_on_commit_callbacks(execute=True):
        queues["mail"].resume()
        queues["mail"].resume()
    assert [(one.signal, one.said) for one in heard] == [("queue_resumed", {"queue": "mail"})]


def test_both_are_lines_in_the_log(caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any) -> None:
    caplog.set_level(logging.INFO, "django_jobs")
    with django_capture_on_commit_callbacks(execute=True):
        queues["mail"].pause("the server\nmoves", by="ann")
        queues["bulk"].pause()
        queues["mail"].resume()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "queue mail is paused (ann: the server moves)"),
        ("WARNING", "queue bulk is paused"),
        ("WARNING", "queue mail goes on"),
    ]


@pytest.mark.django_db(transaction=True)
def test_workers_are_woken_when_a_queue_goes_on() -> None:
    queues["mail"].pause()
    with another_connection() as other:
        mark = lifecycle.listen(other)
        queues["mail"].resume()
        said, _ = lifecycle.hear(other, mark, timeout=10)
    # On SQLite whoever listens sees by the file's version that something is new.
    assert said in ({"mail"}, {""})


@pytest.mark.django_db(transaction=True)
def test_under_manual_transactions_nobody_is_told(heard: list[Any]) -> None:
    transaction.set_autocommit(False)
    try:
        queues["mail"].pause()
        queues["mail"].resume()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert heard == []
