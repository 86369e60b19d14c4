"""Drive: whether a worker could work here, asked before it begins; and what it would leave undone. Starts nothing."""

from __future__ import annotations

import logging

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.db.migrations.executor import MigrationExecutor
from django.utils.connection import ConnectionDoesNotExist

from django_jobs import lifecycle, performers, signals
from django_jobs.conf import settings
from django_jobs.wording import one_line
from django_jobs.worker.link import Link
from django_jobs.worker.plan import Plan, unserved


def refusal(plan: Plan) -> str | None:
    """Say in one line why a worker can't work as planned, None where it can.

    Asks the database on a connection of its own, which it closes.
    """
    for name, first, second in performers.clashes():
        return f"two performers are named {name}: {first.function.__module__} and {second.function.__module__}"
    link = Link(plan.alias)
    try:
        with link.connected() as connection:
            executor = MigrationExecutor(connection)
            targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "django_jobs"]
            is_behind = bool(executor.migration_plan(targets))
            refused = None if is_behind else lifecycle.refused(connection)
    except (DatabaseError, ImproperlyConfigured, ConnectionDoesNotExist) as error:
        return f"the database {plan.alias!r} can't be used: {one_line(error) or repr(error)}"
    finally:
        link.close()
    if is_behind:
        return f"tables are missing or behind; run: python manage.py migrate django_jobs --database {plan.alias}"
    if refused is not None:
        name, why = refused
        return f"the database {plan.alias!r} won't take our statement {name}: {one_line(why)}"
    return None


def warn_of_unserved(plan: Plan, *, who: str) -> None:
    """Tell of performers whose jobs wait under queues that `who` doesn't serve, or that the settings don't have."""
    allowed = settings().queues
    served = plan.queue_names
    for queues, why in ((served, f"{who} doesn't serve"), (allowed, "DJANGO_JOBS['QUEUES'] doesn't have")):
        if found := unserved(queues):
            names = "; ".join(f"{queue} ({', '.join(jobs)})" for queue, jobs in found.items())
            message = f"jobs wait under queues that {why}: {names}"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
