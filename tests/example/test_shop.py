from __future__ import annotations

from collections import Counter
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

from django_jobs.clock import FrozenClock
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
from example_project.shop import jobs, search
from example_project.shop.catalogue import CATALOGUE, Line
from example_project.shop.models import CatalogueImport, Order, Product, SearchEntry, StaffNote
from tests.factories import claim_one, seconds

pytestmark = pytest.mark.django_db

SHOP = "/example/"


@pytest.fixture(autouse=True)
def quick_supplier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS_A_LINE", 0)
    monkeypatch.setattr(jobs, "SECONDS_A_PRODUCT", 0)


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
    assert Job.objects.named("shop.import_catalogue").get().result == f"{len(CATALOGUE)} lines in attempt 1"


def test_the_page_shows_how_far_each_import_is_and_by_which_words(client: Client) -> None:
    client.post(f"{SHOP}imports/")
    waiting = client.get(f"{SHOP}imports/").content.decode()
    assert '<django-jobs-progress data-state="waiting" data-url="/jobs/progress/' in waiting
    assert 'aria-label="Import ' in waiting
    run_jobs(queue="import")
    job = Job.objects.named("shop.import_catalogue").get()
    count = len(CATALOGUE)
    assert job.progress == {"done": count, "total": count, "message": CATALOGUE[-1].name}
    assert CatalogueImport.objects.get().job_id == job.pk
    done = client.get(f"{SHOP}imports/").content.decode()
    assert 'data-state="succeeded"' in done
    assert f"{count} of {count}" in done
    Job.objects.all().delete()
    assert "This job is no longer here." in client.get(f"{SHOP}imports/").content.decode()


def test_another_attempt_at_an_import_goes_on_where_the_first_one_ended() -> None:
    begun = CatalogueImport.objects.create(total=len(CATALOGUE), done=len(CATALOGUE) - 3)
    assert perform(jobs.import_catalogue, begun.pk, attempt=2) == "3 lines in attempt 2"
    assert Product.objects.count() == 3


def test_an_import_that_nobody_asks_for_any_more_fails_at_once_and_leaves_a_note() -> None:
    job = jobs.import_catalogue.later(10**6)
    assert (drain().failed, Job.objects.named("shop.import_catalogue").get().attempts) == (1, 1)
    note = StaffNote.objects.get()
    assert note.job_id == job.pk
    assert note.text.startswith("shop.import_catalogue has failed: CatalogueImport matching query does not exist")


# -- what failed for good


def test_there_is_one_note_for_a_job_however_often_it_fails(client: Client) -> None:
    job = jobs.check_stock.later("Gone & Sons")
    drain()
    job.retry()
    drain()
    assert Job.objects.named("shop.tell_staff").count() == 2
    [note] = StaffNote.objects.all()
    assert (note.job_id, note.text) == (job.pk, "shop.check_stock has failed: the supplier has closed its business")
    page = client.get(f"{SHOP}imports/").content.decode()
    assert "the supplier has closed its business" in page
    assert f"/admin/django_jobs/job/{job.pk}/change/" in page


def test_staff_is_not_told_of_what_was_retried_or_is_gone() -> None:
    job = jobs.check_stock.later("Northwind")
    for job_id in (job.pk, 10**6):
        jobs.tell_staff.later(job_id)
    assert drain().cancelled == 2
    assert not StaffNote.objects.exists()


def test_a_note_is_escaped(client: Client) -> None:
    job = jobs.check_stock.later("Northwind")
    StaffNote.objects.create(job_id=job.pk, text="<script>", written_at=job.enqueued_at)
    page = client.get(f"{SHOP}imports/").content.decode()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_a_stock_check_that_comes_too_late_is_never_run(frozen: FrozenClock) -> None:
    job = jobs.check_stock.later("Gone & Sons")
    frozen.advance(seconds(3600))
    assert drain().jobs == ()
    job.refresh_from_db()
    assert (job.state, job.errors[-1]["kind"]) == ("CANCELLED", "expired")


# -- searching


def waiting_to_be_indexed() -> list[list[Any]]:
    """Give the arguments of the jobs that wait."""
    return [job.args for job in Job.objects.ready().named("shop.index_product").order_by("pk")]


@pytest.fixture
def tea(frozen: FrozenClock) -> Product:
    """Give a product that the search knows, two seconds after noon."""
    product = jobs.put_on_sale(Line("TEA-1", "Crème brûlée tea", Decimal("5.20")))
    frozen.advance(seconds(2))
    run_jobs()
    return product


@pytest.mark.parametrize("words", ["", "tea", "CREME", "brûlée  tea-1", " t ", "rul"])
def test_a_product_is_found_by_its_words(tea: Product, words: str) -> None:
    assert list(search.find(words)) == [tea]


@pytest.mark.parametrize("words", ["coffee", "tea coffee", "%", "_", "\\"])
def test_what_is_not_there_is_not_found(tea: Product, words: str) -> None:
    assert list(search.find(words)) == []


def test_a_burst_of_changes_is_indexed_once(tea: Product, frozen: FrozenClock) -> None:
    for name in ("Red tea", "Pink tea", "White tea"):
        jobs.put_on_sale(Line(tea.sku, name, tea.price))
        frozen.advance(seconds(0.5))
    assert waiting_to_be_indexed() == [[tea.pk]]
    assert run_jobs().succeeded == 0
    frozen.advance(seconds(0.5))
    assert run_jobs().succeeded == 1
    assert SearchEntry.objects.get().words == "white tea tea-1"


def test_a_change_while_the_product_is_indexed_is_indexed_too(tea: Product, frozen: FrozenClock) -> None:
    jobs.put_on_sale(Line(tea.sku, "Red tea", tea.price))
    frozen.advance(seconds(2))
    running = claim_one()
    jobs.put_on_sale(Line(tea.sku, "White tea", tea.price))
    assert waiting_to_be_indexed() == [[tea.pk]]
    assert Job.objects.ready().named("shop.index_product").get().pk != running.id


def test_a_change_that_is_rolled_back_is_not_indexed(tea: Product) -> None:
    with transaction.atomic():
        jobs.put_on_sale(Line(tea.sku, "White tea", tea.price))
        transaction.set_rollback(True)
    assert waiting_to_be_indexed() == []


def test_a_product_that_is_gone_is_not_indexed(tea: Product, frozen: FrozenClock) -> None:
    jobs.index_soon(tea)
    tea.delete()
    frozen.advance(seconds(2))
    assert run_jobs().cancelled == 1
    assert not SearchEntry.objects.exists()


def test_a_change_in_the_admin_is_indexed(client: Client, tea: Product) -> None:
    assert client.login(username="admin", password=make_admin())
    data = {"sku": tea.sku, "name": "White tea", "price": "6.00"}
    assert client.post(f"/admin/example_shop/product/{tea.pk}/change/", data).status_code == 302
    assert waiting_to_be_indexed() == [[tea.pk]]
    assert client.get("/admin/example_shop/staffnote/").status_code == 200


def test_an_import_has_its_products_indexed(client: Client, frozen: FrozenClock) -> None:
    client.post(f"{SHOP}imports/")
    run_jobs()
    assert len(waiting_to_be_indexed()) == len(CATALOGUE)
    frozen.advance(seconds(2))
    assert run_jobs().succeeded == len(CATALOGUE)
    assert search.find("").count() == len(CATALOGUE)
    assert search.find("honey").count() == 5


def test_a_rebuild_indexes_everything(product: Product) -> None:
    assert search.find("").count() == 0
    job = jobs.rebuild_index.later()
    assert run_jobs().succeeded == 1
    assert list(search.find("black")) == [product]
    job.refresh_from_db()
    assert job.result == 1


def test_pressed_twice_the_button_gives_the_same_job_also_while_it_runs(client: Client) -> None:
    first = client.post(f"{SHOP}search/", follow=True).content.decode()
    job = Job.objects.get()
    assert f"Job #{job.pk} is queued to rebuild the whole index." in first
    for _ in range(2):
        again = client.post(f"{SHOP}search/", follow=True).content.decode()
        assert f"Job #{job.pk} is at it already, so no other was queued." in again
        if Job.objects.ready().exists():
            claim_one()
    assert Job.objects.get().state == "RUNNING"


def test_the_page_shows_what_is_found_and_what_waits(client: Client, tea: Product) -> None:
    Product.objects.create(sku="X", name="Not yet known", price=1)
    jobs.index_soon(tea)
    page = client.get(f"{SHOP}search/", {"q": "creme"}).content.decode()
    assert "Crème brûlée tea" in page
    assert "knows 1 of 2 products, and 1 waits to be indexed" in page
    assert "Nothing is found for “coffee”." in client.get(f"{SHOP}search/", {"q": "coffee"}).content.decode()


def test_what_is_looked_for_is_escaped(client: Client) -> None:
    page = client.get(f"{SHOP}search/", {"q": '"><script>alert(1)</script>'}).content.decode()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("words", ["a\0b", "x" * 101])
def test_what_no_name_can_hold_is_refused_kindly(client: Client, tea: Product, words: str) -> None:
    response = client.get(f"{SHOP}search/", {"q": words})
    assert response.status_code == 422
    page = response.content.decode()
    assert "_error" in page
    assert "Crème" not in page


@pytest.mark.django_db(transaction=True)
def test_of_two_jobs_for_one_product_the_last_to_write_has_read_last(product: Product) -> None:
    if connections["default"].vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    with ThreadPoolExecutor(1) as other, transaction.atomic():
        Product.objects.filter(pk=product.pk).update(name="White tea")
        indexed = other.submit(_index, product.pk)
        with pytest.raises(TimeoutError):
            indexed.result(timeout=0.3)
        transaction.on_commit(lambda: indexed.result(timeout=10))
    assert SearchEntry.objects.get().words == "white tea tea-1"


def _index(product_id: int) -> None:
    try:
        jobs.index_product(product_id)
    finally:
        connections.close_all()


# -- what the demo shows


def test_the_seeds_come_to_jobs_in_many_states() -> None:
    assert seed()
    done = drain()
    assert (done.succeeded, done.retried, done.failed) == (8, 1, 1)
    states = Counter(Job.objects.exclude(name="shop.index_product").values_list("state", flat=True))
    assert states == {"CANCELLED": 2, "FAILED": 1, "READY": 3, "SUCCESSFUL": 8}
    assert len(waiting_to_be_indexed()) == len(CATALOGUE)
    assert StaffNote.objects.count() == 1


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


@pytest.mark.parametrize("page", ["", "search/", "sign-up/", "order/", "imports/", "outbox/"])
def test_every_page_opens(client: Client, page: str) -> None:
    seed()
    assert client.get(f"{SHOP}{page}").status_code == 200


def test_the_newest_jobs_are_listed_with_their_states_and_ways_to_the_admin(client: Client) -> None:
    job = jobs.send_newsletter.after(days=1).later("spring")
    text = client.get(SHOP).content.decode()
    assert f"/admin/django_jobs/job/{job.pk}/change/" in text
    assert ">scheduled<" in text


def test_a_supplier_that_never_answers_is_asked_five_times_and_staff_is_told() -> None:
    job = jobs.check_stock.later("Leaf & Co")
    done = drain(until="5h")
    assert (done.retried, done.failed, done.succeeded) == (4, 1, 1)
    moments = [each.started_at for each in done.jobs if each.pk == job.pk and each.started_at is not None]
    assert [round((later - earlier).total_seconds() / 60) for earlier, later in pairwise(moments)] == [10, 10, 10, 10]
    assert StaffNote.objects.get().job_id == job.pk


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
