"""The shop's import in a real browser, under a policy that forbids everything inline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Page, expect

from django_jobs import lifecycle
from django_jobs.models import Job
from django_jobs.outcomes import GaveUp, Succeeded
from django_jobs.progress import Progress
from django_jobs.records import Claim
from django_jobs.testing import live_worker
from example_project.shop import jobs
from example_project.shop.catalogue import CATALOGUE
from tests.browser.conftest import Tab
from tests.factories import claim_one, failure
from tests.system.processes import until

pytestmark = pytest.mark.django_db(transaction=True)

IMPORTS = "/example/imports/"

PATIENCE = 20_000
"""Milliseconds."""


@pytest.fixture
def running(site: str) -> Claim:
    """Have an import run, as far as anybody sees, that says what the test says."""
    jobs.ask_for_import()
    return claim_one(names=("shop.import_catalogue",))


def say(claim: Claim, *said: Any) -> None:
    assert lifecycle.report(connection, {claim.lease: Progress(*said)})


def end(claim: Claim) -> None:
    assert lifecycle.settle(connection, [(claim, Succeeded())]) == []


def shows(what: str, text: str) -> Callable[[Page], None]:
    return lambda page: expect(page.locator(f".django-jobs-{what}")).to_have_text(text, timeout=PATIENCE)


def bar(tab: Tab) -> str | None:
    return tab.do(lambda page: page.locator("progress").get_attribute("value"))


def open_page(tab: Tab, site: str) -> None:
    tab.do(lambda page: page.goto(site + IMPORTS))
    tab.do(lambda page: page.evaluate("window.isTheSamePage = true"))


def is_the_same_page(tab: Tab) -> bool:
    return bool(tab.do(lambda page: page.evaluate("window.isTheSamePage === true")))


def asked(tab: Tab) -> int:
    """Say how often the page has asked how far the job is."""
    return sum("/jobs/progress/" in url for url in tab.asked)


def let_pass(tab: Tab, milliseconds: int) -> None:
    """Let time pass in the browser, in which nothing is to happen."""
    tab.do(lambda page: page.wait_for_timeout(milliseconds))


def test_pressed_the_button_one_sees_the_import_come_to_its_end_on_one_page(
    tab: Tab, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SECONDS_A_LINE", 2.5 / len(CATALOGUE))
    open_page(tab, site)
    tab.do(lambda page: page.get_by_role("button", name="Import").click())
    tab.do(lambda page: page.evaluate("window.isTheSamePage = true"))
    tab.do(shows("state", "waiting"))
    with live_worker(["import"]):
        tab.do(shows("state", "running"))
        tab.do(shows("state", "succeeded"))
    tab.do(shows("count", f"{len(CATALOGUE)} of {len(CATALOGUE)}"))
    assert bar(tab) == "1"
    assert is_the_same_page(tab)
    assert (tab.violations, tab.wrong) == ([], [])


def test_each_value_is_shown_about_a_second_later(tab: Tab, site: str, running: Claim) -> None:
    open_page(tab, site)
    tab.do(shows("state", "running"))
    assert bar(tab) is None
    say(running, 3, 12, "Green tea")
    tab.do(shows("count", "3 of 12"))
    tab.do(shows("message", "Green tea"))
    assert bar(tab) == "0.25"
    say(running, 1234.5, None, "<b>no markup</b>")
    tab.do(shows("message", "<b>no markup</b>"))
    tab.do(shows("count", "1,234.50"))
    assert bar(tab) is None
    assert is_the_same_page(tab)
    assert (tab.violations, tab.wrong) == ([], [])


def test_at_the_end_it_says_so_to_the_page_and_asks_no_more(tab: Tab, site: str, running: Claim) -> None:
    open_page(tab, site)
    tab.do(
        lambda page: page.evaluate(
            """() => {
              window.heard = [];
              for (const what of ["progress", "finished", "gone"]) {
                addEventListener(`django-jobs:${what}`, (event) => window.heard.push([what, event.detail]));
              }
            }"""
        )
    )
    say(running, 12, 12, "Rooibos")
    end(running)
    tab.do(shows("state", "succeeded"))
    count = asked(tab)
    let_pass(tab, 2_500)
    assert asked(tab) == count
    heard = tab.do(lambda page: page.evaluate("window.heard"))
    assert heard[-1] == ["finished", {"state": "succeeded", "done": 12, "total": 12, "message": "Rooibos"}]
    assert [what for what, _ in heard].count("finished") == 1


def test_a_failure_is_an_end_too(tab: Tab, site: str, running: Claim) -> None:
    open_page(tab, site)
    say(running, 3, 12)
    lifecycle.settle(connection, [(running, GaveUp(failure=failure()))])
    tab.do(shows("state", "failed"))
    assert bar(tab) == "0.25"
    assert tab.do(lambda page: page.locator("django-jobs-progress").get_attribute("data-state")) == "failed"


def test_a_job_that_goes_away_meanwhile_is_a_sentence_and_asked_for_no_more(
    tab: Tab, site: str, running: Claim
) -> None:
    open_page(tab, site)
    end(running)
    Job.objects.all().delete()
    tab.do(shows("state", "This job is no longer here."))
    count = asked(tab)
    let_pass(tab, 2_500)
    assert asked(tab) == count


def test_when_contact_is_lost_it_asks_ever_more_seldom_and_comes_back(tab: Tab, site: str, running: Claim) -> None:
    open_page(tab, site)
    reload = ".django-jobs-reload"
    tab.do(lambda page: expect(page.locator(reload)).to_be_hidden(timeout=PATIENCE))
    tab.do(lambda page: page.route("**/jobs/progress/**", lambda route: route.abort()))
    tab.do(shows("message", "Lost contact, trying again."))
    tab.do(lambda page: expect(page.locator(reload)).to_be_visible(timeout=PATIENCE))
    before = asked(tab)
    let_pass(tab, 5_000)
    # After one second two, then four.
    assert 1 <= asked(tab) - before <= 3
    say(running, 5, 12, "back")
    tab.do(lambda page: page.unroute("**/jobs/progress/**"))
    tab.do(shows("message", "back"))
    tab.do(lambda page: expect(page.locator(reload)).to_be_hidden(timeout=PATIENCE))


def test_a_page_that_nobody_sees_asks_nothing_and_asks_at_once_when_it_is_seen_again(
    tab: Tab, site: str, running: Claim
) -> None:
    open_page(tab, site)
    let_pass(tab, 1_500)
    assert asked(tab) >= 1
    see(tab, "hidden")
    let_pass(tab, 300)
    count = asked(tab)
    let_pass(tab, 2_500)
    assert asked(tab) == count
    say(running, 7, 12)
    see(tab, "visible")
    tab.do(shows("count", "7 of 12"))


def see(tab: Tab, state: str) -> None:
    """Have the page believe that it is seen, or not: a browser without a screen shows all."""
    script = """(state) => {
      Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    tab.do(lambda page: page.evaluate(script, state))


def test_without_javascript_the_page_shows_it_when_it_is_loaded_again(
    open_tab: Callable[..., Tab], site: str, running: Claim
) -> None:
    tab = open_tab(java_script_enabled=False)
    say(running, 3, 12, "Green tea")
    tab.do(lambda page: page.goto(site + IMPORTS))
    tab.do(shows("count", "3 of 12"))
    say(running, 12, 12, "Rooibos")
    end(running)
    let_pass(tab, 2_500)
    tab.do(shows("count", "3 of 12"))
    tab.do(lambda page: page.get_by_role("link", name="Look again").click())
    tab.do(shows("state", "succeeded"))
    tab.do(shows("count", "12 of 12"))


def test_screen_readers_hear_the_state_politely_and_not_each_number(tab: Tab, site: str, running: Claim) -> None:
    open_page(tab, site)
    said = tab.do(lambda page: page.locator("django-jobs-progress [role=status]").all_inner_texts())
    assert said == ["running"]
    assert tab.do(lambda page: page.get_by_role("progressbar", name="Import").count()) == 1


def test_every_page_of_the_shop_obeys_the_policy(tab: Tab, site: str, running: Claim) -> None:
    for page_name in ("", "search/", "sign-up/", "order/", "imports/", "outbox/"):
        tab.do(lambda page, name=page_name: page.goto(f"{site}/example/{name}"))
        assert (page_name, tab.violations, tab.wrong) == (page_name, [], [])


def test_what_the_policy_forbids_would_be_noticed(tab: Tab, site: str) -> None:
    open_page(tab, site)
    tab.do(lambda page: page.evaluate("document.body.setAttribute('style', 'color: red')"))
    until(lambda: tab.violations, what="the violation is noted")
    assert tab.violations == ["style-src-attr inline"]
    assert len(tab.wrong) == 1
