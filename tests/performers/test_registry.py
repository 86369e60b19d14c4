from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module, reload
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import get_performer, registered
from django_jobs.exceptions import JobsError, UnknownPerformer
from django_jobs.performers import AnyPerformer, clashes, find_performer, forget, known_names, undiscovered
from tests.declaring import declared
from tests.shop.jobs import greet
from tests.warehouse.jobs.deep.freeze import freeze

Declare = Callable[..., AnyPerformer]


def send() -> None: ...


# -- looking up


def test_registered_lists_all_names_sorted_and_no_aliases() -> None:
    names = registered()
    assert names == sorted(names)
    assert {"tests.shop.greet", "tests.warehouse.pack", "warehouse.freeze"} <= set(names)
    assert "warehouse.chill" not in names


def test_known_names_has_aliases_too() -> None:
    assert known_names() == tuple(sorted([*registered(), "warehouse.chill"]))


def test_a_performer_is_found_by_name_and_by_alias() -> None:
    assert get_performer("tests.shop.greet") is greet
    assert get_performer("warehouse.freeze") is get_performer("warehouse.chill") is freeze
    assert find_performer("warehouse.chill") is freeze


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    message = "no performer is named tests.shop.great; did you mean tests.shop.greet?"
    with pytest.raises(UnknownPerformer, match=f"^{re.escape(message)}$"):
        get_performer("tests.shop.great")
    assert find_performer("tests.shop.great") is None


def test_an_unknown_name_far_from_all_is_an_error_without_a_guess() -> None:
    with pytest.raises(UnknownPerformer, match=r"^no performer is named qqqqqq$") as caught:
        get_performer("qqqqqq")
    assert isinstance(caught.value, JobsError)
    assert isinstance(caught.value, LookupError)


def test_a_forgotten_performer_is_no_longer_known() -> None:
    with declared(send, name="tests.gone", aliases=["tests.long_gone"]):
        assert find_performer("tests.gone") is find_performer("tests.long_gone") is not None
    assert find_performer("tests.gone") is find_performer("tests.long_gone") is None
    assert "tests.gone" not in registered()


# -- clashes


def other() -> None: ...


def test_the_suite_itself_has_no_clashes() -> None:
    assert clashes() == []


def test_two_performers_of_one_name_clash_and_the_first_keeps_it() -> None:
    with declared(send, name="tests.same") as first, declared(other, name="tests.same") as second:
        assert clashes() == [("tests.same", first, second)]
        assert get_performer("tests.same") is first
    assert clashes() == []


def test_an_alias_clashes_with_a_name_and_with_an_alias() -> None:
    with (
        declared(send, name="tests.first", aliases=["tests.old"]) as first,
        declared(other, name="tests.second", aliases=["tests.first", "tests.old"]) as second,
    ):
        assert clashes() == [("tests.first", first, second), ("tests.old", first, second)]
        assert get_performer("tests.second") is second


def test_an_alias_equal_to_the_own_name_is_no_clash(declare: Declare) -> None:
    declare(send, name="tests.same", aliases=["tests.same", "tests.same"])
    assert clashes() == []


def test_two_functions_of_one_name_in_one_module_clash_too() -> None:
    def copied() -> None: ...

    def make_it_again() -> Callable[[], None]:
        def copied() -> None: ...

        return copied

    with declared(copied) as first, declared(make_it_again()) as second:
        assert clashes() == [("tests.nowhere.copied", first, second)]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import a module that can be changed and imported again."""
    (tmp_path / "changing.py").write_text("from django_jobs import job\n\n@job\ndef send(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    changing = import_module("changing")
    yield changing
    forget(changing.send)
    del sys.modules["changing"]


def test_a_module_that_is_imported_again_replaces_its_performers(module: ModuleType) -> None:
    before = module.send
    again = reload(module)
    assert again.send is not before
    assert get_performer("changing.send") is again.send
    assert clashes() == []


# -- discovery


def test_modules_and_packages_called_jobs_are_imported_at_start_with_their_submodules() -> None:
    assert [name for name in registered() if "warehouse" in name] == [
        "tests.warehouse.count_stock",
        "tests.warehouse.labels.print_label",
        "tests.warehouse.pack",
        "warehouse.freeze",
    ]


def test_main_and_test_modules_within_a_jobs_package_are_not_imported() -> None:
    loaded = {name for name in sys.modules if name.startswith("tests.warehouse.jobs.")}
    assert loaded == {
        "tests.warehouse.jobs.deep",
        "tests.warehouse.jobs.deep.freeze",
        "tests.warehouse.jobs.parcels",
    }


@pytest.fixture
def make_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Make an app of the given modules, and settings that have it installed."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, **modules: str) -> Any:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for module, text in modules.items():
            (tmp_path / name / f"{module}.py").write_text(dedent(text))
        return override_settings(INSTALLED_APPS=["django_jobs", name])

    yield make
    for name in [name for name in sys.modules if name.split(".")[0].startswith("made_")]:
        del sys.modules[name]


def test_other_names_than_jobs_can_be_discovered(make_app: Callable[..., Any]) -> None:
    installed = make_app("made_for_tasks", tasks="from django_jobs import job\n\n@job\ndef send(): ...\n", jobs="1 / 0")
    with override_settings(DJANGO_JOBS={"AUTODISCOVER": ["tasks"]}), installed:
        performer = get_performer("made_for_tasks.tasks.send")
    forget(performer)


def test_what_a_jobs_module_raises_is_raised_at_start(make_app: Callable[..., Any]) -> None:
    installed = make_app("made_broken", jobs="raise RuntimeError('no such luck')")
    with pytest.raises(RuntimeError, match=r"^no such luck$"):
        installed.enable()


def test_a_missing_import_of_a_jobs_module_is_not_taken_for_a_missing_jobs_module(make_app: Callable[..., Any]) -> None:
    installed = make_app("made_incomplete", jobs="import no_such_library")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        installed.enable()


def test_an_app_without_jobs_is_fine(make_app: Callable[..., Any]) -> None:
    with make_app("made_idle", views=""):
        pass


# -- undiscovered


def test_all_performers_of_the_suite_are_discovered() -> None:
    assert undiscovered() == []


def test_a_performer_of_a_module_imported_later_is_undiscovered() -> None:
    with declared(send, module="shop.helpers") as performer:
        assert undiscovered() == [performer]
    assert undiscovered() == []


def test_a_performer_with_aliases_is_undiscovered_once() -> None:
    with declared(send, module="shop.helpers", aliases=["a", "b"]) as performer:
        assert undiscovered() == [performer]


def test_a_performer_of_a_module_that_a_jobs_module_imports_is_discovered() -> None:
    assert get_performer("tests.warehouse.labels.print_label").function.__module__ == "tests.warehouse.labels"


@pytest.mark.parametrize("module", ["shop.tests.mail", "shop.test_mail", "shop.tests", "conftest"])
def test_performers_of_test_modules_are_left_out(module: str) -> None:
    with declared(send, module=module):
        assert undiscovered() == []


def test_a_module_imported_before_the_apps_are_ready_is_found_by_workers_too() -> None:
    program = """
        import django
        from django.conf import settings

        settings.configure(INSTALLED_APPS=["django_jobs", "tests.warehouse"])
        import tests.warehouse.labels  # as a model might

        django.setup()
        from django_jobs.performers import undiscovered, registered

        print(len(registered()), undiscovered())
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "4 []\n"
