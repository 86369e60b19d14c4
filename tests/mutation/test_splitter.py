"""What the splitter finds in a text: every predicate, and nothing that isn't one."""

from __future__ import annotations

import pytest

from tests.mutation.splitter import mutants_of


def labels(text: str) -> list[str]:
    return [mutant.label for mutant in mutants_of(text)]


def made(text: str) -> list[str]:
    return [" ".join(mutant.of(text).split()) for mutant in mutants_of(text)]


def test_each_part_of_a_where_becomes_true() -> None:
    assert made("select a from t where a = 1 and b is not null") == [
        "select a from t where true and b is not null",
        "select a from t where a = 1 and true",
    ]


def test_each_way_of_an_or_becomes_false_and_the_whole_true() -> None:
    assert made("select a from t where (a = 1 or b = 2) and c = 3") == [
        "select a from t where true and c = 3",
        "select a from t where (false or b = 2) and c = 3",
        "select a from t where (a = 1 or false) and c = 3",
        "select a from t where (a = 1 or b = 2) and true",
    ]


def test_conditions_of_a_join_and_of_queries_within_are_found() -> None:
    assert labels("select a from t join u on u.a = t.a where not exists (select 1 from w where w.a = t.a)") == [
        "true for u.a = t.a",
        "true for not exists (select 1 from w where w.a = t.a)",
        "true for w.a = t.a",
    ]


def test_on_conflict_is_no_condition() -> None:
    text = "insert into t (a) select c.a from c where c.a = 1 on conflict (a) do update set b = 2, c = 3"
    assert labels(text) == ["true for c.a = 1", "without b = 2", "without c = 3", "without column a"]


@pytest.mark.parametrize(("sign", "other"), [("<", "<="), ("<=", "<"), (">", ">="), (">=", ">")])
def test_comparisons_lose_or_get_their_boundary(sign: str, other: str) -> None:
    assert made(f"select a {sign} b") == [f"select a {other} b"]


def test_signs_that_look_like_comparisons_are_left_alone() -> None:
    assert made("select a->>'x', b -> 'y', f(secs => 1), c <> d, 'a < b' from t") == []


def test_conditions_of_a_case_hold_always_and_never() -> None:
    assert made("select case when a then 1 else 2 end") == [
        "select case when true then 1 else 2 end",
        "select case when false then 1 else 2 end",
    ]


def test_a_case_that_compares_loses_its_branches() -> None:
    assert made("select case a when 'x' then 1 when 'y' then 2 else 3 end") == [
        "select case a when 'y' then 2 else 3 end",
        "select case a when 'x' then 1 else 3 end",
    ]


def test_choices_are_left_out_one_by_one() -> None:
    assert made("select coalesce(a, b, c)") == [
        "select coalesce(b, c)",
        "select coalesce(a, c)",
        "select coalesce(a, b)",
    ]
    assert made("select a from t limit least(b, c)") == [
        "select a from t",
        "select a from t limit (c)",
        "select a from t limit (b)",
    ]
    assert made("delete from t where a in ('x', 'y')") == [
        "delete from t where true",
        "delete from t where a in ('y')",
        "delete from t where a in ('x')",
    ]


def test_summands_are_left_out_and_a_plus_before_a_word_is_none() -> None:
    assert made("update t set a = b + 1") == ["update t set a = 1", "update t set a = b"]
    assert labels("select {later:a + {float:%(b)s}}") == [
        "without a of a + {float:%(b)s}",
        "without {float:%(b)s} of a + {float:%(b)s}",
    ]
    assert made("select a from t order by +a, b") == ["select a from t order by b", "select a from t order by +a"]


def test_keys_of_an_order_are_left_out_and_turned() -> None:
    assert made("select f() over (partition by a order by b desc, c)") == [
        "select f() over ( order by b desc, c)",
        "select f() over (partition by a order by c)",
        "select f() over (partition by a order by b desc)",
        "select f() over (partition by a order by b , c)",
    ]


def test_limits_and_locks_are_left_out_and_exchanged() -> None:
    assert made("select a from t limit 1 for no key update skip locked") == [
        "select a from t for no key update skip locked",
        "select a from t limit 1",
        "select a from t limit 1 for no key update",
    ]
    assert made("select a from t {skip}") == ["select a from t", "select a from t {wait}"]
    assert made("select a from t {wait}") == ["select a from t", "select a from t {skip}"]


def test_assignments_and_columns_are_left_out() -> None:
    assert made("update t set a = 1, b = {now} from u {returning:id}") == [
        "update t set b = {now} from u {returning:id}",
        "update t set a = 1 from u {returning:id}",
    ]
    assert made("insert into t (a, b) select 1, {now} from u") == [
        "insert into t (b) select {now} from u",
        "insert into t (a) select 1 from u",
    ]
    assert made("insert into t (a, b) values (1, {now}) {returning:id}") == [
        "insert into t (b) values ({now}) {returning:id}",
        "insert into t (a) values (1) {returning:id}",
    ]


def test_a_part_that_begins_with_and_is_a_condition() -> None:
    assert made("and not ready.alone") == ["and true"]


def test_each_mutant_of_a_text_has_a_label_of_its_own() -> None:
    assert labels("select (select a from t where b) from u where b") == ["true for b", "true for b (2)"]


def test_what_the_splitter_cannot_read_is_refused() -> None:
    for text in ("select a from t where a between 1 and 2", "select (a", "select case when a then b", "select a ? b"):
        with pytest.raises(ValueError, match=r"splitter doesn't know|not closed"):
            mutants_of(text)
