"""A module that can't be imported."""

raise ZeroDivisionError("division by zero")
