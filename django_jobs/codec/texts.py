"""Decide: values that are one text under a tag, how each is written and read. Knows no value that holds others."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django_jobs.codec.classes import class_path, imported, name_of
from django_jobs.codec.refusals import Refusal

# -- instants, dates and durations


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
    raise Refusal(
        f"a time zone of type {name_of(type(zone))} cannot be stored; use zoneinfo.ZoneInfo(key) or a timezone"
    )


def _offset_name(zone: timezone) -> str:
    offset = zone.utcoffset(None)
    if offset.microseconds:  # Python itself reads such a text back as UTC.
        raise Refusal(f"a time zone with an offset of {offset} cannot be stored; use whole seconds")
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


# -- numbers and bytes


def _decimal_to_text(value: Decimal) -> str:
    if not value.is_finite():
        raise Refusal(f"Decimal {value} cannot be stored; pass None or text")
    return str(value)


def _decimal_of_text(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError("it is not finite")
    return value


def float_of_text(text: str) -> float:
    """Read a float, and refuse one that isn't finite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it is not finite")
    return value


def _bytes_to_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes_of_text(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# -- members of enums


def enum_to_text(value: Any) -> str:
    """Write an enum's member as its class and its name."""
    kind: type[Enum] = type(value)
    name = value._name_
    if kind.__members__.get(name) is not value or "." in name:
        raise Refusal(f"a member of {name_of(kind)} without a name of its own cannot be stored; pass its value")
    return f"{class_path(kind)}.{name}"


def _enum_of_text(text: str) -> Enum:
    path, _, name = text.rpartition(".")
    kind = imported(path)
    if not issubclass(kind, Enum):
        raise TypeError(f"{path} is not an Enum")
    return kind.__members__[name]


# -- the tables

WRITERS: dict[type, tuple[str, Callable[[Any], str]]] = {
    datetime: ("$datetime", _moment_to_text),
    date: ("$date", date.isoformat),
    time: ("$time", _moment_to_text),
    timedelta: ("$timedelta", _timedelta_to_text),
    Decimal: ("$decimal", _decimal_to_text),
    UUID: ("$uuid", str),
    bytes: ("$bytes", _bytes_to_text),
}
"""The tag and the text of values, by exact type. Some floats and all enum members are written as one text, too."""

READERS: dict[str, Callable[[str], object]] = {
    "$float": float_of_text,
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
