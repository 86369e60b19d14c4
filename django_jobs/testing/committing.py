"""Front door: what a test's transaction would call if it were committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import connections

from django_jobs.runner.surroundings import tell_odd

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# Left in Django's own list, where captureOnCommitCallbacks() counts them.
_called: WeakKeyDictionary[BaseDatabaseWrapper, list[Any]] = WeakKeyDictionary()


def run_commit_hooks() -> None:
    """Call what was given to `transaction.on_commit` in open transactions of this thread, each once.

    What one of them raises goes through, but from a robust one, which is logged as Django does.
    """
    for connection in connections.all(initialized_only=True):
        while (entry := _next_hook(connection)) is not None:
            _, hook, is_robust = entry
            _call(hook, is_robust=is_robust)


def _next_hook(connection: BaseDatabaseWrapper) -> Any:
    registered: list[Any] = connection.run_on_commit
    # The tuples are made anew for each registration, so that identity tells them apart.
    known = {id(entry) for entry in registered}
    called = [entry for entry in _called.get(connection, []) if id(entry) in known]
    called_ids = {id(entry) for entry in called}
    found = next((entry for entry in registered if id(entry) not in called_ids), None)
    _called[connection] = called if found is None else [*called, found]
    return found


def _call(hook: Callable[[], object], *, is_robust: bool) -> None:
    if not is_robust:
        hook()
        return
    try:
        hook()
    except Exception as error:  # noqa: BLE001 - that is what robust says
        tell_odd(f"an on_commit callback failed: {hook!r:.200}", error)
