"""Front door: pytest finds fixtures and a marker here. Loaded in every run, it imports nothing of Django."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_jobs.testing import JobsFixture, LiveWorker, jobs_mode

_MODE: pytest.StashKey[jobs_mode] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line(
        "markers",
        'jobs(mode="inline"): have jobs that this test queues run at once; "database" has them wait',
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Enter the mode that the marker names, before any fixture queues a job."""
    marker = item.get_closest_marker("jobs")
    if marker is None:
        return
    if marker.args or set(marker.kwargs) != {"mode"}:
        pytest.fail('write the marker as @pytest.mark.jobs(mode="inline")', pytrace=False)
    from django_jobs.testing import jobs_mode  # noqa: PLC0415 - Django is set up only now

    mode = jobs_mode(marker.kwargs["mode"])
    mode.__enter__()
    item.stash[_MODE] = mode


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Leave it, after the last fixture."""
    mode = item.stash.get(_MODE, None)
    if mode is not None:
        del item.stash[_MODE]
        mode.__exit__(None, None, None)


@pytest.fixture
def django_jobs(db: None) -> JobsFixture:  # noqa: ARG001 - it opens the database
    """Give what `django_jobs.testing` has for tests: `django_jobs.assert_enqueued(…)`, `.run()`, `.drain()` …"""
    from django_jobs.testing import JobsFixture  # noqa: PLC0415 - see above

    return JobsFixture()


@pytest.fixture
def django_jobs_worker(transactional_db: None) -> Iterator[LiveWorker]:  # noqa: ARG001 - as above
    """Have a real worker run what the test commits; `django_jobs_worker.wait()` waits until all is done."""
    from django_jobs.testing import live_worker  # noqa: PLC0415 - see above

    with live_worker() as worker:
        yield worker
