"""What is hidden where a job is shown: by the names of arguments, and of keys at any depth."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import codec
from django_jobs.performers import AnyPerformer
from django_jobs.performers.redaction import MASK, redact_job, redact_key, redact_part, redact_value

Declare = Callable[..., AnyPerformer]


@dataclass(frozen=True)
class Payment:
    amount: int
    card: str
    api_key: str = "k"


def encoded(value: object) -> Any:
    return json.loads(codec.encode(value))


@pytest.fixture
def pay(declare: Declare) -> AnyPerformer:
    def pay(order: int, card: str, *notes: Any, password: str = "", **more: Any) -> None: ...

    return declare(pay, name="shop.pay", redact=("card", "iban"))


# -- by key


@pytest.mark.parametrize(
    "key",
    ["password", "PASSWORD", "old_passwd", "api_key", "apiToken", "secret", "Authorization", "signature", "pass"],
)
def test_what_django_hides_in_its_reports_is_hidden(key: str) -> None:
    assert redact_value({key: "s3cret", "order": 5}) == {key: "********", "order": 5}


def test_it_is_hidden_at_any_depth() -> None:
    given = {"a": [{"b": {"token": "x", "c": [1, {"secret": ["x", "y"]}]}}, 5], "d": None}
    assert redact_value(given) == {
        "a": [{"b": {"token": "********", "c": [1, {"secret": "********"}]}}, 5],
        "d": None,
    }
    assert given["a"][0]["b"]["token"] == "x"  # type: ignore[index]


@pytest.mark.parametrize("value", [None, "", 0, [], {}, {"a": 1}, True])
def test_whatever_stands_there_is_hidden(value: object) -> None:
    assert redact_value({"password": value}) == {"password": MASK}


def test_the_setting_adds_patterns_whatever_their_case() -> None:
    given = {"IBAN": "x", "my_iban_nr": "x", "card": "x", "carding": "x", "token": "x"}
    with override_settings(DJANGO_JOBS={"REDACT": ["iban", "^card$"]}):
        assert redact_value(given) == {"IBAN": MASK, "my_iban_nr": MASK, "card": MASK, "carding": "x", "token": MASK}
    assert redact_value({"iban": "x"}) == {"iban": "x"}


def test_names_of_a_call_are_whole_names_whatever_their_case() -> None:
    given = {"card": "x", "Card": "x", "card_no": "x", "carding": [{"card": "x"}]}
    assert redact_value(given, extra=("card",)) == {
        "card": MASK,
        "Card": MASK,
        "card_no": "x",
        "carding": [{"card": MASK}],
    }


@pytest.mark.parametrize("value", [5, "password", None, [1, 2], {"a": {"b": [1]}}, Payment, {5: "x"}])
def test_what_nothing_is_hidden_of_is_given_as_it_is(value: object) -> None:
    assert redact_value(value) is value


# -- in the codec's form, and decoded


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, {"token": "x"}), {"$tuple": [1, {"token": MASK}]}),
        ({"$token": "x"}, {"$dict": {"$token": MASK}}),
        ({"$set": {"token": "x"}}, {"$dict": {"$set": {"token": MASK}}}),
        ({"api_key": (1, 2)}, {"api_key": MASK}),
        (
            Payment(amount=5, card="x"),
            {"$dataclass": [f"{__name__}:Payment", {"amount": 5, "card": "x", "api_key": MASK}]},
        ),
        (
            {"at": datetime(2026, 3, 1, tzinfo=UTC), "keys": {1}},
            {"at": {"$datetime": "2026-03-01T00:00:00+00:00"}, "keys": MASK},
        ),
    ],
    ids=["tuple", "escaped key", "escaped tag", "under a key", "dataclass", "leaves"],
)
def test_values_in_the_form_of_the_codec_are_gone_through(value: Any, shown: Any) -> None:
    if shown is None:
        stored = {"model": {"$model": {"label": "a.B", "pk": {"token": "x"}, "alias": "default"}}}
        assert redact_value(stored) == {
            "model": {"$model": {"label": "a.B", "pk": {"token": MASK}, "alias": "default"}}
        }
        return
    assert redact_value(encoded(value)) == shown


def test_a_reference_to_a_model_is_gone_through() -> None:
    stored = {"$model": {"label": "shop.order", "pk": 5, "alias": "default"}}
    assert redact_value(stored) is stored
    assert redact_value({"secret": stored}) == {"secret": MASK}


def test_no_pattern_hides_what_is_a_tag_of_the_codec() -> None:
    with override_settings(DJANGO_JOBS={"REDACT": ["data", "set", "tuple"]}):
        stored = encoded([{1}, (2,), Payment(amount=1, card="x")])
        assert redact_value(stored) == [
            {"$set": [1]},
            {"$tuple": [2]},
            {"$dataclass": [f"{__name__}:Payment", {"amount": 1, "card": "x", "api_key": MASK}]},
        ]
        assert redact_value({"$set": 1, "b": 2}) == {"$set": MASK, "b": 2}


def test_an_object_under_an_unknown_tag_is_hidden_by_its_name_and_gone_through_otherwise() -> None:
    assert redact_value({"$password": "x"}) == {"$password": MASK}
    assert redact_value({"$newer": {"token": "x"}}) == {"$newer": {"token": MASK}}


def test_decoded_values_are_gone_through() -> None:
    assert redact_value((1, {"token": "x"})) == (1, {"token": MASK})
    assert redact_value({Payment(amount=1, card="x")}, extra=["card"]) == [{"amount": 1, "card": MASK, "api_key": MASK}]
    assert redact_value([Payment(amount=1, card="x")]) == [{"amount": 1, "card": "x", "api_key": MASK}]


# -- by parameter


def test_arguments_are_hidden_by_the_names_of_their_parameters(pay: AnyPerformer) -> None:
    assert redact_job("shop.pay", [5, "4111"], {"password": "x", "iban": "x", "note": {"card": "x", "a": 1}}) == (
        [5, MASK],
        {"password": MASK, "iban": MASK, "note": {"card": MASK, "a": 1}},
    )
    assert redact_job("shop.pay", [], {"order": 5, "card": "4111"}) == ([], {"order": 5, "card": MASK})
    assert redact_job("shop.pay", [5, "x", {"iban": "x"}, 7], {}) == ([5, MASK, {"iban": MASK}, 7], {})


def test_parameters_that_take_what_is_left_hide_all_of_it(declare: Declare) -> None:
    def post(path: str, /, *tokens: str, body: object = None, **secrets: str) -> None: ...

    declare(post, name="shop.post")
    assert redact_job("shop.post", ["/a", "t1", "t2"], {"body": 5, "other": "x", "path": "x"}) == (
        ["/a", MASK, MASK],
        {"body": 5, "other": MASK, "path": MASK},
    )


def test_the_attempt_counts_for_nothing(declare: Declare) -> None:
    def pay(attempt: object, card: str, amount: int) -> None: ...

    declare(pay, name="shop.pay", takes_attempt=True, redact="card")
    assert redact_job("shop.pay", ["4111", 5], {}) == ([MASK, 5], {})


def test_an_old_name_is_that_of_its_performer(declare: Declare) -> None:
    def pay(card: str) -> None: ...

    declare(pay, name="shop.pay", aliases=["shop.charge"], redact=("card",))
    assert redact_job("shop.charge", ["4111"], {}) == ([MASK], {})


@pytest.mark.parametrize("name", ["shop.gone", ""])
def test_of_a_performer_that_is_not_here_the_keys_alone_are_looked_at(name: str) -> None:
    assert redact_job(name, ["4111", {"token": "x"}], {"card": "x", "password": "x"}) == (
        ["4111", {"token": MASK}],
        {"card": "x", "password": MASK},
    )


@pytest.mark.parametrize(("args", "kwargs"), [([], {"order": 1}), (["4111"], {"order": 1}), (["4111"], {})])
def test_arguments_by_position_that_do_not_fit_any_more_are_all_hidden(
    pay: AnyPerformer, args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert redact_job("shop.pay", args, kwargs) == ([MASK] * len(args), kwargs)


def test_where_nothing_is_hidden_arguments_that_do_not_fit_are_shown(declare: Declare) -> None:
    def greet(name: str) -> None: ...

    declare(greet, name="shop.greet")
    assert redact_job("shop.greet", ["Ada", 5], {}) == (["Ada", 5], {})


# -- other parts


def test_a_result_is_hidden_by_the_names_of_its_performer(pay: AnyPerformer) -> None:
    assert redact_part("shop.pay", {"card": "x", "ok": True}) == {"card": MASK, "ok": True}
    assert redact_part("shop.gone", {"card": "x", "token": "x"}) == {"card": "x", "token": MASK}


def test_a_key_made_of_all_arguments_is_shown_without_what_is_hidden(pay: AnyPerformer) -> None:
    key = pay.using(unique=True).prepare(5, "4111", iban="x").unique_key
    assert key == 'shop.pay/{"card":"4111","more":{"iban":"x"},"notes":{"$tuple":[]},"order":5,"password":""}'
    shown = (
        'shop.pay/{"card":"********","more":{"iban":"********"},"notes":{"$tuple":[]},"order":5,"password":"********"}'
    )
    assert redact_key(key) == shown


@pytest.mark.parametrize(
    "key", ["shop.pay/daily", "shop.pay/5", "shop.pay/", "shop.pay#abc", "", 'shop.pay/{"order":5}']
)
def test_another_key_is_shown_as_it_is(pay: AnyPerformer, key: str) -> None:
    assert redact_key(key) == key


# -- said of a performer


@pytest.mark.parametrize("given", ["card", ["card"], ("card",), {"card"}, (name for name in ["card"])])
def test_names_are_given_as_one_or_as_any_collection(declare: Declare, given: Any) -> None:
    def pay(card: str) -> None: ...

    assert declare(pay, redact=given).redact == frozenset({"card"})


def test_a_performer_hides_nothing_by_default(declare: Declare) -> None:
    def pay(card: str) -> None: ...

    assert declare(pay).redact == frozenset()


RULE = "give names of arguments, or of keys within them"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (5, TypeError, f"redact=5: {RULE}"),
        (None, TypeError, f"redact=None: {RULE}"),
        (["card", 5], TypeError, f"redact=5: {RULE}"),
        (b"card", TypeError, f"redact=99: {RULE}"),
        ("", ValueError, f"redact='': an empty name hides nothing; {RULE}"),
    ],
)
def test_a_wrong_name_is_refused(declare: Declare, given: Any, error: type[Exception], message: str) -> None:
    def pay(card: str) -> None: ...

    with pytest.raises(error) as caught:
        declare(pay, redact=given)
    assert str(caught.value) == message


def test_it_is_said_of_all_jobs_and_not_of_some(pay: AnyPerformer) -> None:
    with pytest.raises(TypeError, match=r"^using\(\) has no option 'redact'"):
        pay.using(redact=("order",))  # type: ignore[call-arg]
