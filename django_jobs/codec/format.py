"""Decide: what encoding and decoding agree on. Says how a value looks, turns none into another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What Python's json module reads and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model instance as it is stored: the model's label, the primary key (any value of the codec) and the alias."""

    label: str
    pk: object
    alias: str


def looks_tagged(mapping: Mapping[Any, object]) -> bool:
    """Say whether a mapping has the form of a tag, which plain mappings may have as well."""
    if len(mapping) != 1:
        return False
    (key,) = mapping
    return isinstance(key, str) and key.startswith("$")
