"""The shop's pages. Each change and the job that follows from it are written in one transaction."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.signing import BadSignature, Signer
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from django_jobs import reports
from django_jobs.exceptions import WaitEnded
from django_jobs.models import Job
from django_jobs.models.words import state_word
from example_project.mail import newest_first
from example_project.shop import search
from example_project.shop.forms import OrderForm, QuoteForm, SearchForm, SignUpForm
from example_project.shop.jobs import (
    ask_for_import,
    index_product,
    make_quote,
    rebuild_index,
    send_receipt,
    send_welcome,
)
from example_project.shop.models import CatalogueImport, Order, Product, SearchEntry, StaffNote

SHOWN = 10
"""Rows of a list."""

FOUND = 50
"""Products of a search."""

PATIENCE = 3.0
"""Seconds that a page waits for a job."""


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Show what can be done here, the newest jobs, and which come by the clock."""
    jobs = Job.objects.annotate(word=state_word()).only("name", "queue", "attempts", "max_attempts", "enqueued_at")
    return render(request, "shop/home.html", {"jobs": jobs[:SHOWN], "schedules": reports.schedules()})


@require_http_methods(["GET", "POST"])
def find(request: HttpRequest) -> HttpResponse:
    """Show the products with some words, and how much of the index is up to date; or have all of it rebuilt."""
    if request.method == "POST":
        job = rebuild_index.later()
        if job.duplicate:
            messages.info(request, f"Job #{job.pk} is at it already, so no other was queued.")
        else:
            messages.success(request, f"Job #{job.pk} is queued to rebuild the whole index.")
        return redirect("shop:search")
    form = SearchForm(request.GET)
    found = search.find(form.cleaned_data["q"]) if form.is_valid() else Product.objects.none()
    context = {
        "form": form,
        "products": found[:FOUND],
        "count": found.count(),
        "indexed": SearchEntry.objects.count(),
        "total": Product.objects.count(),
        "waiting": Job.objects.ready().named(index_product.name).count(),
    }
    return render(request, "shop/search.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Make an account and queue its welcome mail: both, or neither."""
    form = SignUpForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        email = form.cleaned_data["email"]
        try:
            with transaction.atomic():
                # No password: hashing one would take longer than all the rest.
                user = User.objects.create_user(username=email, email=email)
                job = send_welcome.later(user.pk)
        except IntegrityError:
            # Two requests at once can't both find the address free: the database decides.
            form.add_error("email", "This address has an account already. Nothing was changed, and no mail is sent.")
        else:
            text = f"Welcome! The account {email} is made, and job #{job.pk} is queued to send a mail there."
            messages.success(request, text)
            return redirect("shop:home")
    return render(request, "shop/sign_up.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def order(request: HttpRequest) -> HttpResponse:
    """Take an order and queue its receipt."""
    form = OrderForm(request.POST if request.method == "POST" else None)
    if form.is_valid() and form.customer is not None:
        product = form.cleaned_data["product"]
        with transaction.atomic():
            placed = Order.objects.create(
                customer=form.customer, product=product, quantity=form.cleaned_data["quantity"], price=product.price
            )
            job = send_receipt.later(placed.pk)
        text = f"Thank you! Order {placed.pk} is placed, and job #{job.pk} is queued to send the receipt."
        messages.success(request, text)
        return redirect("shop:home")
    context = {"form": form, "orders": Order.objects.select_related("product")[:SHOWN]}
    return render(request, "shop/order.html", context, status=422 if form.errors else 200)


QUOTES = Signer(salt="example_project.quotes")
"""Signs the ids of jobs for the addresses of quotes: nobody can look at another one's by counting up."""


@require_http_methods(["GET", "POST"])
def ask_for_quote(request: HttpRequest) -> HttpResponse:
    """Queue a quote, and lead to the page that waits for it."""
    form = QuoteForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        job = make_quote.later(form.cleaned_data["product"].pk, form.cleaned_data["quantity"])
        return redirect("shop:quote", QUOTES.sign(str(job.pk)))
    return render(request, "shop/ask_for_quote.html", {"form": form}, status=422 if form.errors else 200)


@require_GET
def quote(request: HttpRequest, signed_id: str) -> HttpResponse:
    """Wait for a quote, though not for long: a page that keeps a server busy keeps others from it."""
    try:
        job = get_object_or_404(Job.objects.named(make_quote.name), pk=QUOTES.unsign(signed_id))
    except BadSignature:
        raise Http404 from None
    answer, problem = None, ""
    try:
        answer = job.wait_result(PATIENCE)
    except TimeoutError:
        problem = job.explain()
    except WaitEnded as error:
        problem = str(error)
    context = {"job": job, "quote": answer, "problem": problem, "is_over": answer is not None or job.finished_at}
    return render(request, "shop/quote.html", context)


@require_http_methods(["GET", "POST"])
def imports(request: HttpRequest) -> HttpResponse:
    """Have the supplier's catalogue read, and show how far that has come."""
    if request.method == "POST":
        asked = ask_for_import()
        messages.success(request, f"Job #{asked.job_id} is queued to read {asked.total} lines. It takes a few seconds.")
        return redirect("shop:imports")
    imports = list(CatalogueImport.objects.all()[:SHOWN])
    found = Job.objects.in_bulk([each.job_id for each in imports if each.job_id])
    context = {
        # The job of an old import is gone by now.
        "imports": [(each, found.get(each.job_id)) for each in imports],
        "notes": StaffNote.objects.all()[:SHOWN],
    }
    return render(request, "shop/imports.html", context)


@require_GET
def outbox(request: HttpRequest) -> HttpResponse:
    """Show the newest mails. A real shop has no such page: everybody could read everybody's mail."""
    folder = getattr(settings, "MAIL_FOLDER", None) if settings.DEBUG else None
    mails = [] if folder is None else list(islice(newest_first(Path(folder)), SHOWN))
    return render(request, "shop/outbox.html", {"mails": mails, "folder": folder})
