"""Act a story out on the real rows, statement by statement, by the real verbs, and compare the row after each step.

Each actor of a story has a connection of its own. A verb that takes several statements runs in a thread that waits
before each, and after it, until the story goes on; so other actors come in between as the story says. Where the story
says that a statement was not written, the actor's connection is broken before it, and where an answer was lost, after
it: then the verb meets what a driver raises, and the row must be as the story says all the same.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from django_jobs import backoff, clock, lifecycle
from django_jobs.clock import FrozenClock
from django_jobs.models import Job
from django_jobs.records import Claim, Claimed, Failure, Lease
from django_jobs.stores import statements, store_for
from tests.factories import NOON, new_job, request, seconds
from tests.model.rows import DIED, TICK, outcome_of
from tests.model.stories import Scene, Story
from tests.model.world import LAPSED, Hand, Process, Row, World
from tests.model.world import Lease as Pair

PATIENCE = 30.0
"""Seconds that a statement may take before the replay gives up."""


class Verb:
    """A verb under way in a thread of its own, let through one statement at a time."""

    def __init__(
        self, connection: BaseDatabaseWrapper, run: Callable[[BaseDatabaseWrapper], Any], breaker: Breaker
    ) -> None:
        self._connection = connection
        self._run = run
        self._breaker = breaker
        self._fates: SimpleQueue[str] = SimpleQueue()
        self._news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        connection.ensure_connection()
        connection.execute_wrappers.append(self._gate)
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()
        self.state, self.value = self._news.get(timeout=PATIENCE)

    def _work(self) -> None:
        try:
            result = self._run(self._connection)
        except Exception as error:
            self._end("failed", error)
        else:
            self._end("done", result)

    def _end(self, how: str, value: object) -> None:
        self._connection.execute_wrappers.remove(self._gate)
        self._news.put((how, value))

    def _gate(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pg_notify" in sql:
            # A hint, which no story tells of.
            return execute(sql, params, many, context)
        if sql.startswith(("pragma", "select pg_notify")):
            # It asks nothing of rows.
            return execute(sql, params, many, context)
        self._news.put(("waits", (sql, params)))
        if self._fates.get(timeout=PATIENCE) == "break":
            self._breaker.breaks(self._connection)
        result = execute(sql, params, many, context)
        cursor = context["cursor"]
        if cursor.description:
            # SQLite commits when the last row has been read.
            rows = cursor.fetchall()
            cursor.fetchall = lambda: rows
        self._news.put(("executed", sql))
        if self._fates.get(timeout=PATIENCE) == "break":
            self._breaker.breaks(self._connection)
            message = "the connection broke before the answer came"
            raise OperationalError(message)
        return result

    def _go(self, fate: str) -> None:
        self._fates.put(fate)
        self.state, self.value = self._news.get(timeout=PATIENCE)

    def execute(self) -> None:
        """Have the statement executed that waits; its answer is still on the way."""
        assert self.state == "waits", f"no statement waits, but: {self.state} {self.value}"
        self._go("pass")
        assert self.state == "executed", f"the statement failed: {self.value!r}"

    def answer(self) -> None:
        """Let the answer come; now the next statement waits, or the verb is done."""
        assert self.state == "executed"
        self._go("pass")
        assert self.state in ("waits", "done"), f"the verb failed: {self.value!r}"

    def lose(self) -> None:
        """Break the connection: before the statement that waits, or before the answer of the one executed."""
        if self.state in ("waits", "executed"):
            self._go("break")
        assert self.state == "failed", (
            f"the verb didn't notice that its connection is broken: {self.state} {self.value}"
        )
        assert isinstance(self.value, DatabaseError | InterfaceError), repr(self.value)
        self._thread.join(PATIENCE)

    def abandon(self) -> None:
        """Break off, wherever it is."""
        while self.state in ("waits", "executed"):
            self._go("break")
        self._thread.join(PATIENCE)

    def finish(self) -> Any:
        """Let through what is left, which may only let nothing go, and give what the verb gave."""
        while self.state == "waits":
            values = list(self.value[1].values()) if isinstance(self.value[1], dict) else []
            assert "[]" in values, f"there is more to this verb than to the story: {self.value}"
            self.execute()
            self.answer()
        assert self.state == "done", f"the verb isn't through: {self.state} {self.value!r}"
        self._thread.join(PATIENCE)
        return self.value


class Breaker:
    """Breaks connections, as networks, servers and operators do."""

    def __init__(self) -> None:
        self.count = 0

    def breaks(self, connection: BaseDatabaseWrapper) -> None:
        """Break this connection now."""
        self.count += 1
        raw = connection.connection
        if connection.vendor == "sqlite":
            # Ends the statement that follows, and takes back what it did.
            raw.set_progress_handler(lambda: 1, 1)
        elif self.count % 10:
            with socket.socket(fileno=socket.dup(raw.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        else:
            # A verb's thread has a connection of its own to the same database.
            with closing(connections["default"]) as operator, operator.cursor() as cursor:
                cursor.execute("select pg_terminate_backend(%s, 5000)", [raw.info.backend_pid])


class Actors:
    """Each has a connection, and may be in the midst of a verb."""

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self.verbs: dict[str, Verb] = {}
        self._connections: dict[str, BaseDatabaseWrapper] = {}

    def connection(self, actor: str) -> BaseDatabaseWrapper:
        """Give an actor's connection; a broken one was put away."""
        if actor not in self._connections:
            self._connections[actor] = connections["default"].copy()
            self._connections[actor].inc_thread_sharing()
        return self._connections[actor]

    def begin(self, actor: str, run: Callable[[BaseDatabaseWrapper], Any]) -> Verb:
        assert actor not in self.verbs, f"{actor} is in the midst of something else"
        verb = self.verbs[actor] = Verb(self.connection(actor), run, self.breaker)
        return verb

    def put_away(self, actor: str) -> None:
        """Break an actor's verb off, wherever it is, and close the connection."""
        if (verb := self.verbs.pop(actor, None)) is not None:
            verb.abandon()
        if (connection := self._connections.pop(actor, None)) is not None:
            connection.close()

    def put_all_away(self, *, first: str = "") -> None:
        """Put all away, also where the story broke off; the others may wait for those whose names begin so."""
        for actor in sorted(self._connections, key=lambda actor: not actor.startswith(first)):
            self.put_away(actor)


class Stage(Actors):
    """One story on the real rows."""

    def __init__(self, story: Story, breaker: Breaker, frozen: FrozenClock) -> None:
        super().__init__(breaker)
        self.story = story
        self.setting = story.setting
        self.clock = frozen
        self.store = store_for("default")
        self.ids: list[int] = []
        self.claims: dict[Pair, Claim] = {}

    def break_off(self, actor: str) -> None:
        """Have an actor's connection break, and put both away."""
        if actor in self.verbs:
            self.verbs.pop(actor).lose()
        self.put_away(actor)

    def close(self) -> None:
        self.put_all_away()
        Job.objects.filter(pk__in=self.ids)._raw_delete("default")

    # -- the words of the story in the words of the database

    def life(self, number: int) -> str:
        return f"worker-{number + 1}-{self.ids[0]}"

    def token(self, number: int) -> int:
        return self.ids[0] * 1000 + number

    def lease(self, pair: Pair) -> Lease:
        return Lease(id=self.ids[pair[0]], token=self.token(pair[1]))

    # -- the play

    def act(self) -> None:
        """Act the story out."""
        done = []
        for scene in self.story.scenes:
            done.append(str(scene.move))
            try:
                self._perform(scene)
                self._compare(scene.after)
            except BaseException as error:
                lines = "\n".join(f"  {number}. {line}" for number, line in enumerate(done, start=1))
                error.add_note(f"in this story, at its last line:\n{lines}")
                raise

    def _perform(self, scene: Scene) -> None:
        kind, _, fate = scene.move.kind.partition(", ")
        verb = kind.partition(": ")[0].partition(" (")[0].replace(" ", "_").replace("'", "_")
        method = getattr(self, f"_on_{verb}", None)
        if method is not None:
            method(scene, kind, fate)
        for number, (before, after) in enumerate(zip(scene.before.processes, scene.after.processes, strict=True)):
            if before.health != "dead" and after.health == "dead":
                self.break_off(f"worker {number}")
        for number, (was, now) in enumerate(zip(scene.before.supervisors, scene.after.supervisors, strict=True)):
            if was.health != "dead" and now.health == "dead":
                self.break_off(f"keeper {number}")
                for child, parent in enumerate(self.setting.supervisor_of):
                    if parent == number:
                        self.break_off(f"undertaker of {child}")

    def _statement(self, actor: str, fate: str, *, of: str, goes_on: bool) -> Any:
        """Let one statement through, as fate says, and give what the verb gave if that was its last."""
        verb = self.verbs[actor]
        if fate == "not written":
            self.break_off(actor)
            return None
        assert verb.state == "waits", f"{actor} should be at {of}, but: {verb.state} {verb.value!r}"
        self._recognise(verb.value[0], of)
        verb.execute()
        if fate == "answer lost":
            self.break_off(actor)
            return None
        verb.answer()
        if goes_on:
            assert verb.state == "waits", f"{actor} should go on after {of}, but: {verb.state} {verb.value!r}"
            return None
        result = verb.finish()
        del self.verbs[actor]
        return result

    def _recognise(self, sql: str, of: str) -> None:
        assert sql in {self.store._text(getattr(statements, name), True) for name in of.split()}, f"not {of}: {sql}"

    def _on_enqueue(self, scene: Scene, kind: str, fate: str) -> None:
        setting = self.setting
        for _ in range(setting.jobs):
            job = new_job(
                queue="model", max_attempts=setting.max_attempts, max_crashes=setting.max_crashes,
                restart=setting.restart, keep=setting.keep, keep_failed=15.0,
            )  # fmt: skip
            self.ids.append(lifecycle.enqueue(job, using="default").id)

    # a claim

    def _on_claim(self, scene: Scene, kind: str, fate: str) -> None:
        [token] = scene.move.on
        number = _worker(scene)
        actor = f"worker {number}"
        if fate == "answer lost":
            self.break_off(actor)
            return
        process = scene.before.processes[number]
        busy = sum(hand.body != "ended" for hand in process.hands)
        asked = request(
            worker=self.life(number), limit=self.setting.slots - busy, empty_handed=not process.hands, queues=("model",)
        )
        verb = self.begin(actor, lambda connection: lifecycle.claim(connection, asked, token=self.token(token)))
        if fate:
            # What is under way may still come to pass, by a connection that nobody here has any more.
            self.break_off(actor)
        else:
            verb.execute()

    def _on_claim_lands(self, scene: Scene, kind: str, fate: str) -> None:
        [token] = scene.move.on
        number = _worker(scene)
        asked = request(worker=self.life(number), limit=self.setting.slots, queues=("model",))
        claimed = lifecycle.claim(self.connection("nobody"), asked, token=self.token(token))
        assert bool(claimed.claims) == (kind == "claim lands")

    def _on_answer(self, scene: Scene, kind: str, fate: str) -> None:
        number = _worker(scene)
        verb = self.verbs.pop(f"worker {number}")
        verb.answer()
        claimed: Claimed = verb.finish()
        asked = scene.before.processes[number].asked
        assert asked is not None
        for claim, hand in zip(claimed.claims, asked.hands, strict=True):
            assert claim.lease == self.lease(hand.lease)
            facts = (claim.attempt, claim.max_attempts, claim.crashes, claim.alone)
            assert facts == (hand.attempt, hand.max_attempts, hand.crashes, hand.alone)
            self.claims[hand.lease] = claim

    # a worker's other verbs

    def _on_disown(self, scene: Scene, kind: str, fate: str) -> None:
        number = _worker(scene)
        actor, token = f"worker {number}", self.token(scene.before.processes[number].unanswered)
        if kind == "disown: nothing found":
            lifecycle.disown(self.connection(actor), self.life(number), [token])
            return
        if kind == "disown: look":
            self.begin(actor, lambda connection: lifecycle.disown(connection, self.life(number), [token]))
        goes_on = scene.after.processes[number].step is not None
        self._statement(actor, fate, of=_DISOWN[kind], goes_on=goes_on)

    def _on_settle(self, scene: Scene, kind: str, fate: str) -> None:
        number = _worker(scene)
        actor, process = f"worker {number}", scene.before.processes[number]
        if process.step is None:
            runs = [self._run(hand) for hand in process.hands if hand.body == "ended"]
            doubted = {self.lease(hand.lease) for hand in process.hands if hand.doubted or process.confirmed == LAPSED}
            self.begin(actor, lambda connection: lifecycle.settle(connection, runs, doubted=lambda: doubted))
        after = scene.after.processes[number]
        again = self._statement(actor, fate, of=_SETTLE[kind], goes_on=after.step is not None)
        if again is not None:
            batch = {hand.lease for hand in process.hands if hand.body == "ended"}
            if process.step:
                batch &= set(process.step.batch)
            left = {self.lease(hand.lease) for hand in after.hands if hand.lease in batch}
            assert {claim.lease for claim, _ in again} == left

    def _run(self, hand: Hand) -> tuple[Claim, Any]:
        claim = self.claims[hand.lease]
        return claim, outcome_of(claim, hand.outcome)

    # a keeper

    def _on_renew(self, scene: Scene, kind: str, fate: str) -> None:
        number = int(scene.move.actor.split()[1]) - 1
        actor = f"keeper {number}"
        before, after = scene.before.supervisors[number].keeper, scene.after.supervisors[number].keeper
        if kind == "renew":
            leases = [self.lease(pair) for pair in before.leases]
            self.begin(actor, lambda connection: lifecycle.renew(connection, leases))
            states = self._statement(actor, fate, of="RENEW", goes_on=False)
            if states is not None:
                assert {lease for lease in leases if lease not in states} == set(map(self.lease, after.missing))
                stopping = {lease for lease, state in states.items() if state == "CANCELLED"}
                assert stopping == set(map(self.lease, after.stopping))
        else:
            missing = [self.lease(pair) for pair in before.missing]
            self.begin(actor, lambda connection: lifecycle.still_held(connection, missing))
            held = self._statement(actor, fate, of="PEEK", goes_on=False)
            if held is not None:
                assert held == set(map(self.lease, after.leases))

    def _on_see_that_it_was_cancelled(self, scene: Scene, kind: str, fate: str) -> None:
        [job] = scene.move.on
        leases = [
            self.lease(hand.lease)
            for process in scene.before.processes
            for hand in process.hands
            if hand.lease[0] == job and hand.body == "runs" and not hand.cancelled
        ]
        assert lifecycle.stopping(self.connection("keeper"), leases)

    # an undertaker

    def _on_bury(self, scene: Scene, kind: str, fate: str) -> None:
        [child] = scene.move.on
        process = scene.before.processes[child]
        actor = f"undertaker of {child}"
        if kind == "bury: nothing found":
            assert lifecycle.bury(self.connection(actor), self.life(child), **self._board(process)) == 0
        elif kind != "bury: give up a locked row":
            if kind == "bury: look":
                board = self._board(process)
                self.begin(actor, lambda connection: lifecycle.bury(connection, self.life(child), **board))
            goes_on = scene.after.processes[child].burial is not None
            self._statement(actor, fate, of=_BURY[kind], goes_on=goes_on)

    def _board(self, process: Process) -> dict[str, Any]:
        bodies = defaultdict(set)
        for hand in process.hands:
            if hand.lease not in process.timed_out:
                bodies[hand.body].add(self.lease(hand.lease))
        return {
            "running": bodies["runs"],
            "ended": bodies["ended"],
            "timed_out": set(map(self.lease, process.timed_out)),
            "failure": Failure(kind="crash", reason=DIED.reason),
            "is_blamed": process.blamed,
        }

    # chores

    def _on_reclaim(self, scene: Scene, kind: str, fate: str) -> None:
        actor = "chores"
        if kind == "reclaim: look":
            self.begin(actor, lambda connection: self.store.lapsed(connection, limit=100))
            self._statement(actor, fate, of="LAPSED", goes_on=False)
            return
        if kind == "reclaim: look again":
            self.begin(actor, lambda connection: lifecycle.reclaim(connection, limit=100))
        self._statement(actor, fate, of=_RECLAIM[kind], goes_on=scene.after.reclaimer is not None)

    def _on_prune(self, scene: Scene, kind: str, fate: str) -> None:
        assert lifecycle.prune(self.connection("chores")) == 1

    # people, and a session of theirs

    def _on_cancel(self, scene: Scene, kind: str, fate: str) -> None:
        self._by_hand(scene, lifecycle.cancel)

    def _on_retry(self, scene: Scene, kind: str, fate: str) -> None:
        self._by_hand(scene, lifecycle.retry)

    def _on_delete(self, scene: Scene, kind: str, fate: str) -> None:
        self._by_hand(scene, lifecycle.delete)

    def _by_hand(self, scene: Scene, verb: Callable[[list[int]], list[int]]) -> None:
        [job] = scene.move.on
        moved = verb([self.ids[job]])
        is_refused = scene.move.kind.endswith("(refused)")
        assert moved == ([] if is_refused else [self.ids[job]])

    def _on_lock_the_row(self, scene: Scene, kind: str, fate: str) -> None:
        [job] = scene.move.on
        session = self.connection("session")
        session.set_autocommit(False)
        with session.cursor() as cursor:
            cursor.execute(f'select id from "{Job._meta.db_table}" where id = %s for update', [self.ids[job]])

    def _on_end_the_transaction(self, scene: Scene, kind: str, fate: str) -> None:
        self.connection("session").rollback()

    # time

    def _on_a_quarter_of_a_lease_passes(self, scene: Scene, kind: str, fate: str) -> None:
        self.clock.advance(TICK)

    def _on_jump_ahead_by_a_lease(self, scene: Scene, kind: str, fate: str) -> None:
        Job.objects.filter(pk__in=self.ids, worker__isnull=False).update(lease_expires_at=self.clock.instant)

    def _on_the_row_s_deadline_passes(self, scene: Scene, kind: str, fate: str) -> None:
        [job] = scene.move.on
        Job.objects.filter(pk=self.ids[job]).update(deadline_at=self.clock.instant)

    # -- the row

    def _compare(self, world: World) -> None:
        if not self.ids:
            return
        found = {row.pk: row for row in Job.objects.filter(pk__in=self.ids)}
        for job, row in enumerate(world.rows):
            real = found.get(self.ids[job])
            seen, told = real and self._seen(real), row and self._told(row)
            assert seen == told, f"the row is {seen}, and by the story it is {told}"

    def _seen(self, row: Job) -> dict[str, Any]:
        now = self.clock.instant
        return {
            "state": row.state,
            "token": row.token,
            "worker": row.worker,
            "counts": (row.attempts, row.max_attempts, row.crashes, row.alone),
            "lease": row.lease_expires_at and max(row.lease_expires_at - now, seconds(0)),
            "wait": max(row.run_at - now, seconds(0)) if row.state == "READY" else None,
            "keeping": max(row.prune_at - now, seconds(0)) if row.prune_at else None,
            "is_finished": row.finished_at is not None,
            "is_overdue": row.deadline_at is not None and row.deadline_at <= now,
        }

    def _told(self, row: Row) -> dict[str, Any]:
        return {
            "state": row.state,
            "token": self.token(row.token) if row.token else None,
            "worker": self.life(row.worker - 1) if row.worker else None,
            "counts": (row.attempts, row.max_attempts, row.crashes, row.alone),
            "lease": None if row.lease < 0 else TICK * (LAPSED - row.lease),
            "wait": TICK * row.wait if row.state == "READY" else None,
            "keeping": TICK * row.keeping if row.state not in ("READY", "RUNNING") else None,
            "is_finished": row.state not in ("READY", "RUNNING"),
            "is_overdue": row.overdue,
        }


_DISOWN = {"disown: look": "HELD_BY", "disown: write": "CHANGE", "disown: let go": "LET_GO"}
_BURY = {"bury: look": "HELD_BY", "bury: write": "CHANGE", "bury: let go": "LET_GO"}
_SETTLE = {
    "settle: succeed": "SUCCEED SUCCEED_AND_GO",
    "settle: change": "CHANGE",
    "settle: peek": "PEEK",
    "settle: let go": "LET_GO",
}
_RECLAIM = {
    "reclaim: look again": "LAPSED",
    "reclaim: write": "CHANGE_LAPSED",
    "reclaim: let go": "LET_GO_LAPSED",
}


def _worker(scene: Scene) -> int:
    return "AB".index(scene.move.actor.removeprefix("worker ")[0])


@contextmanager
def stage(story: Story, breaker: Breaker) -> Iterator[Stage]:
    """Set the scene for one story, and clear it afterwards."""
    with override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(15)}), clock.freeze(NOON) as frozen:
        acted = Stage(story, breaker, frozen)
        try:
            yield acted
        finally:
            acted.close()
