"""Write: have the setting OBSERVE watch every statement of a store. A store that nobody watches knows nothing of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any

from django_jobs import clock, signals
from django_jobs.conf import Observer
from django_jobs.stores.base import Store

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def observe(store: Store, observer: Observer) -> None:
    """Tell `observer` of each statement's name, its duration in seconds, and how many rows it gave back.

    The rows of one that failed are None. What the observer raises is logged once, and breaks no statement.
    """
    guarded = _Guarded(observer)
    for way in store.ways:
        setattr(store, way, _watched(store, getattr(store, way), guarded))


def _watched(store: Store, plain: Callable[..., Sized], guarded: _Guarded) -> Callable[..., Sized]:
    def run(connection: BaseDatabaseWrapper, sql: str, *values: Any) -> Sized:
        began = clock.monotonic()
        try:
            rows = plain(connection, sql, *values)
        except Exception:
            guarded.tell(store.name_of(sql), clock.monotonic() - began, None)
            raise
        guarded.tell(store.name_of(sql), clock.monotonic() - began, len(rows))
        return rows

    return run


class _Guarded:
    """An observer that lets nothing through."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._has_raised = False

    def tell(self, name: str, seconds: float, rows: int | None) -> None:
        try:
            self._observer(name, seconds, rows)
        except Exception as error:  # noqa: BLE001 - what watches a statement must not break it
            if not self._has_raised:
                self._has_raised = True
                message = (
                    f"the observer of statements (setting OBSERVE) raises, and is told of no second time: {error!r}"
                )
                signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
