"""The words that people see for where a job is."""

from __future__ import annotations

import pytest

from django_jobs import lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.models.words import LABELS, OVER, PLACES, state_word, word_of
from tests.factories import NOON, queue_job, run_job, seconds, write

pytestmark = pytest.mark.django_db


@pytest.fixture
def words(frozen: FrozenClock) -> dict[int, str]:
    """Make a row for each word, and give these by the ids of the rows."""
    succeeded, failed = (queue_job(queue="a", delay=seconds(60)) for _ in range(2))
    for job_id, state in ((succeeded, "SUCCESSFUL"), (failed, "FAILED")):
        write(job_id, state=state, finished_at=NOON)
    retrying = queue_job(queue="b", delay=seconds(60))
    write(retrying, attempts=2)
    again = queue_job(queue="b")
    write(again, attempts=2)
    cancelled, stopping = queue_job(queue="c"), run_job(queue="d").id
    lifecycle.cancel([cancelled, stopping])
    return {
        queue_job(queue="e"): "waiting",
        queue_job(queue="e", delay=seconds(60)): "scheduled",
        again: "waiting",
        retrying: "retrying",
        run_job(queue="f").id: "running",
        stopping: "stopping",
        succeeded: "succeeded",
        failed: "failed",
        cancelled: "cancelled",
    }


def test_every_row_has_exactly_one_word(words: dict[int, str]) -> None:
    assert dict(Job.objects.annotate(word=state_word()).values_list("pk", "word")) == words
    for word, rows in PLACES.items():
        found = set(Job.objects.filter(rows).values_list("pk", flat=True))
        assert found == {job_id for job_id, said in words.items() if said == word}


def test_a_job_at_hand_has_the_word_of_its_row(words: dict[int, str]) -> None:
    assert {job.pk: word_of(job) for job in Job.objects.all()} == words


def test_at_its_moment_a_job_waits_and_is_scheduled_no_more(frozen: FrozenClock) -> None:
    job = Job.objects.get(pk=queue_job(delay=seconds(60)))
    frozen.advance(seconds(59))
    assert word_of(job) == "scheduled"
    frozen.advance(seconds(1))
    assert word_of(job) == Job.objects.annotate(word=state_word()).values_list("word", flat=True).get() == "waiting"


def test_every_word_has_a_label_and_some_are_the_end() -> None:
    assert list(LABELS) == list(PLACES)
    assert {str(LABELS[word]) for word in OVER} == {"succeeded", "failed", "cancelled"}
