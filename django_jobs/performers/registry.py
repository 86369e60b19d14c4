"""Declare: which performers there are, by name, and the modules in which workers find them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Iterable
from typing import Any, TypeAlias

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from django_jobs.exceptions import UnknownPerformer
from django_jobs.performers.performer import Performer

AnyPerformer: TypeAlias = Performer[..., ..., Any]
"""A performer, whatever its signature."""

_by_name: dict[str, AnyPerformer] = {}
_clashes: list[tuple[str, AnyPerformer, AnyPerformer]] = []
_specs: dict[AnyPerformer, object] = {}
_imported_at_start: set[str] = set()


def registered() -> list[str]:
    """List the names of all performers, sorted, without aliases."""
    return sorted(name for name, performer in _by_name.items() if performer.name == name)


def get_performer(name: str) -> AnyPerformer:
    """Give the performer of that name or alias. Raises UnknownPerformer, naming the nearest."""
    performer = find_performer(name)
    if performer is None:
        near = difflib.get_close_matches(name, _by_name, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"no performer is named {name}{hint}"
        raise UnknownPerformer(message)
    return performer


def find_performer(name: str) -> AnyPerformer | None:
    """Give the performer of that name or alias, or None."""
    return _by_name.get(name)


def known_names() -> tuple[str, ...]:
    """List all names and aliases that rows may carry, sorted."""
    return tuple(sorted(_by_name))


def clashes() -> list[tuple[str, AnyPerformer, AnyPerformer]]:
    """List names that two performers claim, with both; the first one keeps it."""
    return list(_clashes)


def undiscovered() -> list[AnyPerformer]:
    """List performers of modules that nothing imported while Django started, so that a worker may not know them.

    Those of test modules are left out: tests declare jobs that only they run.
    """
    every = dict.fromkeys(_by_name.values())
    return [
        performer
        for performer in every
        if (module := performer.function.__module__) not in _imported_at_start and not _is_for_tests(module)
    ]


def register(performer: AnyPerformer) -> None:
    """Enter a performer under its name and aliases; a name that another one holds is noted as a clash."""
    module = performer.function.__module__
    if not apps.ready:
        _imported_at_start.add(module)
    _specs[performer] = getattr(sys.modules.get(module), "__spec__", None)
    for name in (performer.name, *performer.aliases):
        holder = _by_name.get(name)
        if holder is not None and _is_replaced(holder, by=performer):
            forget(holder)
        if (holder := _by_name.setdefault(name, performer)) is not performer:
            _clashes.append((name, holder, performer))


def _is_replaced(holder: AnyPerformer, *, by: AnyPerformer) -> bool:
    """Tell whether the module of `holder` was executed again, which gives it another spec, and gave `by` instead."""
    old, new = holder.function, by.function
    is_same_place = (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
    return is_same_place and _specs[holder] is not _specs[by]


def forget(performer: AnyPerformer) -> None:
    """Take a performer out of the registry again, for tests that declare their own."""
    for name in (performer.name, *performer.aliases):
        if _by_name.get(name) is performer:
            del _by_name[name]
    _clashes[:] = [clash for clash in _clashes if performer not in clash]
    _specs.pop(performer, None)


# -- discovery


def discover(names: Iterable[str]) -> None:
    """Import the modules of these names in all installed apps, packages with their submodules.

    What such a module raises passes through: a worker that doesn't know its jobs must not start.
    """
    for app in apps.get_app_configs():
        for name in names:
            if app.module is not None and module_has_submodule(app.module, name):
                _import_with_submodules(f"{app.name}.{name}")


def _import_with_submodules(name: str) -> None:
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), prefix=f"{name}."):
        last = found.name.rpartition(".")[2]
        if last != "__main__" and not _is_for_tests(last):
            _import_with_submodules(found.name)


def _is_for_tests(module: str) -> bool:
    return any(part in {"tests", "conftest"} or part.startswith("test_") for part in module.split("."))
