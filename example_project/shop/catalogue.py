"""The supplier's catalogue, as it would come from a file or another service."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple


class Line(NamedTuple):
    """One line of the catalogue."""

    sku: str
    name: str
    price: Decimal


_KINDS = (
    ("TEA", "tea", "4.20"), ("COF", "coffee", "6.50"), ("HON", "honey", "7.80"), ("JAM", "jam", "3.90"),
)  # fmt: skip
_SORTS = ("black", "green", "mountain", "forest", "autumn")

CATALOGUE = tuple(
    Line(sku=f"{code}-{number}", name=f"{sort.capitalize()} {kind}", price=Decimal(price) + number)
    for code, kind, price in _KINDS
    for number, sort in enumerate(_SORTS, start=1)
)
