"""What customers type in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from example_project.shop.models import Product


class AddressField(forms.EmailField):
    """An e-mail address in lower case, as short as a user name must be."""

    def __init__(self, **kwargs: Any) -> None:
        attributes = {"autocomplete": "email", "placeholder": "you@example.com"}
        super().__init__(label="E-mail address", max_length=150, widget=forms.EmailInput(attributes), **kwargs)

    def clean(self, value: Any) -> str:
        return str(super().clean(value)).lower()


class SignUpForm(forms.Form):
    """An address is all that it takes."""

    email = AddressField()


class SearchForm(forms.Form):
    """What somebody looks for; nothing finds everything."""

    q = forms.CharField(label="Words", max_length=100, required=False, widget=forms.TextInput({"type": "search"}))


class QuoteForm(forms.Form):
    """Who wants to know what so many of a product cost."""

    product = forms.ModelChoiceField(Product.objects.all(), empty_label=None)
    quantity = forms.IntegerField(min_value=1, max_value=100, initial=20)


class OrderForm(forms.Form):
    """Who orders how many of what."""

    email = AddressField(help_text="The address you signed up with.")
    product = forms.ModelChoiceField(Product.objects.all(), empty_label=None)
    quantity = forms.IntegerField(min_value=1, max_value=100, initial=1)

    def clean_email(self) -> str:
        """Find the customer; kept as `customer`."""
        email: str = self.cleaned_data["email"]
        self.customer = User.objects.filter(username=email).first()
        if self.customer is None:
            raise forms.ValidationError("Nobody has signed up with this address yet.")
        return email
