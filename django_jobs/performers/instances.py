"""Declare: what is stored in place of a model instance."""

from __future__ import annotations

from django.db.models import Model

from django_jobs import codec


def reference(value: object) -> codec.ModelRef | None:
    """Say what is stored of a model instance. Raises TypeError for one that isn't in the database."""
    if not isinstance(value, Model):
        return None
    label = value._meta.label
    if value.pk is None or value._state.adding:
        message = f"this {label} is not in the database; save it first"
        raise TypeError(message)
    return codec.ModelRef(label=label, pk=value.pk, alias=value._state.db or "default")
