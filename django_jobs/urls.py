"""Front door: the addresses for users' own pages; `path("jobs/", include("django_jobs.urls"))`. Runs nothing."""

from __future__ import annotations

from django.urls import path

from django_jobs import views

app_name = "django_jobs"
urlpatterns = [path("progress/<str:signed_id>/", views.progress, name="progress")]
