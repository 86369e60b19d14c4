"""Has the database refuse what a trigger of somebody's forbids, until the test's transaction, or `allow`, ends that."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job

TABLE = Job._meta.db_table

_FUNCTION = """
create function refuse_progress() returns trigger language plpgsql as
$$ begin raise exception 'no progress here'; end $$
"""

_TRIGGER = f"""
create trigger refuse_progress before update of progress on "{TABLE}" for each row execute function refuse_progress()
"""

_SQLITE_TRIGGER = f"""
create trigger refuse_progress before update of progress on "{TABLE}"
begin select raise(abort, 'no progress here'); end
"""

REFUSE = {"postgresql": (_FUNCTION, _TRIGGER), "sqlite": (_SQLITE_TRIGGER,)}

ALLOW = {
    "postgresql": ("drop function refuse_progress cascade",),
    "sqlite": ("drop trigger refuse_progress",),
}


def refuse_progress(connection: BaseDatabaseWrapper) -> None:
    """Refuse to write any progress."""
    _run(connection, REFUSE[connection.vendor])


def allow_progress(connection: BaseDatabaseWrapper) -> None:
    """Write progress as ever."""
    _run(connection, ALLOW[connection.vendor])


def _run(connection: BaseDatabaseWrapper, statements: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
