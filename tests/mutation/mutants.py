"""The mutants of a store: which constants hold its SQL, and what whole statements come of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import stores
from django_jobs.stores import postgresql, pushed, scheduled, sqlite, statements, store_for
from django_jobs.stores.base import Store
from tests.mutation.splitter import Mutant, mutants_of

DIALECTS: dict[str, ModuleType] = {"postgresql": postgresql, "sqlite": sqlite}

PARTS = frozenset({"WALK", "EVERY_QUEUE", "NAMED_QUEUES", "NOT_ALONE", "SOME_NAMES", "PICKED", "APPEND", "IMPATIENT"})
"""Constants that are parts of statements, filled in when these are put together."""

WITHIN = frozenset({"WALK", "HELD_COLUMNS"})
"""Constants whose text stands in other constants already, and is mutated there."""


@dataclass(frozen=True)
class Site:
    """A mutant, and the constant that it is made from."""

    module: ModuleType
    constant: str
    mutant: Mutant

    @property
    def label(self) -> str:
        return f"{self.constant}: {self.mutant.label}"

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the store run with the mistake in it."""
        right: str = getattr(self.module, self.constant)
        setattr(self.module, self.constant, self.mutant.of(right))
        forget()
        try:
            yield
        finally:
            setattr(self.module, self.constant, right)
            forget()


def forget() -> None:
    """Drop the stores, which have filled in the statements they ran."""
    stores._store.cache_clear()


def sites(vendor: str) -> list[Site]:
    """Find all mutants that change a statement of this database."""
    found = [
        Site(module, name, mutant)
        for module in (statements, pushed, scheduled, DIALECTS[vendor])
        for name, text in constants(module)
        for mutant in mutants_of(text)
    ]
    right = texts()
    return [site for site in found if changed(site, right)]


def constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Give the constants of a module that hold SQL."""
    for name, value in vars(module).items():
        is_public = name.isupper() and name[0] != "_" and name not in WITHIN
        if is_public and isinstance(value, str) and re.search(r"\b(select|insert|update|case|and)\b", value):
            yield name, value


def changed(site: Site, right: dict[str, str]) -> dict[str, str]:
    """Give the statements that are others with the mistake in them, by their names."""
    with site.in_place():
        return {name: text for name, text in texts().items() if text != right[name]}


def texts() -> dict[str, str]:
    """Give every statement of the store as it goes to the database."""
    store = store_for("default")
    vendor = connections["default"].vendor
    whole = {
        name: text
        for module in (statements, pushed, scheduled, DIALECTS[vendor])
        for name, text in constants(module)
        if name not in PARTS and name not in ("CLAIM", "NEXT_DUE")
    }
    for flags in product((False, True), repeat=3):
        whole[f"CLAIM {flags}"] = store._composed_claim(*flags)
        whole[f"NEXT_DUE {flags}"] = store._composed_next_due(*flags)
    return {name: filled(store, text) for name, text in whole.items()}


def filled(store: Store, text: str) -> str:
    """Give a statement as it goes to the database, where the clock isn't frozen."""
    return " ".join(store._filled(text, frozen=False).split())


def explain(connection: BaseDatabaseWrapper, text: str) -> None:
    """Have the database read a statement without running it. Raises its error where it can't."""
    values: dict[str, Any] = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
    with connection.cursor() as cursor:
        cursor.execute(f"explain {text}", values)
