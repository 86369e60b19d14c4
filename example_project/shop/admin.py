from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import CatalogueImport, Order, Product

admin.site.register([CatalogueImport, Order, Product])
