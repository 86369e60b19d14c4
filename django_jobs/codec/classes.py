"""Decide: classes by the paths from which a worker imports them, and how dataclasses are rebuilt. Makes no instance."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from functools import lru_cache
from typing import Any

from django_jobs.codec.refusals import Refusal


def class_path(kind: type) -> str:
    """Give "module:QualName", by which a worker will import the class. Whether that text can be stored isn't asked."""
    module, qualname = kind.__module__, kind.__qualname__
    if module == "__main__" or _found(sys.modules.get(module), qualname) is not kind:
        raise Refusal(
            f"{name_of(kind)} cannot be imported by that name; define it at the top of a module, or pass plain values"
        )
    return f"{module}:{qualname}"


def imported(path: str) -> type:
    """Import the class at a path that `class_path` gave."""
    module, _, qualname = path.partition(":")
    found = _found(importlib.import_module(module), qualname)
    if not isinstance(found, type):
        raise TypeError(f"there is no class {path}")
    return found


def _found(module: object, qualname: str) -> object:
    """Walk from a module through nested classes, and nothing else; None where the way ends."""
    first, *nested = qualname.split(".")
    found: object = getattr(module, first, None)
    for name in nested:
        found = getattr(found, name, None) if isinstance(found, type) else None
    return found


@lru_cache(maxsize=1024)
def init_fields(kind: type) -> tuple[str, ...]:
    """Name the fields that the constructor takes, if it takes exactly those: the value is rebuilt from them."""
    names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
    if set(names) != _parameters(kind):
        raise Refusal(
            f"{name_of(kind)} cannot be stored, because its constructor takes other arguments than its fields "
            "(InitVar, or an __init__ of its own); pass the values it is made of"
        )
    return names


def _parameters(kind: Any) -> set[str]:
    # Read from the code, because inspect.signature may evaluate annotations that only type checkers can.
    code = getattr(kind.__init__, "__code__", None)
    return set(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]) if code else set()


def name_of(kind: type) -> str:
    """Name a class in messages."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
