from __future__ import annotations

from pathlib import Path

import pytest

from django_jobs import conf
from django_jobs.worker.reloading import Reloading, Seen, Stamp, difference, look
from tests.yard import jobs


def seen(**files: int) -> Seen:
    """Files, each written and placed at that moment."""
    return {f"/app/{name}.py": Stamp(written=moment, size=10, placed=moment) for name, moment in files.items()}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (seen(a=1, b=2), seen(a=1, b=2), None),
        (seen(a=1, b=2), seen(a=3, b=2), "/app/a.py"),
        (seen(a=1, b=2), seen(b=2), "/app/a.py"),
        (seen(a=1, b=2), seen(a=1, b=2, c=3), "/app/c.py"),
        ({}, {}, None),
    ],
    ids=["nothing", "written", "deleted", "made", "no files"],
)
def test_it_names_a_file_that_is_not_the_same(before: Seen, after: Seen, changed: str | None) -> None:
    assert difference(before, after) == changed


def test_an_edition_of_the_same_moment_and_another_size_is_another() -> None:
    before = {"/app/a.py": Stamp(written=1, size=10, placed=1)}
    assert difference(before, {"/app/a.py": Stamp(written=1, size=11, placed=1)}) == "/app/a.py"


def test_an_old_file_that_came_into_sight_since_its_module_was_loaded_is_no_news() -> None:
    assert difference(seen(a=5), seen(a=5, loaded_late=3)) is None


def test_files_are_looked_at_once_a_second() -> None:
    looks = iter([seen(a=1), seen(a=1), seen(a=2)])
    reloading = Reloading(lambda: next(looks))
    assert reloading.changed(100.0) is None
    assert reloading.changed(100.9) is None
    assert reloading.changed(101.0) == "/app/a.py"


def test_the_code_of_the_project_is_seen_and_that_of_installed_packages_is_not() -> None:
    paths = look().keys()
    # Loaded by this process; in the folder of an app and loaded by nobody; and neither.
    assert jobs.__file__ in paths
    assert conf.__file__ in paths
    assert str(Path(jobs.__file__).parent.parent / "shop" / "views.py") in paths
    assert pytest.__file__ not in paths
    assert not any(Path(path).name == "argparse.py" for path in paths)
