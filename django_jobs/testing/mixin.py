"""Front door: the kit as methods of a TestCase, and as what pytest's fixture gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.testing.asserting import assert_enqueued, assert_not_enqueued, assert_num_enqueued, enqueued_jobs
from django_jobs.testing.live import live_worker
from django_jobs.testing.modes import jobs_mode
from django_jobs.testing.performing import aperform, perform
from django_jobs.testing.running import adrain, arun_jobs, drain, run_jobs
from django_jobs.testing.surviving import assert_idempotent, crash_after

if TYPE_CHECKING:
    from django_jobs.models import Job


class JobsMixin:
    """What `django_jobs.testing` has for tests, as methods: `class SignUpTests(JobsMixin, TestCase)`.

    `assertEnqueued` is the function `assert_enqueued`, and so on: their docstrings say what they take and raise.
    """

    assertEnqueued = staticmethod(assert_enqueued)  # noqa: N815 - as unittest names its own
    assertNotEnqueued = staticmethod(assert_not_enqueued)  # noqa: N815
    assertNumEnqueued = staticmethod(assert_num_enqueued)  # noqa: N815
    assertIdempotent = staticmethod(assert_idempotent)  # noqa: N815
    enqueued_jobs = staticmethod(enqueued_jobs)
    run_jobs = staticmethod(run_jobs)
    arun_jobs = staticmethod(arun_jobs)
    drain = staticmethod(drain)
    adrain = staticmethod(adrain)
    perform = staticmethod(perform)
    aperform = staticmethod(aperform)
    crash_after = staticmethod(crash_after)


class JobsFixture:
    """What the fixture `django_jobs` gives a test; each method is the function of that name."""

    assert_enqueued = staticmethod(assert_enqueued)
    assert_not_enqueued = staticmethod(assert_not_enqueued)
    assert_num_enqueued = staticmethod(assert_num_enqueued)
    assert_idempotent = staticmethod(assert_idempotent)
    enqueued_jobs = staticmethod(enqueued_jobs)
    run = staticmethod(run_jobs)
    arun = staticmethod(arun_jobs)
    drain = staticmethod(drain)
    adrain = staticmethod(adrain)
    perform = staticmethod(perform)
    aperform = staticmethod(aperform)
    crash_after = staticmethod(crash_after)
    mode = staticmethod(jobs_mode)
    live_worker = staticmethod(live_worker)

    @property
    def enqueued(self) -> list[Job]:
        """The jobs that wait to run, the oldest first."""
        return enqueued_jobs()
