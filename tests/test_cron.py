"""Moments of cron lines and intervals: by example around shifts of the clock, and by brute force over ten years."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobs.cron import ALIASES, Cron, Interval, parse, zone_of

BERLIN, NEW_YORK, LORD_HOWE = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")

MINUTE = timedelta(minutes=1)


def local(zone: ZoneInfo, text: str, *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)


def moments(line: str, zone: ZoneInfo, after: str, count: int) -> list[str]:
    """Give the next moments as the clock of the zone shows them, with its offset in hours."""
    found = islice(parse(line, zone=zone).moments(local(zone, after)), count)
    return [f"{moment.astimezone(zone):%m-%d %H:%M%z}" for moment in found]


# -- O53: what shifts of the clock do


@pytest.mark.parametrize(
    ("zone", "after", "spring"),
    [
        (BERLIN, "2026-03-28 12:00", ["03-29 03:00+0200", "03-30 02:30+0200"]),
        (NEW_YORK, "2026-03-07 12:00", ["03-08 03:00-0400", "03-09 02:30-0400"]),
    ],
)
def test_o53_a_fixed_time_that_does_not_exist_runs_at_the_shift(zone: ZoneInfo, after: str, spring: list[str]) -> None:
    assert moments("30 2 * * *", zone, after, 2) == spring


@pytest.mark.parametrize(
    ("zone", "after", "autumn"),
    [
        (BERLIN, "2026-10-24 12:00", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        (NEW_YORK, "2026-10-31 12:00", ["11-01 01:30-0400", "11-02 01:30-0500"]),
    ],
)
def test_o53_a_fixed_time_that_happens_twice_runs_once(zone: ZoneInfo, after: str, autumn: list[str]) -> None:
    hour = 2 if zone is BERLIN else 1
    assert moments(f"30 {hour} * * *", zone, after, 2) == autumn


def test_o53_several_fixed_times_within_a_gap_run_once_at_the_shift() -> None:
    assert moments("0,15,30,45 2,3 * * *", BERLIN, "2026-03-29 00:00", 3) == [
        "03-29 03:00+0200", "03-29 03:15+0200", "03-29 03:30+0200",
    ]  # fmt: skip


def test_o53_a_fixed_time_is_not_run_again_for_who_asks_within_the_second_pass() -> None:
    second_pass = local(BERLIN, "2026-10-25 02:15", fold=1)
    assert parse("30 2 * * *", zone=BERLIN).next_after(second_pass) == local(BERLIN, "2026-10-26 02:30")


def test_o53_every_quarter_of_an_hour_is_one_of_real_time() -> None:
    spring = moments("*/15 * * * *", BERLIN, "2026-03-29 01:20", 4)
    assert spring == ["03-29 01:30+0100", "03-29 01:45+0100", "03-29 03:00+0200", "03-29 03:15+0200"]
    autumn = moments("*/30 * * * *", BERLIN, "2026-10-25 01:45", 5)
    assert autumn == [
        "10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100", "10-25 03:00+0100",
    ]  # fmt: skip


def test_o53_every_hour_is_one_of_real_time() -> None:
    assert moments("0 * * * *", NEW_YORK, "2026-11-01 00:30", 3) == [
        "11-01 01:00-0400", "11-01 01:00-0500", "11-01 02:00-0500",
    ]  # fmt: skip


def test_o53_a_line_of_minutes_in_a_fixed_hour_is_every_real_moment_of_that_hour() -> None:
    assert moments("*/30 2 * * *", BERLIN, "2026-03-28 12:00", 2) == ["03-30 02:00+0200", "03-30 02:30+0200"]
    assert moments("*/30 2 * * *", BERLIN, "2026-10-24 12:00", 4) == [
        "10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100",
    ]  # fmt: skip


def test_o53_a_shift_of_half_an_hour_loses_no_time() -> None:
    assert moments("0 * * * *", LORD_HOWE, "2026-10-04 00:30", 3) == [
        "10-04 01:00+1030", "10-04 03:00+1100", "10-04 04:00+1100",
    ]  # fmt: skip
    assert moments("15 2 * * *", LORD_HOWE, "2026-10-03 12:00", 2) == ["10-04 02:30+1100", "10-05 02:15+1100"]
    assert moments("45 1 * * *", LORD_HOWE, "2026-04-04 12:00", 2) == ["04-05 01:45+1100", "04-06 01:45+1030"]


def test_o53_a_shift_at_midnight_loses_no_day() -> None:
    assert moments("0 0 * * *", ZoneInfo("America/Sao_Paulo"), "2018-11-03 12:00", 2) == [
        "11-04 01:00-0200", "11-05 00:00-0200",
    ]  # fmt: skip
    assert moments("*/30 * * * *", ZoneInfo("America/Sao_Paulo"), "2018-11-03 23:15", 3) == [
        "11-03 23:30-0300", "11-04 01:00-0200", "11-04 01:30-0200",
    ]  # fmt: skip


def test_o53_a_day_that_a_zone_left_out_is_run_at_its_end() -> None:
    assert moments("0 9 30 12 *", ZoneInfo("Pacific/Apia"), "2011-12-01 00:00", 1) == ["12-31 00:00+1400"]


# -- O54: days and grammar


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29"]),
        ("0 0 31 * *", "2026-01-31", ["2026-03-31", "2026-05-31"]),
        ("0 0 */10 * *", "2026-02-20", ["2026-02-21", "2026-03-01", "2026-03-11"]),
        # One of both begins with a star: both have to match. Else one is enough.
        ("0 0 */2 * MON", "2026-03-01", ["2026-03-09", "2026-03-23"]),
        ("0 0 13 * FRI", "2026-03-01", ["2026-03-06", "2026-03-13", "2026-03-20"]),
        ("0 0 * * 0", "2026-03-01", ["2026-03-08"]),
        ("0 0 * * 7", "2026-03-01", ["2026-03-08"]),
        ("0 0 * * 5-7", "2026-03-01", ["2026-03-06", "2026-03-07", "2026-03-08"]),
        ("0 0 1-20/7 * *", "2026-02-28", ["2026-03-01", "2026-03-08", "2026-03-15"]),
        ("0 0 1 jAn-Mar *", "2026-01-15", ["2026-02-01", "2026-03-01", "2027-01-01"]),
        ("0 0 L 2 *", "2026-01-01", ["2026-02-28", "2027-02-28", "2028-02-29"]),
    ],
)
def test_o54_days(line: str, after: str, expected: list[str]) -> None:
    found = islice(parse(line, zone=ZoneInfo("UTC")).moments(datetime.fromisoformat(after).replace(tzinfo=UTC)), 9)
    assert [f"{moment:%Y-%m-%d}" for moment in found][: len(expected)] == expected


@pytest.mark.parametrize(("word", "line"), sorted(ALIASES.items()))
def test_o54_words_stand_for_lines(word: str, line: str) -> None:
    after = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parse(word.upper(), zone=BERLIN).next_after(after) == parse(line, zone=BERLIN).next_after(after)


def test_seconds_may_stand_before_the_five_fields() -> None:
    found = islice(parse("*/20 * * * * *", zone=BERLIN).moments(datetime(2026, 3, 1, 12, 0, 5, 7, tzinfo=UTC)), 3)
    assert [moment.second for moment in found] == [20, 40, 0]


def test_a_line_of_seconds_at_a_fixed_time_is_fixed() -> None:
    cron = parse("5 30 2 * * *", zone=BERLIN)
    assert cron.is_fixed
    assert cron.next_after(local(BERLIN, "2026-03-29 00:00")) == local(BERLIN, "2026-03-29 03:00")


# -- O55: what can't be read


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("61 * * * *", "minute '61' can't be; give 0-59, "),
        ("* 24 * * *", "hour '24' can't be; give 0-23, "),
        ("* * 0 * *", "day of month '0' can't be; give 1-31, "),
        ("* * * 13 *", "month '13' can't be; give 1-12 or JAN-DEC, "),
        ("* * * * 8", "day of week '8' can't be; give 0-7 "),
        ("*/0 * * * *", "minute '*/0' can't be"),
        ("5-1 * * * *", "minute '5-1' can't be"),
        ("x * * * *", "minute 'x' can't be"),
        ("60 * * * * *", "second '60' can't be; give 0-59, "),
        ("* * * *", "has 4 fields; give five"),
        ("", "has 0 fields; give five"),
        ("every day", "has 2 fields; give five"),
        ("@reboot", "there is no such word; give one of @annually, @daily, "),
        ("0 0 31 2 *", "day of month '31' can't be"),
        ("0 0 30 2 *", "day of month '30' can't be"),
    ],
)
def test_o55_what_cannot_be_read_is_refused_by_name_with_an_example(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^cron line ") as raised:
        parse(line, zone=BERLIN)
    assert repr(line) in str(raised.value)
    assert problem in str(raised.value)


@pytest.mark.parametrize("line", [None, 5, b"* * * * *", timedelta(1)])
def test_o55_what_is_no_text_is_refused(line: Any) -> None:
    with pytest.raises(TypeError, match=r'^cron line .*: give a text, as in "30 3 \* \* MON-FRI"$'):
        parse(line, zone=BERLIN)


@pytest.mark.parametrize("name", ["Europe/Pariss", "", "/etc/passwd", "../UTC", "x" * 300, "a\0b"])
def test_a_zone_that_is_not_here_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"^time zone '.*: there is none of this name here"):
        zone_of(name)


def test_white_space_around_fields_is_no_matter() -> None:
    assert parse("  0   3 * * * ", zone=BERLIN) == parse("0 3 * * *", zone=BERLIN)


# -- O61: intervals


def test_o61_an_interval_stands_on_a_fixed_grid() -> None:
    ten = Interval(seconds=600)
    assert ten.next_after(datetime(2026, 3, 1, 12, 3, 7, tzinfo=UTC)) == datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
    assert ten.next_after(datetime(2026, 3, 1, 12, 10, tzinfo=UTC)) == datetime(2026, 3, 1, 12, 20, tzinfo=UTC)
    assert ten.next_after(datetime(2026, 3, 1, 12, 9, 59, 999_999, tzinfo=UTC)).minute == 10


@given(st.floats(0.001, 1e7), st.datetimes(datetime(1975, 1, 1), datetime(2100, 1, 1)))
def test_o61_from_tick_to_tick_an_interval_keeps_its_distance(seconds: float, at: datetime) -> None:
    interval, step = Interval(seconds=seconds), timedelta(seconds=seconds)
    first = interval.next_after(at.replace(tzinfo=UTC))
    assert timedelta(0) < first - at.replace(tzinfo=UTC) <= step
    assert interval.next_after(first) - first == step


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (600, "Every 10 minutes"), (60, "Every minute"), (3_600, "Every hour"), (86_400, "Every day"),
        (0.5, "Every 0.5 seconds"), (90, "Every minute and 30 seconds"), (93_600, "Every day and 2 hours"),
    ],
)  # fmt: skip
def test_an_interval_says_when_it_runs(seconds: float, words: str) -> None:
    assert Interval(seconds=seconds).describe() == words


# -- for people


def test_a_line_says_when_it_runs() -> None:
    assert parse("0 9 * * MON-FRI", zone=BERLIN).describe() == "At 09:00 on Monday through Friday"
    assert parse("@hourly", zone=BERLIN).describe() == "At the start of every hour"


@pytest.mark.parametrize(
    ("line", "after", "words"),
    [
        (
            "30 2 * * *",
            "2026-03-28 12:00",
            "the clock is put forward to 03:00, past the time at which it would have run",
        ),
        ("30 2 * * *", "2026-10-24 12:00", "02:30 happens twice that day; it runs once"),
        ("*/30 2 * * *", "2026-10-24 12:00", "02:00 happens twice that day; it runs both times"),
        ("30 2 * * *", "2026-05-01 12:00", ""),
        ("0 3 * * *", "2026-03-28 12:00", ""),
        ("*/30 3 * * *", "2026-03-28 12:00", ""),
    ],
)
def test_a_moment_that_a_shift_bends_says_so(line: str, after: str, words: str) -> None:
    cron = parse(line, zone=BERLIN)
    assert cron.bent(cron.next_after(local(BERLIN, after))) == words


# -- against brute force: ten years, minute by minute

ZONES = (
    "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Beirut", "America/Havana",
    "Africa/Casablanca", "Pacific/Apia",
)  # fmt: skip
"""With shifts of an hour, of half an hour, at midnight, of a day, and some that come and go with Ramadan."""

BEGIN, END = datetime(2010, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)


@cache
def days_of(zone: str) -> list[tuple[date, list[tuple[datetime, datetime]]]]:
    """List the days of ten years, each with its minutes (clock, moment) where it isn't like any other."""
    first = (BEGIN - timedelta(days=2)).date()
    days = [first + timedelta(days=number) for number in range((END - BEGIN).days + 4)]
    return [(day, minutes_of(zone, day) if day in strange_days(zone) else []) for day in days]


@cache
def strange_days(zone: str) -> frozenset[date]:
    """Find the days with a shift of the clock, those that a shift leaves out, and their neighbours."""
    tz = ZoneInfo(zone)
    hours = [BEGIN + timedelta(hours=number) for number in range(-48, int((END - BEGIN) / timedelta(hours=1)) + 48)]
    shifts = [
        at for at in hours if at.astimezone(tz).utcoffset() != (at + timedelta(hours=1)).astimezone(tz).utcoffset()
    ]
    around = [(at + timedelta(hours=hour)).astimezone(tz).date() for at in shifts for hour in (-24, 0, 24)]
    return frozenset(day + timedelta(days=number) for day in around for number in (-1, 0, 1))


def minutes_of(zone: str, day: date) -> list[tuple[datetime, datetime]]:
    tz = ZoneInfo(zone)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=15)
    shown = (
        (at.astimezone(tz).replace(tzinfo=None), at) for at in (start + number * MINUTE for number in range(60 * 54))
    )
    return [(clock, at) for clock, at in shown if clock.date() == day]


def field(low: int, high: int, *, star: bool = True) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """Give a field of a cron line with the numbers that it stands for."""
    numbers = st.integers(low, high)
    every = frozenset(range(low, high + 1))
    single = numbers.map(lambda n: (str(n), frozenset([n])))
    listed = st.lists(numbers, min_size=2, max_size=4).map(lambda some: (",".join(map(str, some)), frozenset(some)))
    spans = st.tuples(numbers, numbers).map(sorted)
    ranged = spans.map(lambda s: (f"{s[0]}-{s[1]}", frozenset(range(s[0], s[1] + 1))))
    stepped = st.tuples(spans.filter(lambda s: s[0] < s[1]), st.integers(2, 20)).map(
        lambda s: (f"{s[0][0]}-{s[0][1]}/{s[1]}", frozenset(range(s[0][0], s[0][1] + 1, s[1])))
    )
    stars = st.integers(2, 30).map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n))))
    kinds = [single, listed, ranged, stepped]
    return st.one_of(*kinds, *([st.just(("*", every)), stars] if star else []))


Line = tuple[tuple[str, frozenset[int]], ...]

STARS = {high: ("*", frozenset(range(low, high + 1))) for low, high in ((1, 31), (1, 12), (0, 6))}

# Half of the hours are those of shifts, and half of the days any: so lines meet shifts.
lines = st.tuples(
    field(0, 59),
    field(0, 3, star=False) | field(0, 23),
    *(st.just(STARS[high]) | field(low, high) for low, high in ((1, 31), (1, 12), (0, 6))),
).filter(lambda line: not (min(line[2][1]) > 28 and line[4][0].startswith("*")))


def matches_day(line: Line, day: date) -> bool:
    """Say what Debian's crontab(5) says of days."""
    if day.month not in line[3][1]:
        return False
    by_month, by_week = day.day in line[2][1], (day.weekday() + 1) % 7 in line[4][1]
    is_both = line[2][0].startswith("*") or line[4][0].startswith("*")
    return by_month and by_week if is_both else by_month or by_week


def brute_force(line: Line, zone: str) -> list[datetime]:
    """Go through every day, and through each minute of one that isn't like any other."""
    tz = ZoneInfo(zone)
    is_fixed = not (line[0][0].startswith("*") or line[1][0].startswith("*"))
    times = [(hour, minute) for hour in sorted(line[1][1]) for minute in sorted(line[0][1])]
    found: set[datetime] = set()
    for day, minutes in days_of(zone):
        if not matches_day(line, day):
            continue
        clocks = [datetime(day.year, day.month, day.day, *time) for time in times]
        if day not in strange_days(zone):
            found |= {clock.replace(tzinfo=tz).astimezone(UTC) for clock in clocks}
        elif is_fixed:
            first = dict(reversed(minutes))
            found |= {first.get(clock) or first_past(tz, clock) for clock in clocks}
        else:
            found |= {at for clock, at in minutes if clock in set(clocks)}
    return sorted(at for at in found if BEGIN < at < END)


def first_past(tz: ZoneInfo, wanted: datetime) -> datetime:
    """Find the first minute at which the clock shows a later time, though a minute before it showed an earlier one."""
    at = wanted.replace(tzinfo=UTC) - timedelta(hours=40)
    while not (at.astimezone(tz).replace(tzinfo=None) > wanted > (at - MINUTE).astimezone(tz).replace(tzinfo=None)):
        at += MINUTE
    return at


MOST = 4_000
"""So many moments in a row are compared; of lines that run more often, those around each shift."""


def check(line: Line, zone: str) -> None:
    cron = parse(" ".join(text for text, _ in line), zone=ZoneInfo(zone))
    expected = brute_force(line, zone)
    if len(expected) <= MOST:
        assert list(until(cron, BEGIN, END)) == expected
    for shift in shifts_of(zone):
        for minutes in (-1_500, -90, -30, -0.01, 0, 10, 50, 90):
            after = shift + timedelta(minutes=minutes)
            place = bisect_right(expected, after)
            wanted = expected[place : place + 3]
            assert list(islice(until(cron, after, END), len(wanted))) == wanted


@cache
def shifts_of(zone: str) -> list[datetime]:
    """Find every minute of ten years at which the offset is another than before, but those near their ends."""
    tz = ZoneInfo(zone)
    found = []
    for day in sorted(strange_days(zone)):
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        minutes = [noon + number * MINUTE for number in range(24 * 60)]
        found += [at for at in minutes if at.astimezone(tz).utcoffset() != (at - MINUTE).astimezone(tz).utcoffset()]
    return [at for at in found if BEGIN + timedelta(days=3) < at < END - timedelta(days=3)]


def until(cron: Cron, begin: datetime, end: datetime) -> Iterator[datetime]:
    for moment in cron.moments(begin):
        if moment >= end:
            return
        yield moment


EVERY_DAY = (("*", frozenset(range(1, 32))), ("*", frozenset(range(1, 13))), ("*", frozenset(range(7))))

NIGHTS: dict[str, Line] = {
    "fixed": (("15,45", frozenset([15, 45])), ("0-3", frozenset(range(4))), *EVERY_DAY),
    "real": (("*/15", frozenset(range(0, 60, 15))), ("0-3", frozenset(range(4))), *EVERY_DAY),
}
"""Lines that meet every shift, whichever hour it is at."""


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("kind", NIGHTS)
def test_o53_the_nights_of_ten_years_are_as_brute_force_finds_them(kind: str, zone: str) -> None:
    check(NIGHTS[kind], zone)


@settings(max_examples=25, deadline=None)
@given(lines, st.sampled_from(ZONES))
def test_o53_o54_ten_years_of_any_line_are_as_brute_force_finds_them(line: Line, zone: str) -> None:
    check(line, zone)


@pytest.mark.soak
@pytest.mark.parametrize("zone", ZONES)
@settings(max_examples=200, deadline=None)
@given(line=lines)
def test_o53_o54_two_hundred_lines_in_each_of_eight_zones_are_as_brute_force_finds_them(zone: str, line: Line) -> None:
    check(line, zone)
