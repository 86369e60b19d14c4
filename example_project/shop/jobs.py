"""The shop's background jobs. Modules called `jobs` are found in every installed app when Django starts.

Each has a name of its own, so that the function may move without losing the jobs that are still waiting, and takes the
key of a row rather than its contents, so that it works on what is true when it runs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.mail import EmailMessage, send_mail
from django.db import transaction
from django.utils import timezone

from django_jobs import Attempt, Cancel, GiveUp, backoff, job
from django_jobs.models import Job
from example_project.shop import search
from example_project.shop.catalogue import CATALOGUE, Line
from example_project.shop.models import CatalogueImport, Order, Product, StaffNote

SECONDS_A_LINE = 0.25
"""How slow the supplier of the catalogue is."""

SECONDS_A_QUOTE = 0.5
"""How long the shop takes to ask its warehouse."""

SECONDS_A_PRODUCT = 0.2
"""How long the demo takes over each product of a rebuild, so that there is time to press the button twice."""


@dataclass(frozen=True)
class Quote:
    """What so many of a product cost, and until when they come."""

    product: str
    total: Decimal
    by: date


@job("shop.send_welcome", queue="mail", timeout=30, max_attempts=8, backoff=backoff.exponential(5, cap="1h"))
def send_welcome(user_id: int) -> None:
    """Greet a new customer. If the mail server refuses, another attempt follows after the backoff."""
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise Cancel("the account is gone")
    text = f"Hello,\n\nwelcome to the shop! Your account is {user.email}.\n"
    send_mail("Welcome to the shop", text, None, [user.email])


@job("shop.send_receipt", queue="mail", timeout=30, max_attempts=8, backoff=backoff.exponential(5, cap="1h"))
async def send_receipt(order_id: int) -> None:
    """Send the receipt of an order, from the worker's event loop.

    Jobs run at least once: a worker that dies after sending, but before it could write so, makes the job run again. So
    this asks first whether the receipt is out, and leaves little room for a second one.
    """
    order = await Order.objects.select_related("customer", "product").aget(pk=order_id)
    if order.receipt_sent_at is not None:
        return
    lines = (
        f"Thank you for order {order.pk}.",
        "",
        f"{order.quantity} of {order.product.name}, €{order.price} each: €{order.quantity * order.price}",
        "",
    )
    message = EmailMessage(f"Receipt for order {order.pk}", "\n".join(lines), None, [order.customer.email])
    await sync_to_async(message.send)()
    await Order.objects.filter(pk=order_id).aupdate(receipt_sent_at=timezone.now())


# -- what the shop sells, and finding it


@job("shop.index_product", queue="search", timeout=30, unique_while_waiting=str)
def index_product(product_id: int) -> None:
    """Bring what the search knows of a product up to date.

    The key is the product, so a burst of changes is indexed once. It is `unique_while_waiting`, not `unique`: a job
    that runs may have read the product before the change that asks for another, and would leave the index as it was.
    Only one that hasn't started yet is sure to see the change.

    For the same reason two may run at once. Each reads the product under a lock, so the last to write has read last.
    """
    with transaction.atomic():
        product = Product.objects.select_for_update(no_key=True).filter(pk=product_id).first()
        if product is None:
            raise Cancel("the product is gone")
        search.write_entry(product)


def index_soon(product: Product) -> Job:
    """Queue that a product is indexed; call it in the transaction that changes the product.

    Two seconds later, so that a burst of changes gathers. They count from the first of it: were the job put off by each
    change (`on_duplicate="replace"`), a product that always changes would never be indexed.
    """
    return index_product.after(seconds=2).later(product.pk)


@job("shop.rebuild_index", queue="search", timeout="10m", unique=True)
def rebuild_index() -> int:
    """Index every product anew, and give how many there were.

    One at a time is enough, running or not, so this is `unique`: who asks for another gets the one that is at it. That
    one may have passed a product that changes meanwhile; but the change queues an `index_product` of its own.
    """
    products = list(Product.objects.values_list("pk", flat=True))
    for product_id in products:
        time.sleep(SECONDS_A_PRODUCT)
        with suppress(Cancel):
            index_product(product_id)
    return len(products)


def put_on_sale(line: Line) -> Product:
    """Write a product as a line of the catalogue says, and queue that it is indexed: both, or neither."""
    with transaction.atomic():
        values = {"name": line.name, "price": line.price}
        product, _ = Product.objects.update_or_create(sku=line.sku, defaults=values)
        index_soon(product)
    return product


# -- the suppliers


@job("shop.tell_staff")
def tell_staff(job_id: int) -> None:
    """Leave a note for staff that a job has failed for good. It is queued with the failure, in one transaction.

    It may be gone by now, or have been retried; then there is nothing to tell.
    """
    failed = Job.objects.failed().filter(pk=job_id).first()
    if failed is None:
        raise Cancel("the job is gone, or was retried")
    values = {"text": f"{failed.name} has failed: {failed.errors[-1]['reason']}", "written_at": timezone.now()}
    StaffNote.objects.update_or_create(job_id=job_id, defaults=values)


@job(
    "shop.import_catalogue", queue="import", timeout="2m", max_attempts=6, backoff=backoff.steps("10s", "1m"),
    give_up_on=CatalogueImport.DoesNotExist, on_failure=tell_staff, takes_attempt=True,
)  # fmt: skip
def import_catalogue(attempt: Attempt, import_id: int) -> str:
    """Read the supplier's catalogue line by line; another attempt goes on where the one before came to an end.

    Where nobody asks for the import any more, none would help. If all fail, staff is told.
    """
    begun = CatalogueImport.objects.get(pk=import_id)
    for number, line in enumerate(CATALOGUE[begun.done :], start=begun.done + 1):
        time.sleep(SECONDS_A_LINE)
        with transaction.atomic():
            put_on_sale(line)
            CatalogueImport.objects.filter(pk=import_id).update(done=number)
        # For people to watch: what the next attempt needs is written above, with the line itself.
        attempt.progress(number, len(CATALOGUE), line.name)
    return f"{len(CATALOGUE) - begun.done} lines in attempt {attempt.number}"


def ask_for_import() -> CatalogueImport:
    """Queue that the catalogue is read, and give what knows how far that has come, and by which job."""
    with transaction.atomic():
        asked = CatalogueImport.objects.create(total=len(CATALOGUE))
        asked.job_id = import_catalogue.later(asked.pk).pk
        asked.save()
    return asked


@job(
    "shop.check_stock", queue="stock", timeout=10, max_attempts=5, backoff=backoff.fixed("10m"), expires="1h",
    on_failure=tell_staff,
)  # fmt: skip
def check_stock(supplier: str) -> None:
    """Ask a supplier what is in stock. The demo's suppliers don't answer, so that there is a failure to look at.

    An hour later the answer is of no use to whoever asked, so a check that couldn't start by then is never run.
    """
    if supplier == "Gone & Sons":
        raise GiveUp("the supplier has closed its business")
    message = f"{supplier} does not answer"
    raise ConnectionError(message)


# -- the newsletter


@job("shop.send_newsletter", queue="newsletter", priority=-10)
def send_newsletter(issue: str) -> int:
    """Write to every customer, after all that is more urgent; give how many there were."""
    addresses = list(User.objects.filter(is_staff=False).values_list("email", flat=True))
    for address in addresses:
        send_mail(f"Our {issue} newsletter", "There is new tea.\n", None, [address])
    return len(addresses)


# -- by the clock: `timetable.py` says when


@job("shop.nightly_report", queue="mail", timeout=60, takes_attempt=True)
def nightly_report(attempt: Attempt) -> int:
    """Mail to staff what was ordered in the day before the tick that this job is for; give how many orders there were.

    It asks for the tick, not for the time: after a night without workers the job runs late, and the report is of the
    same day all the same.
    """
    until = attempt.tick or timezone.now()
    orders = Order.objects.filter(placed_at__gte=until - timedelta(days=1), placed_at__lt=until)
    lines = [f"{order.quantity} of {order.product.name}" for order in orders.select_related("product")]
    staff = User.objects.filter(is_staff=True).exclude(email="").values_list("email", flat=True)
    send_mail(f"{len(lines)} orders until {until:%Y-%m-%d}", "\n".join([*lines, ""]), None, list(staff))
    return len(lines)


@job("shop.heartbeat", timeout=10, max_attempts=1, expires="1m", keep="1h")
def heartbeat() -> int:
    """Show that somebody works: give how many receipts are still to be sent. A minute later nobody asks for it."""
    return Order.objects.filter(receipt_sent_at=None).count()


# -- quotes


@job("shop.make_quote", queue="quotes", timeout=20, max_attempts=2, backoff=backoff.fixed(2), keep="1h")
def make_quote(product_id: int, quantity: int) -> Quote:
    """Work out what an order would cost and when it would come, as a value that the page waits for.

    It comes back as it is returned here, with its Decimal and its date. An hour later it is of no use to anybody.
    """
    time.sleep(SECONDS_A_QUOTE)
    product = Product.objects.filter(pk=product_id).first()
    if product is None:
        raise GiveUp("the product is no longer on sale")
    days = 2 if quantity <= 10 else 2 + quantity // 10
    return Quote(product=product.name, total=product.price * quantity, by=timezone.localdate() + timedelta(days=days))
