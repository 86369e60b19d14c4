"""Decide: arguments and results <-> JSON text, lossless, or refused with the path. No database, no settings, no clock.

The format is for ever; docs/reference/codec.md is its one table. Plain JSON values stand as they are. Every other value
is an object with a single key, its tag, that begins with "$". What is accepted comes back equal and of the same exact
type, through PostgreSQL's jsonb too, which reorders keys and rewrites numbers.

Encoding dispatches on the exact type and goes down without a path; a refusal gathers its path on the way up.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django_jobs.exceptions import ArgumentsTooLarge, UndecodableValue, UnencodableValue

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What Python's json module reads and writes."""

MAX_DEPTH = 200
"""How deep lists and mappings may be nested, counted in the encoded form; the object around one text doesn't count."""

MAX_DIGITS = 4_300
"""The longest whole number, in decimal digits: what Python turns into text and back by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """A model instance as it is stored: the model's label, the primary key (any value of the codec) and the alias."""

    label: str
    pk: object
    alias: str


Reference: TypeAlias = Callable[[object], ModelRef | None]
"""Turns a value of a type that the codec doesn't know into a ModelRef; None where it doesn't know it either."""

Resolve: TypeAlias = Callable[[ModelRef], object]
"""Turns a ModelRef back into what it stands for."""


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
    args_text = _text_of(_encoded_items, args, "args", reference) if args else "[]"
    kwargs_text = _text_of(_encoded_mapping, kwargs, "kwargs", reference) if kwargs else "{}"
    _check_size("the arguments", _size(args_text) + _size(kwargs_text), limit)
    return args_text, kwargs_text


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
    return args, _value_of(_decoded_mapping, kwargs_text, "kwargs", resolve)


class _Refusal(Exception):
    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def path_from(self, root: str) -> str:
        path = root + "".join(reversed(self.steps))
        return path if len(path) <= 300 else f"{path[:150]}…{path[-149:]}"


_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep, or containing itself; pass something flatter, or a key to it"


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Refusal(_TOO_DEEP)


# Encoding: the roots --------------------------------------------------------------------------------------------------

_Encoder: TypeAlias = Callable[[Any, int, Reference | None], Json]
"""Encodes a value that stands below so many open lists and mappings."""

_dump = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def _text_of(encoder: _Encoder, value: object, root: str, reference: Reference | None) -> str:
    try:
        return _dump(encoder(value, 0, reference))
    except _Refusal as refusal:
        raise UnencodableValue(refusal.path_from(root), refusal.problem) from refusal.__cause__
    except RecursionError as error:  # The caller's own stack was nearly full.
        raise UnencodableValue(root, _TOO_DEEP) from error


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


# Encoding: plain values -----------------------------------------------------------------------------------------------

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
        raise _Refusal(f"a whole number of more than {MAX_DIGITS} digits cannot be stored; pass it as bytes")


def _encoded_float(value: float) -> Json:
    """Let a float stand plainly if its repr has no exponent and isn't -0.0: jsonb would rewrite those."""
    if 1e-4 <= abs(value) < 1e16:
        return value
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise _Refusal(f"{name} cannot be stored; pass None or text")
    text = repr(value)
    return value if text == "0.0" else {"$float": text}


def _encoded_text(value: str) -> str:
    if "\0" in value:
        raise _Refusal("text with a NUL character cannot be stored; remove it, or pass bytes")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refusal("text with a lone surrogate cannot be stored; repair it, or pass bytes") from None
    return value


# Encoding: values around others ---------------------------------------------------------------------------------------


def _encoded_items(values: Collection[object], depth: int, reference: Reference | None) -> list[Json]:
    depth += 1
    _check_depth(depth)
    encoded: list[Json] = []
    try:
        for value in values:
            encoded.append(_encoded(value, depth, reference))  # noqa: PERF401 - a refusal asks how many there are
    except _Refusal as refusal:
        refusal.steps.append("{…}" if isinstance(values, (set, frozenset)) else f"[{len(encoded)}]")
        raise
    return encoded


def _encoded_mapping(values: Mapping[str, object], depth: int, reference: Reference | None) -> dict[str, Json]:
    """Encode a mapping whose keys mean nothing but themselves."""
    depth += 1
    _check_depth(depth)
    for key in values:
        _check_key(key)
    encoded: dict[str, Json] = {}
    key = ""
    try:
        for key, value in values.items():
            encoded[key] = _encoded(value, depth, reference)
    except _Refusal as refusal:
        refusal.steps.append(_step(key))
        raise
    return encoded


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise _Refusal(f"a key of type {_name(type(key))} cannot be stored; keys are text: pass str(key), or pairs")
    try:
        _encoded_text(key)
    except _Refusal as refusal:
        raise _Refusal(f"a key that is {refusal.problem}") from None


def _step(key: str) -> str:
    if key.isidentifier():
        return f".{key}"
    return f"[{json.dumps(key[:80], ensure_ascii=False)}]"


def _encoded_dict(value: dict[str, object], depth: int, reference: Reference | None) -> Json:
    if _looks_tagged(value):
        return {"$dict": _encoded_mapping(value, depth + 1, reference)}
    return _encoded_mapping(value, depth, reference)


def _looks_tagged(mapping: Mapping[Any, object]) -> bool:
    if len(mapping) != 1:
        return False
    (key,) = mapping
    return isinstance(key, str) and key.startswith("$")


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
        raise _Refusal("a ModelRef needs text as its label and alias")
    return {
        "$model": _encoded_mapping({"label": value.label, "pk": value.pk, "alias": value.alias}, depth + 1, reference)
    }


# Encoding: values known by their class --------------------------------------------------------------------------------


def _encoded_by_class(value: object, depth: int, reference: Reference | None) -> Json:
    kind = type(value)
    if issubclass(kind, Enum):
        return {"$enum": _encoded_text(_enum_to_text(value))}
    if "__dataclass_fields__" in kind.__dict__ and _stored_base(kind) is None:
        return _encoded_dataclass(value, depth, reference)
    model = _referenced(value, reference)
    if model is not None:
        return _encoded_model(model, depth, reference)
    raise _Refusal(_unknown(kind))


def _enum_to_text(value: Any) -> str:
    kind: type[Enum] = type(value)
    name = value._name_
    if kind.__members__.get(name) is not value or "." in name:
        raise _Refusal(f"a member of {_name(kind)} without a name of its own cannot be stored; pass its value")
    return f"{_class_path(kind)}.{name}"


def _encoded_dataclass(value: object, depth: int, reference: Reference | None) -> Json:
    kind: Any = type(value)
    path = _class_path(kind)
    fields = {name: _field(value, name) for name in _init_fields(kind)}
    return {"$dataclass": [path, _encoded_mapping(fields, depth + 2, reference)]}


@lru_cache(maxsize=1024)
def _init_fields(kind: type) -> tuple[str, ...]:
    """Name the fields that the constructor takes, if it takes exactly those: the value is rebuilt from them."""
    names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
    if set(names) != _parameters(kind):
        raise _Refusal(
            f"{_name(kind)} cannot be stored, because its constructor takes other arguments than its fields "
            "(InitVar, or an __init__ of its own); pass the values it is made of"
        )
    return names


def _parameters(kind: Any) -> set[str]:
    # Read from the code, because inspect.signature may evaluate annotations that only type checkers can.
    code = getattr(kind.__init__, "__code__", None)
    return set(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]) if code else set()


def _field(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except Exception as error:
        refusal = _Refusal(f"cannot be read ({type(error).__name__}); set it before the job is queued")
        refusal.steps.append(_step(name))
        raise refusal from error


def _class_path(kind: type) -> str:
    """Give "module:QualName", by which a worker will import the class."""
    module, qualname = kind.__module__, kind.__qualname__
    if module == "__main__" or _found(sys.modules.get(module), qualname) is not kind:
        raise _Refusal(
            f"{_name(kind)} cannot be imported by that name; define it at the top of a module, or pass plain values"
        )
    return _encoded_text(f"{module}:{qualname}")


def _found(module: object, qualname: str) -> object:
    """Walk from a module through nested classes, and nothing else; None where the way ends."""
    first, *nested = qualname.split(".")
    found: object = getattr(module, first, None)
    for name in nested:
        found = getattr(found, name, None) if isinstance(found, type) else None
    return found


def _referenced(value: object, reference: Reference | None) -> ModelRef | None:
    if reference is None:
        return None
    try:
        return reference(value)
    except TypeError as error:
        raise _Refusal(str(getattr(error, "problem", error))) from error


def _unknown(kind: type) -> str:
    base = _stored_base(kind)
    if base is not None:
        return (
            f"{_name(kind)} is a subclass of {_name(base)}, and only exact types are stored; pass a plain {_name(base)}"
        )
    if dataclasses.is_dataclass(kind):
        return f"{_name(kind)} is not itself a dataclass, only its base is; decorate it with @dataclass"
    return (
        f"{_name(kind)} cannot be stored; pass plain values, such as str(value) or list(value), or a key to fetch it by"
    )


def _stored_base(kind: type) -> type | None:
    return next((base for base in kind.__mro__[1:] if base in _LEAVES or base in _BRANCHES), None)


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Values that are one text: how each is written and read ---------------------------------------------------------------


def _moment_to_text(value: datetime | time) -> str:
    return f"{value.isoformat()}{_zone_to_text(value.tzinfo)}{' fold=1' if value.fold else ''}"


def _zone_to_text(zone: tzinfo | None) -> str:
    """Write what the offset doesn't tell: a zone's key in brackets, the name of a fixed offset in parentheses."""
    if zone is None:
        return ""
    if type(zone) is timezone:
        return _offset_name(zone)
    if type(zone) is ZoneInfo and _is_known(zone):
        return f"[{zone.key}]"
    raise _Refusal(
        f"a time zone of type {_name(type(zone))} cannot be stored; use zoneinfo.ZoneInfo(key) or a timezone"
    )


def _offset_name(zone: timezone) -> str:
    offset = zone.utcoffset(None)
    if offset.microseconds:  # Python itself reads such a text back as UTC.
        raise _Refusal(f"a time zone with an offset of {offset} cannot be stored; use whole seconds")
    name = zone.tzname(None)
    return "" if name == timezone(offset).tzname(None) else f"({name})"


def _is_known(zone: ZoneInfo) -> bool:
    try:
        ZoneInfo(zone.key)
    except (TypeError, ValueError, LookupError, OSError):
        return False
    return True


_MOMENT = re.compile(r"(?P<iso>[^(\[]+?)(?:\[(?P<key>.*)\]|\((?P<name>.*)\))?(?P<fold> fold=1)?", re.DOTALL)

_Moment = TypeVar("_Moment", datetime, time)


def _moment_of_text(kind: type[_Moment], text: str) -> _Moment:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.80} is not a moment")
    moment = kind.fromisoformat(match["iso"])
    zone = moment.tzinfo
    if match["key"] is not None:
        zone = ZoneInfo(match["key"])  # Wall time and zone decide; the offset before them is for readers.
    elif match["name"] is not None:
        zone = timezone(_offset(moment), match["name"])
    return moment.replace(tzinfo=zone, fold=1 if match["fold"] else 0)


def _offset(moment: datetime | time) -> timedelta:
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError("a named offset without the offset")
    return offset


def _datetime_of_text(text: str) -> datetime:
    return _moment_of_text(datetime, text)


def _time_of_text(text: str) -> time:
    return _moment_of_text(time, text)


def _timedelta_to_text(value: timedelta) -> str:
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"P{value.days}DT{value.seconds}{fraction}S"


_TIMEDELTA = re.compile(r"P(-?[0-9]+)DT([0-9]+)(?:\.([0-9]{6}))?S")


def _timedelta_of_text(text: str) -> timedelta:
    match = _TIMEDELTA.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.80} is not a timedelta")
    days, seconds, microseconds = match.groups(default="0")
    return timedelta(days=int(days), seconds=int(seconds), microseconds=int(microseconds))


def _decimal_to_text(value: Decimal) -> str:
    if not value.is_finite():
        raise _Refusal(f"Decimal {value} cannot be stored; pass None or text")
    return str(value)


def _decimal_of_text(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("it is not finite")
    return value


def _float_of_text(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it is not finite")
    return value


def _bytes_to_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes_of_text(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _enum_of_text(text: str) -> Enum:
    path, _, name = text.rpartition(".")
    kind = _imported(path)
    if not issubclass(kind, Enum):
        raise TypeError(f"{path} is not an Enum")
    return kind.__members__[name]


def _imported(path: str) -> type:
    module, _, qualname = path.partition(":")
    found = _found(importlib.import_module(module), qualname)
    if not isinstance(found, type):
        raise TypeError(f"there is no class {path}")
    return found


# Decoding: the roots --------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


def _value_of(decoder: Callable[[Any, int, Resolve | None], _T], text: str, root: str, resolve: Resolve | None) -> _T:
    try:
        node = _load(text)
    except RecursionError as error:
        raise UndecodableValue(root, _TOO_DEEP) from error
    except ValueError as error:
        raise UndecodableValue(root, f"not the JSON of this codec: {error}") from error
    try:
        return decoder(node, 0, resolve)
    except _Refusal as refusal:
        raise UndecodableValue(refusal.path_from(root), refusal.problem) from refusal.__cause__


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_load = json.JSONDecoder(parse_float=_float_of_text, parse_constant=_no_constant).decode


def _decoded(node: Json, depth: int, resolve: Resolve | None) -> object:
    if type(node) is list:
        return _decoded_items(node, depth, resolve)
    if type(node) is dict:
        return _decoded_tag(node, depth, resolve) if _looks_tagged(node) else _decoded_mapping(node, depth, resolve)
    return node


def _decoded_items(node: Json, depth: int, resolve: Resolve | None) -> list[Any]:
    if type(node) is not list:
        raise _Refusal("a JSON list is needed here")
    depth += 1
    _check_depth(depth)
    decoded: list[object] = []
    try:
        for item in node:
            decoded.append(_decoded(item, depth, resolve))  # noqa: PERF401 - a refusal asks how many there are
    except _Refusal as refusal:
        refusal.steps.append(f"[{len(decoded)}]")
        raise
    return decoded


def _decoded_mapping(node: Json, depth: int, resolve: Resolve | None) -> dict[str, Any]:
    """Decode an object whose keys mean nothing but themselves."""
    if type(node) is not dict:
        raise _Refusal("a JSON object is needed here")
    depth += 1
    _check_depth(depth)
    decoded: dict[str, object] = {}
    key = ""
    try:
        for key, item in node.items():
            decoded[key] = _decoded(item, depth, resolve)
    except _Refusal as refusal:
        refusal.steps.append(_step(key))
        raise
    return decoded


def _decoded_tag(node: dict[str, Json], depth: int, resolve: Resolve | None) -> object:
    [(tag, body)] = node.items()
    read = _TEXTS.get(tag)
    if read is not None:
        if type(body) is not str:
            raise _Refusal(f"{tag} needs text")
        return _built(tag, read, body)
    branch = _TAGGED.get(tag)
    if branch is None:
        raise _Refusal(f"the tag {tag[:80]} is not known; a newer version may have written it")
    return branch(body, depth + 1, resolve)


def _built(tag: str, build: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
    try:
        return build(*args, **kwargs)
    except Exception as error:
        raise _Refusal(f"{tag} cannot be read: {_words(error)}") from error


def _words(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception that can't be shown is named all the same
        return type(error).__name__


# Decoding: values around others ---------------------------------------------------------------------------------------


def _decoded_tuple(body: Json, depth: int, resolve: Resolve | None) -> object:
    return tuple(_decoded_items(body, depth, resolve))


def _decoded_set(body: Json, depth: int, resolve: Resolve | None) -> object:
    return _built("$set", set, _decoded_items(body, depth, resolve))


def _decoded_frozenset(body: Json, depth: int, resolve: Resolve | None) -> object:
    return _built("$frozenset", frozenset, _decoded_items(body, depth, resolve))


def _decoded_model(body: Json, depth: int, resolve: Resolve | None) -> object:
    parts = _decoded_mapping(body, depth, resolve)
    if parts.keys() != {"label", "pk", "alias"} or type(parts["label"]) is not str or type(parts["alias"]) is not str:
        raise _Refusal("$model needs a label, a pk and an alias")
    model = ModelRef(**parts)
    return model if resolve is None else resolve(model)


def _decoded_dataclass(body: Json, depth: int, resolve: Resolve | None) -> object:
    match body:
        case [str(path), dict(fields)]:
            kind = _built("$dataclass", _imported_dataclass, path)
            return _built("$dataclass", kind, **_decoded_mapping(fields, depth + 1, resolve))
        case _:
            raise _Refusal("$dataclass needs a list of a class path and an object of fields")


def _imported_dataclass(path: str) -> type:
    kind = _imported(path)
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{path} is not a dataclass")
    return kind


# The tables -----------------------------------------------------------------------------------------------------------


def _tagged(tag: str, write: Callable[[Any], str]) -> Callable[[Any], Json]:
    return lambda value: {tag: _encoded_text(write(value))}


_LEAVES: dict[type, Callable[[Any], Json]] = {
    type(None): _as_is,
    bool: _as_is,
    int: _encoded_int,
    float: _encoded_float,
    str: _encoded_text,
    datetime: _tagged("$datetime", _moment_to_text),
    date: _tagged("$date", date.isoformat),
    time: _tagged("$time", _moment_to_text),
    timedelta: _tagged("$timedelta", _timedelta_to_text),
    Decimal: _tagged("$decimal", _decimal_to_text),
    UUID: _tagged("$uuid", str),
    bytes: _tagged("$bytes", _bytes_to_text),
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

_TEXTS: dict[str, Callable[[str], object]] = {
    "$float": _float_of_text,
    "$datetime": _datetime_of_text,
    "$date": date.fromisoformat,
    "$time": _time_of_text,
    "$timedelta": _timedelta_of_text,
    "$decimal": _decimal_of_text,
    "$uuid": UUID,
    "$bytes": _bytes_of_text,
    "$enum": _enum_of_text,
}
"""How the one text under a tag is read."""

_TAGGED: dict[str, Callable[[Json, int, Resolve | None], object]] = {
    "$tuple": _decoded_tuple,
    "$set": _decoded_set,
    "$frozenset": _decoded_frozenset,
    "$dict": _decoded_mapping,
    "$dataclass": _decoded_dataclass,
    "$model": _decoded_model,
}
"""How a list or an object under a tag is read."""

TAGS = frozenset(_TEXTS) | frozenset(_TAGGED)
"""Every tag of the format."""
