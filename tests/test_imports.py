"""What is loaded when: each test in a process of its own, where nothing of Django has been touched yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import django_jobs
from django_jobs import backoff

ROOT = Path(__file__).parents[1]


def said_by(program: str, **environment: str) -> list[str]:
    """Run a program in a fresh process without settings, and give the lines that it printed."""
    inherited = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", dedent(program)],
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_the_package_loads_nothing_of_django() -> None:
    program = """
        import sys
        import django_jobs

        print(sorted(name for name in sys.modules if name.split(".")[0] in {"django", "asgiref", "psycopg", "cronsim"}))
        print(sorted(name for name in sys.modules if name.startswith("django_jobs")))
    """
    assert said_by(program) == ["[]", "['django_jobs']"]


def test_importing_the_plugin_of_pytest_loads_nothing_of_django() -> None:
    program = """
        import sys
        import django_jobs.pytest_plugin

        print(sorted(name for name in sys.modules if name.split(".")[0] in {"django", "asgiref", "psycopg", "cronsim"}))
        print(sorted(name for name in sys.modules if name.startswith("django_jobs")))
    """
    assert said_by(program) == ["[]", "['django_jobs', 'django_jobs.pytest_plugin']"]


def test_importing_job_touches_neither_models_nor_settings() -> None:
    program = """
        import sys
        from django_jobs import job
        from django.apps import apps
        from django.conf import settings

        print(settings.configured, apps.ready)
        print([name for name in sys.modules if name.startswith(("django_jobs.models", "django_jobs.worker"))])
    """
    assert said_by(program) == ["False False", "[]"]


def test_a_module_of_jobs_can_be_imported_where_there_are_no_settings() -> None:
    program = """
        import sys
        from django.conf import settings
        from tests.warehouse.jobs.deep.freeze import freeze
        from tests.warehouse.labels import print_label
        from django_jobs import get_performer, registered

        print(print_label("fragile"), freeze.after("5m"), get_performer("warehouse.chill"))
        print(registered())
        print(settings.configured, "django_jobs.models" in sys.modules)
    """
    assert said_by(program) == [
        "fragile <warehouse.freeze, not queued: call .later(…)> <Performer warehouse.freeze>",
        "['tests.warehouse.count_stock', 'tests.warehouse.labels.print_label', 'warehouse.freeze']",
        "False False",
    ]


def test_a_module_of_jobs_with_schedules_touches_neither_settings_nor_models(tmp_path: Path) -> None:
    jobs = """
        from datetime import timedelta
        from django_jobs import every, job

        @job("shop.report", schedule="0 3 * * *", time_zone="Europe/Paris")
        def report(size=1): ...

        every(timedelta(minutes=10), report, args=(5,), name="often", queue="slow", jitter="5s", overlap="skip")
    """
    (tmp_path / "jobs_of_a_shop.py").write_text(dedent(jobs))
    program = """
        import sys
        from django.conf import settings
        import jobs_of_a_shop
        from django_jobs.performers import declared

        print([one.name for one in declared()], settings.configured, "django_jobs.models" in sys.modules)
    """
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    assert said_by(program, PYTHONPATH=paths) == ["['often', 'shop.report'] False False"]


def test_every_public_name_can_be_imported_where_there_are_no_settings() -> None:
    program = """
        from django_jobs import *
        from django.conf import settings
        import django_jobs

        print(sorted(set(django_jobs.__all__) - set(globals())), settings.configured)
    """
    assert said_by(program) == ["[] False"]


def test_a_settings_module_may_import_public_names(tmp_path: Path) -> None:
    settings = """
        from django_jobs import Retry, backoff, current_attempt, enqueue, job
        import django_jobs

        INSTALLED_APPS = ["django_jobs"]
        DJANGO_JOBS = {"BACKOFF": backoff.fixed(7)}
    """
    (tmp_path / "own_settings.py").write_text(dedent(settings))
    program = """
        import django

        django.setup()
        from django_jobs.conf import settings

        print(settings().backoff)
    """
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    assert said_by(program, DJANGO_SETTINGS_MODULE="own_settings", PYTHONPATH=paths) == ["fixed(delay=7)"]


def test_every_module_can_be_imported_where_django_is_set_up() -> None:
    program = """
        import importlib, pkgutil
        import django

        django.setup()
        import django_jobs

        names = [name for _, name, _ in pkgutil.walk_packages(django_jobs.__path__, "django_jobs.")]
        for name in names:
            if not name.endswith(".__main__"):
                importlib.import_module(name)
        print("django_jobs.models.job" in names, "django_jobs.performers.declare" in names)
    """
    assert said_by(program, DJANGO_SETTINGS_MODULE="tests.settings") == ["True True"]


def test_each_module_below_the_models_can_be_imported_first_and_needs_neither_models_nor_settings() -> None:
    """Each in a child of its own, so that a circle of imports shows whichever module begins it."""
    program = """
        import importlib, os, pkgutil, sys, traceback
        import asgiref.sync, django.core.checks, django.db.models
        from django.conf import settings
        import django_jobs

        ABOVE = {"__main__", "admin", "management", "migrations", "models", "templatetags", "urls", "views"}

        def modules(package, folder):
            for found in pkgutil.iter_modules([folder]):
                if found.name not in ABOVE:
                    yield f"{package}.{found.name}"
                    if found.ispkg:
                        yield from modules(f"{package}.{found.name}", os.path.join(folder, found.name))

        def imports(name):
            child = os.fork()
            if child:
                return os.waitpid(child, 0)[1] == 0
            try:
                importlib.import_module(name)
                assert not settings.configured and "django_jobs.models" not in sys.modules
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)

        names = list(modules("django_jobs", *django_jobs.__path__))
        print("django_jobs.performers.declare" in names, [name for name in names if not imports(name)])
    """
    assert said_by(program) == ["True []"]


def test_the_model_has_one_address_at_which_only_rooms_above_meet_it() -> None:
    program = """
        import importlib, pkgutil, sys
        import django

        django.setup()
        import django_jobs

        for _, name, _ in pkgutil.walk_packages(django_jobs.__path__, "django_jobs."):
            if not name.endswith(".__main__"):
                importlib.import_module(name)
        from django_jobs.models import Job

        ours = [(name, module) for name, module in sys.modules.items() if name.split(".")[0] == "django_jobs"]
        holders = [name for name, module in ours if any(value is Job for value in vars(module).values())]
        rooms = ("models", "admin", "management", "views", "templatetags")
        above = tuple(f"django_jobs.{room}" for room in rooms)
        print([name for name in holders if not name.startswith(above)], hasattr(django_jobs, "Job"))
    """
    assert said_by(program, DJANGO_SETTINGS_MODULE="tests.settings") == ["[] False"]


def test_no_public_name_is_that_of_a_submodule_but_backoff() -> None:
    package = Path(django_jobs.__file__).parent
    submodules = {path.stem for path in package.iterdir()}
    assert set(django_jobs.__all__) & submodules == {"backoff"}
    assert django_jobs.backoff is backoff is sys.modules["django_jobs.backoff"]


def test_dir_lists_every_public_name_once() -> None:
    listed = dir(django_jobs)
    assert set(django_jobs.__all__) <= set(listed)
    assert len(listed) == len(set(listed))
    assert sorted(django_jobs.__all__, key=str.lower) == sorted(set(django_jobs.__all__), key=str.lower)


def test_each_public_name_is_there_and_others_are_an_attribute_error() -> None:
    assert all(getattr(django_jobs, name) is not None for name in django_jobs.__all__)
    assert not hasattr(django_jobs, "Job")
    assert not hasattr(django_jobs, "no_such_name")
