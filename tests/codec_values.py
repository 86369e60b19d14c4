"""Values of every type that the codec takes, and how to tell whether they came back as they were."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from django_jobs.codec import ModelRef

PARIS = ZoneInfo("Europe/Paris")
UTC = timezone.utc  # noqa: UP017 - told apart from ZoneInfo("UTC")


class Color(enum.Enum):
    RED = 1
    GREEN = "green"
    CRIMSON = 1  # noqa: PIE796 - an alias


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


@dataclass
class Line:
    sku: str
    price: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: Any
    y: Any = 0
    total: Any = field(init=False, compare=False, default=None)

    class Kind(enum.Enum):
        FLAT = "flat"


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal and of the same exact types, deeply, down to zones and folds."""
    if type(one) is not type(other):
        return False
    match one:
        case list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case set() | frozenset():
            return len(one) == len(other) and all(any(same(a, b) for b in other) for a in one)
        case float() | Decimal():
            return repr(one) == repr(other)
        case datetime() | time():
            return one == other and (one.fold, repr(one.tzinfo)) == (other.fold, repr(other.tzinfo))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in dataclasses.fields(one))
    return bool(one == other)


KEYS = ["Europe/Paris", "UTC", "America/St_Johns", "Africa/Monrovia", "Etc/GMT+12", "Australia/Lord_Howe"]
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
offsets = st.integers(-86_399, 86_399).map(lambda seconds: timedelta(seconds=seconds))
zones = (
    st.none()
    | st.sampled_from([UTC, *map(ZoneInfo, KEYS)])
    | st.builds(timezone, offsets)
    | st.builds(timezone, offsets, texts)
)


@st.composite
def hashable_leaves(draw: st.DrawFn) -> Any:
    return draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(-(10**400), 10**400)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts
        | st.binary(max_size=8)
        | st.dates()
        | st.times(timezones=zones)
        | st.datetimes(timezones=zones)
        | st.datetimes(timezones=zones).map(lambda moment: moment.replace(fold=1))
        | st.timedeltas()
        | st.decimals(allow_nan=False, allow_infinity=False)
        | st.uuids()
        | st.sampled_from([*Color, *Size, *Word, *Access, Access.BOTH, *Point.Kind])
        | st.builds(ModelRef, label=texts, pk=st.integers() | st.uuids() | texts, alias=texts)
    )


def hashables_around(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.tuples(children, children)
        | st.frozensets(children, max_size=3)
        | st.builds(Point, x=children, y=children)
    )  # fmt: skip


hashables = st.recursive(hashable_leaves(), hashables_around, max_leaves=4)
keys = texts | st.sampled_from([f"${tag}" for tag in ("dict", "set", "model", "")] + ["a", "$tuple"])


def values_around(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(children, max_size=4)
        | st.dictionaries(keys, children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.builds(Line, sku=texts, price=children)
    )


values = st.recursive(hashables | st.sets(hashables, max_size=3), values_around, max_leaves=8)
