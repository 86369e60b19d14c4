from __future__ import annotations

from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.home, name="home"),
    path("search/", views.find, name="search"),
    path("sign-up/", views.sign_up, name="sign_up"),
    path("order/", views.order, name="order"),
    path("quote/", views.ask_for_quote, name="ask_for_quote"),
    path("quote/<str:signed_id>/", views.quote, name="quote"),
    path("imports/", views.imports, name="imports"),
    path("outbox/", views.outbox, name="outbox"),
]
