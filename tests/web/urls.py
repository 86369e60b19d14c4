from __future__ import annotations

from django.urls import path

from tests.web import views

urlpatterns = [path("queue/", views.queue), path("health/", views.health)]
