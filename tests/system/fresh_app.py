"""An app in a folder of the test's own, whose code changes while workers run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from django_jobs import enqueue, named
from django_jobs.models import Job


class FreshApp:
    """It has one performer, that says which edition of the code it is."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.marks = folder / "editions"
        self.jobs = folder / "fresh" / "jobs.py"
        self.jobs.parent.mkdir()
        (self.jobs.parent / "__init__.py").touch()
        monkeypatch.setenv("LIVE_APPS", '["fresh"]')
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        # Editions may follow each other within a second, and be of the same length.
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def write(self, edition: str) -> None:
        self.jobs.write_text(
            "from django_jobs import job\nfrom tests.yard.jobs import append_line\n\n\n"
            f"@job('fresh.say')\ndef say(path):\n    append_line(path, {edition!r})\n"
        )

    def write_nonsense(self) -> None:
        self.jobs.write_text("def say(path)\n")

    def say(self) -> Job:
        """Queue it."""
        [queued] = enqueue([named("fresh.say", str(self.marks))])
        return Job.objects.get(pk=queued.id)


@pytest.fixture
def fresh_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FreshApp:
    app = FreshApp(tmp_path, monkeypatch)
    app.write("first")
    return app
