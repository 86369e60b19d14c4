from __future__ import annotations

from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.home, name="home"),
    path("search/", views.find, name="search"),
    path("sign-up/", views.sign_up, name="sign_up"),
    path("order/", views.order, name="order"),
    path("imports/", views.imports, name="imports"),
    path("outbox/", views.outbox, name="outbox"),
]
