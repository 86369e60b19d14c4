from __future__ import annotations

import pytest

from tests.benchmarks.figures import (
    Body,
    Figure,
    Idling,
    Rejected,
    idling,
    percentile,
    rate,
    rate_at_work,
    ratio,
    spread,
)


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    values = [float(number) for number in range(200, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [100.0, 198.0, 200.0]


def test_a_percentile_of_few_values_is_one_of_them() -> None:
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_the_spread_is_what_lies_between_the_extremes_as_a_share_of_the_median() -> None:
    assert spread([80.0, 100.0, 130.0]) == 0.5
    assert spread([100.0]) == 0.0
    assert spread([0.0, 0.0]) == 0.0


def test_the_ratio_is_taken_run_by_run_so_that_what_slowed_both_does_not_count() -> None:
    assert ratio([50.0, 100.0, 60.0], [100.0, 200.0, 100.0]) == 0.5


def test_a_ratio_needs_as_many_raw_runs() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0, 2.0], [1.0])


def test_a_figure_without_raw_runs_has_no_ratio() -> None:
    figure = Figure(name="idle", what="", unit="/s", values=(1.0, 3.0, 2.0))
    assert (figure.value, figure.spread, figure.raw_value, figure.ratio) == (2.0, 1.0, None, None)


def test_a_figure_gives_the_medians_of_both_sides() -> None:
    figure = Figure(name="drain", what="", unit="jobs/s", values=(90.0, 30.0, 80.0), raw=(100.0, 40.0, 100.0))
    assert (figure.value, figure.raw_value, figure.ratio) == (80.0, 100.0, 0.8)


def test_the_rate_counts_what_ended_after_the_first_batch() -> None:
    ends = [("a", 10.0)] * 100 + [("a", 11.0)] * 100 + [("b", 12.0)] * 50
    assert rate(ends) == 75.0


def test_the_rate_at_work_begins_when_the_last_worker_has_ended_a_batch() -> None:
    ends = [("a", 10.0)] * 100 + [("b", 12.0)] * 100 + [("a", 12.5)] * 60 + [("b", 13.0)] * 40
    assert rate_at_work(ends) == 100.0


def test_a_run_of_one_batch_has_no_rate() -> None:
    with pytest.raises(Rejected, match="too few jobs"):
        rate([("a", 10.0)] * 100)


# -- idle slots


def body(slot: str, *, due: float, begin: float, end: float) -> Body:
    return Body(slot=slot, due=due, begin=begin, end=end)


def test_a_slot_that_is_free_while_no_job_waits_does_not_idle() -> None:
    bodies = [body("a", due=0.0, begin=0.0, end=1.0), body("a", due=5.0, begin=5.0, end=6.0)]
    assert idling(bodies, slots=2) == Idling(longest=0.0, share=0.0)


def test_a_slot_idles_from_the_end_of_a_body_until_the_next_one_begins() -> None:
    bodies = [body("a", due=0.0, begin=1.0, end=2.0), body("a", due=0.0, begin=5.0, end=6.0)]
    assert idling(bodies, slots=1) == Idling(longest=3.0, share=0.8)


def test_a_slot_in_which_nothing_ever_ran_idles_as_long_as_a_job_waits() -> None:
    bodies = [body("a", due=0.0, begin=0.0, end=4.0), body("a", due=0.0, begin=4.0, end=8.0)]
    assert idling(bodies, slots=2) == Idling(longest=4.0, share=0.5)


def test_only_the_time_counts_in_which_a_job_waits() -> None:
    bodies = [
        body("a", due=0.0, begin=0.0, end=1.0),
        body("b", due=0.0, begin=0.0, end=10.0),
        body("a", due=6.0, begin=8.0, end=9.0),
    ]
    assert idling(bodies, slots=2).longest == 2.0


def test_a_slot_that_works_beyond_the_last_wait_does_not_idle_then() -> None:
    bodies = [body("a", due=0.0, begin=1.0, end=9.0), body("b", due=0.0, begin=2.0, end=3.0)]
    assert idling(bodies, slots=2) == Idling(longest=2.0, share=0.75)
