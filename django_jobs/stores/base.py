"""Write: every verb on rows, as SQL run on the connection handed in. Never decides, and never asks for the time."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from django_jobs import clock
from django_jobs.progress import Progress
from django_jobs.records import (
    Claim,
    Claimed,
    ClaimRequest,
    Draft,
    Due,
    Failure,
    HeldRow,
    Inserted,
    Key,
    Lease,
    NewJob,
    Places,
    Pulse,
    WorkerLife,
    WorkerSeen,
)
from django_jobs.states import State
from django_jobs.stores import pushed, scheduled, statements
from django_jobs.transitions import Change

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

MOST_CLAIMED = 1_000
"""So many rows a claim takes at the most."""

REACH = 10
"""So many times as many rows as are wanted a claim looks at where queues have caps: those beyond a cap are left."""

MOST_INSERTED = 1_000
INSERTED_BYTES = 8_000_000
"""So many rows, or bytes of arguments, are inserted by one statement made of JSON."""

EXPIRY = Failure(kind="expired", reason="expired before it could start")
"""Why a job that waited for too long was cancelled."""

MOST_ERRORS = 20
"""So many entries of a row's errors stay: the first, and the newest of the others."""

ENTRY_BYTES = 3_000
"""The texts of an entry of errors are cut to so many bytes when they are written."""

PAUSED_BY_LENGTH = 150
"""So many characters are kept of who paused a queue."""

CUT_MARK = "\n…\n"


class Store(ABC):
    """Every verb on rows. A verb takes the connection to run on: the caller's, or one of the worker's own."""

    def __init__(self, **tables: str) -> None:
        self._tables = {word: f'"{table}"' for word, table in tables.items()}
        self._composed: dict[str, str] = {}
        self._text = lru_cache(maxsize=None)(self._filled)
        self._claim_text = lru_cache(maxsize=None)(self._composed_claim)
        self._next_due_text = lru_cache(maxsize=None)(self._composed_next_due)

    # -- enqueue

    def insert(self, connection: BaseDatabaseWrapper, job: NewJob) -> Inserted:
        """Insert one READY row."""
        sql = statements.INSERT if job.draft.is_due_at_once else statements.INSERT_LATER
        [row] = self.run(connection, sql, self._job_values(job))
        return _read_inserted(row)

    @abstractmethod
    def insert_many(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[int]:
        """Insert READY rows, any number, within a transaction of the caller's; give their ids in the order of `jobs`.

        An error leaves it to the caller to take back what was written before.
        """

    def _insert_under(self, connection: BaseDatabaseWrapper, ids: Sequence[int], jobs: Sequence[NewJob]) -> None:
        """Insert READY rows under ids that were drawn for them, by statements of a bounded size."""
        for rows in self._job_rows(ids, jobs):
            self.run(connection, statements.INSERT_MANY, {"jobs": rows})

    def _job_rows(self, ids: Sequence[int], jobs: Sequence[NewJob]) -> Iterator[str]:
        """Write the parameters that `{rows:jobs}` reads, of a bounded size."""
        said: dict[int, str] = {}
        rows: list[str] = []
        size = 0
        for job_id, job in zip(ids, jobs, strict=True):
            # What a draft says is written once. By identity: each lives as long as its job.
            if (common := said.get(id(job.draft))) is None:
                common = said[id(job.draft)] = _dump(self._draft_values(job.draft))[1:]
            keys = "" if job.key is None else f"{_dump(_key_values(job))[1:-1]},"
            row = f'{{"id":{job_id},"args":{_dump(job.args)},"kwargs":{_dump(job.kwargs)},{keys}{common}'
            rows.append(row)
            size += len(row)
            if len(rows) >= MOST_INSERTED or size >= INSERTED_BYTES:
                yield f"[{','.join(rows)}]"
                rows, size = [], 0
        if rows:
            yield f"[{','.join(rows)}]"

    @abstractmethod
    def draw_ids(self, connection: BaseDatabaseWrapper, count: int) -> Sequence[int]:
        """Take `count` ids, ascending, that nobody else will get."""

    # -- keys

    def insert_keyed(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> dict[Key, Inserted]:
        """Insert READY rows each of which has a key of its own, and give by their keys those that nobody else held.

        More than one are inserted within a transaction of the caller's.
        """
        if len(jobs) == 1:
            rows = self.run(connection, statements.INSERT_KEYED, self._job_values(jobs[0]))
            return {key: _read_inserted(rows[0])} if rows and (key := jobs[0].key) else {}
        inserted: dict[Key, Inserted] = {}
        ids, jobs = zip(*sorted(zip(self.draw_ids(connection, len(jobs)), jobs, strict=True), key=_by_key), strict=True)
        for part in self._job_rows(ids, jobs):
            for row in self.run(connection, statements.INSERT_MANY_KEYED, {"jobs": part}):
                key = Key(row[5], is_waiting=True) if row[4] is None else Key(row[4], is_waiting=False)
                inserted[key] = _read_inserted(row)
        return inserted

    def insert_fired(
        self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob], more: Sequence[Mapping[str, str]]
    ) -> dict[str, int]:
        """Insert the jobs of ticks, with a schedule and a tick each, and give by tick the ids of what was inserted."""
        ids = self.draw_ids(connection, len(jobs))
        rows = [
            {"id": job_id, **self._job_values(job), **said} for job_id, job, said in zip(ids, jobs, more, strict=True)
        ]
        inserted = self.run(connection, statements.INSERT_FIRED, {"fired": _dump(rows)})
        return {self.write_instant(clock.read(tick)): job_id for job_id, tick in inserted}

    def free(self, connection: BaseDatabaseWrapper, keys: Iterable[str]) -> int:
        """Let go of unique keys whose job has ended and whose time is over, and say how many that were."""
        return len(self._ids(connection, statements.FREE, {"keys": _key_rows(keys)}))

    def lock_holders(
        self, connection: BaseDatabaseWrapper, keys: Iterable[str], *, waiting: bool
    ) -> dict[str, Inserted]:
        """Find the jobs that wait and hold these keys, and lock them against being claimed while the transaction lasts.

        `waiting` says which kind of keys these are.
        """
        return self._holders(connection, statements.LOCK_WAITING if waiting else statements.LOCK_UNIQUE, keys)

    def find_holders(
        self, connection: BaseDatabaseWrapper, keys: Iterable[str], *, waiting: bool
    ) -> dict[str, Inserted]:
        """Find the jobs that hold these keys."""
        return self._holders(connection, statements.FIND_WAITING if waiting else statements.FIND_UNIQUE, keys)

    def find_busy(self, connection: BaseDatabaseWrapper, keys: Iterable[str]) -> dict[str, Inserted]:
        """Find the jobs that hold these unique keys and don't wait."""
        return self._holders(connection, statements.FIND_BUSY, keys)

    def _holders(self, connection: BaseDatabaseWrapper, sql: str, keys: Iterable[str]) -> dict[str, Inserted]:
        rows = self.run(connection, sql, {"keys": _key_rows(keys)})
        return {row[4]: _read_inserted(row)._replace(duplicate=True) for row in rows}

    def expire_holders(self, connection: BaseDatabaseWrapper, keys: Iterable[str], *, waiting: bool) -> set[int]:
        """Cancel READY rows that hold these keys and are past their expiry, and give their ids."""
        sql = statements.EXPIRE_WAITING if waiting else statements.EXPIRE_UNIQUE
        return self._ids(connection, sql, {"keys": _key_rows(keys), "expiry": _entry(EXPIRY)})

    def replace(self, connection: BaseDatabaseWrapper, jobs: Iterable[NewJob], *, waiting: bool) -> dict[str, Inserted]:
        """Give the jobs that wait and hold the keys of these their arguments and time."""
        wanted = ("args", "kwargs", "run_at", "delay", "expires")
        rows = []
        for job in jobs:
            values = self._job_values(job)
            rows.append(
                {"key": job.waiting_key if waiting else job.unique_key, **{name: values[name] for name in wanted}}
            )
        sql = statements.REPLACE_WAITING if waiting else statements.REPLACE_UNIQUE
        replaced = self.run(connection, sql, {"replacements": _dump(rows)})
        return {row[4]: _read_inserted(row)._replace(duplicate=True, replaced=True) for row in replaced}

    def forward(self, connection: BaseDatabaseWrapper, delays: Mapping[int, timedelta | None]) -> set[int]:
        """Bring waiting jobs forward to so long from now, where they would run later; None is now."""
        rows = [{"id": job_id, "delay": delay.total_seconds() if delay else 0.0} for job_id, delay in delays.items()]
        return self._ids(connection, statements.FORWARD, {"forwards": _dump(rows)})

    @abstractmethod
    def notify(self, connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
        """Tell listening workers that these queues have jobs: a hint, in a statement of its own."""

    @abstractmethod
    def listen(self, connection: BaseDatabaseWrapper) -> Any:
        """Begin to hear of new jobs on a connection kept for that, and give what `hear` wants to know."""

    @abstractmethod
    def unlisten(self, connection: BaseDatabaseWrapper) -> None:
        """Hear no more on a connection."""

    @abstractmethod
    def hear(self, connection: BaseDatabaseWrapper, mark: Any, *, timeout: float) -> tuple[set[str], Any]:
        """Wait up to `timeout` seconds for news, and give what was said, with the mark for the next call."""

    # -- a worker's verbs

    def claim(self, connection: BaseDatabaseWrapper, request: ClaimRequest, token: int) -> Claimed:
        """Take due rows under `token`, in order, and end expired ones in passing; never more than asked for."""
        entry = _entry(EXPIRY)
        limit = min(request.limit, MOST_CLAIMED)
        rows = self.run(
            connection,
            self._claim_text(request.queues is None, request.empty_handed, request.names is not None),
            {
                "limit": limit,
                "reach": REACH * limit if request.rooms else limit,
                "token": token,
                "worker": request.worker,
                "lease": request.lease.total_seconds(),
                "grace": request.grace.total_seconds(),
                "last_queue": request.last_queue,
                "queues": _queue_rows(request),
                "names": name_rows(request.names or ()),
                "expiry": entry,
            },
        )
        # RETURNING promises no order.
        rows.sort(key=_DUE_FIRST)
        if len(set(map(_PAIR, rows))) > 1:
            rows.sort(key=lambda row: (-row[4], row[3] <= request.last_queue, row[3]))
        running = State.RUNNING.value
        claims = tuple([self._read_claim(row, token) for row in rows if row[1] == running])
        expired = () if len(claims) == len(rows) else tuple(sorted(row[0] for row in rows if row[1] != running))
        return Claimed(claims=claims, expired=expired)

    def claim_this(
        self, connection: BaseDatabaseWrapper, job_id: int, request: ClaimRequest, token: int
    ) -> Claim | None:
        """Take this READY row under `token`, due or not; of the request only worker, lease and grace count."""
        values = {
            "id": job_id,
            "token": token,
            "worker": request.worker,
            "lease": request.lease.total_seconds(),
            "grace": request.grace.total_seconds(),
        }
        rows = self.run(connection, statements.CLAIM_THIS, values)
        return self._read_claim(rows[0], token) if rows else None

    def next_due(self, connection: BaseDatabaseWrapper, request: ClaimRequest) -> Due:
        """Say whether a job that the request could take is due, and in how many seconds the next one will be."""
        text = self._next_due_text(request.queues is None, request.empty_handed, request.names is not None)
        values = {"last_queue": "", "queues": _queue_rows(request), "names": name_rows(request.names or ())}
        [(is_due, seconds)] = self.run(connection, text, values)
        return Due(now=bool(is_due), later=None if seconds is None else float(seconds))

    def renew(
        self, connection: BaseDatabaseWrapper, leases: Sequence[Lease], *, lease: timedelta
    ) -> dict[Lease, State]:
        """Let these held rows be held for `lease` from now, and give the states of those that still are."""
        values = {"leases": _lease_rows(leases), "lease": lease.total_seconds()}
        rows = self.run_unless_locked(connection, statements.RENEW, values)
        return {Lease(id=job_id, token=token): State(state) for job_id, token, state in rows}

    def report(
        self, connection: BaseDatabaseWrapper, reports: Mapping[Lease, Progress], *, patient: bool = False
    ) -> set[Lease]:
        """Write how far bodies are into the rows that are held under these leases, and give those that were written.

        One that is `patient` waits for the lock of a whole file for as long as an end does.
        """
        run = self.run if patient else self.run_unless_locked
        rows = run(connection, statements.REPORT, {"reports": _report_rows(reports)})
        return set(map(Lease._make, rows))

    def settle(self, connection: BaseDatabaseWrapper, changes: Sequence[Change]) -> set[Lease]:
        """Write the ends of runs whose token still stands in a RUNNING row, and give the leases that were written.

        A row that is missing in the answer was taken away, or is locked by somebody just now: `peek` tells which.
        """
        gone: list[Change] = []
        plain: list[Change] = []
        others: list[Change] = []
        for change in changes:
            if change.state is not State.SUCCESSFUL:
                others.append(change)
            else:
                (gone if change.gone else plain).append(change)
        written: set[Lease] = set()
        if gone:
            written |= self._leases(
                connection, statements.SUCCEED_AND_GO, {"leases": _lease_rows([c.lease for c in gone])}
            )
        if plain:
            rows = self.run(connection, statements.SUCCEED, {"successes": _success_rows(plain)})
            all_leases = {change.lease for change in plain}
            written |= all_leases if len(rows) == len(all_leases) else set(map(Lease._make, rows))
        if others:
            written |= self._change(connection, statements.CHANGE, statements.SUPERSEDE, others)
        return written

    def _change(
        self, connection: BaseDatabaseWrapper, change: str, supersede: str, changes: Sequence[Change]
    ) -> set[Lease]:
        """Write changes, and then those for which another has to wait: it may be one of the first."""
        plain = [each for each in changes if each.superseded_by is None]
        superseded = [each for each in changes if each.superseded_by is not None]
        written: set[Lease] = set()
        if plain:
            is_alone = connection.get_autocommit() and not connection.in_atomic_block
            values = {"changes": _change_rows(plain), "is_alone": is_alone}
            written |= self._leases(connection, change, values)
        if superseded:
            written |= self._leases(connection, supersede, {"superseded": _superseded_rows(superseded)})
        return written

    def gave_up(self, error: DatabaseError) -> bool:
        """Say whether a statement has ended since it would have had to wait for somebody's transaction."""
        return False

    @abstractmethod
    def line_up_to_declare(self, connection: BaseDatabaseWrapper) -> None:
        """Have nobody else declare schedules until this transaction ends."""

    @abstractmethod
    def be_brief(self, connection: BaseDatabaseWrapper) -> None:
        """Have the statements of this transaction give up soon where they have to wait for somebody's."""

    @abstractmethod
    def begin(self, connection: BaseDatabaseWrapper) -> None:
        """Begin the transaction of an atomic job: the first statement in it, after Django's own."""

    def let_go(self, connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> set[Lease]:
        """End the holding of cancelled rows whose body has stopped."""
        return self._leases(connection, statements.LET_GO, {"leases": _lease_rows(leases)})

    def peek(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> dict[int, HeldRow]:
        """Read back rows that have been claimed at some time."""
        rows = self.run(connection, statements.PEEK, {"ids": _id_rows(ids)})
        return {row[0]: _read_held(row) for row in rows}

    def held_by(self, connection: BaseDatabaseWrapper, worker: str) -> list[HeldRow]:
        """Find the rows that a worker holds."""
        return [_read_held(row) for row in self.run(connection, statements.HELD_BY, {"worker": worker})]

    def begin_life(self, connection: BaseDatabaseWrapper, token: int) -> Callable[[], None]:
        """Show, where the database has a means, that this process lives and has the claim of `token` in hand.

        Gives what ends that. While it is shown the claim isn't `lapsed`, whatever the clock says.
        """
        return _nothing

    # -- chores

    def lapsed(self, connection: BaseDatabaseWrapper, *, limit: int) -> list[HeldRow]:
        """Find held rows whose lease, or deadline, is over and whose holder doesn't show that it lives."""
        return [_read_held(row) for row in self.run(connection, statements.LAPSED, {"limit": limit})]

    def reclaim(self, connection: BaseDatabaseWrapper, changes: Sequence[Change]) -> set[Lease]:
        """Take RUNNING rows back, each only if its token stands and its lease, or deadline, is still over."""
        return self._change(connection, statements.CHANGE_LAPSED, statements.SUPERSEDE_LAPSED, changes)

    def let_go_lapsed(self, connection: BaseDatabaseWrapper, leases: Sequence[Lease]) -> set[Lease]:
        """End the holding of cancelled rows, each only if its lease, or deadline, is still over."""
        return self._leases(connection, statements.LET_GO_LAPSED, {"leases": _lease_rows(leases)})

    def expire(self, connection: BaseDatabaseWrapper, *, limit: int) -> set[int]:
        """Cancel READY rows past their `expires_at`."""
        entry = _entry(EXPIRY)
        return self._ids(connection, statements.EXPIRE, {"limit": limit, "expiry": entry})

    def prune(self, connection: BaseDatabaseWrapper, *, limit: int, only: int | None = None) -> int:
        """Delete finished rows whose keeping is over, or only one of them, and say how many went."""
        text = statements.PRUNE if only is None else statements.PRUNE_ONE
        return len(self._ids(connection, text, {"limit": limit, "only": only}))

    def prunable(self, connection: BaseDatabaseWrapper, *, after: int, limit: int) -> list[int]:
        """List finished rows whose keeping is over, beyond an id."""
        return [row[0] for row in self.run(connection, statements.PRUNABLE_AFTER, {"after": after, "limit": limit})]

    # -- workers

    def beat(self, connection: BaseDatabaseWrapper, lives: Sequence[WorkerLife]) -> None:
        """Say that these workers are alive, whether anybody knew of them before or not."""
        rows = [asdict(life) | {"queues": _dump(life.queues), "versions": _dump(dict(life.versions))} for life in lives]
        self.run(connection, statements.BEAT, {"workers": _dump(rows)})

    def sign_off(self, connection: BaseDatabaseWrapper, identities: Iterable[str]) -> set[str]:
        """Delete the rows of workers that are gone."""
        return self._ids(connection, statements.SIGN_OFF, {"names": name_rows(identities)})

    def sweep(self, connection: BaseDatabaseWrapper, *, age: timedelta) -> set[str]:
        """Delete the rows of workers that haven't beaten for so long."""
        return self._ids(connection, statements.SWEEP, {"age": age.total_seconds()})

    def workers(self, connection: BaseDatabaseWrapper) -> list[WorkerSeen]:
        """Read the rows of workers; how old things are is said by the database's clock."""
        return [_read_worker(row) for row in self.run(connection, statements.WORKERS, {})]

    # -- verbs by hand

    def cancel(self, connection: BaseDatabaseWrapper, ids: Iterable[int], *, reason: str) -> set[int]:
        """Cancel READY rows, and RUNNING ones, which stay held until their body has stopped."""
        entry = _entry(Failure(kind="cancelled", reason=reason))
        return self._ids(connection, statements.CANCEL, {"ids": _id_rows(ids), "entry": entry})

    def retry(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[int]:
        """Make waiting, failed and cancelled rows READY now, with at least one attempt more; held ones stay."""
        return self._ids(connection, statements.RETRY, {"ids": _id_rows(ids)})

    def reschedule(self, connection: BaseDatabaseWrapper, ids: Iterable[int], places: Places) -> set[int]:
        """Have READY rows wait elsewhere, or for another time."""
        values = {
            "ids": _id_rows(ids),
            "queue": places.queue,
            "priority": places.priority,
            "run_at": None if places.run_at is None else self.write_instant(places.run_at),
            "max_attempts": places.max_attempts,
        }
        return self._ids(connection, statements.RESCHEDULE, values)

    def keys(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> list[Key]:
        """Read the keys of rows that have one."""
        rows = self.run(connection, statements.KEYS, {"ids": _id_rows(ids)})
        keys = [Key(unique, is_waiting=False) for unique, _ in rows if unique is not None]
        return keys + [Key(waiting, is_waiting=True) for _, waiting in rows if waiting is not None]

    def key_holder(self, connection: BaseDatabaseWrapper, job_id: int) -> int | None:
        """Find another row that holds the key of this one."""
        rows = self.run(connection, statements.KEY_HOLDER, {"id": job_id})
        return rows[0][0] if rows else None

    def ahead(
        self, connection: BaseDatabaseWrapper, job_id: int, *, queue: str, priority: int, run_at: datetime, limit: int
    ) -> int:
        """Count the due rows that a claim of this queue takes before this one; of each priority at most `limit`."""
        values = {
            "id": job_id,
            "queue": queue,
            "priority": priority,
            "run_at": self.write_instant(run_at),
            "limit": limit,
        }
        [(count,)] = self.run(connection, statements.AHEAD, values)
        return int(count)

    def delete(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[int]:
        """Delete rows that nobody holds."""
        return self._ids(connection, statements.DELETE, {"ids": _id_rows(ids)})

    def states(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> dict[int, tuple[State, bool]]:
        """Read the state of rows, and whether they are held."""
        rows = self.run(connection, statements.STATES, {"ids": _id_rows(ids)})
        return {job_id: (State(state), bool(held)) for job_id, state, held in rows}

    def queues(self, connection: BaseDatabaseWrapper, ids: Iterable[int]) -> set[str]:
        """Read which queues rows wait under."""
        return {row[0] for row in self.run(connection, statements.QUEUES, {"ids": _id_rows(ids)})}

    def pause(self, connection: BaseDatabaseWrapper, queue: str, *, by: str, reason: str) -> bool:
        """Have no job of a queue be claimed, and say whether that is new."""
        values = {"queue": queue, "by": clean(by)[:PAUSED_BY_LENGTH], "reason": clean(reason)}
        [(is_new,)] = self.run(connection, statements.PAUSE, values)
        return bool(is_new)

    def resume(self, connection: BaseDatabaseWrapper, queue: str) -> bool:
        """Have jobs of a queue be claimed again, and say whether it was paused."""
        return bool(self.run(connection, statements.RESUME, {"queue": queue}))

    def entry(self, failure: Failure) -> str:
        """Write what `{append:…}` appends to a row's errors."""
        return _entry(failure)

    # -- a loop's own connection

    @abstractmethod
    def dedicate(self, connection: BaseDatabaseWrapper, *, bound: float) -> bool:
        """Set up a connection of a loop's own before it opens, and tell whether a network lies between.

        `bound` is how many seconds a statement may take.
        """

    @abstractmethod
    def prepare_if_direct(self, connection: BaseDatabaseWrapper) -> None:
        """Have the server prepare statements that come again and again, where that is safe."""

    @abstractmethod
    def cancel_statement(self, connection: BaseDatabaseWrapper, *, timeout: float) -> None:
        """Ask the server, from another thread, to end the statement that is under way; `timeout` seconds for that."""

    @abstractmethod
    def hang_up(self, connection: BaseDatabaseWrapper) -> None:
        """Have whoever waits at this connection, in another thread, wait no longer: it is broken from then on."""

    def pulse(self, connection: BaseDatabaseWrapper) -> Pulse:
        """Read since when the server runs, and what its clock says."""
        [(server_start, now)] = self.run(connection, statements.PULSE, {})
        return Pulse(server_start=None if server_start is None else clock.read(server_start), now=clock.read(now))

    def refused(self, connection: BaseDatabaseWrapper) -> tuple[str, Exception] | None:
        """Have the database plan each statement without running it; give the first it refuses, and why.

        Only statements with a plan can be asked for: PostgreSQL's COPY names the columns of INSERT_MANY, which is.
        """
        for name, sql in self._every_statement():
            values = dict.fromkeys(_PARAMETERS.findall(self._text(sql, clock.frozen_now() is not None)))
            try:
                self.run(connection, f"explain {sql.lstrip()}", values)
            except DatabaseError as error:
                return name, error
        return None

    def _every_statement(self) -> Iterator[tuple[str, str]]:
        for kind in product((True, False), repeat=3):
            yield "CLAIM", self._claim_text(*kind)
        for kind in product((True, False), repeat=3):
            yield "NEXT_DUE", self._next_due_text(*kind)
        for home in (statements, pushed, scheduled):
            for name in home.WHOLE:
                yield name, getattr(home, name)

    # -- how a statement runs

    ways: tuple[str, ...] = ("run",)
    """The methods by which statements run. Each takes a connection and the statement first, and gives its rows."""

    def run(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement with its named values and give the rows it returns."""
        frozen = clock.frozen_now()
        with connection.cursor() as cursor:
            cursor.execute(self._text(sql, frozen is not None), {**values, **self.clock_values(frozen)})
            # What a cursor tells of its columns it makes anew whenever it is asked.
            return cursor.fetchall() if _gives_rows(sql) or cursor.description else []

    def run_unless_locked(
        self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Run a statement that passes over rows in other hands; where somebody has the whole file, over all of them."""
        return self.run(connection, sql, values)

    def name_of(self, sql: str) -> str:
        """Give the name of a statement: that of the constant which holds it, or of which it is made."""
        if (name := self._composed.get(sql)) is not None:
            return name
        homes = (statements, pushed, scheduled, sys.modules[type(self).__module__])
        return next((name for home in homes for name, text in vars(home).items() if text == sql), "OTHER")

    @abstractmethod
    def clock_values(self, frozen: datetime | None) -> dict[str, Any]:
        """Give the values that `{now}` refers to."""

    # -- what a dialect says of each thing in braces

    @abstractmethod
    def now(self, *, frozen: bool) -> str:
        """Write the present instant."""

    @abstractmethod
    def after(self, instant: str, seconds: str) -> str:
        """Write the instant that many seconds after another; NULL where either is."""

    @abstractmethod
    def before(self, instant: str, seconds: str) -> str:
        """Write the instant that many seconds before another, to the millisecond; NULL where either is."""

    @abstractmethod
    def seconds_until(self, instant: str, now: str) -> str:
        """Write how many seconds it is from now to an instant."""

    @abstractmethod
    def rows(self, parameter: str, columns: Mapping[str, str]) -> str:
        """Write a table called c with typed columns, made of the JSON text in a parameter."""

    @abstractmethod
    def few(self, number: str) -> str:
        """Write what is true of any number, but such that the planner looks each row up instead of reading a table."""

    @abstractmethod
    def by(self, number: str) -> str:
        """Write that a job has this id, such that the planner looks it up, whatever it believes of the table."""

    @abstractmethod
    def at(self, column: str, value: str) -> str:
        """Write that an indexed column has this value, such that the planner looks it up in the same way."""

    @abstractmethod
    def holder(self, column: str, value: str, condition: str) -> str:
        """Write a join with the job that has this key, such that the planner looks it up by the index of keys.

        The condition is that of the index, and more.
        """

    @abstractmethod
    def using(self, table: str) -> str:
        """Write, in a delete of jobs, which: those whose ids are in a table."""

    @abstractmethod
    def append(self, entry: str) -> str:
        """Write the row's errors with one entry more, completed by attempt, instants and worker of the row."""

    last_reason: str
    """The reason of the latest of a row's errors, which may be missing."""

    @abstractmethod
    def impatient(self) -> str:
        """Write one column more, which has a statement that `is_alone` give up soon where it has to wait."""

    @abstractmethod
    def picked(self, extra: str) -> str:
        """Write the query that finds and locks the oldest due rows of each open (queue, priority) pair."""

    needs_proof: bool
    """Whether hearing may fail without an error."""

    never: str
    """An instant before all others."""

    server_start: str
    """Since when the server runs; NULL where there is none."""

    wait: str
    share: str
    skip: str
    wait_to_delete: str
    skip_to_delete: str
    bytewise: str
    """What follows a text that is to sort by its bytes."""

    own: str
    """How RETURNING names a column of the row it wrote: a prefix."""

    @abstractmethod
    def json(self, value: str) -> str:
        """Write JSON text as a value for a JSON column."""

    @abstractmethod
    def instant(self, value: str) -> str:
        """Write the text of `write_instant` as an instant."""

    @abstractmethod
    def utc(self, column: str) -> str:
        """Write a column such that `clock.read` understands what comes back."""

    @abstractmethod
    def boolean(self, value: str) -> str:
        """Write a parameter or 0 or 1 as a truth value."""

    @abstractmethod
    def write_instant(self, instant: datetime) -> str:
        """Turn an aware datetime into text for a statement."""

    def _filled(self, sql: str, frozen: bool) -> str:  # noqa: FBT001 - the key of a cache
        now = self.now(frozen=frozen)
        fillers: dict[str, Callable[[str], str]] = {
            "job": lambda _: self._tables["job"],
            "queue": lambda _: self._tables["queue"],
            "worker": lambda _: self._tables["worker"],
            "schedule": lambda _: self._tables["schedule"],
            "set": lambda _: self._tables["set"],
            "now": lambda _: now,
            "never": lambda _: self.never,
            "later": lambda seconds: self.after(now, seconds),
            "ago": lambda seconds: self.before(now, seconds),
            "after": lambda pair: self.after(*pair.split(";")),
            "rows": lambda name: self.rows(name, statements.ROWS[name]),
            "returning": lambda columns: f"returning {', '.join(map(self._returned, columns.split(',')))}",
            "seconds_until": lambda instant: self.seconds_until(instant, now),
            "few": self.few,
            "by": self.by,
            "at": lambda pair: self.at(*pair.split("; ")),
            "holder": lambda said: self.holder(*said.split("; ")),
            "using": self.using,
            "float": lambda value: f"cast({value} as float8)",
            "append": self.append,
            "last_reason": lambda _: self.last_reason,
            "bytewise": lambda text: text + self.bytewise,
            "json": self.json,
            "instant": self.instant,
            "boolean": self.boolean,
            "utc": self.utc,
            "server_start": lambda _: self.server_start,
            "wait": lambda _: self.wait,
            "share": lambda _: self.share,
            "skip": lambda table: self.skip.replace("job", table or "job"),
            "wait_to_delete": lambda _: self.wait_to_delete,
            "skip_to_delete": lambda _: self.skip_to_delete,
            "impatient": lambda _: self.impatient(),
        }

        def fill(match: re.Match[str]) -> str:
            return fillers[match["word"]](match["argument"] or "")

        # Innermost braces first, until none is left.
        while (filled := _BRACES.sub(fill, sql)) != sql:
            sql = filled
        return sql

    def _returned(self, column: str) -> str:
        name = column.strip()
        return self.utc(self.own + name) if name in statements.INSTANTS else self.own + name

    def _composed_claim(self, every_queue: bool, alone_too: bool, some_names: bool) -> str:  # noqa: FBT001 - a cache's key
        picked = self.picked(_extra(alone_too=alone_too, some_names=some_names))
        text = statements.CLAIM.replace("{served}", _served(every=every_queue)).replace("{picked}", picked)
        self._composed[text] = "CLAIM"
        return text

    def _composed_next_due(self, every_queue: bool, alone_too: bool, some_names: bool) -> str:  # noqa: FBT001 - as above
        extra = _extra(alone_too=alone_too, some_names=some_names)
        text = statements.NEXT_DUE.replace("{served}", _served(every=every_queue)).replace("{extra}", extra)
        self._composed[text] = "NEXT_DUE"
        return text

    def _ids(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> set[Any]:
        return {row[0] for row in self.run(connection, sql, values)}

    def _leases(self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any]) -> set[Lease]:
        return set(map(Lease._make, self.run(connection, sql, values)))

    def _job_values(self, job: NewJob) -> dict[str, Any]:
        return {**self._draft_values(job.draft), "args": job.args, "kwargs": job.kwargs, **_key_values(job)}

    def _draft_values(self, draft: Draft) -> dict[str, Any]:
        return {
            "name": draft.name,
            "queue": draft.queue,
            "priority": draft.priority,
            "run_at": None if draft.run_at is None else self.write_instant(draft.run_at),
            "delay": draft.delay.total_seconds(),
            "expires": None if draft.expires is None else draft.expires.total_seconds(),
            "max_attempts": draft.max_attempts,
            "max_crashes": draft.max_crashes,
            "restart": draft.restart,
            "timeout": draft.timeout,
            "keep": draft.keep,
            "keep_failed": draft.keep_failed,
            "meta": draft.meta,
            "on_failure": draft.on_failure,
        }

    def _read_claim(self, row: tuple[Any, ...], token: int) -> Claim:
        return Claim._make((Lease(row[0], token), *row[2:19], row[19:]))


def _read_inserted(row: tuple[Any, ...]) -> Inserted:
    job_id, enqueued_at, run_at, expires_at = row[:4]
    return Inserted(
        id=job_id,
        enqueued_at=clock.read(enqueued_at),
        run_at=clock.read(run_at),
        expires_at=None if expires_at is None else clock.read(expires_at),
    )


@cache
def _gives_rows(sql: str) -> bool:
    """Whether a statement gives rows, as far as its text shows."""
    return sql.lstrip().startswith("select") or "{returning" in sql


# Of a claimed row: `run_at` as the database gave it, a text that sorts as its instant does or a naive datetime, and id.
_DUE_FIRST = itemgetter(20, 0)
_PAIR = itemgetter(3, 4)

_PARAMETERS = re.compile(r"%\((\w+)\)s")


def _extra(*, alone_too: bool, some_names: bool) -> str:
    return ("" if alone_too else statements.NOT_ALONE) + (statements.SOME_NAMES if some_names else "")


def _served(*, every: bool) -> str:
    return (statements.EVERY_QUEUE if every else statements.NAMED_QUEUES).strip()


_BRACES = re.compile(r"\{(?P<word>[a-z_]+)(?::(?P<argument>[^{}]*))?\}")


_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def name_rows(names: Iterable[str]) -> str:
    """Write the parameter that `{rows:names}` reads."""
    return _dump([{"name": name} for name in names])


def _queue_rows(request: ClaimRequest) -> str:
    named = request.rooms if request.queues is None else request.queues
    return _dump([{"queue": queue, "room": request.rooms.get(queue)} for queue in named])


def _by_key(placed: tuple[int, NewJob]) -> str:
    return placed[1].unique_key or placed[1].waiting_key or ""


def _key_values(job: NewJob) -> dict[str, Any]:
    unique_for = None if job.unique_key is None else job.draft.unique_for
    return {"unique_key": job.unique_key, "unique_for": unique_for, "waiting_key": job.waiting_key}


def _key_rows(keys: Iterable[str]) -> str:
    return _dump([{"key": key} for key in keys])


def _superseded_rows(changes: Iterable[Change]) -> str:
    rows = []
    for change in changes:
        assert change.failure is not None
        rows.append(
            {
                "id": change.lease.id,
                "token": change.lease.token,
                "rival": change.superseded_by,
                "delay": change.delay.total_seconds() if change.delay else 0.0,
                "attempts": change.attempts,
                "max_attempts": change.max_attempts,
                "crashes": change.crashes,
                "entry": _entry(change.failure),
            }
        )
    return _dump(rows)


def _id_rows(ids: Iterable[int]) -> str:
    return _dump([{"id": job_id} for job_id in ids])


def _lease_rows(leases: Iterable[Lease]) -> str:
    return _dump([{"id": lease.id, "token": lease.token} for lease in leases])


def _report_rows(reports: Mapping[Lease, Progress]) -> str:
    rows = []
    for lease, progress in reports.items():
        cleaned = progress._replace(message=clean(progress.message))
        rows.append({"id": lease.id, "token": lease.token, "progress": _dump(cleaned.values)})
    return _dump(rows)


def _success_rows(changes: Iterable[Change]) -> str:
    """Write the parameter that `{rows:successes}` reads. Hardly a job has a result, and numbers need no encoder."""
    rows = []
    for change in changes:
        result = "" if change.result is None else f',"result":{_dump(change.result)}'
        rows.append(f'{{"id":{change.lease.id},"token":{change.lease.token}{result}}}')
    return f"[{','.join(rows)}]"


def _change_rows(changes: Iterable[Change]) -> str:
    return _dump(
        [
            {
                "id": change.lease.id,
                "token": change.lease.token,
                "state": change.state.value,
                "attempts": change.attempts,
                "max_attempts": change.max_attempts,
                "crashes": change.crashes,
                "alone": change.alone,
                "delay": None if change.delay is None else change.delay.total_seconds(),
                "entry": None if change.failure is None else _entry(change.failure),
                "fingerprint": (change.failure.fingerprint or None) if change.failure else None,
            }
            for change in changes
        ]
    )


def _nothing() -> None:
    pass


def _entry(failure: Failure) -> str:
    """Write an entry of errors; where it is too long, the middle of its traceback goes first."""
    reason, exception = (_cut(clean(text), ENTRY_BYTES // 3) for text in (failure.reason, failure.exception))
    room = ENTRY_BYTES - len(reason.encode()) - len(exception.encode())
    entry = {"kind": failure.kind, "reason": reason, "exception": exception}
    return _dump(entry | {"traceback": _cut(clean(failure.traceback), room)})


def clean(text: str) -> str:
    """Replace what a database can't store in a text: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _cut(text: str, room: int) -> str:
    """Cut the middle out of a text that takes more than `room` bytes; the end tells most, so it keeps most."""
    data = text.encode()
    if len(data) <= room:
        return text
    head, tail = data[: room // 4], data[-(room - room // 4 - len(CUT_MARK.encode())) :]
    return head.decode("utf-8", "ignore") + CUT_MARK + tail.decode("utf-8", "ignore")


def _read_held(row: tuple[Any, ...]) -> HeldRow:
    (
        job_id, token, state, worker, name, queue, attempts, max_attempts, crashes, max_crashes, alone, restart,
        waiting_key, on_failure,
    ) = row  # fmt: skip
    return HeldRow(
        id=job_id,
        token=token,
        state=State(state),
        worker=worker,
        name=name,
        queue=queue,
        attempts=attempts,
        max_attempts=max_attempts,
        crashes=crashes,
        max_crashes=max_crashes,
        alone=bool(alone),
        restart=bool(restart),
        waiting_key=waiting_key,
        on_failure=on_failure,
    )


def _read_worker(row: tuple[Any, ...]) -> WorkerSeen:
    identity, host, pid, queues, slots, age, beat_age, claim_age, in_hand = row
    return WorkerSeen(
        identity=identity,
        host=host,
        pid=pid,
        queues=tuple(json.loads(queues) if isinstance(queues, str) else queues),
        slots=slots,
        age=float(age),
        beat_age=float(beat_age),
        claim_age=None if claim_age is None else float(claim_age),
        in_hand=in_hand,
    )
