from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from textwrap import dedent
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections
from django.test import override_settings

from django_jobs import every, schedules
from django_jobs.clock import FrozenClock
from django_jobs.models import Schedule
from tests.declaring import declared

Jobs = Callable[..., str]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def report(size: int = 1) -> None: ...


def heartbeat() -> None: ...


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave out what the apps of the suite declare."""
    monkeypatch.setattr("django_jobs.performers.scheduling._entries", {})
    monkeypatch.setattr("django_jobs.performers.registry._by_name", {})
    with override_settings(DJANGO_JOBS={"TIME_ZONE": "Europe/Paris", "OWNER": "shop"}):
        yield


def look() -> None:
    """Have the code's schedules be written, and fire, as any worker's chore does."""
    schedules.declare(connections["default"], schedules.code_set())
    schedules.fire_due(connections["default"])


def shown(text: str) -> str:
    return dedent(text).removeprefix("\n")


def test_without_schedules_it_says_how_one_comes_to_be(jobs: Jobs) -> None:
    assert jobs("schedules") == shown("""
        There are no schedules. A job has one of its own by

            @job(schedule="0 9 * * *", time_zone="Europe/Paris")
            def report(): ...

        or by `every("0 9 * * *", report, args=(…), name="…")` beside it. docs/schedules.md says more.
    """)
    assert jobs("schedules", "--json") == "[]\n"


@pytest.fixture
def shop(frozen: FrozenClock) -> Iterator[None]:
    """Have schedules of every kind: one that fires, one that is disabled, removed, bad, another's, not written yet."""
    with ExitStack() as until_the_end:
        until_the_end.enter_context(declared(heartbeat, name="shop.each_beat", schedule="* * * * *"))
        performer = until_the_end.enter_context(declared(report, name="shop.report", queue="reports"))
        with declared(report, name="shop.old", schedule="@daily"):
            look()
        every("0 3 * * *", performer, name="nightly", args=(5,))
        every(timedelta(minutes=10), performer, name="often")
        look()
        Schedule.objects.get(name="often").disable()
        made: dict[str, Any] = {"cron": "0 0 1 1 *", "performer": "billing.close", "queue": "money"}
        Schedule.objects.create(name="books", owner="billing", origin="code", **made)
        Schedule.objects.create(name="by hand", **{**made, "cron": "0 9 * * MON"}, skipped=1234)
        Schedule.objects.create(name="bad", **made)
        Schedule.objects.filter(name="bad").update(cron="61 * * * *")
        frozen.advance(timedelta(minutes=1))
        look()
        frozen.advance(timedelta(seconds=30))
        every("0 0 * * *", performer, name="unwritten", time_zone="Asia/Tokyo")
        yield


@pytest.mark.usefixtures("shop")
def test_schedules_are_listed_in_columns_with_what_is_to_be_known_of_each(jobs: Jobs) -> None:
    assert jobs("schedules") == shown(r"""
        NAME            WHEN         QUEUE    LAST      NEXT
        bad             61 * * * *   money    -         -
            job billing.close; made by hand
            ! can't fire: cron line '61 * * * *': minute '61' can't be; give 0-59, *, lists, ranges and
            steps of them, as in "30 3 * * MON-FRI"
        books           0 0 1 1 *    money    -         in 305 d
            At 00:00 on January 1 (Europe/Paris), next Fri 2027-01-01 00:00; job billing.close; in the code
            of billing
        by hand         0 9 * * MON  money    -         in 20 h
            At 09:00 on Monday (Europe/Paris), next Mon 2026-03-02 09:00; job billing.close; made by hand;
            1,234 skipped
        nightly         0 3 * * *    reports  -         in 14 h
            At 03:00 every day (Europe/Paris), next Mon 2026-03-02 03:00; job shop.report; in code
        often           interval     reports  -         -
            Every 10 minutes; job shop.report; in code
            ! disabled: somebody has stopped it
        shop.each_beat  * * * * *    default  30 s ago  in 30 s
            Every minute (Europe/Paris), next Sun 2026-03-01 13:02; in code
        shop.old        @daily       -        -         -
            At 00:00 every day (Europe/Paris); in code
            ! removed: its project's code no longer declares it
        unwritten       0 0 * * *    reports  -         in 3 h
            At 00:00 every day (Asia/Tokyo), next Mon 2026-03-02 00:00; job shop.report; in code
            ! not in the database yet, so nothing fires it; `runjobs` writes it when it starts
    """)


@pytest.mark.usefixtures("shop")
def test_no_line_of_the_list_is_wider_than_100_characters(jobs: Jobs) -> None:
    made = {"cron": ",".join("5" * 90) + " 1 * * *", "performer": "p" * 100, "queue": "q" * 100}
    Schedule.objects.create(name="a long name " + "n" * 180, **made)
    assert max(map(len, jobs("schedules").splitlines())) <= 100 + len("p" * 100)
    assert max(len(line) for line in jobs("schedules").splitlines() if "p" * 100 not in line) <= 100


@pytest.mark.usefixtures("shop")
def test_in_json_each_schedule_has_the_same_keys(jobs: Jobs) -> None:
    found = json.loads(jobs("schedules", "--json"))
    assert [one["name"] for one in found] == [
        "bad", "books", "by hand", "nightly", "often", "shop.each_beat", "shop.old", "unwritten",
    ]  # fmt: skip
    assert found[5] == {
        "name": "shop.each_beat", "performer": "shop.each_beat", "words": "Every minute", "cron": "* * * * *",
        "every_seconds": None, "time_zone": "Europe/Paris", "queue": "default",
        "last_at": "2026-03-01T12:01:00+00:00", "next_at": "2026-03-01T12:02:00+00:00", "enabled": True,
        "removed": False, "error": "", "origin": "code", "owner": "shop", "skipped": 0, "is_stored": True, "notes": [],
        "now": "2026-03-01T12:01:30+00:00",
    }  # fmt: skip
    assert all(one.keys() == found[0].keys() for one in found)


@pytest.mark.usefixtures("shop")
def test_notes_are_coloured_where_colours_are(jobs: Jobs) -> None:
    assert "\x1b[" not in jobs("schedules")
    coloured = jobs("schedules", no_color=False, force_color=True)
    assert next(line for line in coloured.splitlines() if "disabled" in line).startswith("\x1b[")


def test_what_is_due_says_so(jobs: Jobs, frozen: FrozenClock) -> None:
    with declared(heartbeat, name="shop.each_beat", schedule="* * * * *"):
        look()
        frozen.advance(timedelta(minutes=3))
        assert jobs("schedules") == shown("""
            NAME            WHEN       QUEUE    LAST  NEXT
            shop.each_beat  * * * * *  default  -     due
                Every minute (Europe/Paris), next Sun 2026-03-01 13:01; in code
                ! 2 min late: nothing fires it; does `runjobs` run?
        """)


# -- preview


def test_a_preview_shows_the_next_moments_by_the_clock_of_the_zone(jobs: Jobs) -> None:
    assert jobs("schedules", "preview", "30 3 * * MON-FRI", "--count", "3") == shown("""
        At 03:30 on Monday through Friday (Europe/Paris)

        Mon 2026-03-02 03:30:00 +0100
        Tue 2026-03-03 03:30:00 +0100
        Wed 2026-03-04 03:30:00 +0100
    """)


def test_a_preview_remarks_what_a_shift_of_the_clock_does(jobs: Jobs, frozen: FrozenClock) -> None:
    frozen.advance(timedelta(days=27))
    assert jobs("schedules", "preview", "30 2 * * *", "--zone", "Europe/Berlin", "--count", "2") == shown("""
        At 02:30 every day (Europe/Berlin)

        Sun 2026-03-29 03:00:00 +0200  the clock is put forward to 03:00, past the time at which it would have run
        Mon 2026-03-30 02:30:00 +0200
    """)


def test_a_preview_shows_ten_moments_by_default(jobs: Jobs) -> None:
    assert len(jobs("schedules", "preview", "@daily").splitlines()) == 12


def test_a_preview_in_json(jobs: Jobs) -> None:
    assert json.loads(jobs("schedules", "preview", "@daily", "--zone", "Asia/Tokyo", "--count", "1", "--json")) == {
        "cron": "@daily",
        "time_zone": "Asia/Tokyo",
        "words": "At 00:00 every day",
        "ticks": [{"at": "2026-03-02T00:00:00+09:00", "remark": ""}],
    }


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("61 * * * *",), "cron line '61 \\* \\* \\* \\*': minute '61' can't be"),
        (("* * * * *", "--zone", "Mars/Base"), "time zone 'Mars/Base': there is none of this name here"),
        (("* * * * *", "--count", "0"), "--count 0: give 1 to 1,000"),
        (("* * * * *", "--count", "1001"), "--count 1001: give 1 to 1,000"),
    ],
)
def test_a_preview_of_what_cannot_be_is_refused(jobs: Jobs, said: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message) as told:
        jobs("schedules", "preview", *said)
    assert told.value.returncode == 1
