from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobs import admin, lifecycle
from django_jobs.admin import register
from django_jobs.clock import FrozenClock
from django_jobs.models import Job, Queue, Schedule
from django_jobs.outcomes import Failed
from tests.declaring import declared
from tests.factories import NOON, failure, new_job, place_of, queue_job, run_job, write
from tests.pushing import taken_row
from tests.shop.jobs import greet

pytestmark = pytest.mark.django_db

JOBS = "/admin/django_jobs/job/"
SCRIPT = "<script>alert(1)</script>"


def staff(client: Client, *permissions: str) -> Client:
    """Log somebody in who may see jobs, and do what `permissions` say."""
    person = User.objects.create_user("viewer", is_staff=True)
    wanted = ("view_job", "view_queue", "view_schedule", *permissions)
    person.user_permissions.set(Permission.objects.filter(content_type__app_label="django_jobs", codename__in=wanted))
    client.force_login(person)
    return client


def fail_job(**changes: Any) -> int:
    """Insert a job that has failed, and give its id."""
    claim = run_job(**changes)
    assert lifecycle.settle(connection, [(claim, Failed(failure=failure()))]) == []
    return claim.id


def page(client: Client, url: str, **query: str) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return str(response.content.decode())


def act(client: Client, action: str, *job_ids: int, **more: str) -> list[str]:
    """Post an action for some rows and give the messages that follow."""
    data = {"action": action, "_selected_action": [str(job_id) for job_id in job_ids], "index": "0", **more}
    response = client.post(JOBS, data, follow=True)
    assert response.status_code == 200
    return [str(message) for message in response.context["messages"]]


# -- the list


def test_the_list_says_what_matters_of_each_job(admin_client: Client) -> None:
    job_id = fail_job(name="shop.greet", queue="letters", priority=7, max_attempts=1)
    text = page(admin_client, JOBS)
    for shown in (f">{job_id}</a>", "shop.greet", "failed", "letters", ">7<", ">1/1<", "no such customer"):
        assert shown in text


def test_the_list_does_not_load_arguments_results_and_errors(admin_client: Client) -> None:
    fail_job(args='["a long story"]')
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert "a long story" not in page(admin_client, JOBS)
    [query] = [q["sql"] for q in captured if q["sql"].startswith("SELECT") and '"lease_expires_at"' in q["sql"]]
    assert not [name for name in ("args", "kwargs", "result", "meta") if f'"django_jobs_job"."{name}"' in query]


def test_the_list_asks_as_much_for_many_jobs_as_for_one(admin_client: Client) -> None:
    fail_job()
    page(admin_client, JOBS)
    with CaptureQueriesContext(connection) as one:
        page(admin_client, JOBS)
    for _ in range(5):
        fail_job()
    with CaptureQueriesContext(connection) as six:
        page(admin_client, JOBS)
    assert len(six) == len(one)


def test_the_filter_by_state_takes_the_words_that_are_shown(admin_client: Client) -> None:
    waiting = queue_job(queue="elsewhere")
    failed = fail_job(queue="here")
    text = page(admin_client, JOBS, state="failed")
    assert f"/job/{failed}/change/" in text
    assert f"/job/{waiting}/change/" not in text


def test_the_filter_by_queue_offers_declared_and_paused_queues_and_reads_no_row_for_it(admin_client: Client) -> None:
    Queue.objects.create(name="paused-once")
    queue_job(queue="only-in-a-row")
    text = page(admin_client, JOBS)
    for queue in ("default", "mail", "paused-once"):
        assert f"?queue={queue}" in text
    assert "?queue=only-in-a-row" not in text
    assert "only-in-a-row" in page(admin_client, JOBS, queue="only-in-a-row")


@pytest.mark.parametrize("term", ["{id}", "#{id}", "other.FARE", " other.farewell "])
def test_search_finds_a_job_by_number_and_jobs_by_name(admin_client: Client, term: str) -> None:
    other = queue_job(name="shop.greet")
    wanted = queue_job(name="other.farewell")
    text = page(admin_client, JOBS, q=term.format(id=wanted))
    assert f"/job/{wanted}/change/" in text
    assert f"/job/{other}/change/" not in text


@pytest.mark.parametrize("term", ["9" * 30, "²", "%", "'"])
def test_search_for_what_is_not_there_finds_nothing(admin_client: Client, term: str) -> None:
    job_id = queue_job(name="shop.greet")
    response = admin_client.get(JOBS, {"q": term})
    assert response.status_code in {200, 302}
    assert f"/job/{job_id}/change/" not in response.content.decode()


def test_nobody_may_add_or_change_a_job(admin_client: Client) -> None:
    job_id = queue_job()
    assert admin_client.get(f"{JOBS}add/").status_code == 403
    assert admin_client.post(f"{JOBS}{job_id}/change/", {"queue": "moved"}).status_code == 403
    assert f'"{JOBS}add/"' not in page(admin_client, JOBS)


# -- a job's page


def test_the_page_of_a_job_shows_arguments_result_and_errors(admin_client: Client) -> None:
    job_id = fail_job(args='["Ada"]', kwargs='{"times": 3}')
    write(job_id, result={"sent": "yes"})
    text = page(admin_client, f"{JOBS}{job_id}/change/")
    for shown in ("Ada", "times", "sent", "builtins.ValueError: no such customer", "attempt 1"):
        assert shown in text


def test_arguments_and_result_are_for_those_who_may_see_them(client: Client) -> None:
    job_id = fail_job(args='["secret-argument"]', kwargs='{"x": "secret-keyword"}', meta='{"y": "secret-meta"}')
    write(job_id, result="secret-result")
    url = f"{JOBS}{job_id}/change/"
    assert "secret" not in page(staff(client), url)
    User.objects.all().delete()
    text = page(staff(client, "view_job_args"), url)
    for shown in ("secret-argument", "secret-keyword", "secret-meta", "secret-result"):
        assert shown in text


def test_o85_what_a_performer_hides_is_hidden_on_its_page(admin_client: Client) -> None:
    def pay(order: int, card: str, details: object = None) -> None: ...

    with declared(pay, name="shop.pay", redact=("card", "iban"), unique=True):
        job_id = fail_job(
            name="shop.pay", args='[5, "s3cret"]', kwargs='{"details": {"iban": "s3cret", "token": "s3cret"}}',
            meta='{"api_key": "s3cret", "tenant": "north"}',
        )  # fmt: skip
        write(job_id, result={"$tuple": [{"card": "s3cret"}]}, unique_key='shop.pay/{"card":"s3cret","order":5}')
        text = page(admin_client, f"{JOBS}{job_id}/change/")
    assert "s3cret" not in text
    assert "north" in text
    assert text.count("********") == 6


def test_arguments_that_somebody_wrote_in_another_form_are_shown(admin_client: Client) -> None:
    job_id = queue_job()
    write(job_id, args={"token": "s3cret", "a": "here"}, kwargs=["there"])
    text = page(admin_client, f"{JOBS}{job_id}/change/")
    assert "s3cret" not in text
    assert "here" in text
    assert "there" in text


def test_a_key_is_for_those_who_may_see_arguments(client: Client) -> None:
    job_id = queue_job()
    write(job_id, unique_key="shop.greet/s3cret", waiting_key="shop.greet/s3cret")
    url = f"{JOBS}{job_id}/change/"
    assert "s3cret" not in page(staff(client), url)
    User.objects.all().delete()
    assert page(staff(client, "view_job_args"), url).count("shop.greet/s3cret") == 2


def test_what_is_in_a_job_is_shown_as_text(admin_client: Client) -> None:
    job_id = fail_job()
    entry = {"attempt": 1, "at": "now", "kind": SCRIPT, "exception": SCRIPT, "reason": SCRIPT, "traceback": SCRIPT}
    write(
        job_id, name=SCRIPT, queue=SCRIPT, errors=[entry, SCRIPT], args=[SCRIPT], kwargs={SCRIPT: SCRIPT},
        result=SCRIPT, meta={SCRIPT: SCRIPT}, progress=[SCRIPT], last_worker=SCRIPT, on_failure=SCRIPT,
        unique_key=SCRIPT, schedule=SCRIPT,
    )  # fmt: skip
    Queue.objects.create(name=SCRIPT, reason=SCRIPT, paused_by=SCRIPT)
    Schedule.objects.create(name=SCRIPT, performer=SCRIPT, cron="0 3 * * *")
    Schedule.objects.update(cron=SCRIPT, error=SCRIPT)
    write(job_id, errors=[entry])
    for url in (JOBS, f"{JOBS}{job_id}/change/", f"{JOBS}{job_id}/delete/", "/admin/django_jobs/queue/"):
        text = page(admin_client, url)
        assert "&lt;script&gt;alert(1)" in text
        assert SCRIPT not in text
    assert SCRIPT not in page(admin_client, "/admin/django_jobs/schedule/")


def test_a_job_whose_function_is_gone_has_a_page_and_can_be_cancelled(admin_client: Client) -> None:
    job_id = queue_job(name="long.gone")
    pushed = queue_job(name="")
    assert "long.gone" in page(admin_client, f"{JOBS}{job_id}/change/")
    assert "(pushed)" in page(admin_client, f"{JOBS}{pushed}/change/")
    assert "long.gone" in page(admin_client, JOBS)
    assert act(admin_client, "cancel_jobs", job_id) == ["1 job was cancelled."]


def test_a_dead_row_of_the_low_level_is_shown_as_pushed_and_can_be_retried_and_deleted(admin_client: Client) -> None:
    row_id = taken_row().lease.id
    assert act(admin_client, "retry_jobs", row_id) == [
        "0 jobs were retried. 1 was skipped: its state doesn't allow it."
    ]
    write(row_id, state="FAILED", worker=None, finished_at=NOON)
    assert "(pushed)" in page(admin_client, JOBS)
    assert act(admin_client, "retry_jobs", row_id) == ["1 job was retried."]
    assert act(admin_client, "delete_selected", row_id, post="yes") == ["1 job was deleted."]
    assert not Job.objects.exists()


@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_are_shown_in_the_time_zone_of_the_project(
    client: Client, settings: Any, frozen: FrozenClock, use_tz: bool
) -> None:
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "America/New_York"
    client.force_login(User.objects.create_superuser("admin"))
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    frozen.move_to(noon)
    job_id = fail_job()
    Schedule.objects.create(name="nightly", performer="shop.greet", cron="0 3 * * *")
    Schedule.objects.update(next_at=noon)
    Queue.objects.create(name="mail", paused_at=noon)
    for url in (JOBS, f"{JOBS}{job_id}/change/", "/admin/django_jobs/schedule/", "/admin/django_jobs/queue/"):
        assert "2030-01-01 07:00:00" in page(client, url)


# -- actions


def test_retry_moves_failed_jobs_and_says_how_many_were_skipped(admin_client: Client) -> None:
    failed, running = fail_job(queue="a"), run_job(queue="b").id
    said = act(admin_client, "retry_jobs", failed, running)
    assert said == ["1 job was retried. 1 was skipped: its state doesn't allow it."]
    assert (place_of(failed).value, place_of(running).value) == ("READY", "RUNNING")


def test_cancel_moves_waiting_and_running_jobs_and_skips_finished_ones(admin_client: Client) -> None:
    waiting, running, failed = queue_job(queue="a"), run_job(queue="b").id, fail_job(queue="c")
    said = act(admin_client, "cancel_jobs", waiting, running, failed)
    assert said == ["2 jobs were cancelled. 1 was skipped: its state doesn't allow it."]
    assert (place_of(waiting).value, place_of(running).value, place_of(failed).value) == (
        "CANCELLED", "STOPPING", "FAILED",
    )  # fmt: skip
    assert Job.objects.get(pk=waiting).errors[-1]["reason"] == "cancelled by admin"


def test_delete_asks_first_and_skips_what_is_held(admin_client: Client) -> None:
    failed, running = fail_job(queue="a"), run_job(queue="b").id
    assert act(admin_client, "delete_selected", failed, running) == []
    assert Job.objects.count() == 2
    said = act(admin_client, "delete_selected", failed, running, post="yes")
    assert said == ["1 job was deleted. 1 was skipped: its state doesn't allow it."]
    assert list(Job.objects.values_list("pk", flat=True)) == [running]


def test_the_page_to_delete_one_job_says_why_it_stays(admin_client: Client) -> None:
    failed, running = fail_job(queue="a"), run_job(queue="b").id
    response = admin_client.post(f"{JOBS}{running}/delete/", {"post": "yes"}, follow=True)
    said = [str(message) for message in response.context["messages"]]
    assert said == [f"job {running} is running now, so it was not deleted"]
    admin_client.post(f"{JOBS}{failed}/delete/", {"post": "yes"})
    assert list(Job.objects.values_list("pk", flat=True)) == [running]
    assert LogEntry.objects.get().object_id == str(failed)


def test_the_log_of_the_admin_names_who_moved_which_job(admin_client: Client, admin_user: User) -> None:
    failed, running = fail_job(queue="a", name="shop.greet"), run_job(queue="b").id
    act(admin_client, "retry_jobs", failed, running)
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.object_repr) == (admin_user, str(failed), f"shop.greet #{failed}")
    assert entry.get_change_message() == "Retried."


def test_above_a_limit_the_log_of_the_admin_gets_one_line_for_all(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "AUDITED", 1)
    act(admin_client, "cancel_jobs", queue_job(), queue_job())
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.object_repr, entry.change_message) == (None, "2 jobs", "Cancelled.")


def test_actions_on_all_pages_of_the_list_reach_jobs_that_were_not_shown(admin_client: Client) -> None:
    jobs = [new_job(queue="bulk") for _ in range(60)]
    ids = [queued.id for queued in lifecycle.enqueue_many(jobs, using="default")]
    assert act(admin_client, "cancel_jobs", ids[-1], select_across="1") == ["60 jobs were cancelled."]


@pytest.mark.parametrize("action", ["retry_jobs", "cancel_jobs", "delete_selected"])
def test_somebody_who_may_only_look_is_neither_offered_nor_granted_an_action(client: Client, action: str) -> None:
    job_id = fail_job() if action == "retry_jobs" else queue_job()
    before = place_of(job_id)
    viewer = staff(client)
    assert f'value="{action}"' not in page(viewer, JOBS)
    act(viewer, action, job_id, post="yes")
    assert place_of(job_id) is before
    assert viewer.post(f"{JOBS}{job_id}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    ("permission", "action"),
    [("retry_job", "retry_jobs"), ("cancel_job", "cancel_jobs"), ("delete_job", "delete_selected")],
)
def test_each_action_has_a_permission_of_its_own(client: Client, permission: str, action: str) -> None:
    job_id = fail_job() if action == "retry_jobs" else queue_job()
    before = place_of(job_id)
    person = staff(client, permission)
    text = page(person, JOBS)
    offered = [name for name in ("retry_jobs", "cancel_jobs", "delete_selected") if f'value="{name}"' in text]
    assert offered == [action]
    act(person, action, job_id, post="yes")
    assert place_of(job_id) is not before


def test_pages_are_for_staff_with_the_permission_to_look(client: Client) -> None:
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert client.get(JOBS).status_code == 403
    assert client.get(f"{JOBS}{queue_job()}/change/").status_code == 403


# -- queues and schedules


def test_queues_and_schedules_are_listed_for_reading(admin_client: Client) -> None:
    Queue.objects.create(name="mail", paused_at=NOON, reason="the server moves")
    schedule = Schedule.objects.create(name="nightly", performer=greet.name, every_seconds=90)
    assert "the server moves" in page(admin_client, "/admin/django_jobs/queue/")
    assert "the server moves" in page(admin_client, "/admin/django_jobs/queue/mail/change/")
    assert "Every minute and 30 seconds" in page(admin_client, "/admin/django_jobs/schedule/")
    url = f"/admin/django_jobs/schedule/{schedule.pk}/change/"
    assert "Every minute and 30 seconds" in page(admin_client, url)
    assert admin_client.post(url, {"name": "other", "enabled": ""}).status_code == 403
    assert Schedule.objects.filter(name="nightly", enabled=True, version=1).exists()
    for url in ("/admin/django_jobs/queue/", "/admin/django_jobs/schedule/"):
        assert admin_client.get(f"{url}add/").status_code == 403
    assert admin_client.post(f"/admin/django_jobs/schedule/{schedule.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_cron_line_is_shown_with_its_words_and_a_bad_one_alone(admin_client: Client) -> None:
    schedule = Schedule.objects.create(name="nightly", performer=greet.name, cron="0 3 * * MON")
    url = f"/admin/django_jobs/schedule/{schedule.pk}/change/"
    assert "0 3 * * MON: At 03:00 on Monday" in page(admin_client, url)
    Schedule.objects.update(cron="61 * * * *", error="it can't be read")
    assert "61 * * * *" in page(admin_client, url)
    assert "it can&#x27;t be read" in page(admin_client, "/admin/django_jobs/schedule/")


@pytest.mark.django_db(databases=["default", "other"])
def test_pages_and_actions_are_about_the_database_that_holds_the_jobs(admin_client: Client, settings: Any) -> None:
    settings.DJANGO_JOBS = {"DATABASE": "other"}
    here = queue_job(name="not.here")
    [queued] = lifecycle.enqueue_many([new_job(name="over.there")] * 2, using="other")[-1:]
    Queue.objects.using("other").create(name="aside")
    text = page(admin_client, JOBS)
    assert "over.there" in text
    assert "not.here" not in text
    assert "?queue=aside" in text
    assert "over.there" in page(admin_client, f"{JOBS}{queued.id}/change/")
    assert act(admin_client, "cancel_jobs", queued.id) == ["1 job was cancelled."]
    assert Job.objects.using("other").get(pk=queued.id).state == "CANCELLED"
    assert place_of(here).value == "READY"


def test_another_site_can_show_the_same_pages() -> None:
    site = AdminSite("other")
    register(site)
    assert {model.__name__ for model in site._registry} == {"Job", "Queue", "Schedule"}
