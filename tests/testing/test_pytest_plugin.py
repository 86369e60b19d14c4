"""The plugin for pytest, in a project of its own and a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]

SETTINGS = """
import os
from pathlib import Path
import environ

HERE = Path(__file__).parent
database = environ.Env.db_url_config(os.environ["DATABASE_URL"])
if database["ENGINE"].endswith("sqlite3"):
    database["NAME"], database["TEST"] = str(HERE / "db.sqlite3"), {"NAME": str(HERE / "test.sqlite3")}
else:
    database["TEST"] = {"NAME": f"test_plugin_{os.getpid()}", "TEMPLATE": "template0"}
    database["NAME"] = "postgres"
DATABASES = {"default": database}
INSTALLED_APPS = ["django_jobs", "django.contrib.auth", "django.contrib.contenttypes"]
USE_TZ = True
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
"""

JOBS = """
from django_jobs import job

greeted = []

@job
def greet(name):
    greeted.append(name)

@job
def fail():
    raise LookupError("why")
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run these tests by a pytest that has the plugin, and pytest-django, and nothing else."""
    (folder / "plain_settings.py").write_text(SETTINGS)
    (folder / "shop_jobs.py").write_text(JOBS)
    (folder / "test_it.py").write_text(dedent(tests))
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nDJANGO_SETTINGS_MODULE = plain_settings\n")
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    plugins = ["-p", "pytest_django.plugin", "-p", "django_jobs.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--strict-markers", "-W", "error", *plugins, *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Count what pytest says of its tests in its last line."""
    last = done.stdout.strip().splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?)", last)}


def test_fixtures_and_marker_in_a_project(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import unittest

        import pytest
        from django.test import TestCase
        from django_jobs.testing import JobsFixture, LiveWorker
        from shop_jobs import fail, greet, greeted

        @pytest.fixture(autouse=True)
        def nobody():
            greeted.clear()

        def test_assertions(django_jobs: JobsFixture):
            with django_jobs.assert_enqueued(greet, "Ada"), django_jobs.assert_not_enqueued(fail):
                greet.later(name="Ada")
            django_jobs.assert_enqueued(greet, "Ada")
            django_jobs.assert_num_enqueued(1)
            assert [job.name for job in django_jobs.enqueued] == ["shop_jobs.greet"]
            assert django_jobs.run().succeeded == 1
            assert greeted == ["Ada"]

        def test_errors(django_jobs):
            fail.later()
            with pytest.raises(LookupError, match="why"):
                django_jobs.run()
            fail.later()
            assert django_jobs.drain().retried == 1

        def test_an_assertion_that_fails_names_what_is_near(django_jobs):
            greet.later("Bo")
            django_jobs.assert_enqueued(greet, "Ada")

        @pytest.mark.django_db
        @pytest.mark.jobs(mode="inline")
        def test_marker():
            greet.later("Ada")
            assert greeted == ["Ada"]

        @pytest.fixture
        def customer(db):
            greet.later("fixture")

        @pytest.mark.jobs(mode="inline")
        def test_marker_holds_for_fixtures(customer, django_jobs):
            with django_jobs.mode("database"):
                greet.later("Ada")
            assert greeted == ["fixture"]

        @pytest.mark.django_db
        def test_marker_ends_with_its_test():
            greet.later("Ada")
            assert greeted == []

        @pytest.mark.jobs(mode="inline")
        class TestUnit(TestCase):
            def setUp(self):
                greet.later("set up")

            def test_it(self):
                assert greeted == ["set up"]

        def test_worker(django_jobs_worker: LiveWorker):
            greet.later("Ada")
            django_jobs_worker.wait()
            assert greeted == ["Ada"]

        def test_both(django_jobs, django_jobs_worker):
            greet.later("Ada")
            django_jobs_worker.wait()
            django_jobs.assert_not_enqueued()

        @pytest.mark.jobs(mode="eager")
        def test_wrong_mode(): ...

        @pytest.mark.jobs("inline")
        def test_wrong_marker(): ...
        """,
    )
    assert outcomes(done) == {"passed": 8, "failed": 1, "errors": 2}, done.stdout + done.stderr
    assert "Same job, other arguments: shop_jobs.greet(name='Bo')" in done.stdout
    assert "jobs_mode('eager'): give 'inline' or 'database'" in done.stdout
    assert 'write the marker as @pytest.mark.jobs(mode="inline")' in done.stdout
    # What is shown of a failure ends at the test's own line.
    assert "asserting.py" not in done.stdout


def test_a_run_without_django_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        dedent("""
        import sys

        def test_nothing_of_django_is_loaded():
            assert "django_jobs.pytest_plugin" in sys.modules
            loaded = {name.partition(".")[0] for name in sys.modules}
            assert not loaded & {"django", "asgiref", "psycopg", "cronsim"}
            assert [name for name in sys.modules if name.startswith("django_jobs.")] == ["django_jobs.pytest_plugin"]
        """)
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "django_jobs.pytest_plugin", "-W", "error", str(tmp_path)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcomes(done) == {"passed": 1}, done.stdout + done.stderr


def test_the_marker_is_explained(tmp_path: Path) -> None:
    assert "@pytest.mark.jobs(mode=" in run(tmp_path, "", "--markers").stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"django_jobs": "django_jobs.pytest_plugin"}
