from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connections, transaction
from django.test import Client

from django_jobs.models import Job
from django_jobs.testing import (
    assert_enqueued,
    assert_not_enqueued,
    drain,
    perform,
    run_jobs,
)
from example_project.demo.seed import make_admin, seed
from example_project.mail import FileBackend, newest_first
from example_project.shop import jobs
from example_project.shop.catalogue import CATALOGUE
from example_project.shop.models import CatalogueImport, Order, Product

pytestmark = pytest.mark.django_db

SHOP = "/example/"


@pytest.fixture(autouse=True)
def quick_supplier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS_A_LINE", 0)


@pytest.fixture
def customer() -> User:
    return User.objects.create_user("ada@example.com", "ada@example.com")


@pytest.fixture
def product() -> Product:
    return Product.objects.create(sku="TEA-1", name="Black tea", price=Decimal("5.20"))


def sign_up(client: Client, email: str = "ada@example.com") -> int:
    return client.post(f"{SHOP}sign-up/", {"email": email}).status_code


# -- signing up


def test_signing_up_makes_an_account_without_password_and_queues_the_mail(client: Client) -> None:
    response = client.post(f"{SHOP}sign-up/", {"email": "Ada@Example.com"}, follow=True)
    user = User.objects.get()
    assert (user.username, user.email, user.has_usable_password()) == ("ada@example.com", "ada@example.com", False)
    [job] = assert_enqueued(jobs.send_welcome, user.pk, queue="mail", match=lambda job: job.timeout == 30)
    assert f"ada@example.com is made, and job #{job.pk} is queued" in response.content.decode()
    assert mail.outbox == []


def test_the_worker_sends_the_welcome_mail(client: Client) -> None:
    sign_up(client)
    assert run_jobs().succeeded == 1
    [message] = mail.outbox
    assert (message.subject, message.to) == ("Welcome to the shop", ["ada@example.com"])


def test_an_account_that_is_rolled_back_leaves_no_job(client: Client) -> None:
    with assert_not_enqueued(), transaction.atomic():
        sign_up(client)
        assert_enqueued(jobs.send_welcome)
        transaction.set_rollback(True)
    assert not User.objects.exists()


def test_a_second_account_for_an_address_is_refused_kindly(client: Client) -> None:
    assert sign_up(client) == 302
    response = client.post(f"{SHOP}sign-up/", {"email": "ADA@example.com"})
    assert response.status_code == 422
    assert "This address has an account already" in response.content.decode()
    assert (User.objects.count(), Job.objects.count()) == (1, 1)


@pytest.mark.parametrize("email", ["", "ada", "a@b", f"{'a' * 150}@example.com", "ada@example.com\x00"])
def test_what_is_no_address_is_refused(client: Client, email: str) -> None:
    assert sign_up(client, email) == 422
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_who_sign_up_at_once_with_one_address_the_database_takes_one() -> None:
    together = Barrier(2)

    def at_once(_: int) -> int:
        try:
            together.wait(10)
            return sign_up(Client())
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as browsers:
        assert sorted(browsers.map(at_once, range(2))) == [302, 422]
    assert (User.objects.count(), Job.objects.count()) == (1, 1)


def test_a_welcome_for_an_account_that_is_gone_is_cancelled(customer: User) -> None:
    jobs.send_welcome.later(customer.pk)
    customer.delete()
    assert run_jobs().cancelled == 1
    assert mail.outbox == []


# -- ordering


def test_an_order_gets_its_receipt_from_an_async_job(client: Client, customer: User, product: Product) -> None:
    data = {"email": "ada@example.com", "product": product.pk, "quantity": 2}
    response = client.post(f"{SHOP}order/", data, follow=True)
    assert "is placed, and job" in response.content.decode()
    order = Order.objects.get()
    assert (order.customer, order.price, order.receipt_sent_at) == (customer, Decimal("5.20"), None)
    assert jobs.send_receipt.is_async
    assert run_jobs().succeeded == 1
    [message] = mail.outbox
    assert message.to == ["ada@example.com"]
    assert "2 of Black tea, €5.20 each: €10.40" in message.body
    order.refresh_from_db()
    assert order.receipt_sent_at is not None


def test_a_receipt_that_is_out_is_not_sent_again(customer: User, product: Product) -> None:
    order = Order.objects.create(customer=customer, product=product, price=product.price)
    for _ in range(2):
        perform(jobs.send_receipt, order.pk)
    assert len(mail.outbox) == 1


def test_a_stranger_cannot_order(client: Client, product: Product) -> None:
    response = client.post(f"{SHOP}order/", {"email": "bo@example.com", "product": product.pk, "quantity": 1})
    assert response.status_code == 422
    assert "Nobody has signed up with this address yet." in response.content.decode()
    assert_not_enqueued()


# -- importing


def test_an_import_is_queued_and_reads_the_whole_catalogue(client: Client) -> None:
    assert client.post(f"{SHOP}imports/").status_code == 302
    assert (CatalogueImport.objects.get().done, Product.objects.count()) == (0, 0)
    assert run_jobs(queue="import").succeeded == 1
    assert (CatalogueImport.objects.get().done, Product.objects.count()) == (len(CATALOGUE), len(CATALOGUE))
    assert Job.objects.get().result == f"{len(CATALOGUE)} lines in attempt 1"


def test_another_attempt_at_an_import_goes_on_where_the_first_one_ended() -> None:
    begun = CatalogueImport.objects.create(total=len(CATALOGUE), done=len(CATALOGUE) - 3)
    assert perform(jobs.import_catalogue, begun.pk, attempt=2) == "3 lines in attempt 2"
    assert Product.objects.count() == 3


# -- what the demo shows


def test_the_seeds_come_to_jobs_in_many_states() -> None:
    assert seed()
    done = drain()
    assert (done.succeeded, done.retried, done.failed) == (7, 1, 1)
    states = sorted(Job.objects.values_list("state", flat=True))
    assert states == ["CANCELLED", "FAILED", "READY", "READY", "READY", *["SUCCESSFUL"] * 7]


def test_seeds_are_sown_once() -> None:
    assert seed()
    count = Job.objects.count()
    assert not seed()
    assert Job.objects.count() == count


def test_the_admin_gets_a_new_password_each_time(client: Client) -> None:
    first, second = make_admin(), make_admin()
    assert not client.login(username="admin", password=first)
    assert client.login(username="admin", password=second)
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize("page", ["", "sign-up/", "order/", "imports/", "outbox/"])
def test_every_page_opens(client: Client, page: str) -> None:
    seed()
    assert client.get(f"{SHOP}{page}").status_code == 200


def test_the_newest_jobs_are_listed_with_their_states_and_ways_to_the_admin(client: Client) -> None:
    job = jobs.send_newsletter.after(days=1).later("spring")
    text = client.get(SHOP).content.decode()
    assert f"/admin/django_jobs/job/{job.pk}/change/" in text
    assert ">scheduled<" in text


def test_a_supplier_that_never_answers_is_asked_five_times_an_hour_apart() -> None:
    jobs.check_stock.later("Leaf & Co")
    done = drain(until="5h")
    assert (done.retried, done.failed) == (4, 1)
    moments = [job.started_at for job in done.jobs if job.started_at is not None]
    assert [round((later - earlier).total_seconds() / 60) for earlier, later in pairwise(moments)] == [60, 60, 60, 60]


# -- mails


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """Read mails from a folder, as in the demo."""
    settings.MAIL_FOLDER = str(tmp_path)
    settings.DEBUG = True
    return tmp_path


def test_every_mail_is_a_file_of_its_own_and_can_be_read_back(folder: Path, client: Client) -> None:
    for number in range(3):
        _backend(folder).send_messages(
            [mail.EmailMessage(f"No. {number}", "Grüße\n\n-- \nThe shop", None, ["a@b.example"])]
        )
    mails = list(newest_first(folder))
    assert sorted(each.subject for each in mails) == ["No. 0", "No. 1", "No. 2"]
    assert {(each.to, each.text.rstrip("\n")) for each in mails} == {("a@b.example", "Grüße\n\n-- \nThe shop")}
    assert len(list(folder.iterdir())) == 3
    assert "No. 1" in client.get(f"{SHOP}outbox/").content.decode()


def test_mails_are_shown_while_developing_only(folder: Path, client: Client, settings: Any) -> None:
    _backend(folder).send_messages([mail.EmailMessage("A secret", "…", None, ["a@b.example"])])
    settings.DEBUG = False
    assert "A secret" not in client.get(f"{SHOP}outbox/").content.decode()


def _backend(folder: Path) -> FileBackend:
    return FileBackend(file_path=str(folder))
