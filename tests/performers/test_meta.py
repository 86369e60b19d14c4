"""The setting META: functions that add to the meta of jobs while they are queued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from django.test import override_settings
from django.utils import translation

from django_jobs import current_attempt, enqueue, named
from django_jobs.exceptions import UnencodableValue
from django_jobs.models import Job
from django_jobs.outcomes import Failed
from django_jobs.performers import AnyPerformer
from django_jobs.records import NewJob
from django_jobs.testing import jobs_mode, perform
from tests.factories import claim_one, failure
from tests.lifecycle.hearing import settle
from tests.performing import POLICY, work

pytestmark = pytest.mark.django_db

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    tenant.set("nobody")
    yield
    tenant.set("nobody")


def of_tenant(job: NewJob) -> dict[str, object]:
    return {"tenant": tenant.get()}


def of_name(job: NewJob) -> dict[str, object]:
    return {"of": f"{job.name}{job.args}", "tenant": "of name"}


def nothing(job: NewJob) -> dict[str, object]:
    return {}


def refuses(job: NewJob) -> dict[str, object]:
    raise PermissionError(f"nobody may queue {job.name}")


def meta(*providers: Any) -> Any:
    return override_settings(DJANGO_JOBS={"META": list(providers)})


@pytest.fixture
def send(declare: Callable[..., AnyPerformer]) -> AnyPerformer:
    def send(number: int) -> dict[str, Any]:
        attempt = current_attempt()
        assert attempt is not None
        return dict(attempt.meta)

    return declare(send, name="shop.send", **POLICY)


def stored() -> list[dict[str, Any]]:
    return list(Job.objects.order_by("pk").values_list("meta", flat=True))


# -- what is added


def test_what_the_functions_give_is_stored_and_is_there_in_the_body(send: AnyPerformer) -> None:
    with meta(of_tenant, "tests.performers.test_meta.nothing"):
        tenant.set("north")
        job = send.later(1)
        assert job.meta == {"tenant": "north"}
        assert stored() == [{"tenant": "north"}]
        assert work(job).result == {"tenant": "north"}


def test_later_ones_win_over_earlier_ones_and_what_the_call_says_over_all(send: AnyPerformer) -> None:
    with meta(of_tenant, of_name):
        assert send.later(1).meta == {"tenant": "of name", "of": "shop.send[1]"}
        assert send.using(meta={"tenant": "south", "why": "x"}).later(1).meta == {
            "tenant": "south",
            "of": "shop.send[1]",
            "why": "x",
        }


def test_a_function_is_given_the_job_as_the_call_made_it(send: AnyPerformer) -> None:
    given: list[NewJob] = []

    def note(job: NewJob) -> dict[str, object]:
        given.append(job)
        return {"a": 1}

    with meta(note, note), translation.override("de"):
        send.using(queue="mail", priority=7, meta={"why": "x"}, unique="k").later(5)
    [one, other] = given
    assert one is other
    assert (one.name, one.queue, one.args, one.kwargs) == ("shop.send", "mail", "[5]", "{}")
    assert (one.draft.priority, one.draft.meta, one.unique_key) == (7, '{"language":"de","why":"x"}', "shop.send/k")


def test_values_come_back_as_what_they_were(send: AnyPerformer) -> None:
    with meta(lambda job: {"ids": (1, 2), "$one": b"x"}):
        assert work(send.later(1)).result == {"ids": (1, 2), "$one": b"x"}
    with meta(lambda job: {"$set": [1]}):
        assert work(send.later(1)).result == {"$set": [1]}


@pytest.mark.parametrize("provider", [nothing, lambda job: {}])
def test_one_that_has_nothing_to_add_adds_nothing(send: AnyPerformer, provider: Any) -> None:
    with meta(provider):
        assert send.later(1).meta == {}
        assert send.using(meta={"why": "x"}).later(1).meta == {"why": "x"}


def test_the_language_and_the_time_zone_stay(send: AnyPerformer) -> None:
    with meta(of_tenant), translation.override("de"):
        assert send.later(1).meta == {"language": "de", "tenant": "nobody"}
    with meta(of_tenant):
        assert send.using(meta={"language": "fr"}).later(1).meta == {"language": "fr", "tenant": "nobody"}


# -- which jobs


def test_it_is_added_to_jobs_that_are_queued_in_any_way(send: AnyPerformer) -> None:
    with meta(of_tenant):
        send.later(1)
        send.after(5).later(1)
        send.later_many([(1,), {"number": 2}])
        enqueue([send.prepare(3), named("other.service", 3)])
        assert stored() == [{"tenant": "nobody"}] * 6


async def _queued_from_async_code(send: AnyPerformer) -> None:
    tenant.set("async")
    await send.alater(1)
    await send.alater_many([(1,)])


def test_it_is_added_from_async_code_in_its_context(send: AnyPerformer) -> None:
    from asgiref.sync import async_to_sync

    with meta(of_tenant):
        async_to_sync(_queued_from_async_code)(send)
        assert stored() == [{"tenant": "async"}] * 2


def test_a_prepared_job_is_asked_about_once(send: AnyPerformer) -> None:
    asked: list[NewJob] = []

    def note(job: NewJob) -> dict[str, object]:
        asked.append(job)
        return {"asked": len(asked)}

    with meta(note):
        prepared = send.prepare(1)
        send.later_many([prepared, (2,)])
        enqueue([prepared])
    assert stored() == [{"asked": 1}, {"asked": 2}, {"asked": 1}]


def test_jobs_that_run_at_once_and_jobs_of_tests_have_it(send: AnyPerformer) -> None:
    with meta(of_tenant):
        with jobs_mode("inline"):
            assert send.later(1).result == {"tenant": "nobody"}
        assert perform(send, 1) == {"tenant": "nobody"}
        assert perform(send, 1, meta={"tenant": "east"}) == {"tenant": "east"}


def test_a_copy_has_the_meta_of_the_first_and_nobody_is_asked(send: AnyPerformer) -> None:
    with meta(of_tenant):
        job = send.later(1)
        with meta(of_name):
            assert job.copy().meta == {"tenant": "nobody"}
            job.cancel()
            job.retry()
    assert stored() == [{"tenant": "nobody"}] * 2


@pytest.mark.parametrize("hearer", ["shop.send", "nobody.here"])
def test_nobody_is_asked_about_a_job_that_hears_of_a_failure(
    send: AnyPerformer, declare: Callable[..., AnyPerformer], hearer: str
) -> None:
    def fail() -> None: ...

    failing = declare(fail, name="shop.fail", on_failure=hearer)
    with meta(of_tenant):
        failing.later()
        with meta(refuses):
            assert settle(claim_one(), Failed(failure=failure())) == []
    assert stored() == [{"tenant": "nobody"}, {}]
    assert Job.objects.get(name=hearer).args == [Job.objects.get(name="shop.fail").pk]


# -- many at once


def drafts(jobs: list[NewJob]) -> int:
    return len({id(job.draft) for job in jobs})


def test_jobs_of_a_bulk_call_share_a_draft_where_the_same_is_said_of_them(send: AnyPerformer) -> None:
    def parity(job: NewJob) -> dict[str, object]:
        return {"odd": int(job.args[1:-1]) % 2 == 1}

    with meta(of_tenant):
        assert drafts(send._all_prepared((n,) for n in range(10))) == 1
    with meta(parity):
        jobs = send._all_prepared((n,) for n in range(10))
    assert drafts(jobs) == 2
    assert [job.draft.meta for job in jobs[:3]] == ['{"odd":false}', '{"odd":true}', '{"odd":false}']


def test_what_is_equal_but_of_another_type_is_not_the_same(send: AnyPerformer) -> None:
    values = iter([1, True, 1.0])
    with meta(lambda job: {"value": next(values)}):
        send.later_many([(1,), (2,), (3,)])
    assert [type(one["value"]) for one in stored()] == [int, bool, float]


def test_jobs_of_a_bulk_call_may_each_have_a_meta_of_their_own(send: AnyPerformer) -> None:
    with meta(of_name):
        queued = send.later_many((n,) for n in range(3))
    assert [Job.objects.get(pk=one.id).meta["of"] for one in queued] == ["shop.send[0]", "shop.send[1]", "shop.send[2]"]


# -- what is wrong


def test_what_a_function_raises_is_raised_by_the_call_and_nothing_is_queued(send: AnyPerformer) -> None:
    with meta(of_tenant, refuses):
        for queue in (
            lambda: send.later(1),
            lambda: send.later_many([(1,), (2,)]),
            lambda: enqueue([send.prepare(1)]),
            lambda: named("shop.send", 1),
        ):
            with pytest.raises(PermissionError, match=r"^nobody may queue shop\.send") as caught:
                queue()
            assert "in META: tests.performers.test_meta.refuses, of a job of shop.send" in caught.value.__notes__
    assert Job.objects.count() == 0


def test_a_bulk_call_says_at_which_job_a_function_failed(send: AnyPerformer) -> None:
    def picky(job: NewJob) -> dict[str, object]:
        if job.args == "[1]":
            raise LookupError
        return {}

    with meta(picky), pytest.raises(LookupError) as caught:
        send.later_many((n,) for n in range(3))
    assert caught.value.__notes__[-1] == "in later_many(): call [1] of shop.send"
    assert Job.objects.count() == 0


async def _coroutine() -> dict[str, object]:
    return {}


@pytest.mark.parametrize(
    ("given", "kind"),
    [(None, "NoneType"), ("x", "str"), ([("a", 1)], "list"), (5, "int")],
)
def test_a_function_that_gives_no_dict_is_named(send: AnyPerformer, given: Any, kind: str) -> None:
    def wrong(job: NewJob) -> Any:
        return given

    with meta(wrong), pytest.raises(TypeError) as caught:
        send.later(1)
    assert str(caught.value) == (
        f"META: {__name__}.test_a_function_that_gives_no_dict_is_named.<locals>.wrong gave a value of type {kind}; "
        "let it give a dict, maybe empty"
    )
    assert Job.objects.count() == 0


def test_a_function_that_gives_a_coroutine_is_named(send: AnyPerformer) -> None:
    with meta(lambda job: _coroutine()), pytest.raises(TypeError, match="gave a value of type coroutine"):
        send.later(1)


@pytest.mark.parametrize("key", ["language", "time_zone"])
def test_what_is_active_in_the_body_is_not_for_a_function_to_say(send: AnyPerformer, key: str) -> None:
    def wrong(job: NewJob) -> dict[str, object]:
        return {"tenant": "x", key: "de"}

    with meta(wrong), pytest.raises(ValueError, match=rf"\.wrong gave '{key}', which says what is active in the body;"):
        send.later(1)
    assert Job.objects.count() == 0


def test_a_value_that_cannot_be_stored_is_told_with_its_path_and_its_function(send: AnyPerformer) -> None:
    with (
        meta(of_tenant, partial(_gives, {"trace": {"at": object()}}), of_name),
        pytest.raises(UnencodableValue, match=r"^META: what functools\.partial\(.*_gives.*\) gave\.trace\.at: "),
    ):
        send.later(1)
    with meta(lambda job: {5: "x"}), pytest.raises(UnencodableValue, match=r"^META: what .*<lambda> gave"):
        send.later(1)
    assert Job.objects.count() == 0


def _gives(what: dict[str, object], job: NewJob) -> dict[str, object]:
    return what


def test_what_the_call_says_is_not_blamed_on_a_function(send: AnyPerformer) -> None:
    with meta(of_tenant), pytest.raises(UnencodableValue, match=r"^meta\.why: "):
        send.using(meta={"why": object()}).later(1)
