"""Queues by their names: paused, resumed, counted."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_jobs import lifecycle, queues, work_one
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.outcomes import Succeeded
from django_jobs.queue_handles import QueueHandle
from tests.declaring import declared
from tests.factories import NOON, another_connection, queue_job, request, run_job, seconds, take

pytestmark = pytest.mark.django_db


def paused() -> list[tuple[str, Any, str, str]]:
    return [(queue.name, queue.paused_at, queue.paused_by, queue.reason) for queue in queues.paused()]


def test_a_paused_queue_says_since_when_by_whom_and_why(frozen: FrozenClock) -> None:
    assert queues["mail"].pause("the server moves", by="ann") is True
    assert paused() == [("mail", NOON, "ann", "the server moves")]
    assert (queues["mail"].is_paused, queues["default"].is_paused) == (True, False)


def test_who_pauses_again_says_anew_who_and_why_and_since_when_stays(frozen: FrozenClock) -> None:
    queues["mail"].pause("the server moves", by="ann")
    frozen.advance(seconds(60))
    assert queues["mail"].pause("it moves still", by="bob") is False
    assert paused() == [("mail", NOON, "bob", "it moves still")]


def test_a_queue_that_goes_on_is_paused_no_more_and_can_be_paused_again(frozen: FrozenClock) -> None:
    queues["mail"].pause("the server moves", by="ann")
    assert queues["mail"].resume() is True
    assert (paused(), queues["mail"].is_paused) == ([], False)
    assert list(Queue.objects.values_list("name", "paused_by", "reason")) == [("mail", "", "")]
    frozen.advance(seconds(60))
    assert queues["mail"].pause() is True
    assert paused() == [("mail", NOON + seconds(60), "", "")]


def test_to_resume_what_is_not_paused_changes_nothing() -> None:
    Queue.objects.create(name="mail", reason="kept")
    assert (queues["mail"].resume(), queues["bulk"].resume()) == (False, False)
    assert list(Queue.objects.values_list("name", "reason")) == [("mail", "kept")]


def test_pausing_one_queue_leaves_the_others(frozen: FrozenClock) -> None:
    queues["mail"].pause()
    queues["bulk"].pause()
    queues["mail"].resume()
    assert [name for name, *_ in paused()] == ["bulk"]


def test_paused_queues_are_listed_by_name() -> None:
    for name in ("mail", "bulk", "z", "a"):
        queues[name].pause()
    assert [name for name, *_ in paused()] == ["a", "bulk", "mail", "z"]


def test_nothing_of_a_paused_queue_is_claimed_until_it_goes_on() -> None:
    mail, other = queue_job(queue="mail"), queue_job()
    queues["mail"].pause()
    assert [claim.id for claim in take().claims] == [other]
    assert take(queues=("mail",)).claims == ()
    queues["mail"].resume()
    assert [claim.id for claim in take().claims] == [mail]


def test_counts_leave_no_state_out_and_know_queues_without_jobs(frozen: FrozenClock) -> None:
    queue_job(queue="mail")
    queue_job(queue="mail", delay=seconds(60))
    run_job(queue="bulk")
    assert queues["mail"].counts() == {
        "due": 1, "not due": 1, "RUNNING": 0, "SUCCESSFUL": 0, "FAILED": 0, "CANCELLED": 0,
    }  # fmt: skip
    assert queues["none"].counts() == dict.fromkeys(queues["mail"].counts(), 0)


def test_a_pause_is_part_of_the_callers_transaction() -> None:
    queue_job(queue="mail")
    with transaction.atomic():
        queues["mail"].pause()
        transaction.set_rollback(True)
    assert paused() == []
    assert len(take().claims) == 1


@pytest.mark.django_db(transaction=True)
def test_a_pause_holds_for_others_from_its_commit_on() -> None:
    queue_job(queue="mail")
    with another_connection() as other:
        queues["mail"].pause()
        assert lifecycle.claim(other, request()).claims == ()
        queues["mail"].resume()
        assert len(lifecycle.claim(other, request()).claims) == 1


@pytest.mark.parametrize("name", ["", "no spaces", "x" * 101, "mäil"])
def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^queue='.*': give 1 to 100 characters"):
        queues[name]


@pytest.mark.parametrize("name", [None, 5, b"mail"])
def test_what_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match=r"^queue=.*: give a text"):
        queues[name]


def test_texts_that_a_database_would_refuse_are_written_all_the_same() -> None:
    queues["mail"].pause("a\0b\ud800", by="n" * 200 + "\0")
    [(_, _, by, reason)] = paused()
    assert (by, reason) == ("n" * 150, "a\N{REPLACEMENT CHARACTER}b?")


def test_async_code_has_the_same_words() -> None:
    async def use() -> list[Any]:
        mail = queues["mail"]
        said: list[Any] = [await mail.apause("why", by="ann"), await mail.acounts()]
        said.append([queue.name for queue in await queues.apaused()])
        return [*said, await mail.aresume()]

    nothing = {"due": 0, "not due": 0, "RUNNING": 0, "SUCCESSFUL": 0, "FAILED": 0, "CANCELLED": 0}
    assert async_to_sync(use)() == [True, nothing, ["mail"], True]


def test_handles_of_one_name_are_equal_and_show_it() -> None:
    assert queues["mail"] == queues["mail"] != queues["bulk"]
    assert (str(queues["mail"]), repr(queues["mail"])) == ("mail", "QueueHandle(name='mail')")
    assert repr(queues) == 'queues: queues["mail"].pause()'
    assert isinstance(queues["mail"], QueueHandle)


# -- other ways to run jobs


def test_work_one_heeds_a_pause() -> None:
    def act() -> None: ...

    with declared(act) as performer:
        performer.using(queue="mail").later()
        queues["mail"].pause()
        assert work_one() is None
        queues["mail"].resume()
        assert work_one() == Succeeded()
    assert Job.objects.get().state == "SUCCESSFUL"
