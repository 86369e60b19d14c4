"""Front door: the kit as methods of a TestCase, and as what pytest's fixture gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.testing import asserting, live, modes, performing, running

if TYPE_CHECKING:
    from django_jobs.models import Job


class JobsMixin:
    """What `django_jobs.testing` has for tests, as methods: `class SignUpTests(JobsMixin, TestCase)`.

    `assertEnqueued` is the function `assert_enqueued`, and so on: their docstrings say what they take and raise.
    """

    assertEnqueued = staticmethod(asserting.assert_enqueued)  # noqa: N815 - as unittest names its own
    aassertEnqueued = staticmethod(asserting.aassert_enqueued)  # noqa: N815
    assertNotEnqueued = staticmethod(asserting.assert_not_enqueued)  # noqa: N815
    aassertNotEnqueued = staticmethod(asserting.aassert_not_enqueued)  # noqa: N815
    assertNumEnqueued = staticmethod(asserting.assert_num_enqueued)  # noqa: N815
    aassertNumEnqueued = staticmethod(asserting.aassert_num_enqueued)  # noqa: N815
    enqueued_jobs = staticmethod(asserting.enqueued_jobs)
    aenqueued_jobs = staticmethod(asserting.aenqueued_jobs)
    run_jobs = staticmethod(running.run_jobs)
    arun_jobs = staticmethod(running.arun_jobs)
    drain = staticmethod(running.drain)
    adrain = staticmethod(running.adrain)
    perform = staticmethod(performing.perform)
    aperform = staticmethod(performing.aperform)


class JobsFixture:
    """What the fixture `django_jobs` gives a test; each method is the function of that name, `run` is `run_jobs`."""

    assert_enqueued = staticmethod(asserting.assert_enqueued)
    aassert_enqueued = staticmethod(asserting.aassert_enqueued)
    assert_not_enqueued = staticmethod(asserting.assert_not_enqueued)
    aassert_not_enqueued = staticmethod(asserting.aassert_not_enqueued)
    assert_num_enqueued = staticmethod(asserting.assert_num_enqueued)
    aassert_num_enqueued = staticmethod(asserting.aassert_num_enqueued)
    enqueued_jobs = staticmethod(asserting.enqueued_jobs)
    aenqueued_jobs = staticmethod(asserting.aenqueued_jobs)
    run = staticmethod(running.run_jobs)
    arun = staticmethod(running.arun_jobs)
    drain = staticmethod(running.drain)
    adrain = staticmethod(running.adrain)
    perform = staticmethod(performing.perform)
    aperform = staticmethod(performing.aperform)
    mode = staticmethod(modes.jobs_mode)
    live_worker = staticmethod(live.live_worker)

    @property
    def enqueued(self) -> list[Job]:
        """The jobs that wait to run, the oldest first."""
        return asserting.enqueued_jobs()
