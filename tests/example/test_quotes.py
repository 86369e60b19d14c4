"""The shop's page that waits for what a job returns: ready, not yet, and in vain."""

from __future__ import annotations

from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from django_jobs import work_one
from django_jobs.models import Job
from django_jobs.testing import assert_enqueued, perform, run_jobs
from example_project.shop import jobs, views
from example_project.shop.models import Product

pytestmark = pytest.mark.django_db

PAGE = "/example/quote/"


@pytest.fixture(autouse=True)
def quick_warehouse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS_A_QUOTE", 0)
    monkeypatch.setattr(views, "PATIENCE", 0.0)


@pytest.fixture
def product() -> Product:
    return Product.objects.create(sku="TEA-1", name="Black tea", price=Decimal("5.20"))


def ask(client: Client, product: Product, quantity: Any = 20) -> Any:
    return client.post(PAGE, {"product": product.pk, "quantity": quantity})


def test_asking_queues_a_job_and_leads_to_a_page_of_its_own(client: Client, product: Product) -> None:
    response = ask(client, product)
    [job] = assert_enqueued(jobs.make_quote, product.pk, 20, queue="quotes")
    assert response.status_code == 302
    assert response["Location"].startswith(f"{PAGE}{job.pk}:")


def test_what_the_job_returned_is_shown_as_it_was_returned(client: Client, product: Product) -> None:
    page = ask(client, product)["Location"]
    assert run_jobs().succeeded == 1
    quote = Job.objects.get().wait_result(0)
    assert (type(quote), quote.total, quote.product) == (jobs.Quote, Decimal("104.00"), "Black tea")
    text = client.get(page).content.decode()
    assert "€104.00" in text
    assert f"{quote.by:%Y}" in text


def test_a_large_order_takes_longer(product: Product) -> None:
    small, large = perform(jobs.make_quote, product.pk, 10), perform(jobs.make_quote, product.pk, 100)
    assert (large.by - small.by).days == 10


def test_before_it_is_ready_the_page_says_why_and_how_to_look_again(client: Client, product: Product) -> None:
    page = ask(client, product)["Location"]
    text = client.get(page).content.decode()
    assert "It isn&#x27;t ready yet" in text or "It isn't ready yet" in text
    assert f'href="{page}"' in text
    assert "No worker is alive. Start one: python manage.py runjobs" in text


def test_a_quote_for_what_is_no_longer_on_sale_says_so(client: Client, product: Product) -> None:
    page = ask(client, product)["Location"]
    product.delete()
    run_jobs(raise_errors=False)
    text = client.get(page).content.decode()
    assert "There is no quote: job" in text
    assert "the product is no longer on sale" in text
    assert "Look again" not in text


@pytest.mark.parametrize("address", ["1/", "1:forged/", "x/"])
def test_nobody_gets_at_a_quote_by_counting_up(client: Client, product: Product, address: str) -> None:
    ask(client, product)
    assert client.get(f"{PAGE}{address}").status_code == 404


def test_other_jobs_are_no_quotes(client: Client, product: Product) -> None:
    other = jobs.send_newsletter.later("spring")
    assert client.get(f"{PAGE}{views.QUOTES.sign(str(other.pk))}/").status_code == 404


@pytest.mark.parametrize("quantity", ["", "0", "101", "many"])
def test_a_wrong_quantity_is_refused_kindly(client: Client, product: Product, quantity: str) -> None:
    response = ask(client, product, quantity)
    assert response.status_code == 422
    assert not Job.objects.exists()


def test_the_page_opens(client: Client, product: Product) -> None:
    assert "Ask for a quote" in client.get(PAGE).content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_page_waits_for_a_worker(client: Client, product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PATIENCE", 30.0)
    monkeypatch.setattr(jobs, "SECONDS_A_QUOTE", 0.1)
    page = ask(client, product)["Location"]

    def work() -> None:
        try:
            work_one()
        finally:
            connections.close_all()

    worker = Thread(target=work)
    worker.start()
    text = client.get(page).content.decode()
    worker.join(30)
    assert "€104.00" in text
