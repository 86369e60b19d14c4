"""Declare: which values of a job are hidden wherever it is shown. Changes no value and stores none.

A value is hidden by the name it has: its key, at any depth, or its parameter in the performer's signature. Hidden are
the names that the performer's `redact` gives, and those in which a pattern is found, one of Django's or of the setting
REDACT. Values may be as they are stored, in the codec's form, or decoded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import Any, TypeAlias

from django.views.debug import SafeExceptionReporterFilter

from django_jobs.codec import TAGS
from django_jobs.conf import settings
from django_jobs.performers.registry import AnyPerformer, find_performer

MASK = "********"
"""What is shown in the place of a value."""

_Hides: TypeAlias = Callable[[str], bool]
"""Whether what has this name is hidden."""


def redact_job(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Give the arguments of a job as they may be shown; `name` is its stored name.

    Arguments given by position are known by the signature; where they don't fit it, and anything of that performer is
    hidden, all of them are. Of a performer that isn't known here the keys alone are looked at.
    """
    performer = find_performer(name)
    hides = _hider(() if performer is None else performer.redact)
    shown = [_shown(value, hides) for value in args]
    named = _shown_mapping(kwargs, hides)
    if performer is None:
        return shown, named
    parameters = _parameters_of(performer, args, kwargs)
    if parameters is None:
        is_any_hidden = performer.redact or any(map(hides, performer.signature.parameters))
        return [MASK] * len(shown) if is_any_hidden else shown, named
    by_place, by_key = parameters
    return (
        [MASK if hides(parameter) else value for parameter, value in zip(by_place, shown, strict=True)],
        {key: MASK if hides(by_key[key]) else value for key, value in named.items()},
    )


def redact_part(name: str, value: object) -> object:
    """Give a result, the meta or another part of a job as it may be shown; `name` is the job's stored name."""
    performer = find_performer(name)
    return redact_value(value, extra=() if performer is None else performer.redact)


def redact_value(value: object, *, extra: Iterable[str] = ()) -> object:
    """Give a value as it may be shown: what stands under a hidden key is masked. `extra` are more names to hide.

    What nothing is hidden of is given as it is; else a set comes as a list, and a dataclass instance as a dict.
    """
    return _shown(value, _hider(extra))


def redact_key(key: str) -> str:
    """Give a key as it may be shown: one made of all arguments is their JSON behind the performer's name.

    A key that a function or a caller made is text of which nothing is known; it is given as it is.
    """
    name, _, text = key.partition("/")
    try:
        arguments = json.loads(text)
    except ValueError:
        return key
    shown = redact_part(name, arguments)
    if shown is arguments:
        return key
    return f"{name}/{json.dumps(shown, sort_keys=True, ensure_ascii=False, separators=(',', ':'))}"


# -- which names


def _hider(names: Iterable[str]) -> _Hides:
    exact = {name.casefold() for name in names}
    patterns = (SafeExceptionReporterFilter.hidden_settings, *settings().redact)
    return lambda name: name.casefold() in exact or any(pattern.search(name) for pattern in patterns)


def _parameters_of(
    performer: AnyPerformer, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[str], dict[str, str]] | None:
    """Name the parameters that arguments go to, by place and by key; None where they don't fit."""
    try:
        performer.check_fit(args, kwargs)
    except TypeError:
        return None
    parameters = performer.signature.parameters
    rest = {parameter.kind: name for name, parameter in parameters.items()}
    by_place = [name for name, parameter in parameters.items() if parameter.kind in _BY_PLACE][: len(args)]
    by_place += [rest.get(Parameter.VAR_POSITIONAL, "")] * (len(args) - len(by_place))
    by_key = {
        key: key if key in parameters and parameters[key].kind in _BY_KEY else rest.get(Parameter.VAR_KEYWORD, "")
        for key in kwargs
    }
    return by_place, by_key


_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEY = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


# -- going through values; the one that nothing was hidden of stays the same object


def _shown(value: Any, hides: _Hides) -> Any:
    match value:
        case dict():
            if len(value) == 1 and not TAGS.isdisjoint(value):
                # The codec's own word, and no key.
                [(tag, body)] = value.items()
                shown = _shown(body, hides)
                return value if shown is body else {tag: shown}
            return _shown_mapping(value, hides)
        case list() | tuple() | set() | frozenset():
            items = list(value)
            shown = [_shown(item, hides) for item in items]
            if all(map(_is, shown, items)):
                return value
            return tuple(shown) if isinstance(value, tuple) else shown
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            shown = _shown_mapping(fields, hides)
            return value if shown is fields else shown
        case _:
            return value


def _shown_mapping(mapping: dict[Any, Any], hides: _Hides) -> dict[Any, Any]:
    shown = {
        key: MASK if isinstance(key, str) and hides(key) else _shown(value, hides) for key, value in mapping.items()
    }
    return mapping if all(map(_is, shown.values(), mapping.values())) else shown


def _is(one: object, other: object) -> bool:
    return one is other
