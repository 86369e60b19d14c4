"""Something to look at in a new shop: products, and jobs that will be in every state a moment after a worker starts."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from django_jobs.models import Job, Queue
from example_project.shop.catalogue import CATALOGUE
from example_project.shop.jobs import (
    ask_for_import,
    check_stock,
    put_on_sale,
    send_newsletter,
    send_receipt,
    send_welcome,
)
from example_project.shop.models import Order, Product

ADMIN = "admin"


def make_admin() -> str:
    """Make the admin user, or give it a new password, and tell the password."""
    admin, _ = User.objects.get_or_create(username=ADMIN, defaults={"email": "admin@example.com"})
    admin.is_active = admin.is_staff = admin.is_superuser = True
    password = secrets.token_urlsafe(9)
    admin.set_password(password)
    admin.save()
    return password


@transaction.atomic
def seed() -> bool:
    """Fill an empty shop, queue jobs where there are none, and tell whether there were none."""
    is_new = not Job.objects.exists()
    for line in CATALOGUE[:3]:
        if not Product.objects.filter(sku=line.sku).exists():
            put_on_sale(line)
    if not is_new:
        return False
    _customers()
    _newsletters()
    # To retry in ten minutes; failed for good, with a note for staff; and expired, since it comes a day late.
    check_stock.later("Northwind")
    check_stock.later("Gone & Sons")
    check_stock.at(timezone.now() - timedelta(days=1)).later("Yesterday Ltd")
    # Running for a few seconds.
    ask_for_import()
    return True


def _customers() -> None:
    product = Product.objects.all()[0]
    for name in ("ada", "bo", "cy"):
        email = f"{name}@example.com"
        customer, _ = User.objects.get_or_create(username=email, defaults={"email": email})
        send_welcome.later(customer.pk)
        order = Order.objects.create(customer=customer, product=product, price=product.price)
        send_receipt.later(order.pk)


def _newsletters() -> None:
    """Wait in a paused queue, wait for a moment that is far away, and be cancelled."""
    paused = {"paused_at": timezone.now(), "paused_by": ADMIN, "reason": "the editor is still reading"}
    Queue.objects.update_or_create(name="newsletter", defaults=paused)
    send_newsletter.later("spring")
    send_newsletter.after(days=90).later("summer")
    send_newsletter.later("misprinted").cancel("it had a misprint")
