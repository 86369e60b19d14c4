"""Decide: JSON text -> values, or undecodable with the path. Calls none of the classes it imports but dataclasses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from django_jobs.codec.classes import imported
from django_jobs.codec.format import Json, ModelRef, looks_tagged
from django_jobs.codec.refusals import TOO_DEEP, Refusal, check_depth, key_step
from django_jobs.codec.texts import READERS, float_of_text
from django_jobs.exceptions import UndecodableValue

Resolve: TypeAlias = Callable[[ModelRef], object]
"""Turns a ModelRef back into what it stands for."""


def decode(text: str, *, path: str = "value", resolve: Resolve | None = None) -> object:
    """Give back the value that `encode` made `text` of.

    Without `resolve` a model instance comes back as its ModelRef; what `resolve` raises passes through. Raises
    UndecodableValue, with the path of the part, for everything that isn't the codec's.
    """
    return _value_of(_decoded, text, path, resolve)


def decode_arguments(
    args_text: str, kwargs_text: str, *, resolve: Resolve | None = None
) -> tuple[list[object], dict[str, object]]:
    """Give back the arguments that `encode_arguments` made the texts of; raises what `decode` raises."""
    args = _value_of(_decoded_items, args_text, "args", resolve)
    return args, {} if kwargs_text == "{}" else _value_of(_decoded_mapping, kwargs_text, "kwargs", resolve)


_T = TypeVar("_T")


def _value_of(decoder: Callable[[Any, int, Resolve | None], _T], text: str, root: str, resolve: Resolve | None) -> _T:
    try:
        node = _load(text)
    except RecursionError as error:
        raise UndecodableValue(root, TOO_DEEP) from error
    except ValueError as error:
        raise UndecodableValue(root, f"not the JSON of this codec: {error}") from error
    try:
        return decoder(node, 0, resolve)
    except Refusal as refusal:
        raise UndecodableValue(refusal.path_from(root), refusal.problem) from refusal.__cause__


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_decoder = json.JSONDecoder(parse_float=float_of_text, parse_constant=_no_constant)


def _load(text: str) -> Any:
    """Read JSON. Around what we write is no white space, and to look for some takes longer than to read the rest."""
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    return value if end == len(text) else _decoder.decode(text)


def _decoded(node: Json, depth: int, resolve: Resolve | None) -> object:
    if type(node) is list:
        return _decoded_items(node, depth, resolve)
    if type(node) is dict:
        return _decoded_tag(node, depth, resolve) if looks_tagged(node) else _decoded_mapping(node, depth, resolve)
    return node


def _decoded_items(node: Json, depth: int, resolve: Resolve | None) -> list[Any]:
    if type(node) is not list:
        raise Refusal("a JSON list is needed here")
    depth += 1
    check_depth(depth)
    decoded: list[object] = []
    try:
        for item in node:
            decoded.append(_decoded(item, depth, resolve))  # noqa: PERF401 - a refusal asks how many there are
    except Refusal as refusal:
        refusal.steps.append(f"[{len(decoded)}]")
        raise
    return decoded


def _decoded_mapping(node: Json, depth: int, resolve: Resolve | None) -> dict[str, Any]:
    """Decode an object whose keys mean nothing but themselves."""
    if type(node) is not dict:
        raise Refusal("a JSON object is needed here")
    depth += 1
    check_depth(depth)
    decoded: dict[str, object] = {}
    key = ""
    try:
        for key, item in node.items():
            decoded[key] = _decoded(item, depth, resolve)
    except Refusal as refusal:
        refusal.steps.append(key_step(key))
        raise
    return decoded


def _decoded_tag(node: dict[str, Json], depth: int, resolve: Resolve | None) -> object:
    [(tag, body)] = node.items()
    read = _reader_of(tag)
    if read is not None:
        if type(body) is not str:
            raise Refusal(f"{tag} needs text")
        return _built(tag, read, body)
    branch = _TAGGED.get(tag)
    if branch is None:
        raise Refusal(f"the tag {tag[:80]} is not known; a newer version may have written it")
    return branch(body, depth + 1, resolve)


_reader_of = READERS.get
"""Bound once, because Python calls a method of an imported name more slowly than one of a name of the module."""


def _built(tag: str, build: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
    try:
        return build(*args, **kwargs)
    except Exception as error:
        raise Refusal(f"{tag} cannot be read: {_words(error)}") from error


def _words(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception that can't be shown is named all the same
        return type(error).__name__


# -- values around others


def _decoded_tuple(body: Json, depth: int, resolve: Resolve | None) -> object:
    return tuple(_decoded_items(body, depth, resolve))


def _decoded_set(body: Json, depth: int, resolve: Resolve | None) -> object:
    return _built("$set", set, _decoded_items(body, depth, resolve))


def _decoded_frozenset(body: Json, depth: int, resolve: Resolve | None) -> object:
    return _built("$frozenset", frozenset, _decoded_items(body, depth, resolve))


def _decoded_model(body: Json, depth: int, resolve: Resolve | None) -> object:
    parts = _decoded_mapping(body, depth, resolve)
    if parts.keys() != {"label", "pk", "alias"} or type(parts["label"]) is not str or type(parts["alias"]) is not str:
        raise Refusal("$model needs a label, a pk and an alias")
    model = ModelRef(**parts)
    return model if resolve is None else resolve(model)


def _decoded_dataclass(body: Json, depth: int, resolve: Resolve | None) -> object:
    match body:
        case [str(path), dict(fields)]:
            kind = _built("$dataclass", _imported_dataclass, path)
            return _built("$dataclass", kind, **_decoded_mapping(fields, depth + 1, resolve))
        case _:
            raise Refusal("$dataclass needs a list of a class path and an object of fields")


def _imported_dataclass(path: str) -> type:
    kind = imported(path)
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{path} is not a dataclass")
    return kind


# -- the tables

_TAGGED: dict[str, Callable[[Json, int, Resolve | None], object]] = {
    "$tuple": _decoded_tuple,
    "$set": _decoded_set,
    "$frozenset": _decoded_frozenset,
    "$dict": _decoded_mapping,
    "$dataclass": _decoded_dataclass,
    "$model": _decoded_model,
}
"""How a list or an object under a tag is read."""

TAGS = frozenset(READERS) | frozenset(_TAGGED)
"""Every tag of the format."""
