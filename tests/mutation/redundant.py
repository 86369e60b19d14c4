"""Mutants that no test can tell from the statement, each with what makes its predicate redundant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BOTH = ("postgresql", "sqlite")


@dataclass(frozen=True)
class Redundant:
    """A predicate that another one, or a constraint, makes redundant, and why it is there all the same."""

    label: str
    because: str
    on: tuple[str, ...] = BOTH


def _each(labels: str, because: str, on: tuple[str, ...] = BOTH) -> Iterator[Redundant]:
    """Read labels, one a line."""
    return (Redundant(line.strip(), because, on) for line in labels.strip().splitlines())


LISTED: tuple[Redundant, ...] = (
    # -- order
    *_each(
        "INSERT_MANY: without order by c.id",
        "each row brings its id along; the order only has them lie in the table as they were given",
    ),
    *_each(
        "INSERT_FIRED: without order by c.id",
        "each row brings its id along; the order only has them lie in the table in that of their ticks",
    ),
    *_each(
        "INSERT_MANY_KEYED: without order by {bytewise:coalesce(c.unique_key, c.waiting_key)}",
        "jobs are given in that order, so that it is one from part to part; no database promises to keep to it unasked",
    ),
    *_each(
        """
        RENEW: without order by c.id
        REPORT: without order by c.id
        SUCCEED: without order by c.id
        SUCCEED_AND_GO: without order by c.id
        CHANGE: without order by c.id
        CHANGE_LAPSED: without order by c.id
        LET_GO: without order by c.id
        LET_GO_LAPSED: without order by c.id
        FORWARD: without order by c.id
        SWEEP: without order by worker.identity {skip:worker}
        """,
        "rows in other hands are skipped, so nobody waits while holding some; the order is a second fence",
    ),
    *_each(
        """
        CANCEL: without order by c.id
        RETRY: without order by c.id
        RESCHEDULE: without order by c.id
        DELETE: without order by c.id
        FREE: without order by found.id
        LOCK_UNIQUE: without order by found.id {share}
        LOCK_WAITING: without order by found.id {share}
        REPLACE_UNIQUE: without order by found.id
        REPLACE_WAITING: without order by found.id
        EXPIRE_UNIQUE: without order by found.id
        EXPIRE_WAITING: without order by found.id
        INSERT_MANY_KEYED: without c.unique_key of coalesce
        INSERT_MANY_KEYED: without c.waiting_key of coalesce
        SUPERSEDE: without order by c.id {skip:job, rival}
        SUPERSEDE_LAPSED: without order by c.id {skip:job, rival}
        """,
        "the order is that in which rows and keys are locked, and SQLite has one writer at a time",
        on=("sqlite",),
    ),
    *_each(
        "DELETE: {wait} for {wait_to_delete}",
        "a row is deleted as soon as it is locked, which waits for who refers to it; a plan may lock all of them first",
        on=("postgresql",),
    ),
    *_each(
        "BEAT: without order by c.identity",
        "a command beats for workers of its own, whose rows nobody else writes; the order is a second fence",
    ),
    *_each(
        "HELD_BY: without order by job.id",
        "an index of SQLite keeps rows of one value in the order of their ids",
        on=("sqlite",),
    ),
    *_each(
        "LAPSED: without job.id",
        "an index of SQLite keeps rows of one value in the order of their ids",
        on=("sqlite",),
    ),
    *_each(
        "SOONEST: without schedule.id",
        "SQLite goes through the ids of a table in their order, and its sorting keeps to that",
        on=("sqlite",),
    ),
    *_each(
        "PRUNABLE_AFTER: without order by job.id",
        "SQLite goes through the ids of a table in their order",
        on=("sqlite",),
    ),
    *_each(
        """
        NEXT_DUE: without pair.priority desc
        NEXT_DUE: without turn
        NEXT_DUE: without pair.queue
        NEXT_DUE: ascending pair.priority
        NEXT_DUE: true for pair.queue > %(last_queue)s of case when pair.queue > %(last_queue)s then 0 else 1 end
        NEXT_DUE: false for pair.queue > %(last_queue)s of case when pair.queue > %(last_queue)s then 0 else 1 end
        NEXT_DUE: >= in pair.queue > %(last_queue)s
        """,
        "it asks for the least of all pairs; their order serves the claim, with which it shares the walk",
    ),
    *_each(
        "NEXT_DUE: without ready.id\nNEXT_DUE: without ready.id (2)",
        "rows due at one moment are equal here; the key is there since the index has it",
    ),
    *_each(
        "NEXT_DUE: true for ready.priority = open.priority",
        "the least of a queue's pairs is that of the queue; the predicate makes a pair one probe of the index",
    ),
    *_each(
        """
        CLAIM: without picked.id
        CLAIM: without counted.id
        CLAIM: without order by placed.place
        """,
        "the step before has sorted rows so already, and neither database mixes them again; none promises it",
    ),
    *_each(
        "PICKED: without ready.id",
        "rows due at one moment come by their ids from an SQLite table, and from its index",
        on=("sqlite",),
    ),
    # -- limits
    *_each(
        """
        EVERY_QUEUE: without limit 1
        EVERY_QUEUE: without limit 1 (2)
        CLAIM: without limit 1
        CLAIM: without limit 1 (2)
        NEXT_DUE: without limit 1
        NEXT_DUE: without limit 1 (2)
        NEXT_DUE: without limit 1 (3)
        AHEAD: without limit 1
        AHEAD: without limit 1 (2)
        """,
        "a query in the place of a value gives its first row on SQLite; PostgreSQL refuses a second one",
        on=("sqlite",),
    ),
    # -- what another predicate says already
    *_each(
        """
        EVERY_QUEUE: >= in every_queue.queue > ''
        EVERY_QUEUE: >= in every_queue.queue > '' (2)
        NAMED_QUEUES: >= in c.queue > ''
        """,
        "no name of a queue is empty; what is left out is the missing one, which no comparison holds for",
    ),
    *_each(
        """
        AHEAD: >= in ready.name > ''
        AHEAD: true for ready.name > ''
        AHEAD: >= in ready.name > '' (2)
        AHEAD: true for ready.name > '' (2)
        AHEAD: true for ready.queue = %(queue)s
        AHEAD: true for ready.queue = %(queue)s (2)
        AHEAD: true for ready.state = 'READY'
        AHEAD: true for ready.state = 'READY' (2)
        AHEAD: >= in pair.priority > %(priority)s
        """,
        "of a priority that only other rows have no job is counted; these are the words of the index, and end the walk",
    ),
    *_each(
        "AHEAD: without ready.run_at\nAHEAD: without ready.id",
        "a count is the same in whatever order; it has the index be gone through, and no more of it than is wanted",
    ),
    *_each(
        "CLAIM: > in pair.priority >= -\nNEXT_DUE: > in pair.priority >= -",
        "there is no priority below the lowest, so the walk may end there or look once more",
    ),
    *_each(
        "BEGIN_ATOMIC: true for 0",
        "it writes into rows what they hold; the predicate spares all of them from being written",
        on=("sqlite",),
    ),
    *_each(
        "QUEUES: without distinct",
        "who asks makes a set of the answer; it keeps the names of a thousand jobs from being sent a thousand times",
    ),
    *_each(
        """
        CLAIM: true for case when job.state = 'READY' then true else false end
        CLAIM: true for job.state = 'READY' of case when job.state = 'READY' then true else false end
        """,
        "the rows were READY when they were picked, and are locked since (SQLite: by the only writer)",
    ),
    *_each(
        "PICKED: without 0 of coalesce",
        "`case when` takes an unknown expiry for none",
        on=("sqlite",),
    ),
    *_each(
        "PICKED: without false of coalesce",
        "`case when` takes an unknown expiry for none",
        on=("postgresql",),
    ),
    *_each(
        "CHANGE_LAPSED: true for job.worker is not null\nSUPERSEDE_LAPSED: true for job.worker is not null",
        "the constraint django_jobs_running: a RUNNING row has a worker; it is said for the index of held rows",
    ),
    *_each(
        "LET_GO_LAPSED: true for job.worker is not null",
        "every verb that ends a holding clears lease and deadline: a row that nobody holds has none to be over",
    ),
    *_each(
        "CHANGE_LAPSED: without max_attempts = todo.max_attempts",
        "what is taken back keeps the max_attempts that was read; the assignment comes with CHANGE, where it counts",
    ),
    *_each(
        """
        LOCK_UNIQUE: >= in job.expires_at > {now}
        LOCK_WAITING: >= in job.expires_at > {now}
        REPLACE_UNIQUE: >= in job.expires_at > {now}
        REPLACE_WAITING: >= in job.expires_at > {now}
        EXPIRE_UNIQUE: true for job.expires_at <= {now} of case when job.expires_at <= {now} then true else false end
        EXPIRE_WAITING: true for job.expires_at <= {now} of case when job.expires_at <= {now} then true else false end
        """,
        "what is asked of a row when it is found is asked again when it is locked, and that decides",
    ),
    *_each(
        """
        FREE: true for job.state in ('SUCCESSFUL', 'FAILED', 'CANCELLED')
        FREE: true for job.unique_until <= {now}
        FREE: true for job.worker is null
        LOCK_UNIQUE: true for job.state = 'READY'
        LOCK_UNIQUE: true for (job.expires_at is null or job.expires_at > {now})
        LOCK_UNIQUE: >= in job.expires_at > {now} (2)
        LOCK_WAITING: true for job.state = 'READY'
        LOCK_WAITING: true for (job.expires_at is null or job.expires_at > {now})
        LOCK_WAITING: >= in job.expires_at > {now} (2)
        REPLACE_UNIQUE: true for job.state = 'READY'
        REPLACE_UNIQUE: true for (job.expires_at is null or job.expires_at > {now})
        REPLACE_UNIQUE: >= in job.expires_at > {now} (2)
        REPLACE_WAITING: true for job.state = 'READY'
        REPLACE_WAITING: true for (job.expires_at is null or job.expires_at > {now})
        REPLACE_WAITING: >= in job.expires_at > {now} (2)
        EXPIRE_UNIQUE: true for job.state = 'READY'
        EXPIRE_UNIQUE: true for job.expires_at <= {now}
        EXPIRE_WAITING: true for job.state = 'READY'
        EXPIRE_WAITING: true for job.expires_at <= {now}
        """,
        "it was asked when the row was found, and SQLite has one writer at a time: no row changes in between",
        on=("sqlite",),
    ),
    *_each(
        """
        FIND_BUSY: without 'RUNNING'
        FIND_BUSY: without 'READY'
        FIND_UNIQUE: without 'RUNNING'
        """,
        "a RUNNING row has a worker, and who doesn't wait isn't READY; these are the words of the index",
        on=("postgresql",),
    ),
    *_each(
        """
        FREE: without 'READY'
        FREE: without 'RUNNING'
        KEY_HOLDER: without 'RUNNING'
        RETRY: without 'RUNNING'
        """,
        "a RUNNING row has a worker, and who has ended isn't READY; these are the words of the index",
    ),
    *_each(
        """
        LOCK_UNIQUE: without 'RUNNING'
        REPLACE_UNIQUE: without 'RUNNING'
        EXPIRE_UNIQUE: without 'RUNNING'
        """,
        "only what is READY is asked for; these are the words of the index",
        on=("postgresql",),
    ),
    *_each(
        "KEY_HOLDER: without limit 1",
        "a job has one kind of key, and a key one holder; who asks takes the first row",
    ),
    *_each(
        "RETRY: true for job.unique_key is not null\nRETRY: true for job.waiting_key is not null",
        "nothing equals a key that isn't there; it spares jobs without keys from being looked up",
    ),
    # -- the low level
    *_each(
        """
        TAKE: true for job.state = 'READY'
        TAKE: true for job.state = 'READY' (2)
        TAKE: true for job.name = ''
        TAKE: true for job.name = '' (2)
        TAKE: true for job.queue = %(queue)s
        TAKE: true for job.queue = %(queue)s (2)
        """,
        "the walk may find a priority too many, of which no row is taken; with these each is one probe of the index",
    ),
    *_each(
        """
        TAKE: without order by job.priority desc
        TAKE: without order by job.priority desc (2)
        TAKE: without order by pair.priority desc
        TAKE: without job.id
        DEAD: without order by job.id
        """,
        "the index, and the walk, give rows in this order unasked; no database promises it",
    ),
    *_each(
        "TAKE: without limit 1\nTAKE: without limit 1 (2)\nTAKE: without limit 1 (3)",
        "a query in the place of a value gives its first row on SQLite; PostgreSQL refuses a second one",
        on=("sqlite",),
    ),
    *_each(
        "TAKE: > in pair.priority >= -\nTAKE: true for pair.priority >= -100 (2)",
        "there is no priority below the lowest, and at the end of the walk the missing one, which no row has",
    ),
    *_each(
        "TAKE: >= in tried.id > 0",
        "ids begin with 1; what is left out is the missing one, which no comparison holds for",
    ),
    *_each(
        """
        TAKE: true for case when job.state = 'READY' then true else false end
        TAKE: true for job.state = 'READY' of case when job.state = 'READY' then true else false end
        """,
        "the row was READY when it was found, and is locked since (SQLite: by the only writer)",
    ),
    *_each(
        "STATS: >= in job.fingerprint > 'pushed'",
        "no fingerprint is this word alone",
    ),
    # -- what is said to the planner, and shows in tables of a million rows only (test_plans_of_big_tables.py)
    *_each(
        """
        STATS: true for job.worker > 'take'
        STATS: true for job.worker < 'takf'
        STATS: >= in job.worker > 'take'
        STATS: <= in job.worker < 'takf'
        """,
        "no job of a worker is counted, whatever its identity; the bounds make the index of held rows look short",
    ),
    *_each(
        "TAKE: without limit 201",
        "there are no more priorities; it keeps PostgreSQL from making one query of two, and from locking too much",
    ),
    *_each(
        "TAKE: true for {few:taken.id}\nBRING_BACK: true for {few:todo.id}",
        "it is true of any number, and has PostgreSQL look rows up instead of reading the table",
        on=("postgresql",),
    ),
    *_each(
        "EXPIRE: true for job.expires_at > {never}\nEXPIRE: >= in job.expires_at > {never}",
        "no instant is never, nor before; a bound on both sides looks like few rows, which needn't be sorted",
    ),
    *_each(
        "CLAIM: true for {few:taken.id}",
        "it is true of any number, and has PostgreSQL look rows up instead of reading the table",
        on=("postgresql",),
    ),
    *_each(
        "PICKED: without limit 1000",
        "a claim asks for no more; a limit that stands in the text is believed, one that is a value isn't",
        on=("postgresql",),
    ),
)
"""All of them."""


def listed(vendor: str) -> dict[str, str]:
    """Give the labels that are listed for a database, each with its reason."""
    return {one.label: one.because for one in LISTED if vendor in one.on}
