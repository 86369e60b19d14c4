"""Front door: what tests use: they say what was queued, run it within their own transaction, and see what comes of it.

Everything works in a plain TestCase: a queued job is a row in the test's transaction, seen at once and gone with the
rollback. Nothing runs until the test asks.
"""

from __future__ import annotations

from django_jobs.testing.asserting import (
    Enqueued,
    aassert_enqueued,
    aassert_not_enqueued,
    aassert_num_enqueued,
    aenqueued_jobs,
    assert_enqueued,
    assert_not_enqueued,
    assert_num_enqueued,
    enqueued_jobs,
)
from django_jobs.testing.live import LiveWorker, live_worker
from django_jobs.testing.mixin import JobsFixture, JobsMixin
from django_jobs.testing.modes import jobs_mode
from django_jobs.testing.performing import aperform, perform
from django_jobs.testing.running import Drained, adrain, arun_jobs, drain, run_jobs

__all__ = [
    "Drained", "Enqueued", "JobsFixture", "JobsMixin", "LiveWorker", "aassert_enqueued",
    "aassert_not_enqueued", "aassert_num_enqueued", "adrain", "aenqueued_jobs", "aperform", "arun_jobs",
    "assert_enqueued", "assert_not_enqueued", "assert_num_enqueued", "drain",
    "enqueued_jobs", "jobs_mode", "live_worker", "perform", "run_jobs",
]  # fmt: skip
