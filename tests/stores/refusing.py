"""Has the database refuse what a trigger of somebody's forbids, until the test's transaction, or `allow`, ends that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job

TABLE = Job._meta.db_table

_FUNCTION = """
create function refuse_progress() returns trigger language plpgsql as
$$ begin raise exception 'no progress here'; end $$
"""

_TRIGGER = f"""
create trigger refuse_progress before update of progress on "{TABLE}" for each row when {{condition}}
execute function refuse_progress()
"""

_SQLITE_TRIGGER = f"""
create trigger refuse_progress before update of progress on "{TABLE}" when {{condition}}
begin select raise(abort, 'no progress here'); end
"""

REFUSE = {"postgresql": (_FUNCTION, _TRIGGER), "sqlite": (_SQLITE_TRIGGER,)}

ALLOW = {
    "postgresql": ("drop function refuse_progress cascade",),
    "sqlite": ("drop trigger refuse_progress",),
}


_QUEUE_FUNCTION = """
create function refuse_queue() returns trigger language plpgsql as
$$ begin raise exception 'closed, says the shop'; end $$
"""

_QUEUE_TRIGGER = f"""
create trigger refuse_queue before insert on "{TABLE}" for each row when (new.queue = '{{queue}}')
execute function refuse_queue()
"""

_SQLITE_QUEUE_TRIGGER = f"""
create trigger refuse_queue before insert on "{TABLE}" when new.queue = '{{queue}}'
begin select raise(abort, 'closed, says the shop'); end
"""

REFUSED_QUEUE = {
    "postgresql": ((_QUEUE_FUNCTION, _QUEUE_TRIGGER), ("drop function refuse_queue cascade",)),
    "sqlite": ((_SQLITE_QUEUE_TRIGGER,), ("drop trigger refuse_queue",)),
}


def refuse_progress(connection: BaseDatabaseWrapper, *, of: int | None = None) -> None:
    """Refuse to write any progress, or that of one job."""
    condition = "(true)" if of is None else f"(new.id = {of})"
    _run(connection, tuple(statement.format(condition=condition) for statement in REFUSE[connection.vendor]))


def allow_progress(connection: BaseDatabaseWrapper) -> None:
    """Write progress as ever."""
    _run(connection, ALLOW[connection.vendor])


@contextmanager
def refused_queue(connection: BaseDatabaseWrapper, queue: str) -> Iterator[None]:
    """Refuse jobs of a queue, with an error of a kind that no constraint raises where the database has such."""
    made, undone = REFUSED_QUEUE[connection.vendor]
    _run(connection, tuple(statement.format(queue=queue) for statement in made))
    try:
        yield
    finally:
        _run(connection, undone)


def _run(connection: BaseDatabaseWrapper, statements: tuple[str, ...]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
