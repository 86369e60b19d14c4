from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobs/", include("django_jobs.urls")),
    path("shop/", include("tests.shop.urls")),
    path("web/", include("tests.web.urls")),
    path("example/", include("example_project.shop.urls")),
]
