"""Fills the table of jobs with rows of many kinds, by the million, as they stand there after a while."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job
from django_jobs.stores.base import Store
from django_jobs.stores.pushed import fingerprint


def _insert(columns: str, values: str) -> str:
    return f"""
with recursive n(i) as (select 1 union all select i + 1 from n where i < %(count)s)
insert into {{job}} (name, queue, keep, keep_failed, {columns})
select 'shop.greet', 'q' || (i %% 3), 86400, 86400, {values} from n
"""


def _insert_pushed(columns: str, values: str) -> str:
    said = " ".join(f"when {n} then '{fingerprint(f'q{n}')}'" for n in range(3))
    text = _insert(columns, values.replace("FINGERPRINT", f"case i %% 3 {said} end"))
    return text.replace("'shop.greet'", "''").replace("86400, 86400,", "null, null,")


_ENDED = "state, token, attempts, last_worker, finished_at, prune_at"
_HELD = "state, token, attempts, last_worker, worker, finished_at, deadline_at, lease_expires_at"

KINDS = {
    "kept": _insert(_ENDED, "'SUCCESSFUL', i, 1, 'w1', {now}, {later:86400 + i}"),
    "future": _insert("priority, run_at, expires_at", "50, {later:86400 + i}, {later:200000 + i}"),
    "due": _insert("run_at", "{ago:i}"),
    "prunable": _insert(_ENDED, "'FAILED', i, 1, 'w1', {now}, {ago:i}"),
    "expired": _insert("priority, run_at, expires_at", "-5, {ago:i}, {ago:i}"),
    "running": _insert(_HELD, "'RUNNING', 7, 1, 'w1', 'w' || (i %% 5), null, {later:900}, {later:i}"),
    "lapsed": _insert(_HELD, "'RUNNING', 7, 1, 'w1', 'w' || (i %% 5), null, {later:900}, {ago:i}"),
    "unique": _insert("priority, run_at, unique_key", "50, {later:86400 + i}, 'u' || i"),
    "waiting": _insert("priority, run_at, waiting_key", "50, {later:86400 + i}, 'w' || i"),
    "freed": _insert(
        f"unique_key, waiting_key, {_ENDED}",
        "case i %% 2 when 0 then 'u' || i end, case i %% 2 when 1 then 'w' || i end, 'FAILED', i, 1, 'w1', {now}, "
        "{later:86400 + i}",
    ),
    "overdue": _insert(f"unique_key, unique_until, {_ENDED}", "'o' || i, {ago:i}, 'FAILED', i, 1, 'w1', {now}, {now}"),
    "pushed": _insert_pushed("run_at", "{ago:i}"),
    "pushed_later": _insert_pushed("priority, run_at", "5, {later:86400 + i}"),
    "taken": _insert_pushed(_HELD, "'RUNNING', 7, 1, 'web1:1', 'take:q' || (i %% 3), null, null, {later:i}"),
    "let_lapse": _insert_pushed(_HELD, "'RUNNING', 7, 1, 'web1:1', 'take:q' || (i %% 3), null, null, {ago:i}"),
    "dead": _insert_pushed(f"fingerprint, {_ENDED}", "FINGERPRINT, 'FAILED', i, 1, 'web1:1', {now}, null"),
    "stopping": _insert(_HELD, "'CANCELLED', 7, 1, 'w1', 'w' || (i %% 5), {now}, {later:900}, {ago:i}"),
}
"""What inserts so many rows of a kind, in three queues."""


def fill(store: Store, connection: BaseDatabaseWrapper, **counts: int) -> None:
    """Insert so many rows of each kind."""
    for kind, count in counts.items():
        if count:
            store.run(connection, KINDS[kind], {"count": count})


def empty(connection: BaseDatabaseWrapper) -> None:
    """Empty the table; a rollback brings what was there back."""
    with connection.cursor() as cursor:
        what = "delete from" if connection.vendor == "sqlite" else "truncate"
        cursor.execute(f'{what} "{Job._meta.db_table}"')


def analyze(connection: BaseDatabaseWrapper) -> None:
    """Gather statistics of what is in the table now."""
    with connection.cursor() as cursor:
        cursor.execute(f'analyze "{Job._meta.db_table}"')
