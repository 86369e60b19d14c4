"""The search over products: what it writes down of each, and how it finds them again."""

from __future__ import annotations

import unicodedata

from django.db.models import QuerySet
from django.utils import timezone

from example_project.shop.models import Product, SearchEntry


def write_entry(product: Product) -> None:
    """Write down the words of a product as it is now."""
    values = {"words": _folded(f"{product.name} {product.sku}"), "indexed_at": timezone.now()}
    SearchEntry.objects.update_or_create(product=product, defaults=values)


def find(text: str) -> QuerySet[Product]:
    """Find the products that the index knows with all of these words, or parts of words; all of them without any."""
    found = Product.objects.filter(search_entry__isnull=False).select_related("search_entry")
    for word in _folded(text).split():
        found = found.filter(search_entry__words__contains=word)
    return found


def _folded(text: str) -> str:
    """Leave out what people don't type: capitals and accents."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(part for part in parts if not unicodedata.combining(part))
