"""Declare: which performers there are, by name, and the modules in which workers find them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import module_has_submodule

from django_jobs.exceptions import UnknownPerformer
from django_jobs.performers.performer import Performer

if TYPE_CHECKING:
    from django.apps import AppConfig

_by_name: dict[str, Performer[..., ..., Any]] = {}
_clashes: list[tuple[str, Performer[..., ..., Any], Performer[..., ..., Any]]] = []
_discovered: set[str] = set()


def registered() -> list[str]:
    """List the names of all performers, sorted, without aliases."""
    return sorted(name for name, performer in _by_name.items() if performer.name == name)


def get_performer(name: str) -> Performer[..., ..., Any]:
    """Give the performer of that name or alias. Raises UnknownPerformer, naming the nearest."""
    performer = find_performer(name)
    if performer is None:
        near = difflib.get_close_matches(name, _by_name, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"no performer is named {name}{hint}"
        raise UnknownPerformer(message)
    return performer


def find_performer(name: str) -> Performer[..., ..., Any] | None:
    """Give the performer of that name or alias, or None."""
    return _by_name.get(name)


def known_names() -> tuple[str, ...]:
    """List all names and aliases that rows may carry, sorted."""
    return tuple(sorted(_by_name))


def clashes() -> list[tuple[str, Performer[..., ..., Any], Performer[..., ..., Any]]]:
    """List names that two performers claim, with both; the first one keeps it."""
    return list(_clashes)


def undiscovered() -> list[Performer[..., ..., Any]]:
    """List performers declared in modules that a worker doesn't import by itself."""
    every = {id(performer): performer for performer in _by_name.values()}
    return [p for p in every.values() if p.function.__module__ not in _discovered]


def forget(performer: Performer[..., ..., Any]) -> None:
    """Take a performer out of the registry again, for tests that declare their own."""
    for name in (performer.name, *performer.aliases):
        if _by_name.get(name) is performer:
            del _by_name[name]
    _clashes[:] = [clash for clash in _clashes if performer not in clash]


def register(performer: Performer[..., ..., Any]) -> None:
    """Enter a performer under its name and aliases; a name that another one holds is noted as a clash."""
    for name in (performer.name, *performer.aliases):
        holder = _by_name.get(name)
        if holder is None or _is_same_function(holder, performer):
            _by_name[name] = performer
        else:
            _clashes.append((name, holder, performer))


def _is_same_function(one: Performer[..., ..., Any], other: Performer[..., ..., Any]) -> bool:
    """Tell whether a module was merely imported again."""
    first, second = one.function, other.function
    return (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)


def discover(names: Iterable[str]) -> None:
    """Import the modules of these names in all installed apps, packages with their submodules."""
    from django.apps import apps  # noqa: PLC0415 - the registry is ready only when this is called

    for app in apps.get_app_configs():
        for name in names:
            _discover_in(app, name)


def _discover_in(app: AppConfig, name: str) -> None:
    if app.module is None or not module_has_submodule(app.module, name):
        return
    module = importlib.import_module(f"{app.name}.{name}")
    _discovered.add(module.__name__)
    for submodule in _submodules(module):
        _discovered.add(importlib.import_module(submodule).__name__)


def _submodules(module: ModuleType) -> list[str]:
    if not hasattr(module, "__path__"):
        return []
    return [found.name for found in pkgutil.walk_packages(module.__path__, prefix=f"{module.__name__}.")]
