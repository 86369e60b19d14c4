"""The history of a fault run, and the rules that it must keep.

Triggers copy each change of a job's row to a table that is only appended to; bodies leave marks in a file outside the
database (see tests/mill/marks.py). `violations` says in words what is wrong with the two.

The times of changes are the database's, in seconds since the epoch; those of marks are this host's monotonic ones, and
`offset` is what lies between the two. So the database runs on this host.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs.models import Job
from django_jobs.transitions import MOVES, Place

EARLY = 0.01
"""Seconds by which two clock readings of one host may seem to be in the wrong order: SQLite's has milliseconds."""


# -- what is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a row held."""

    state: str
    attempts: int = 0
    max_attempts: int = 20
    crashes: int = 0
    max_crashes: int = 3
    alone: bool = False
    run_at: float = 0.0
    token: int | None = None
    worker: str | None = None
    lease_until: float | None = None
    deadline: float | None = None
    finished_at: float | None = None
    kinds: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        return Place.STOPPING if self.state == "CANCELLED" and self.worker is not None else Place(self.state)

    @property
    def is_held(self) -> bool:
        return self.worker is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a row: `old` None where it was inserted, `new` None where it was deleted."""

    seq: int
    at: float
    id: int
    old: Row | None
    new: Row | None
    name: str = "mill.short"
    label: str = ""
    transaction: str = ""

    @property
    def move(self) -> tuple[Place, Place]:
        return (self.old.place if self.old else Place.ABSENT, self.new.place if self.new else Place.ABSENT)

    @property
    def kind(self) -> str:
        """What the entry of errors is about that came with this change; "" where none did."""
        if self.old is None or self.new is None or self.new.kinds == self.old.kinds:
            return ""
        return self.new.kinds[-1]

    @property
    def is_claim(self) -> bool:
        return self.move == (Place.READY, Place.RUNNING)

    @property
    def lets_go(self) -> bool:
        """Whether the row was held before, and isn't any more."""
        return bool(self.old and self.old.is_held) and not (self.new and self.new.is_held)

    @property
    def is_lapse(self) -> bool:
        """Whether the lease, or the deadline, of the old row was over."""
        ends = [end for end in (self.old and self.old.lease_until, self.old and self.old.deadline) if end is not None]
        return any(self.at >= end - EARLY for end in ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of the file of marks."""

    word: str
    at: float
    pid: int = 0
    job: int = 0
    token: int = 0
    label: str = ""


Lease: TypeAlias = tuple[int, int]
"""A job's id and a token."""


@dataclass(slots=True, kw_only=True)
class Body:
    """One run of a body, as far as its marks go."""

    job: int
    token: int
    pid: int
    begun: float
    last: float
    is_done: bool = False
    begins: int = 1

    def __str__(self) -> str:
        return f"the body of job {self.job} under token {self.token}"


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that is known of a run. `rows` are the rows at its end; `dead` the processes that didn't end well.

    `died_at` says when they were killed, by the clock of the marks, as far as that was marked.
    """

    changes: list[Change]
    marks: list[Mark] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()
    died_at: dict[int, float] = field(default_factory=dict)
    offset: float = 0.0
    expected: dict[str, frozenset[Place]] = field(default_factory=dict)

    @cached_property
    def lives(self) -> dict[int, list[Change]]:
        """The changes of each job, in their order."""
        lives: defaultdict[int, list[Change]] = defaultdict(list)
        for change in self.changes:
            lives[change.id].append(change)
        return dict(lives)

    @cached_property
    def claims(self) -> dict[Lease, list[Change]]:
        """The claims by which each job came under each token: one, if all is well."""
        claims: defaultdict[Lease, list[Change]] = defaultdict(list)
        for change in self.changes:
            if change.is_claim and change.new and change.new.token is not None:
                claims[change.id, change.new.token].append(change)
        return dict(claims)

    @cached_property
    def partings(self) -> dict[Lease, Change]:
        """The change that ended each holding of a row."""
        return {(c.id, c.old.token): c for c in self.changes if c.lets_go and c.old and c.old.token is not None}

    @cached_property
    def bodies(self) -> dict[Lease, Body]:
        """The bodies that ran, by job and token."""
        bodies: dict[Lease, Body] = {}
        for mark in self.marks:
            if mark.word not in BODY_WORDS:
                continue
            body = bodies.get((mark.job, mark.token))
            if body is None:
                body = Body(job=mark.job, token=mark.token, pid=mark.pid, begun=mark.at, last=mark.at, begins=0)
                bodies[mark.job, mark.token] = body
            body.begins += mark.word == "begin"
            body.last = max(body.last, mark.at)
            if mark.word in {"done", "left"}:
                body.is_done = mark.word == "done"
        return bodies

    @cached_property
    def labels(self) -> dict[str, list[int]]:
        """The jobs that were inserted under each label: one, if all is well."""
        labels: defaultdict[str, list[int]] = defaultdict(list)
        for change in self.changes:
            if change.old is None and change.label:
                labels[change.label].append(change.id)
        return dict(labels)

    def said(self, word: str) -> set[str]:
        """Give the labels of marks with this word."""
        return {mark.label for mark in self.marks if mark.word == word}

    def had_died(self, pid: int, *, by: Change) -> bool:
        """Whether a process was dead when a row was changed; of some it is known only that they died."""
        return pid in self.dead and self.died_at.get(pid, -math.inf) + self.offset <= by.at + EARLY

    def name_of(self, job: int) -> str:
        return self.lives[job][0].name

    @cached_property
    def ends(self) -> dict[int, Place]:
        """Where each job came to; SUCCESSFUL for one that was deleted as it succeeded."""
        return {job: _end(life) for job, life in self.lives.items()}


def _end(life: list[Change]) -> Place:
    start, end = life[-1].move
    if end is not Place.ABSENT:
        return end
    return Place.SUCCESSFUL if start is Place.RUNNING else start


BODY_WORDS = frozenset({"begin", "on", "dies", "done", "left"})

ENDED = frozenset({Place.SUCCESSFUL, Place.FAILED, Place.CANCELLED})


# -- the rules: each yields a sentence for whatever breaks it

Rule: TypeAlias = Callable[[History], Iterator[str]]


def every_change_is_a_move(history: History) -> Iterator[str]:
    """Each change of a row is in the table of moves."""
    allowed = frozenset().union(*MOVES.values())
    for change in history.changes:
        start, end = change.move
        if (start, end) not in allowed:
            yield f"job {change.id} went from {start.value} to {end.value}, which no verb may do"


def nothing_changes_beside_a_move(history: History) -> Iterator[str]:
    """While a row is held its token, worker and counts stay; only a claim brings a token, and one more attempt."""
    for change in history.changes:
        old, new = change.old, change.new
        if old is None or new is None:
            continue
        if change.is_claim:
            if new.attempts != old.attempts + 1:
                yield f"a claim of job {change.id} took its attempts from {old.attempts} to {new.attempts}"
            continue
        if new.token != old.token:
            yield f"job {change.id} got token {new.token} without a claim"
        if old.is_held and new.is_held and _fixed(old) != _fixed(new):
            yield f"job {change.id} was changed while worker {old.worker} held it: {_fixed(old)} became {_fixed(new)}"
        if not old.attempts - 1 <= new.attempts <= old.attempts:
            yield f"job {change.id} went from {old.attempts} attempts to {new.attempts} without a claim"
        if not (new.crashes <= old.crashes + 1 or not new.crashes):
            yield f"job {change.id} went from {old.crashes} crashes to {new.crashes} at once"


def _fixed(row: Row) -> tuple[object, ...]:
    return row.token, row.worker, row.attempts, row.crashes, row.run_at


def nothing_is_missing(history: History) -> Iterator[str]:
    """Each change starts where the one before ended, the last one is what the table holds, and no id comes back."""
    for job, life in history.lives.items():
        if life[0].old is not None:
            yield f"job {job} was changed before it was inserted"
        for before, after in pairwise(life):
            if before.new is None:
                yield f"the id of job {job} came back after it was deleted"
            elif before.new != after.old:
                yield f"a change of job {job} is missing: it was left as {before.new} and found as {after.old}"
        if life[-1].new != history.rows.get(job):
            yield f"job {job} stands as {history.rows.get(job)}, but its last change left it as {life[-1].new}"
    for job in history.rows.keys() - history.lives.keys():
        yield f"job {job} stands in the table, but was never inserted"


def a_token_belongs_to_one_claim(history: History) -> Iterator[str]:
    """One claim statement, of one worker, draws a token and takes each row under it once."""
    by_token: defaultdict[int, list[Change]] = defaultdict(list)
    for (job, token), claims in history.claims.items():
        by_token[token] += claims
        if len(claims) > 1:
            yield f"job {job} was claimed {len(claims)} times under token {token}"
    for token, claims in by_token.items():
        workers = {claim.new.worker for claim in claims if claim.new}
        if len(workers) > 1:
            yield f"token {token} was drawn by {len(workers)} workers: {', '.join(sorted(map(str, workers)))}"
        if len({claim.transaction for claim in claims}) > 1:
            yield f"token {token} was drawn by more than one claim statement"


def nothing_is_claimed_before_it_is_due(history: History) -> Iterator[str]:
    """No clock but the database's says when a job may start."""
    for change in history.changes:
        if change.is_claim and change.old and change.at < change.old.run_at - EARLY:
            yield f"job {change.id} was claimed {change.old.run_at - change.at:.3f} s before it was due"


def a_lapse_comes_no_sooner_than_the_lease_ends(history: History) -> Iterator[str]:
    """No clock but the database's says whose lease is over."""
    for change in history.changes:
        if change.kind == "lapse" and not change.is_lapse:
            assert change.old is not None
            left = (change.old.lease_until or 0.0) - change.at
            yield f"job {change.id} was taken back as lapsed {left:.3f} s before its lease was over"


def bodies_begin_once_and_after_their_claim(history: History) -> Iterator[str]:
    """A body belongs to a claim that is committed, and runs once under it."""
    for lease, body in history.bodies.items():
        if lease not in history.claims:
            yield f"{body} ran, but there was no such claim"
            continue
        if body.begins != 1:
            yield f"{body} began {body.begins} times"
        early = history.claims[lease][0].at - (body.begun + history.offset)
        if early > EARLY:
            yield f"{body} began {early:.3f} s before the claim was made"


def success_has_a_body_that_ended(history: History) -> Iterator[str]:
    """A job succeeds, or goes as it succeeds, only after a body of that very claim has come to its end."""
    for change in history.changes:
        if change.move not in {(Place.RUNNING, Place.SUCCESSFUL), (Place.RUNNING, Place.ABSENT)}:
            continue
        assert change.old is not None
        token = change.old.token
        body = history.bodies.get((change.id, token or 0))
        if body is None or not body.is_done:
            yield f"job {change.id} succeeded under token {token}, but no body ended under it"
        elif body.last + history.offset > change.at + EARLY:
            yield f"job {change.id} succeeded under token {token} before its body had ended"


def nothing_that_ended_well_fails(history: History) -> Iterator[str]:
    """A body that came to its end isn't recorded as a failure, nor is its job later."""
    for body in history.bodies.values():
        if body.is_done and history.ends.get(body.job) is Place.FAILED:
            yield f"job {body.job} is recorded as failed, but {body} had come to its end"


def a_row_is_held_until_its_body_has_stopped(history: History) -> Iterator[str]:
    """Unless its lease is over, nobody lets go of a row whose body still runs."""
    for lease, change in history.partings.items():
        body = history.bodies.get(lease)
        late = 0.0 if body is None else body.last + history.offset - change.at
        if late > EARLY and not change.is_lapse:
            yield f"{body} still ran {late:.3f} s after the row was let go ({_words(change)}), and no lease was over"


def bodies_overlap_only_across_a_lapse(history: History) -> Iterator[str]:
    """Two bodies of one job run at once only where the first one's lease was over."""
    for first, second in overlaps(history):
        parting = history.partings.get((first.job, first.token))
        if parting is None or not parting.is_lapse:
            yield f"{first} still ran when the one under token {second.token} began, and no lease was over"


def overlaps(history: History) -> list[tuple[Body, Body]]:
    """Find bodies of one job that ran at once."""
    by_job: defaultdict[int, list[Body]] = defaultdict(list)
    for body in sorted(history.bodies.values(), key=lambda body: body.begun):
        by_job[body.job].append(body)
    return [
        (first, second)
        for bodies in by_job.values()
        for place, first in enumerate(bodies)
        for second in bodies[place + 1 :]
        if second.begun < first.last
    ]


def a_job_runs_again_only_for_a_reason(history: History) -> Iterator[str]:
    """After a body has come to its end another begins only where the process died, or the lease ran out, in between."""
    for body in doubled(history):
        parting = history.partings.get((body.job, body.token))
        if parting is None or not (history.had_died(body.pid, by=parting) or parting.is_lapse):
            how = "was never let go" if parting is None else _words(parting)
            yield f"job {body.job} ran again after {body} had come to its end in process {body.pid}, alive; it {how}"


def doubled(history: History) -> list[Body]:
    """Find bodies that came to their end and after which another body of their job began."""
    latest: dict[int, float] = {}
    for body in history.bodies.values():
        latest[body.job] = max(latest.get(body.job, 0.0), body.begun)
    return [body for body in history.bodies.values() if body.is_done and latest[body.job] > body.begun]


def deaths_are_charged_for_a_reason(history: History) -> Iterator[str]:
    """A job is charged with a crash only where its process died."""
    for change in history.changes:
        if change.kind == "crash" and change.old and not history.had_died(pid_of(change.old.worker), by=change):
            yield f"job {change.id} was charged with the death of worker {change.old.worker}, which didn't die before"


def every_committed_job_is_there(history: History) -> Iterator[str]:
    """What was committed is there, once; what was rolled back isn't."""
    for label in sorted(history.said("committed")):
        ids = history.labels.get(label, [])
        if len(ids) != 1:
            yield f"the job labelled {label} was committed, but is there {len(ids)} times"
    for label in sorted(history.said("rolled back") & history.labels.keys()):
        yield f"the job labelled {label} was rolled back, but appeared as {history.labels[label]}"


def an_answered_cancel_holds(history: History) -> Iterator[str]:
    """A job that somebody was told is cancelled ends so, whatever its body came to."""
    for job in sorted({mark.job for mark in history.marks if mark.word == "cancelled"}):
        if (end := history.ends.get(job)) is not Place.CANCELLED:
            yield f"job {job} was cancelled, but ended as {end.value if end else 'nothing'}"


def every_job_ends(history: History) -> Iterator[str]:
    """Each job that appeared comes to an end, of a kind that its performer may have."""
    for job, end in history.ends.items():
        start, last = history.lives[job][-1].move
        if last is Place.ABSENT and start is not Place.RUNNING:
            yield f"job {job} ({history.name_of(job)}) is gone: it was deleted as {start.value}"
        elif end not in ENDED:
            yield f"job {job} ({history.name_of(job)}) is stuck: {end.value}"
        elif end not in history.expected.get(history.name_of(job), ENDED) and not _died_out(history.lives[job][-1]):
            yield f"job {job} ({history.name_of(job)}) ended as {end.value}"


def _died_out(change: Change) -> bool:
    """Whether a job failed since its process had died under it as often as it may."""
    new = change.new
    return new is not None and new.state == "FAILED" and change.kind in {"crash", "lapse"} and _is_used_up(new)


def _is_used_up(row: Row) -> bool:
    return row.crashes >= row.max_crashes or row.attempts >= row.max_attempts


RULES: tuple[Rule, ...] = (
    every_change_is_a_move,
    nothing_changes_beside_a_move,
    nothing_is_missing,
    a_token_belongs_to_one_claim,
    nothing_is_claimed_before_it_is_due,
    a_lapse_comes_no_sooner_than_the_lease_ends,
    bodies_begin_once_and_after_their_claim,
    success_has_a_body_that_ended,
    nothing_that_ended_well_fails,
    a_row_is_held_until_its_body_has_stopped,
    bodies_overlap_only_across_a_lapse,
    a_job_runs_again_only_for_a_reason,
    deaths_are_charged_for_a_reason,
    every_committed_job_is_there,
    an_answered_cancel_holds,
    every_job_ends,
)


def violations(history: History, rules: Iterable[Rule] = RULES) -> list[str]:
    """Say in words what breaks a rule."""
    return [sentence for rule in rules for sentence in rule(history)]


def _words(change: Change) -> str:
    start, end = change.move
    kind = f", {change.kind}" if change.kind else ""
    return f"went from {start.value} to {end.value}{kind}"


def story(history: History, job: int) -> str:
    """Tell a job's life, for whoever reads a violation."""
    lines: list[tuple[float, str]] = []
    for change in history.lives.get(job, []):
        if change.old and change.new and change.old.is_held and change.old.place is change.new.place:
            continue  # renewed
        row = change.new or change.old
        assert row is not None
        facts = f"token {row.token}, worker {row.worker}, attempts {row.attempts}, crashes {row.crashes}"
        lines.append((change.at, f"row {_words(change)}: {facts}"))
    lines += [
        (mark.at + history.offset, f"body {mark.word}: token {mark.token}, process {mark.pid}")
        for mark in history.marks
        if mark.job == job
    ]
    start = min((at for at, _ in lines), default=0.0)
    return "\n".join(f"  {at - start:8.3f} {line}" for at, line in sorted(lines))


# -- how it is recorded

TABLE = "job_history"

_COLUMNS = (
    "state", "attempts", "max_attempts", "crashes", "max_crashes", "alone", "run_at", "token", "worker",
    "lease_expires_at", "deadline_at", "finished_at",
)  # fmt: skip

_POSTGRESQL = (
    f"""
    create table {TABLE} (
      seq bigserial primary key, at double precision not null, "transaction" text not null, id bigint not null,
      name text not null, args jsonb not null, old jsonb, new jsonb)
    """,
    f"""
    create function note_job() returns trigger language plpgsql as $$
    begin
      insert into {TABLE} (at, "transaction", id, name, args, old, new) values (
        extract(epoch from clock_timestamp()), pg_current_xact_id()::text, coalesce(new.id, old.id),
        coalesce(new.name, old.name), coalesce(new.args, old.args),
        OLD_ROW, NEW_ROW);
      return null;
    end $$
    """,
    "create trigger note_job after insert or update or delete on JOBS for each row execute function note_job()",
)


def _postgresql_row(row: str, event: str) -> str:
    columns = ", ".join(
        f"'{column}', extract(epoch from {row}.{column})"
        if column.endswith(("_at", "_until"))
        else f"'{column}', {row}.{column}"
        for column in _COLUMNS
    )
    kinds = f"'kinds', jsonb_path_query_array({row}.errors, '$[*].kind')"
    return f"case when tg_op <> '{event}' then jsonb_build_object({columns}, {kinds}) end"


_SQLITE = (
    f"""
    create table {TABLE} (
      seq integer primary key, at real not null, "transaction" text not null, id integer not null, name text not null,
      args text not null, old text, new text)
    """,
    *(
        f"""
        create trigger note_job_{event} after {event} on JOBS for each row begin
          insert into {TABLE} (at, "transaction", id, name, args, old, new) values (
            (julianday('now') - 2440587.5) * 86400.0, '', {some}.id, {some}.name, {some}.args, {old}, {new});
        end
        """
        for event, some, old, new in (
            ("insert", "new", "null", "NEW_ROW"),
            ("update", "new", "OLD_ROW", "NEW_ROW"),
            ("delete", "old", "OLD_ROW", "null"),
        )
    ),
)


def _sqlite_row(row: str) -> str:
    columns = ", ".join(f"'{column}', {row}.{column}" for column in _COLUMNS)
    kinds = f"(select json_group_array(json_extract(value, '$.kind')) from json_each({row}.errors))"
    return f"json_object({columns}, 'kinds', {kinds})"


@contextmanager
def recorded(alias: str = "default") -> Iterator[None]:
    """Copy each change of a job's row from now on."""
    connection = connections[alias]
    is_postgresql = connection.vendor == "postgresql"
    old = _postgresql_row("old", "INSERT") if is_postgresql else _sqlite_row("old")
    new = _postgresql_row("new", "DELETE") if is_postgresql else _sqlite_row("new")
    table = f'"{Job._meta.db_table}"'
    with connection.cursor() as cursor:
        for statement in _POSTGRESQL if is_postgresql else _SQLITE:
            cursor.execute(statement.replace("OLD_ROW", old).replace("NEW_ROW", new).replace("JOBS", table))
    try:
        yield
    finally:
        _forget(connections[alias], table)


def _forget(connection: BaseDatabaseWrapper, table: str) -> None:
    # Somebody may have cut the connection meanwhile.
    connection.close()
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"drop trigger note_job on {table}")
            cursor.execute("drop function note_job")
        else:
            for event in ("insert", "update", "delete"):
                cursor.execute(f"drop trigger note_job_{event}")
        cursor.execute(f"drop table {TABLE}")


def read(
    marks: Path,
    *,
    logs: Iterable[str] = (),
    expected: dict[str, frozenset[Place]] | None = None,
    alias: str = "default",
) -> History:
    """Read what was recorded; `logs` of supervisors say which workers died."""
    noted = read_marks(marks)
    with connections[alias].cursor() as cursor:
        cursor.execute(f'select seq, at, "transaction", id, name, args, old, new from {TABLE} order by seq')
        changes = [_change(row) for row in cursor.fetchall()]
    died_at: dict[int, float] = {}
    for mark in noted:
        if mark.word in {"dies", "killed"}:
            died_at.setdefault(mark.pid, mark.at)
    return History(
        changes=changes,
        marks=noted,
        rows=_rows(alias),
        dead=frozenset(died_at.keys() | _deaths(logs)),
        died_at=died_at,
        offset=time.time() - time.monotonic(),
        expected=expected or {},
    )


def _rows(alias: str) -> dict[int, Row]:
    rows = Job.objects.using(alias).values("id", "errors", *_COLUMNS)
    return {row["id"]: _row({**row, "kinds": [error["kind"] for error in row["errors"]]}) for row in rows}


def _change(columns: tuple[Any, ...]) -> Change:
    seq, at, transaction, job, name, args, old, new = columns
    arguments = _json(args)
    return Change(
        seq=seq,
        at=at,
        transaction=transaction,
        id=job,
        name=name,
        label=str(arguments[1]) if len(arguments) > 1 else "",
        old=None if old is None else _row(_json(old)),
        new=None if new is None else _row(_json(new)),
    )


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _row(columns: dict[str, Any]) -> Row:
    return Row(
        state=str(columns["state"]),
        attempts=columns["attempts"],
        max_attempts=columns["max_attempts"],
        crashes=columns["crashes"],
        max_crashes=columns["max_crashes"],
        alone=bool(columns["alone"]),
        run_at=_seconds(columns["run_at"]) or 0.0,
        token=columns["token"],
        worker=columns["worker"],
        lease_until=_seconds(columns["lease_expires_at"]),
        deadline=_seconds(columns["deadline_at"]),
        finished_at=_seconds(columns["finished_at"]),
        kinds=tuple(columns["kinds"]),
    )


def _seconds(instant: Any) -> float | None:
    """Read an instant: an aware datetime, text in UTC, or seconds since the epoch; to the microsecond."""
    if instant is None:
        return None
    if isinstance(instant, str):
        instant = datetime.fromisoformat(instant).replace(tzinfo=UTC)
    return round(instant.timestamp() if isinstance(instant, datetime) else float(instant), 6)


def read_marks(path: Path) -> list[Mark]:
    """Read the file of marks."""
    marks = []
    for line in path.read_text().splitlines() if path.exists() else []:
        # Whoever was killed within a write has left half a line.
        if line.startswith("{") and line.endswith("}"):
            marks.append(Mark(**json.loads(line)))
    return marks


def _deaths(logs: Iterable[str]) -> set[int]:
    found = re.compile(r"worker [^:\s]+:(\d+):\w+ (?:died|was ended)")
    return {int(pid) for log in logs for pid in found.findall(log)}


def pid_of(worker: str | None) -> int:
    """Read the process id in a worker's identity: host, process id, and a random part."""
    parts = (worker or "").split(":")
    return int(parts[-2]) if len(parts) > 2 else 0


# -- figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run came to, as numbers."""

    jobs: int
    rolled_back: int
    ended: dict[str, int]
    bodies: int
    deaths: int
    lapses: int
    crashes: int
    died_out: int
    doubled: int
    overlaps: int
    lost: int
    stuck: int
    finished_but_failed: int


def figures(history: History) -> Figures:
    """Count."""
    committed = history.said("committed")
    crashes = [c for c in history.changes if c.old and c.new and c.new.crashes > c.old.crashes]
    gone = (history.lives[job][-1].move for job in history.lives)
    return Figures(
        jobs=len(history.lives),
        rolled_back=len(history.said("rolled back")),
        ended=dict(Counter(end.value for end in history.ends.values())),
        bodies=len(history.bodies),
        deaths=len(history.dead),
        lapses=sum(change.kind == "lapse" for change in history.changes),
        crashes=len(crashes),
        died_out=sum(_died_out(life[-1]) for life in history.lives.values()),
        doubled=len(doubled(history)),
        overlaps=len(overlaps(history)),
        lost=len(committed - history.labels.keys()) + sum(_is_gone(move) for move in gone),
        stuck=sum(life[-1].move[1] not in {*ENDED, Place.ABSENT} for life in history.lives.values()),
        finished_but_failed=len(list(nothing_that_ended_well_fails(history))),
    )


def _is_gone(move: tuple[Place, Place]) -> bool:
    start, end = move
    return end is Place.ABSENT and start is not Place.RUNNING
