"""Decide: values -> JSON text, or refused with the path. Changes no object of the caller's, and decodes nothing.

Dispatches on the exact type and goes down without a path.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from django_jobs.codec.classes import class_path, init_fields, name_of
from django_jobs.codec.format import Json, ModelRef, looks_tagged
from django_jobs.codec.refusals import TOO_DEEP, Refusal, check_depth, key_step
from django_jobs.codec.texts import WRITERS, enum_to_text
from django_jobs.exceptions import ArgumentsTooLarge, UnencodableValue

MAX_DIGITS = 4_300
"""The longest whole number, in decimal digits: what Python turns into text and back by default."""

Reference: TypeAlias = Callable[[object], ModelRef | None]
"""Turns a value of a type that the codec doesn't know into a ModelRef; None where it doesn't know it either."""


def encode(value: object, *, path: str = "value", limit: int | None = None, reference: Reference | None = None) -> str:
    """Encode one value as compact JSON text.

    `path` is what the value is called in messages, `limit` counts UTF-8 bytes. A TypeError that `reference` raises is a
    refusal. Raises UnencodableValue with the path of the part that can't be stored, and ArgumentsTooLarge.
    """
    text = _text_of(_encoded, value, path, reference)
    _check_size(path, _size(text), limit)
    return text


def encode_arguments(
    args: tuple[object, ...], kwargs: Mapping[str, object], *, limit: int | None, reference: Reference | None = None
) -> tuple[str, str]:
    """Encode the arguments of a call as the JSON text of a list and that of an object.

    `limit` counts the UTF-8 bytes of both. Raises what `encode` raises; paths begin with `args[0]` or `kwargs.name`.
    """
    args_text = encode_plain(args) or _text_of(_encoded_items, args, "args", reference)
    kwargs_text = (_plain_mapping(kwargs) if kwargs else "{}") or _text_of(
        _encoded_mapping, kwargs, "kwargs", reference
    )
    # No character takes more than four bytes.
    if limit is not None and 4 * (len(args_text) + len(kwargs_text)) > limit:
        _check_size("the arguments", _size(args_text) + _size(kwargs_text), limit)
    return args_text, kwargs_text


# -- what nearly all arguments are: the same text, straight away


def encode_plain(values: tuple[object, ...]) -> str | None:
    """Encode short whole numbers, ASCII text, truths and None as the text of a list; None where one is another value.

    It runs no code of the values' own, and counts no bytes: as many as characters.
    """
    texts: list[str] = []
    for value in values:
        write = _PLAIN.get(type(value))
        if write is None or (text := write(value)) is None:
            return None
        texts.append(text)
    return f"[{','.join(texts)}]"


def _plain_mapping(values: Mapping[str, object]) -> str | None:
    """Write a mapping of such texts to such values; None for others."""
    texts: list[str] = []
    for key, value in values.items():
        write = _PLAIN.get(type(value))
        if type(key) is not str or write is None:
            return None
        if (name := _plain_text(key)) is None or (text := write(value)) is None:
            return None
        texts.append(f"{name}:{text}")
    return f"{{{','.join(texts)}}}"


def _plain_int(value: int) -> str | None:
    return str(value) if value.bit_length() <= 64 else None


def _plain_text(value: str) -> str | None:
    return encode_basestring(value) if value.isascii() and "\0" not in value else None


_PLAIN: dict[type, Callable[[Any], str | None]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: _plain_int,
    str: _plain_text,
}


_Encoder: TypeAlias = Callable[[Any, int, Reference | None], Json]
"""Encodes a value that stands below so many open lists and mappings."""

_dump = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def _text_of(encoder: _Encoder, value: object, root: str, reference: Reference | None) -> str:
    try:
        return _dump(encoder(value, 0, reference))
    except Refusal as refusal:
        raise UnencodableValue(refusal.path_from(root), refusal.problem) from refusal.__cause__
    except RecursionError as error:  # The caller's own stack was nearly full.
        raise UnencodableValue(root, TOO_DEEP) from error


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_size(what: str, size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise ArgumentsTooLarge(
            f"{what}: {size:,} bytes encoded, and the limit is {limit:,} (setting MAX_ARGS_BYTES); "
            "store big data elsewhere and pass its key"
        )


def _encoded(value: object, depth: int, reference: Reference | None) -> Json:
    kind = type(value)
    leaf = _LEAVES.get(kind)
    if leaf is not None:
        return leaf(value)
    branch = _BRANCHES.get(kind)
    if branch is not None:
        return branch(value, depth, reference)
    return _encoded_by_class(value, depth, reference)


# -- plain values

_NUMBER_TOO_LONG = 10**MAX_DIGITS


def _as_is(value: Json) -> Json:
    return value


def _encoded_int(value: int) -> Json:
    if value.bit_length() > 64:
        _check_digits(value)
    return value


def _check_digits(value: int) -> None:
    too_long = abs(value) >= _NUMBER_TOO_LONG
    try:
        str(value)
    except ValueError:  # The process has a lower limit of its own.
        too_long = True
    if too_long:
        raise Refusal(f"a whole number of more than {MAX_DIGITS} digits cannot be stored; pass it as bytes")


def _encoded_float(value: float) -> Json:
    """Let a float stand plainly if its repr has no exponent and isn't -0.0: jsonb would rewrite those."""
    if 1e-4 <= abs(value) < 1e16:
        return value
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise Refusal(f"{name} cannot be stored; pass None or text")
    text = repr(value)
    return value if text == "0.0" else {"$float": text}


def _encoded_text(value: str) -> str:
    if "\0" in value:
        raise Refusal("text with a NUL character cannot be stored; remove it, or pass bytes")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refusal("text with a lone surrogate cannot be stored; repair it, or pass bytes") from None
    return value


# -- values around others


def _encoded_items(values: Collection[object], depth: int, reference: Reference | None) -> list[Json]:
    depth += 1
    check_depth(depth)
    encoded: list[Json] = []
    try:
        for value in values:
            encoded.append(_encoded(value, depth, reference))  # noqa: PERF401 - a refusal asks how many there are
    except Refusal as refusal:
        refusal.steps.append("{…}" if isinstance(values, (set, frozenset)) else f"[{len(encoded)}]")
        raise
    return encoded


def _encoded_mapping(values: Mapping[str, object], depth: int, reference: Reference | None) -> dict[str, Json]:
    """Encode a mapping whose keys mean nothing but themselves."""
    depth += 1
    check_depth(depth)
    for key in values:
        _check_key(key)
    encoded: dict[str, Json] = {}
    key = ""
    try:
        for key, value in values.items():
            encoded[key] = _encoded(value, depth, reference)
    except Refusal as refusal:
        refusal.steps.append(key_step(key))
        raise
    return encoded


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise Refusal(f"a key of type {name_of(type(key))} cannot be stored; keys are text: pass str(key), or pairs")
    try:
        _encoded_text(key)
    except Refusal as refusal:
        raise Refusal(f"a key that is {refusal.problem}") from None


def _encoded_dict(value: dict[str, object], depth: int, reference: Reference | None) -> Json:
    if looks_tagged(value):
        return {"$dict": _encoded_mapping(value, depth + 1, reference)}
    return _encoded_mapping(value, depth, reference)


def _encoded_tuple(value: tuple[object, ...], depth: int, reference: Reference | None) -> Json:
    return {"$tuple": _encoded_items(value, depth + 1, reference)}


def _encoded_set(value: set[object], depth: int, reference: Reference | None) -> Json:
    return {"$set": _encoded_members(value, depth + 1, reference)}


def _encoded_frozenset(value: frozenset[object], depth: int, reference: Reference | None) -> Json:
    return {"$frozenset": _encoded_members(value, depth + 1, reference)}


def _encoded_members(values: Any, depth: int, reference: Reference | None) -> Json:
    """Encode the members of a set in the order of their texts, so that equal sets have equal texts."""
    return sorted(_encoded_items(values, depth, reference), key=_dump_sorted)


_dump_sorted = json.JSONEncoder(check_circular=False, sort_keys=True).encode


def _encoded_model(value: ModelRef, depth: int, reference: Reference | None) -> Json:
    if type(value.label) is not str or type(value.alias) is not str:
        raise Refusal("a ModelRef needs text as its label and alias")
    return {
        "$model": _encoded_mapping({"label": value.label, "pk": value.pk, "alias": value.alias}, depth + 1, reference)
    }


# -- values known by their class


def _encoded_by_class(value: object, depth: int, reference: Reference | None) -> Json:
    kind = type(value)
    if issubclass(kind, Enum):
        return {"$enum": _encoded_text(enum_to_text(value))}
    if "__dataclass_fields__" in kind.__dict__ and _stored_base(kind) is None:
        return _encoded_dataclass(value, depth, reference)
    model = _referenced(value, reference)
    if model is not None:
        return _encoded_model(model, depth, reference)
    raise Refusal(_unknown(kind))


def _encoded_dataclass(value: object, depth: int, reference: Reference | None) -> Json:
    kind: Any = type(value)
    path = _encoded_text(class_path(kind))
    fields = {name: _field(value, name) for name in init_fields(kind)}
    return {"$dataclass": [path, _encoded_mapping(fields, depth + 2, reference)]}


def _field(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except Exception as error:
        refusal = Refusal(f"cannot be read ({type(error).__name__}); set it before the job is queued")
        refusal.steps.append(key_step(name))
        raise refusal from error


def _referenced(value: object, reference: Reference | None) -> ModelRef | None:
    if reference is None:
        return None
    try:
        return reference(value)
    except TypeError as error:
        raise Refusal(str(getattr(error, "problem", error))) from error


def _unknown(kind: type) -> str:
    base = _stored_base(kind)
    if base is not None:
        return (
            f"{name_of(kind)} is a subclass of {name_of(base)}, and only exact types are stored; "
            f"pass a plain {name_of(base)}"
        )
    if dataclasses.is_dataclass(kind):
        return f"{name_of(kind)} is not itself a dataclass, only its base is; decorate it with @dataclass"
    return (
        f"{name_of(kind)} cannot be stored; "
        "pass plain values, such as str(value) or list(value), or a key to fetch it by"
    )


def _stored_base(kind: type) -> type | None:
    return next((base for base in kind.__mro__[1:] if base in _LEAVES or base in _BRANCHES), None)


# -- the tables


def _tagged(tag: str, write: Callable[[Any], str]) -> Callable[[Any], Json]:
    return lambda value: {tag: _encoded_text(write(value))}


_LEAVES: dict[type, Callable[[Any], Json]] = {
    type(None): _as_is,
    bool: _as_is,
    int: _encoded_int,
    float: _encoded_float,
    str: _encoded_text,
    **{kind: _tagged(tag, write) for kind, (tag, write) in WRITERS.items()},
}
"""How values that hold no others are encoded, by exact type."""

_BRANCHES: dict[type, _Encoder] = {
    list: _encoded_items,
    dict: _encoded_dict,
    tuple: _encoded_tuple,
    set: _encoded_set,
    frozenset: _encoded_frozenset,
    ModelRef: _encoded_model,
}
"""How values around others are encoded, by exact type. Enum members and dataclasses are known by their class."""
