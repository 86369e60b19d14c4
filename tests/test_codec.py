"""The stored format of arguments and results: FAULTS.md O35, O36, O37 (arguments) and the table in the docs."""

from __future__ import annotations

import copy
import enum
import json
import re
import sys
import traceback
import types
from collections import OrderedDict, defaultdict
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from django_jobs import codec
from django_jobs.codec import ModelRef, decode, decode_arguments, encode, encode_arguments
from django_jobs.exceptions import ArgumentsTooLarge, UndecodableValue, UnencodableValue
from tests import codec_values
from tests.codec_values import PARIS, UTC, Access, Color, Line, Point, Size, Word, keys, same, values

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "tests.test_codec"
VALUES = "tests.codec_values"
DOCS = Path(__file__).parent.parent / "docs" / "reference" / "codec.md"


@dataclass
class Doubled:
    value: int
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.value * 2


@dataclass
class Picky:
    tag: int
    build: int = 0

    def __post_init__(self) -> None:
        if self.tag < 0:
            raise ZeroDivisionError("negative")


@dataclass
class WithInitVar:
    a: int
    b: InitVar[int] = 0


@dataclass(init=False)
class OwnInit:
    a: int

    def __init__(self, text: str) -> None:
        self.a = int(text)


@dataclass
class TextToo(str):  # noqa: SLOT000 - a dataclass with a default has no slots
    a: int = 1


class Undecorated(Line):
    pass


class Pair(NamedTuple):
    a: int
    b: int


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Moment(datetime):
    pass


class Zone(tzinfo):
    def utcoffset(self, moment: datetime | None, /) -> timedelta:
        return timedelta(hours=1)

    def dst(self, moment: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, moment: datetime | None, /) -> str:
        return "one"


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Order:
    def __init__(self, pk: object) -> None:
        self.pk = pk


def reference(value: object) -> ModelRef | None:
    if not isinstance(value, Order):
        return None
    if value.pk is None:
        raise UnencodableValue("", "an unsaved Order cannot be stored; save it first")
    return ModelRef(label="shop.order", pk=value.pk, alias="default")


def through_jsonb(text: str) -> str:
    """Rewrite JSON text as PostgreSQL's jsonb does: numbers as numeric prints them, keys by length and bytes."""

    def rewritten(node: Any) -> str:
        match node:
            case dict():
                keys = sorted(node, key=lambda key: (len(key.encode()), key.encode()))
                return "{" + ", ".join(f"{json.dumps(key)}: {rewritten(node[key])}" for key in keys) + "}"
            case list():
                return f"[{', '.join(map(rewritten, node))}]"
            case Decimal():
                return format(abs(node) if node == 0 else node, "f")
            case _:
                return json.dumps(node)

    return rewritten(json.loads(text, parse_float=Decimal, parse_int=Decimal))


# Round trips ---------------------------------------------------------------------------------------------------------

PLAIN: list[tuple[object, str]] = [
    (None, "null"), (True, "true"), (0, "0"), (-7, "-7"), (2**70, "1180591620717411303424"), (1.0, "1.0"),
    (0.0, "0.0"), (0.1, "0.1"), (0.0001, "0.0001"), (9999999999999998.0, "9999999999999998.0"), ("", '""'),
    ("Zoë 🦊", '"Zoë 🦊"'), ('"\\\n\x01', '"\\"\\\\\\n\\u0001"'), ([], "[]"), ([1, [2]], "[1,[2]]"), ({}, "{}"),
    ({"a": {"b": [None]}}, '{"a":{"b":[null]}}'), ({"$a": 1, "$b": 2}, '{"$a":1,"$b":2}'), ("$set", '"$set"'),
]  # fmt: skip

TAGGED: list[tuple[object, str]] = [
    (1e16, '{"$float":"1e+16"}'),
    (9.999e-05, '{"$float":"9.999e-05"}'),
    (5e-324, '{"$float":"5e-324"}'),
    (-0.0, '{"$float":"-0.0"}'),
    (Decimal("1.10"), '{"$decimal":"1.10"}'),
    (Decimal("-0"), '{"$decimal":"-0"}'),
    (Decimal("1E+500"), '{"$decimal":"1E+500"}'),
    (UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
    (b"", '{"$bytes":""}'),
    (b"\x00\xff", '{"$bytes":"AP8="}'),
    (date(2026, 11, 29), '{"$date":"2026-11-29"}'),
    (time(10, 0), '{"$time":"10:00:00"}'),
    (time(10, 0, 0, 1, tzinfo=UTC, fold=1), '{"$time":"10:00:00.000001+00:00 fold=1"}'),
    (time(10, 0, tzinfo=PARIS), '{"$time":"10:00:00[Europe/Paris]"}'),
    (timedelta(days=1, seconds=2), '{"$timedelta":"P1DT2S"}'),
    (timedelta(microseconds=-1), '{"$timedelta":"P-1DT86399.999999S"}'),
    (timedelta.max, '{"$timedelta":"P999999999DT86399.999999S"}'),
    (datetime(2026, 11, 29, 10), '{"$datetime":"2026-11-29T10:00:00"}'),
    (datetime(1, 1, 1), '{"$datetime":"0001-01-01T00:00:00"}'),
    (datetime(2026, 11, 29, 10, fold=1), '{"$datetime":"2026-11-29T10:00:00 fold=1"}'),
    (datetime(2026, 11, 29, 10, tzinfo=UTC), '{"$datetime":"2026-11-29T10:00:00+00:00"}'),
    (datetime(2026, 11, 29, tzinfo=ZoneInfo("UTC")), '{"$datetime":"2026-11-29T00:00:00+00:00[UTC]"}'),
    (datetime(2026, 10, 25, 2, 30, tzinfo=PARIS), '{"$datetime":"2026-10-25T02:30:00+02:00[Europe/Paris]"}'),
    (
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS),
        '{"$datetime":"2026-10-25T02:30:00+01:00[Europe/Paris] fold=1"}',
    ),
    (
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=-3661))),
        '{"$datetime":"2026-01-01T00:00:00-01:01:01"}',
    ),
    (
        datetime(2026, 1, 1, fold=1, tzinfo=timezone(timedelta(hours=1), ") fold=1")),
        '{"$datetime":"2026-01-01T00:00:00+01:00() fold=1) fold=1"}',
    ),
    (datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "")), '{"$datetime":"2026-01-01T00:00:00+00:00()"}'),
    ((), '{"$tuple":[]}'),
    ((1, (2,)), '{"$tuple":[1,{"$tuple":[2]}]}'),
    ({3, 1, 2}, '{"$set":[1,2,3]}'),
    (frozenset({"b", "a"}), '{"$frozenset":["a","b"]}'),
    ({frozenset({(1, "a")})}, '{"$set":[{"$frozenset":[{"$tuple":[1,"a"]}]}]}'),
    ({"$set": [1]}, '{"$dict":{"$set":[1]}}'),
    ({"$": 1}, '{"$dict":{"$":1}}'),
    ({"$dict": {"$dict": 1}}, '{"$dict":{"$dict":{"$dict":{"$dict":1}}}}'),
    (Color.RED, f'{{"$enum":"{VALUES}:Color.RED"}}'),
    (Size.SMALL, f'{{"$enum":"{VALUES}:Size.SMALL"}}'),
    (Word.HELLO, f'{{"$enum":"{VALUES}:Word.HELLO"}}'),
    (Access.BOTH, f'{{"$enum":"{VALUES}:Access.BOTH"}}'),
    (Point.Kind.FLAT, f'{{"$enum":"{VALUES}:Point.Kind.FLAT"}}'),
    (Line("A1", Decimal(1)), f'{{"$dataclass":["{VALUES}:Line",{{"sku":"A1","price":{{"$decimal":"1"}}}}]}}'),
    (Point(x=(1,)), f'{{"$dataclass":["{VALUES}:Point",{{"x":{{"$tuple":[1]}},"y":0}}]}}'),
    (Doubled(4), f'{{"$dataclass":["{HERE}:Doubled",{{"value":4}}]}}'),
    (Picky(1, 2), f'{{"$dataclass":["{HERE}:Picky",{{"tag":1,"build":2}}]}}'),
    (
        ModelRef(label="shop.order", pk=UUID(int=1), alias="default"),
        '{"$model":{"label":"shop.order","pk":{"$uuid":"00000000-0000-0000-0000-000000000001"},"alias":"default"}}',
    ),
]


@pytest.mark.parametrize(("value", "text"), PLAIN + TAGGED, ids=[text for _, text in PLAIN + TAGGED])
def test_o35_a_value_is_stored_in_this_form_and_comes_back_as_it_was(value: object, text: str) -> None:
    assert encode(value) == text
    assert same(decode(text), value)
    assert same(decode(through_jsonb(text)), value)


def test_an_alias_of_an_enum_member_is_stored_under_the_members_name() -> None:
    assert encode(Color.CRIMSON) == f'{{"$enum":"{VALUES}:Color.RED"}}'


def test_equal_sets_have_equal_texts() -> None:
    one, other = {"a", 1, (2, 3), None}, {None, (2, 3), 1, "a"}
    assert encode(one) == encode(other) == '{"$set":["a",1,null,{"$tuple":[2,3]}]}'


@settings(max_examples=300)
@given(values)
def test_o35_every_accepted_value_comes_back_equal_and_of_the_same_types(value: object) -> None:
    assert same(decode(encode(value)), value)


@settings(max_examples=300)
@given(values)
def test_o35_jsonb_changes_nothing(value: object) -> None:
    assert same(decode(through_jsonb(encode(value))), value)


@settings(max_examples=100)
@given(st.lists(values, max_size=3), st.dictionaries(keys, values, max_size=3))
def test_o35_arguments_come_back_as_they_were(args: list[object], kwargs: dict[str, object]) -> None:
    decoded = decode_arguments(*map(through_jsonb, encode_arguments(tuple(args), kwargs, limit=None)))
    assert same(decoded, (args, kwargs))


@settings(max_examples=100)
@given(values)
def test_o35_the_callers_objects_are_not_changed(value: object) -> None:
    before = copy.deepcopy(value)
    encode(value)
    assert same(value, before)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_o36_every_finite_float_keeps_its_bits(value: float) -> None:
    decoded = decode(through_jsonb(encode(value)))
    assert isinstance(decoded, float)
    assert decoded.hex() == value.hex()


# Arguments -----------------------------------------------------------------------------------------------------------


plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=["Cs"])), st.floats(), values
)


@given(st.lists(plain, max_size=3), st.dictionaries(st.text(max_size=5), plain, max_size=3))
def test_arguments_are_encoded_as_their_values_are(args: list[Any], kwargs: dict[str, Any]) -> None:
    def told(call: Callable[[], object]) -> object:
        try:
            return call()
        except UnencodableValue as refusal:
            return refusal.problem

    assume(not any(key.startswith("$") for key in kwargs))
    separately = told(lambda: (encode(args), encode(kwargs)))
    assert told(lambda: encode_arguments(tuple(args), kwargs, limit=None)) == separately


@given(st.lists(plain, max_size=3))
def test_plain_arguments_are_encoded_as_all_others(args: list[Any]) -> None:
    text = codec.encode_plain(tuple(args))
    assert text is None or text == encode(args)
    assert text is None or len(text) == len(text.encode())


def test_what_is_plain() -> None:
    assert codec.encode_plain((1, 'a"\n', None, True, False, -(2**64) + 1)) == (
        '[1,"a\\"\\n",null,true,false,-18446744073709551615]'
    )
    assert [codec.encode_plain((value,)) for value in (2**64, "é", "a\0", 0.5, [1], Size.SMALL)] == [None] * 6


def test_arguments_are_a_list_and_an_object() -> None:
    assert encode_arguments((1, (2,)), {"when": date(2026, 11, 29)}, limit=None) == (
        '[1,{"$tuple":[2]}]',
        '{"when":{"$date":"2026-11-29"}}',
    )


def test_no_arguments_are_empty() -> None:
    assert encode_arguments((), {}, limit=4) == ("[]", "{}")
    assert decode_arguments("[]", "{}") == ([], {})


def test_a_lone_named_argument_is_no_tag_whatever_its_name() -> None:
    assert encode_arguments((), {"$tuple": [1]}, limit=None) == ("[]", '{"$tuple":[1]}')
    assert decode_arguments("[]", '{"$tuple":[1]}') == ([], {"$tuple": [1]})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ("{}", "{}", "args: a JSON list is needed here"),
        ('{"$tuple":[1]}', "{}", "args: a JSON list is needed here"),
        ("null", "{}", "args: a JSON list is needed here"),
        ("[]", "[]", "kwargs: a JSON object is needed here"),
        ("[]", "1", "kwargs: a JSON object is needed here"),
        ("[1", "{}", "args: not the JSON of this codec: Expecting ',' delimiter: line 1 column 3 (char 2)"),
        ("[]", "", "kwargs: not the JSON of this codec: Expecting value: line 1 column 1 (char 0)"),
        ('[0, {"$bytes": "eHg"}]', "{}", "args[1]: $bytes cannot be read: Error: Incorrect padding"),
        ("[]", '{"a": {"$b": 1}}', "kwargs.a: the tag $b is not known; a newer version may have written it"),
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_shape_are_undecodable(args: str, kwargs: str, message: str) -> None:
    with pytest.raises(UndecodableValue) as caught:
        decode_arguments(args, kwargs)
    assert str(caught.value) == message


def test_the_limit_counts_the_utf8_bytes_of_both() -> None:
    assert encode_arguments(("é",), {"a": 1}, limit=13) == ('["é"]', '{"a":1}')
    with pytest.raises(ArgumentsTooLarge) as caught:
        encode_arguments(("é",), {"a": 1}, limit=12)
    assert str(caught.value) == (
        "the arguments: 13 bytes encoded, and the limit is 12 (setting MAX_ARGS_BYTES); "
        "store big data elsewhere and pass its key"
    )


def test_a_single_value_has_a_limit_too() -> None:
    assert encode("é", limit=4) == '"é"'
    with pytest.raises(ArgumentsTooLarge, match="result: 1,000,002 bytes encoded, and the limit is 1,000,000"):
        encode("x" * 1_000_000, path="result", limit=1_000_000)


# Model instances -----------------------------------------------------------------------------------------------------


def test_a_model_instance_is_stored_by_reference_and_resolved() -> None:
    text = encode([Order(5)], reference=reference)
    assert text == '[{"$model":{"label":"shop.order","pk":5,"alias":"default"}}]'
    assert decode(text) == [ModelRef(label="shop.order", pk=5, alias="default")]
    assert decode(text, resolve=lambda model: (model.label, model.pk, model.alias)) == [("shop.order", 5, "default")]


def test_model_instances_stand_within_other_values() -> None:
    (args, kwargs) = encode_arguments((Line("A1", Order(1)),), {"pair": (Order(2),)}, limit=None, reference=reference)
    decoded = decode_arguments(args, kwargs, resolve=lambda model: model.pk)
    assert decoded == ([Line("A1", 1)], {"pair": (2,)})


def test_a_refusal_of_the_reference_gets_the_path() -> None:
    with pytest.raises(UnencodableValue) as caught:
        encode_arguments((), {"orders": [Order(1), Order(None)]}, limit=None, reference=reference)
    assert str(caught.value) == "kwargs.orders[1]: an unsaved Order cannot be stored; save it first"


def test_a_type_error_of_the_reference_is_a_refusal_too() -> None:
    def refuses(value: object) -> ModelRef | None:
        raise TypeError("not that one; pass its key")

    with pytest.raises(UnencodableValue, match=r"value\[0\]: not that one; pass its key"):
        encode([Order(1)], reference=refuses)


def test_what_the_reference_does_not_know_is_refused() -> None:
    with pytest.raises(UnencodableValue, match=r"value: tests\.test_codec\.ReprRaises cannot be stored"):
        encode(ReprRaises(), reference=reference)


def test_a_key_that_cannot_be_stored_is_refused_as_pk() -> None:
    with pytest.raises(UnencodableValue, match=r"value\.pk: complex cannot be stored"):
        encode(Order(1j), reference=reference)


def test_what_the_resolver_raises_passes_through() -> None:
    def gone(model: ModelRef) -> object:
        raise ValueError(f"{model.label} {model.pk} is gone")

    with pytest.raises(ValueError, match=r"^shop.order 5 is gone$"):
        decode('{"$model":{"label":"shop.order","pk":5,"alias":"default"}}', resolve=gone)


# Refusals ------------------------------------------------------------------------------------------------------------


def local_classes() -> list[Any]:
    class LocalColor(enum.Enum):
        RED = 1

    @dataclass
    class LocalLine:
        a: int

    return [LocalColor.RED, LocalLine(1)]


def unset_line() -> Line:
    line = Line("A1")
    del line.sku
    return line


REFUSED: list[tuple[object, str]] = [
    (float("nan"), "NaN cannot be stored; pass None or text"),
    (float("inf"), "Infinity cannot be stored; pass None or text"),
    (float("-inf"), "-Infinity cannot be stored; pass None or text"),
    (Decimal("NaN"), "Decimal NaN cannot be stored; pass None or text"),
    (Decimal("sNaN"), "Decimal sNaN cannot be stored; pass None or text"),
    (Decimal("-Infinity"), "Decimal -Infinity cannot be stored; pass None or text"),
    ("a\x00b", "text with a NUL character cannot be stored; remove it, or pass bytes"),
    ("a\ud800b", "text with a lone surrogate cannot be stored; repair it, or pass bytes"),
    ({"a\x00b": 1}, "a key that is text with a NUL character cannot be stored; remove it, or pass bytes"),
    ({"\udfff": 1}, "a key that is text with a lone surrogate cannot be stored; repair it, or pass bytes"),
    ({1: "a"}, "a key of type int cannot be stored; keys are text: pass str(key), or pairs"),
    ({None: "a"}, "a key of type NoneType cannot be stored; keys are text: pass str(key), or pairs"),
    ({Text("a"): 1}, f"a key of type {HERE}.Text cannot be stored; keys are text: pass str(key), or pairs"),
    ({Word.HELLO: 1}, f"a key of type {VALUES}.Word cannot be stored; keys are text: pass str(key), or pairs"),
    (10**4300, "a whole number of more than 4300 digits cannot be stored; pass it as bytes"),
    (-(10**9999), "a whole number of more than 4300 digits cannot be stored; pass it as bytes"),
    (Text("a"), f"{HERE}.Text is a subclass of str, and only exact types are stored; pass a plain str"),
    (Whole(1), f"{HERE}.Whole is a subclass of int, and only exact types are stored; pass a plain int"),
    (Pair(1, 2), f"{HERE}.Pair is a subclass of tuple, and only exact types are stored; pass a plain tuple"),
    (
        OrderedDict(),
        "collections.OrderedDict is a subclass of dict, and only exact types are stored; pass a plain dict",
    ),
    (
        defaultdict(int),
        "collections.defaultdict is a subclass of dict, and only exact types are stored; pass a plain dict",
    ),
    (
        Moment(2026, 1, 1),
        (
            f"{HERE}.Moment is a subclass of datetime.datetime, and only exact types are stored; "
            "pass a plain datetime.datetime"
        ),
    ),
    (TextToo(), f"{HERE}.TextToo is a subclass of str, and only exact types are stored; pass a plain str"),
    (
        datetime(2026, 1, 1, tzinfo=Zone()),
        f"a time zone of type {HERE}.Zone cannot be stored; use zoneinfo.ZoneInfo(key) or a timezone",
    ),
    (
        time(tzinfo=timezone(timedelta(microseconds=1))),
        "a time zone with an offset of 0:00:00.000001 cannot be stored; use whole seconds",
    ),
    (
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "\0")),
        "text with a NUL character cannot be stored; remove it, or pass bytes",
    ),
    (
        Access.READ ^ Access.READ,
        f"a member of {VALUES}.Access without a name of its own cannot be stored; pass its value",
    ),
    (
        local_classes()[0],
        (
            f"{HERE}.local_classes.<locals>.LocalColor cannot be imported by that name; "
            "define it at the top of a module, or pass plain values"
        ),
    ),
    (
        local_classes()[1],
        (
            f"{HERE}.local_classes.<locals>.LocalLine cannot be imported by that name; "
            "define it at the top of a module, or pass plain values"
        ),
    ),
    (
        WithInitVar(1, 2),
        (
            f"{HERE}.WithInitVar cannot be stored, because its constructor takes other arguments than its fields "
            "(InitVar, or an __init__ of its own); pass the values it is made of"
        ),
    ),
    (
        OwnInit("1"),
        (
            f"{HERE}.OwnInit cannot be stored, because its constructor takes other arguments than its fields "
            "(InitVar, or an __init__ of its own); pass the values it is made of"
        ),
    ),
    (
        Undecorated("A1"),
        f"{HERE}.Undecorated is not itself a dataclass, only its base is; decorate it with @dataclass",
    ),
    (ModelRef(label=5, pk=1, alias="default"), "a ModelRef needs text as its label and alias"),  # type: ignore[arg-type]
]

UNKNOWN = [
    bytearray(b"x"), memoryview(b"x"), 1j, range(3), (x for x in "ab"), Path("/tmp"), {}.keys(), object(), object,
    print, ..., NotImplemented, ReprRaises(), re.compile("x"), ZoneInfo("UTC"), types.SimpleNamespace(), ValueError(),
    Color, Line,
]  # fmt: skip


@pytest.mark.parametrize(("value", "problem"), REFUSED, ids=[f"{n}: {text}" for n, (_, text) in enumerate(REFUSED)])
def test_o35_o36_o37_what_cannot_come_back_is_refused_with_its_path(value: object, problem: str) -> None:
    with pytest.raises(UnencodableValue) as caught:
        encode(value)
    assert (caught.value.path, caught.value.problem) == ("value", problem)
    with pytest.raises(UnencodableValue) as caught:
        encode_arguments((), {"order": {"lines": [1, {"price": value}]}}, limit=None)
    assert str(caught.value) == f"kwargs.order.lines[1].price: {problem}"


@pytest.mark.parametrize("value", UNKNOWN, ids=lambda value: type(value).__name__)
def test_o35_values_of_unknown_types_are_refused_by_the_name_of_their_class(value: object) -> None:
    with pytest.raises(UnencodableValue) as caught:
        encode(value)
    name = type(value).__qualname__
    remedy = "pass plain values, such as str(value) or list(value), or a key to fetch it by"
    assert str(caught.value).endswith(f"{name} cannot be stored; {remedy}")


NAN = float("nan")


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        ((0, NAN), {}, "args[1]"),
        (([[], [0, NAN]],), {}, "args[0][1][1]"),
        (((1, NAN),), {}, "args[0][1]"),
        (({1, NAN},), {}, "args[0]{…}"),
        (({"a": frozenset({(NAN,)})},), {}, "args[0].a{…}[0]"),
        (({"odd key": {'"': {"": NAN}}},), {}, 'args[0]["odd key"]["\\""][""]'),
        (({"$set": NAN},), {}, 'args[0]["$set"]'),
        ((), {"order": Line("A1", {"lines": [0, 0, 0, Line("B", NAN)]})}, "kwargs.order.price.lines[3].price"),
        ((), {"odd key": NAN}, 'kwargs["odd key"]'),
        ((ModelRef(label="shop.order", pk=NAN, alias="default"),), {}, "args[0].pk"),
        ((unset_line(),), {}, "args[0].sku"),
        (({"a": {1: 2}},), {}, "args[0].a"),
        ((), {"a": {"b": {"\0": 2}}}, "kwargs.a.b"),
    ],
)
def test_the_path_names_the_part(args: tuple[object, ...], kwargs: dict[str, object], path: str) -> None:
    with pytest.raises(UnencodableValue) as caught:
        encode_arguments(args, kwargs, limit=None)
    assert caught.value.path == path


def test_long_keys_and_long_paths_are_cut() -> None:
    value: object = NAN
    for _ in range(50):
        value = {"x" * 1000 + " ": value}
    with pytest.raises(UnencodableValue) as caught:
        encode(value)
    assert len(caught.value.path) == 300


def test_a_class_of_the_main_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Line", Line, raising=False)
    with pytest.raises(UnencodableValue, match=r"__main__\.Line cannot be imported by that name"):
        encode(Line("A1"))


def test_a_class_that_another_hides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("A1")
    monkeypatch.setattr(codec_values, "Line", object)
    with pytest.raises(UnencodableValue, match=r"tests\.codec_values\.Line cannot be imported by that name"):
        encode(line)


def test_a_zone_without_a_key_that_can_be_found_is_refused() -> None:
    with (Path(*[p for p in map(Path, _tzpath()) if p.exists()][:1]) / "UTC").open("rb") as file:
        keyless = ZoneInfo.from_file(file)
        file.seek(0)
        unknown = ZoneInfo.from_file(file, key="No/Where")
    for zone in (keyless, unknown):
        with pytest.raises(UnencodableValue, match=r"use zoneinfo.ZoneInfo\(key\) or a timezone"):
            encode(datetime(2026, 1, 1, tzinfo=zone))


def test_a_process_with_a_lower_limit_of_digits_refuses_too() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(UnencodableValue, match="a whole number of more than"):
            encode([10**700])
        with pytest.raises(UndecodableValue, match="not the JSON of this codec"):
            decode("1" * 700)
    finally:
        sys.set_int_max_str_digits(limit)


# Depth and circles ---------------------------------------------------------------------------------------------------

TOO_DEEP = "nested more than 200 levels deep, or containing itself; pass something flatter, or a key to it"


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = UUID(int=1)
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("wrap", "most"),
    [
        (lambda value: [value], 200),
        (lambda value: {"a": value}, 200),
        (lambda value: (value,), 100),
        (lambda value: frozenset({value}), 100),
        (lambda value: {"$a": value}, 100),
        (lambda value: Line("A1", value), 66),
        (lambda value: ModelRef(label="a", pk=value, alias="b"), 100),
    ],
)
def test_two_hundred_levels_of_the_encoded_form_come_back_and_one_more_is_refused(
    wrap: Callable[[Any], Any], most: int
) -> None:
    deepest = nested(most, wrap)
    assert same(decode(encode(deepest)), deepest)
    with pytest.raises(UnencodableValue) as caught:
        encode(wrap(deepest))
    assert caught.value.problem == TOO_DEEP


@pytest.mark.parametrize("text", ["[" * 201 + "]" * 201, "[" * 900 + "]" * 900, '{"a":' * 201 + "1" + "}" * 201])
def test_text_that_is_nested_too_deep_is_undecodable(text: str) -> None:
    with pytest.raises(UndecodableValue) as caught:
        decode(text)
    assert caught.value.problem == TOO_DEEP


def test_text_that_is_nested_beyond_pythons_stack_is_undecodable() -> None:
    with pytest.raises(UndecodableValue):
        decode("[" * 300_000 + "]" * 300_000)


def test_a_value_that_contains_itself_is_refused_quickly() -> None:
    circle: list[object] = [0]
    circle += [circle, circle]
    line = Line("A1")
    line.price = {"line": line}
    for value in (circle, line):
        with pytest.raises(UnencodableValue) as caught:
            encode_arguments((), {"order": value}, limit=None)
        assert caught.value.problem == TOO_DEEP
    assert caught.value.path.startswith("kwargs.order.price.line.price.line.price")


def test_a_nearly_full_stack_is_a_refusal_and_no_recursion_error() -> None:
    def encoded_below(frames: int) -> str:
        return encoded_below(frames - 1) if frames else encode(nested(150, lambda value: [value]))

    used = len(traceback.extract_stack())
    with pytest.raises(UnencodableValue) as caught:
        encoded_below(sys.getrecursionlimit() - used - 160)
    assert caught.value.problem == TOO_DEEP


def test_one_object_in_many_places_is_no_circle() -> None:
    shared = [1]
    assert encode([shared, shared, {"a": shared}]) == '[[1],[1],{"a":[1]}]'


# Junk ----------------------------------------------------------------------------------------------------------------


@st.composite
def junk_leaves(draw: st.DrawFn) -> Any:
    return draw(
        st.sampled_from([value for value, _ in REFUSED] + UNKNOWN)
        | st.floats()
        | st.text()
        | st.decimals()
        | st.complex_numbers()
        | st.fractions()
        | st.ip_addresses()
        | values
    )


junk_keys = st.text() | st.integers() | st.none() | st.binary(max_size=2)
junk = st.recursive(
    junk_leaves(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(junk_keys, children, max_size=3)
        | st.builds(Line, sku=children, price=children)
        | st.builds(ModelRef, label=children, pk=children, alias=children)
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(junk)
def test_encode_takes_a_value_or_refuses_it_and_raises_nothing_else(value: object) -> None:
    try:
        text = encode(value, limit=200)
    except (UnencodableValue, ArgumentsTooLarge):
        return
    assert same(decode(text), value)


json_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(sorted(codec.TAGS))
json_keys = st.text() | st.sampled_from(sorted(codec.TAGS))
json_nodes = st.recursive(
    json_leaves,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(json_keys, children, max_size=2),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.text() | json_nodes.map(json.dumps))
def test_decode_gives_a_value_or_undecodable_value_and_raises_nothing_else(text: str) -> None:
    try:
        decode(text)
    except UndecodableValue:
        return


# What decoding refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"$nope": 1}', "value: the tag $nope is not known; a newer version may have written it"),
        ('{"$": 1}', "value: the tag $ is not known; a newer version may have written it"),
        ('[1, {"a": {"$date": 5}}]', "value[1].a: $date needs text"),
        ('{"$date": "29.11.2026"}', "value: $date cannot be read: ValueError: Invalid isoformat string: '29.11.2026'"),
        ('{"$datetime": "[x"}', "value: $datetime cannot be read: ValueError: '[x' is not a moment"),
        ('{"$timedelta": "1h"}', "value: $timedelta cannot be read: ValueError: '1h' is not a timedelta"),
        ('{"$float": "nan"}', "value: $float cannot be read: ValueError: it is not finite"),
        ('{"$decimal": "Infinity"}', "value: $decimal cannot be read: ValueError: it is not finite"),
        ("NaN", "value: not the JSON of this codec: NaN is no number of JSON"),
        ("[1e999]", "value: not the JSON of this codec: it is not finite"),
        ('{"$tuple": {"0": 1}}', "value: a JSON list is needed here"),
        ('{"$dict": [1]}', "value: a JSON object is needed here"),
        ('{"$set": [[1]]}', "value: $set cannot be read: TypeError: unhashable type: 'list'"),
        ('{"$tuple": [1, {"$b": 1}]}', "value[1]: the tag $b is not known; a newer version may have written it"),
        ('{"$model": {"label": "shop.order", "pk": 1}}', "value: $model needs a label, a pk and an alias"),
        ('{"$model": {"label": 1, "pk": 1, "alias": ""}}', "value: $model needs a label, a pk and an alias"),
        ('{"$dataclass": ["shop"]}', "value: $dataclass needs a list of a class path and an object of fields"),
        ('{"$dataclass": "shop"}', "value: $dataclass needs a list of a class path and an object of fields"),
        (
            '{"$dataclass": ["no_such:Line", {}]}',
            "value: $dataclass cannot be read: ModuleNotFoundError: No module named 'no_such'",
        ),
        ('{"$dataclass": ["", {}]}', "value: $dataclass cannot be read: ValueError: Empty module name"),
        (
            '{"$dataclass": ["subprocess:Popen", {"args": ["true"]}]}',
            "value: $dataclass cannot be read: TypeError: subprocess:Popen is not a dataclass",
        ),
        (
            '{"$dataclass": ["os:system", {"command": "true"}]}',
            "value: $dataclass cannot be read: TypeError: there is no class os:system",
        ),
        (
            '{"$dataclass": ["tests.test_codec:sys.modules", {}]}',
            "value: $dataclass cannot be read: TypeError: there is no class tests.test_codec:sys.modules",
        ),
        (
            f'{{"$dataclass": ["{VALUES}:Color", {{}}]}}',
            f"value: $dataclass cannot be read: TypeError: {VALUES}:Color is not a dataclass",
        ),
        (
            f'{{"$dataclass": ["{HERE}:Picky", {{"tag": -1}}]}}',
            "value: $dataclass cannot be read: ZeroDivisionError: negative",
        ),
        (
            f'[{{"$dataclass": ["{HERE}:Picky", {{"tag": {{"$b": 1}}}}]}}]',
            "value[0].tag: the tag $b is not known; a newer version may have written it",
        ),
        ('{"$enum": "builtins:print"}', "value: $enum cannot be read: ValueError: Empty module name"),
        ('{"$enum": "builtins:str.upper"}', "value: $enum cannot be read: TypeError: builtins:str is not an Enum"),
        (f'{{"$enum": "{VALUES}:Color.BLUE"}}', "value: $enum cannot be read: KeyError: 'BLUE'"),
        (f'{{"$enum": "{VALUES}:Color.mro"}}', "value: $enum cannot be read: KeyError: 'mro'"),
    ],
)
def test_anything_else_is_undecodable_with_its_path(text: str, message: str) -> None:
    with pytest.raises(UndecodableValue) as caught:
        decode(text)
    assert str(caught.value) == message


def test_the_original_error_is_the_cause() -> None:
    with pytest.raises(UndecodableValue) as caught:
        decode(f'[{{"$dataclass": ["{HERE}:Picky", {{"tag": -1}}]}}]')
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(UnencodableValue) as refused:
        encode([unset_line()])
    assert isinstance(refused.value.__cause__, AttributeError)


def test_a_field_that_was_added_since_takes_its_default() -> None:
    assert decode(f'{{"$dataclass": ["{VALUES}:Line", {{"sku": "A1"}}]}}') == Line("A1", None)


def test_a_field_that_is_gone_is_undecodable() -> None:
    with pytest.raises(UndecodableValue, match="unexpected keyword argument 'colour'"):
        decode(f'{{"$dataclass": ["{VALUES}:Line", {{"sku": "A1", "colour": 1}}]}}')


def test_a_class_that_moved_is_found_where_its_old_module_imports_it() -> None:
    assert decode(f'{{"$dataclass": ["{HERE}:ModelRef", {{"label": "a", "pk": 1, "alias": "b"}}]}}') == ModelRef(
        label="a", pk=1, alias="b"
    )


def test_a_module_that_is_not_loaded_yet_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_shop.py").write_text("import enum\nclass Late(enum.Enum):\n    YES = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    decoded: Any = decode('{"$enum": "late_shop:Late.YES"}')
    monkeypatch.delitem(sys.modules, "late_shop")
    assert decoded.value == 1


def test_a_module_that_fails_to_import_is_undecodable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shop.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UndecodableValue, match=r"value: \$enum cannot be read: ZeroDivisionError: division by zero"):
        decode('{"$enum": "broken_shop:Late.YES"}')


def test_the_zone_and_the_wall_time_decide_and_not_the_offset() -> None:
    decoded = decode('{"$datetime": "2026-07-01T10:00:00+09:00[Europe/Paris]"}')
    assert same(decoded, datetime(2026, 7, 1, 10, tzinfo=PARIS))


# The table in the docs -----------------------------------------------------------------------------------------------

ROWS = re.findall(r"^\| (none|`\$\w+`) \| (.*) \| (.*) \| `(.*)` \|$", DOCS.read_text(), re.MULTILINE)


@pytest.fixture
def shop_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the module that the examples in the docs speak of."""
    module: Any = types.ModuleType("shop.orders")
    source = """
from dataclasses import dataclass
from enum import Enum

class Order:
    class Status(Enum):
        PAID = "paid"

@dataclass
class Line:
    sku: str
    price: object
"""
    monkeypatch.setitem(sys.modules, "shop.orders", module)
    exec(source, vars(module))


@pytest.mark.parametrize("example", [example for *_, example in ROWS])
@pytest.mark.usefixtures("shop_orders")
def test_each_example_in_the_docs_is_what_the_codec_writes_of_what_it_reads(example: str) -> None:
    compact = json.dumps(json.loads(example), ensure_ascii=False, separators=(",", ":"))
    assert encode(decode(example)) == compact


def test_the_docs_have_every_tag_and_no_other() -> None:
    tags = {tag.strip("`") for tag, *_ in ROWS}
    assert tags - {"none"} == codec.TAGS
    assert all(tag.strip("`") == next(iter(json.loads(example))) for tag, _, _, example in ROWS if tag != "none")


def test_the_docs_name_the_limits() -> None:
    text = DOCS.read_text()
    assert (codec.MAX_DEPTH, codec.MAX_DIGITS) == (200, 4300)
    assert "200 levels" in text
    assert "4,300 digits" in text


def _tzpath() -> list[str]:
    import zoneinfo

    return [*zoneinfo.TZPATH, "/usr/share/zoneinfo"]
