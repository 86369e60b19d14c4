from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from example_project.shop.jobs import index_soon
from example_project.shop.models import CatalogueImport, Order, Product, StaffNote

if TYPE_CHECKING:
    ProductBase = admin.ModelAdmin[Product]
    NoteBase = admin.ModelAdmin[StaffNote]
else:
    ProductBase = admin.ModelAdmin
    NoteBase = admin.ModelAdmin

admin.site.register([CatalogueImport, Order])


@admin.register(Product)
class ProductAdmin(ProductBase):
    """A change is indexed: the admin saves in a transaction, and the job is queued in it."""

    list_display = ("name", "sku", "price")
    search_fields = ("name", "sku")

    def save_model(self, request: HttpRequest, obj: Product, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Save a product, and queue that it is indexed."""
        super().save_model(request, obj, form, change)
        index_soon(obj)


@admin.register(StaffNote)
class StaffNoteAdmin(NoteBase):
    """What failed for good, newest first; a note is deleted when somebody has seen to it."""

    list_display = ("text", "written_at")
