"""Declare: what is stored in place of a model instance, and the instance of what is stored."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import connections
from django.db.models import Model

from django_jobs import codec
from django_jobs.exceptions import InstanceGone, UndecodableValue


def reference(value: object) -> codec.ModelRef | None:
    """Say what is stored of a model instance. Raises TypeError for one that isn't in the database."""
    if not isinstance(value, Model):
        return None
    label = value._meta.label
    if value.pk is None or value._state.adding:
        message = f"this {label} is not in the database; save it first"
        raise TypeError(message)
    return codec.ModelRef(label=label, pk=value.pk, alias=value._state.db or "default")


def resolve(ref: codec.ModelRef) -> object:
    """Fetch the instance fresh. Raises InstanceGone, and UndecodableValue where this code knows no such row."""
    try:
        model = apps.get_model(ref.label)
    except (LookupError, ValueError) as error:
        raise UndecodableValue(ref.label, "no such model is here") from error
    if ref.alias not in connections:
        raise UndecodableValue(ref.label, f"no database {ref.alias} is here")
    try:
        return model._base_manager.using(ref.alias).get(pk=ref.pk)
    except ObjectDoesNotExist:
        raise InstanceGone(ref.label, ref.pk) from None
    except (TypeError, ValueError, ValidationError) as error:
        raise UndecodableValue(ref.label, "it takes no such key") from error
