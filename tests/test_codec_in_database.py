"""Accepted values go through each database's column and come back as they were: DESIGN §4, FAULTS.md O35 and O36."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_jobs import lifecycle
from django_jobs.codec import MAX_DEPTH, MAX_DIGITS, decode, decode_arguments, encode, encode_arguments
from django_jobs.models import Job
from django_jobs.outcomes import Succeeded
from django_jobs.records import NewJob
from tests.codec_values import keys, same, values
from tests.factories import claim_one, new_job, queue_jobs, take

Call: TypeAlias = tuple[list[Any], dict[str, Any]]

UNHURRIED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

calls = st.tuples(st.lists(values, max_size=3), st.dictionaries(keys, values, max_size=3))

# The limits of the codec, and what databases like to rewrite.
EDGES: dict[str, Any] = {
    "deep": reduce(lambda value, _: [value], range(MAX_DEPTH - 1), None),
    "many digits": 10**MAX_DIGITS - 1,
    "many digits below zero": 1 - 10**MAX_DIGITS,
    "floats": [5e-324, 1e-5, 0.1, 1e16, 1.7976931348623157e308, 1.0, 0.0, -0.0],
    "decimals": [Decimal("1.10"), Decimal("-0"), Decimal("1E+500")],
    "keys": {"bb": 1, "a": 2, "": {"$dict": {"$": 3}}},
    "text": "'\"\\\x01\x7f\u2028\ufeff\uffff\U0010ffff%s{}",
    "text like an escape": r"\u0000 \ud800",
    "none": None,
    "text null": "null",
}


def job_of(call: Call) -> NewJob:
    args, kwargs = call
    args_text, kwargs_text = encode_arguments(tuple(args), kwargs, limit=None)
    return new_job(args=args_text, kwargs=kwargs_text)


def settle_with(results: list[Any]) -> list[object]:
    """Settle a job for each result, all at once, and give what the column then holds, decoded."""
    ids = queue_jobs(len(results))
    claims = {claim.id: claim for claim in take(limit=len(results)).claims}
    runs = [(claims[job_id], Succeeded(result=encode(result))) for job_id, result in zip(ids, results, strict=True)]
    assert lifecycle.settle(connections["default"], runs) == []
    stored = results_of(ids)
    return [decode(stored[job_id]) for job_id in ids]


def results_of(ids: list[int]) -> dict[int, str]:
    """Read the column as the text that the database makes of it, past Django's reading of JSON."""
    with connections["default"].cursor() as cursor:
        cursor.execute(f'select id, cast(result as text) from "{Job._meta.db_table}" where id >= %s', [min(ids)])
        return dict(cursor.fetchall())


# A savepoint for each example: after an error of the database the next example begins anew.


@pytest.mark.django_db
@settings(max_examples=75, **UNHURRIED)
@given(calls)
def test_o35_o36_the_arguments_of_a_job_come_back_as_they_were(call: Call) -> None:
    with transaction.atomic():
        lifecycle.enqueue(job_of(call), using="default")
        claim = claim_one()
        assert same(decode_arguments(claim.args, claim.kwargs), call)


@pytest.mark.django_db
@settings(max_examples=20, **UNHURRIED)
@given(st.lists(calls, min_size=1, max_size=5))
def test_o35_o36_the_arguments_of_jobs_queued_together_come_back_as_they_were(together: list[Call]) -> None:
    with transaction.atomic():
        queued = lifecycle.enqueue_many([job_of(call) for call in together], using="default")
        claims = {claim.id: claim for claim in take(limit=len(together)).claims}
        decoded = [decode_arguments(claims[job.id].args, claims[job.id].kwargs) for job in queued]
        assert same(decoded, together)


@pytest.mark.django_db
@settings(max_examples=30, **UNHURRIED)
@given(st.lists(values, min_size=1, max_size=5))
def test_o35_o36_results_come_back_as_they_were(results: list[Any]) -> None:
    with transaction.atomic():
        assert same(settle_with(results), results)


@pytest.mark.django_db
@pytest.mark.parametrize("value", EDGES.values(), ids=EDGES.keys())
def test_o35_o36_an_edge_comes_back_as_it_was(value: Any) -> None:
    together: list[Call] = [([value], {}), ([], {"value": value})]
    lifecycle.enqueue_many([job_of(call) for call in together], using="default")
    for call in together:
        lifecycle.enqueue(job_of(call), using="default")
    decoded = [decode_arguments(claim.args, claim.kwargs) for claim in take().claims]
    assert same(decoded, together * 2)
    assert same(settle_with([value]), [value])
