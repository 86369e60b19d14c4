from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import Count, DateTimeField, F, Max, Min, OuterRef, Subquery
from django.db.models.functions import Coalesce, TruncDay
from django.test import override_settings

from django_jobs import clock
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue
from django_jobs.models.fields import DatabaseNow, InstantField
from tests.factories import NOON, queue_job, read, seconds, write

pytestmark = pytest.mark.django_db

PARIS = ZoneInfo("Europe/Paris")

INSTANTS = [
    datetime(2026, 3, 1, 12, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    # The hour that Paris has twice, and the one that it hasn't.
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
]


@pytest.fixture(params=[(True, "Europe/Paris"), (False, "Europe/Paris"), (False, "Asia/Kolkata")], ids=str)
def time_settings(request: pytest.FixtureRequest, db: None) -> Iterator[None]:
    use_tz, time_zone = request.param
    with override_settings(USE_TZ=use_tz, TIME_ZONE=time_zone):
        yield


@pytest.fixture
def database_in_tokyo(db: None) -> Iterator[None]:
    """Give the connection the zone that DATABASES["default"]["TIME_ZONE"] would give it."""
    connection = connections["default"]

    def stand_in(zone: str | None) -> None:
        connection.settings_dict["TIME_ZONE"] = zone
        for cached in ("timezone", "timezone_name"):
            connection.__dict__.pop(cached, None)
        connection.ensure_timezone()

    before = connection.settings_dict["TIME_ZONE"]
    stand_in("Asia/Tokyo")
    yield
    stand_in(before)


def pause(at: Any, name: str = "mail") -> Queue:
    return Queue.objects.create(name=name, paused_at=at)


def stored(name: str = "mail") -> datetime | None:
    return Queue.objects.get(name=name).paused_at


# -- round trip


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_an_instant_comes_back_as_aware_utc(time_settings: None, instant: datetime) -> None:
    pause(instant)
    found = stored()
    assert (found, found and found.tzinfo) == (instant, UTC)


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_the_zone_of_the_database_changes_nothing(database_in_tokyo: None, instant: datetime) -> None:
    pause(instant)
    found = stored()
    assert (found, found and found.tzinfo) == (instant, UTC)


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        (datetime(2026, 7, 1, 14, tzinfo=PARIS), datetime(2026, 7, 1, 12, tzinfo=UTC)),
        (datetime(2026, 10, 25, 2, 30, tzinfo=PARIS), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        (
            datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
            datetime(2026, 3, 1, 9, 30, tzinfo=UTC),
        ),
    ],
)
def test_a_moment_of_any_zone_is_that_moment(time_settings: None, local: datetime, instant: datetime) -> None:
    pause(local)
    assert stored() == instant


def test_null_comes_back_as_none(time_settings: None) -> None:
    pause(None)
    assert stored() is None


def test_what_a_statement_of_the_store_wrote_is_read_the_same(time_settings: None, frozen: FrozenClock) -> None:
    assert read(queue_job()).run_at == NOON


def test_every_way_to_read_gives_aware_utc(time_settings: None) -> None:
    pause(NOON)
    everywhere = Queue.objects.filter(name="mail")
    assert everywhere.values("paused_at").get() == {"paused_at": NOON}
    assert everywhere.values_list("paused_at", flat=True).get() == NOON
    assert everywhere.only("paused_at").get().paused_at == NOON
    queue = everywhere.defer("paused_at").get()
    assert queue.paused_at == NOON
    queue.refresh_from_db()
    assert queue.paused_at == NOON


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00Z", "2026-03-01 13:00:00+01:00", "2026-03-01T12:00:00.000000+00:00"]
)
def test_text_with_an_offset_is_an_instant(text: str) -> None:
    pause(text)
    assert stored() == NOON


def test_serialised_instants_come_back(time_settings: None) -> None:
    pause(datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC))
    for form in ("json", "python"):
        [again] = serializers.deserialize(form, serializers.serialize(form, Queue.objects.all()))
        assert again.object.paused_at == datetime(2026, 3, 1, 12, 0, 0, 1 if form == "python" else 0, tzinfo=UTC)


# -- what is refused


@pytest.mark.parametrize("naive", [datetime(2026, 3, 1, 12), "2026-03-01 12:00:00", date(2026, 3, 1)])
def test_a_naive_moment_is_refused(time_settings: None, naive: object) -> None:
    with pytest.raises(ValueError, match=r"^paused_at: datetime.datetime\(2026, 3, 1, .*\) is naive; give an aware"):
        pause(naive)


def test_a_naive_moment_is_refused_in_filters_and_updates() -> None:
    with pytest.raises(ValueError, match="is naive"):
        Queue.objects.filter(paused_at__lt=datetime(2026, 3, 1)).exists()
    with pytest.raises(ValueError, match="is naive"):
        Queue.objects.update(paused_at=datetime(2026, 3, 1))


def test_text_that_is_no_moment_is_refused() -> None:
    with pytest.raises(ValidationError):
        pause("soon")


# -- comparing and sorting


def pause_all() -> None:
    for number, instant in enumerate(INSTANTS):
        pause(instant, name=f"q{number}")


def names(**conditions: Any) -> list[str]:
    return list(Queue.objects.filter(**conditions).order_by("name").values_list("name", flat=True))


def test_instants_sort_by_time_to_the_microsecond(time_settings: None) -> None:
    pause_all()
    assert list(Queue.objects.order_by("paused_at").values_list("paused_at", flat=True)) == sorted(INSTANTS)


def test_on_sqlite_instants_are_text_of_one_width(time_settings: None) -> None:
    if connections["default"].vendor != "sqlite":
        pytest.skip("only SQLite keeps instants as text")
    pause_all()
    for instant in INSTANTS:
        with clock.freeze(instant):
            queue_job(delay=timedelta(days=1), expires=timedelta(microseconds=1))
    with connections["default"].cursor() as cursor:
        cursor.execute("select distinct length(paused_at) from django_jobs_queue")
        assert cursor.fetchall() == [(26,)]
        cursor.execute("select distinct length(run_at), length(expires_at), length(enqueued_at) from django_jobs_job")
        assert cursor.fetchall() == [(26, 26, 26)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"paused_at": NOON}, ["q0"]),
        ({"paused_at__gt": NOON, "paused_at__lt": NOON + seconds(1)}, ["q1", "q2"]),
        ({"paused_at__gte": NOON, "paused_at__lte": NOON + timedelta(microseconds=1)}, ["q0", "q1"]),
        ({"paused_at__range": (NOON, NOON + seconds(1))}, ["q0", "q1", "q2"]),
        ({"paused_at__in": [NOON, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))]}, ["q0", "q3"]),
        ({"paused_at__isnull": True}, []),
    ],
)
def test_filters_compare_instants(time_settings: None, conditions: dict[str, Any], expected: list[str]) -> None:
    pause_all()
    assert names(**conditions) == expected


def test_instants_of_two_columns_compare(time_settings: None, frozen: FrozenClock) -> None:
    on_time, late = queue_job(), queue_job(delay=seconds(1))
    assert list(Job.objects.filter(run_at__gt=F("enqueued_at")).values_list("pk", flat=True)) == [late]
    assert list(Job.objects.filter(run_at=F("enqueued_at")).values_list("pk", flat=True)) == [on_time]


def test_aggregates_give_aware_utc(time_settings: None) -> None:
    pause_all()
    found = Queue.objects.aggregate(first=Min("paused_at"), last=Max("paused_at"))
    assert found == {"first": INSTANTS[3], "last": INSTANTS[4]}
    assert {found["first"].tzinfo, found["last"].tzinfo} == {UTC}


def test_an_aggregate_of_nothing_is_none(time_settings: None) -> None:
    assert Queue.objects.aggregate(first=Min("paused_at")) == {"first": None}


def test_aggregates_of_a_cut_query_work(time_settings: None) -> None:
    pause_all()
    cut = Queue.objects.order_by("paused_at")[:3]
    assert cut.aggregate(last=Max("paused_at")) == {"last": INSTANTS[1]}


def test_grouping_by_an_instant_works(time_settings: None) -> None:
    pause(NOON, "a")
    pause(NOON, "b")
    grouped = Queue.objects.values("paused_at").annotate(n=Count("pk")).order_by("paused_at")
    assert list(grouped) == [{"paused_at": NOON, "n": 2}]


def test_distinct_and_union_work(time_settings: None) -> None:
    pause(NOON, "a")
    pause(NOON, "b")
    moments = Queue.objects.values_list("paused_at", flat=True)
    assert list(moments.order_by("paused_at").distinct()) == [NOON]
    assert list(moments.order_by().union(moments.order_by()).order_by("paused_at")) == [NOON]
    assert [queue.name for queue in Queue.objects.order_by("paused_at", "name").distinct()] == ["a", "b"]


def test_subqueries_compare_instants(time_settings: None) -> None:
    pause_all()
    inner = Queue.objects.filter(name__in=["q1", "q6"]).values("paused_at")
    assert names(paused_at__in=inner) == ["q1", "q6"]
    latest = Queue.objects.order_by("-paused_at").values("paused_at")[:1]
    assert names(paused_at=Subquery(latest)) == ["q4"]


def test_a_subquery_may_be_read(time_settings: None) -> None:
    pause_all()
    same = Queue.objects.filter(name=OuterRef("name")).values("paused_at")
    found = Queue.objects.annotate(again=Subquery(same)).order_by("name").values_list("again", flat=True)
    assert list(found) == INSTANTS


def test_expressions_over_instants_give_aware_utc(time_settings: None, frozen: FrozenClock) -> None:
    job_id = queue_job()
    job = Job.objects.annotate(moment=Coalesce("finished_at", "run_at")).get(pk=job_id)
    assert job.moment == NOON


def test_days_are_those_of_the_current_zone() -> None:
    pause(datetime(2026, 3, 1, 23, 30, tzinfo=UTC))
    day = Queue.objects.annotate(day=TruncDay("paused_at")).get().day
    assert day == datetime(2026, 3, 2, tzinfo=PARIS)
    assert names(paused_at__date=date(2026, 3, 2)) == ["mail"]
    assert names(paused_at__year=2026) == ["mail"]
    assert names(paused_at__hour=0) == ["mail"]


# -- now


def test_the_database_knows_now_and_stands_still_when_frozen(time_settings: None, frozen: FrozenClock) -> None:
    due, later = queue_job(), queue_job(delay=seconds(10))
    assert list(Job.objects.due().values_list("pk", flat=True)) == [due]
    frozen.advance(seconds(10))
    assert list(Job.objects.due().values_list("pk", flat=True)) == [later, due]


def test_now_can_be_written_and_read(time_settings: None) -> None:
    before = clock.now() - seconds(60)
    pause(None)
    Queue.objects.update(paused_at=DatabaseNow())
    found = stored()
    assert found is not None
    assert before < found < before + seconds(120)
    assert Queue.objects.annotate(present=DatabaseNow()).get().present >= found


# -- the field itself


def test_it_is_the_database_type_of_a_datetime() -> None:
    field = InstantField()
    field.set_attributes_from_name("at")
    assert field.get_internal_type() == "DateTimeField"
    connection = connections["default"]
    assert field.db_type(connection) == DateTimeField().db_type(connection)


def test_migrations_write_it_with_its_options() -> None:
    assert InstantField(null=True).deconstruct()[1:] == ("django_jobs.models.fields.InstantField", [], {"null": True})


def test_a_row_written_past_the_field_is_read_as_utc(time_settings: None) -> None:
    job_id = queue_job()
    write(job_id, run_at=NOON)
    with connections["default"].cursor() as cursor:
        table = Job._meta.db_table
        cursor.execute(f'update "{table}" set enqueued_at = run_at where id = %s', [job_id])
    assert read(job_id).enqueued_at == NOON
