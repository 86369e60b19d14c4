"""The shop's background jobs. Modules called `jobs` are found in every installed app when Django starts.

Each has a name of its own, so that the function may move without losing the jobs that are still waiting, and takes the
key of a row rather than its contents, so that it works on what is true when it runs.
"""

from __future__ import annotations

import time

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.mail import EmailMessage, send_mail
from django.db import transaction
from django.utils import timezone

from django_jobs import Attempt, Cancel, GiveUp, backoff, job
from example_project.shop.catalogue import CATALOGUE
from example_project.shop.models import CatalogueImport, Order, Product

SECONDS_A_LINE = 0.25
"""How slow the supplier of the catalogue is."""


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


@job("shop.import_catalogue", queue="import", timeout="2m", backoff=backoff.steps("10s", "1m"), takes_attempt=True)
def import_catalogue(attempt: Attempt, import_id: int) -> str:
    """Read the supplier's catalogue line by line; another attempt goes on where the one before came to an end."""
    begun = CatalogueImport.objects.get(pk=import_id)
    for number, line in enumerate(CATALOGUE[begun.done :], start=begun.done + 1):
        time.sleep(SECONDS_A_LINE)
        with transaction.atomic():
            Product.objects.update_or_create(sku=line.sku, defaults={"name": line.name, "price": line.price})
            CatalogueImport.objects.filter(pk=import_id).update(done=number)
    return f"{len(CATALOGUE) - begun.done} lines in attempt {attempt.number}"


@job("shop.send_newsletter", queue="newsletter", priority=-10)
def send_newsletter(issue: str) -> int:
    """Write to every customer, after all that is more urgent; give how many there were."""
    addresses = list(User.objects.filter(is_staff=False).values_list("email", flat=True))
    for address in addresses:
        send_mail(f"Our {issue} newsletter", "There is new tea.\n", None, [address])
    return len(addresses)


@job("shop.check_stock", queue="stock", timeout=10, max_attempts=5, backoff=backoff.fixed("1h"))
def check_stock(supplier: str) -> None:
    """Ask a supplier what is in stock. The demo's suppliers don't answer, so that there is a failure to look at."""
    if supplier == "Gone & Sons":
        raise GiveUp("the supplier has closed its business")
    message = f"{supplier} does not answer"
    raise ConnectionError(message)
