from __future__ import annotations

from django.urls import path

from tests.shop import views

urlpatterns = [path("sign-up/", views.sign_up), path("sign-up-async/", views.sign_up_async)]
