"""What the shop knows beside its customers, who are ordinary users without a password."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models


class Product(models.Model):
    """Something to buy."""

    sku = models.CharField("SKU", max_length=20, unique=True)
    name = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return f"{self.name}, €{self.price}"


class SearchEntry(models.Model):
    """What the search knows of a product: its words, as they were when it was indexed."""

    product = models.OneToOneField(Product, on_delete=models.CASCADE, related_name="search_entry", primary_key=True)
    words = models.TextField()
    indexed_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "search entries"

    def __str__(self) -> str:
        return self.words


class Order(models.Model):
    """Somebody bought something. `receipt_sent_at` is what keeps a receipt from being sent twice."""

    customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="orders")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="orders")
    quantity = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    price = models.DecimalField("price of one", max_digits=8, decimal_places=2)
    placed_at = models.DateTimeField(auto_now_add=True)
    receipt_sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"Order {self.pk}"


class CatalogueImport(models.Model):
    """One run through the supplier's catalogue, and how far it has come."""

    asked_at = models.DateTimeField(auto_now_add=True)
    total = models.PositiveIntegerField()
    done = models.PositiveIntegerField(default=0)
    job_id = models.BigIntegerField("job", null=True, editable=False)

    class Meta:
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"Import {self.pk}: {self.done} of {self.total}"

    @property
    def title(self) -> str:
        """How it is called."""
        return f"Import {self.pk}"


class StaffNote(models.Model):
    """A job failed for good, and somebody has to look at it. There is one note for a job, however often it fails."""

    job_id = models.BigIntegerField("job", unique=True)
    text = models.TextField()
    written_at = models.DateTimeField()

    class Meta:
        ordering = ("-written_at", "-pk")

    def __str__(self) -> str:
        return self.text
