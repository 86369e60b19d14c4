"""docs/testing.md: each of its Python blocks is a file, and all of them together are a project whose tests pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.testing.test_pytest_plugin import SETTINGS, outcomes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()


def test_every_snippet_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == 8
    for name, text in blocks:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "plain_settings.py").write_text(SETTINGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nDJANGO_SETTINGS_MODULE = plain_settings\n")
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "pytest_django.plugin",
            "-p",
            "django_jobs.pytest_plugin",
            "-W",
            "error",
        ],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcomes(done) == {"passed": 17}, done.stdout + done.stderr


def test_the_failure_that_it_shows_is_what_is_told(tmp_path: Path) -> None:
    [shown] = re.findall(r"^```text\n(Not enqueued.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [line.partition(":")[0] for line in shown.splitlines()] == [
        "Not enqueued", "Same job, other arguments", "Same job and arguments, but", "Enqueued at all",
    ]  # fmt: skip


def test_the_table_of_differences_names_what_o34_asks_for() -> None:
    [table] = re.findall(r"^\| \| by a worker \| inline \|\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    for word in ("raises", "another attempt", "timeout", "cancel", "transaction"):
        assert word in table
