"""Act stories of keys out on the real rows: callers in real transactions, statement by statement, and the real verbs.

A story is a walk through the model, chosen so that what was seen seldom is told more often. Where the model says that a
statement waits for nobody it must not wait, and after each step what is committed must be as the model has it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import lifecycle
from django_jobs.exceptions import DuplicateJob, KeyContended
from django_jobs.lifecycle.keys import insert_keyed
from django_jobs.models import Job
from django_jobs.outcomes import Outcome, Released, Retried, Succeeded
from django_jobs.records import Claim, Claimed, Failure, Inserted, NewJob
from django_jobs.stores import statements, store_for
from tests.factories import NOON, failure, new_job, request, seconds
from tests.model.explorer import Move, explore
from tests.model.holding import Keys
from tests.model.keys import GONE, Ask, Moves, Row, Setting, Version, World
from tests.model.replay import Actors, Breaker, Verb

LONGEST = 80
"""So many steps a story has at the most."""

HOUR = seconds(3600)

DIED = Failure(kind="crash", reason="its process died")

OUTCOMES: dict[str, Outcome] = {
    "ok": Succeeded(),
    "again": Retried(failure=failure(), delay=seconds(0)),
    "later": Retried(failure=failure(), delay=HOUR),
    "unstarted": Released(started=False),
}


class Scene(NamedTuple):
    """A move, and the worlds before and after it."""

    move: Move
    before: World
    after: World


class Played(Keys):
    """The model, without what can't be acted out: the hour comes for all rows, but who writes it waits for locks."""

    def moves(self, world: World) -> Moves:
        for move, after in super().moves(world):
            if move.actor != "time" or not world.rows[move.on[0]].is_locked:
                yield move, after


def walk(setting: Setting, seen: Counter[str], dice: random.Random) -> list[Scene]:
    """Tell one story, of what was told least before."""
    model = Played(setting)
    world = model.start()
    scenes: list[Scene] = []
    while len(scenes) < LONGEST:
        moves = list(model.moves(world))
        if not moves:
            break
        weights = [(0.1 if move.actor == "time" else 1) / (1 + seen[move.kind]) for move, _ in moves]
        [(move, after)] = dice.choices(moves, weights)
        seen[move.kind] += 1
        scenes.append(Scene(move, world, after))
        world = after
    return scenes


def towards(setting: Setting, kinds: Collection[str], *, states: int) -> dict[str, list[Scene]]:
    """Tell, for those of these kinds of moves that come up in a world, the shortest story that has one."""
    explored = explore(Played(setting), most=states)
    stories: dict[str, list[Scene]] = {}
    for index, edges in enumerate(explored.edges):
        for move, after in edges:
            if move.kind in kinds and move.kind not in stories:
                way = explored.path(index)
                scenes = [
                    Scene(step, explored.states[before], explored.states[to])
                    for (_, before), (step, to) in pairwise(way)
                    if step is not None
                ]
                stories[move.kind] = [*scenes, Scene(move, explored.states[index], explored.states[after])]
    return stories


class KeyStage(Actors):
    """One story of keys on the real rows."""

    def __init__(self, setting: Setting, name: str, breaker: Breaker) -> None:
        super().__init__(breaker)
        self.setting = setting
        self.name = name
        self.store = store_for("default")
        self.ids: list[int] = []
        self.claims: dict[int, Claim] = {}
        self.lives: dict[int, str] = {}
        self.tokens = 0

    def close(self) -> None:
        self.put_all_away(first="caller")
        Job.objects.filter(queue=self.name)._raw_delete("default")

    # -- the play

    def act(self, scenes: list[Scene]) -> None:
        """Act the story out."""
        done: list[str] = []
        try:
            for row in self.setting.first:
                self._set(row)
            for scene in scenes:
                done.append(str(scene.move))
                getattr(self, f"_of_{scene.move.actor.partition(' ')[0]}")(scene, scene.move.kind)
                self._compare(scene.after)
                is_locked = any(row.is_locked and row.now and row.now.state == "READY" for row in scene.after.rows)
                if is_locked and not self.setting.whole_file:
                    assert not self._try_to_claim().claims, "what a caller has locked was claimed"
        except BaseException as error:
            lines = "\n".join(f"  {number}. {line}" for number, line in enumerate(done, start=1))
            error.add_note(f"in this story of {self.setting}, at its last line:\n{lines}")
            raise

    def _job(self, ask: Ask, *, unique_for: bool = False) -> NewJob:
        job = new_job(
            queue=self.name, max_attempts=30, on_duplicate=ask.on_duplicate, delay=HOUR if ask.later else timedelta(0),
            unique_for=3600.0 if unique_for else None,
        )  # fmt: skip
        kind = "waiting_key" if self.setting.kind == "waiting" else "unique_key"
        return job._replace(**{kind: self.name})

    def _set(self, row: Row) -> None:
        """Bring a row to where it is at the beginning."""
        assert row.now is not None
        job = self._job(Ask(later=row.now.later), unique_for=row.now.kept > 0)
        [inserted] = insert_keyed(connections["default"], [job])
        self.ids.append(inserted.id)
        if row.now.state in ("RUNNING", "SUCCESSFUL"):
            self._claim(len(self.ids) - 1)
        if row.now.state == "SUCCESSFUL":
            self._settle(len(self.ids) - 1, "ok")
        if row.now.state == "CANCELLED":
            assert lifecycle.cancel([inserted.id])

    def _statement(self, actor: str, *names: str) -> Verb:
        """Let the statement through that waits, which is to be one of these; it may fail."""
        verb = self.verbs[actor]
        assert verb.state == "waits", f"{actor} should be at {names}, but: {verb.state} {verb.value!r}"
        sql = verb.value[0]
        assert sql in {self.store._text(getattr(statements, name), True) for name in names}, f"not {names}: {sql}"
        verb._go("pass")
        if verb.state == "executed":
            verb._go("pass")
        return verb

    # callers

    def _of_caller(self, scene: Scene, kind: str) -> None:
        actor = scene.move.actor
        number = "ABC".index(actor[-1])
        before, after = scene.before.callers[number], scene.after.callers[number]
        connection = self.connection(actor)
        if kind == "begin":
            connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
            return
        if kind in ("commit", "roll back"):
            (connection.commit if kind == "commit" else connection.rollback)()
            connection.set_autocommit(True)
            del self.ids[len(scene.after.rows) :]
            return
        if actor not in self.verbs:
            job = self._job(self.setting.callers[number][before.asked], unique_for=self.setting.unique_for)
            self.begin(actor, lambda connection: insert_keyed(connection, [job]))
        word = "WAITING" if self.setting.kind == "waiting" else "UNIQUE"
        names = {
            "insert": ("INSERT_KEYED",),
            "insert again": ("INSERT_KEYED",),
            "free": ("FREE",),
            "lock": (f"LOCK_{word}",),
            "replace": (f"REPLACE_{word}",),
            "find": (f"FIND_{word}", "FIND_BUSY"),
        }
        verb = self._statement(actor, *names[kind])
        if verb.state == "waits" and verb.value[0] == self.store._text(getattr(statements, f"EXPIRE_{word}"), True):
            # Nothing here has a time after which it isn't to run.
            self._statement(actor, f"EXPIRE_{word}")
        if after.asked == before.asked and after.at != "refused":
            assert verb.state == "waits", f"{actor} should go on after {kind}, but: {verb.state} {verb.value!r}"
            return
        del self.verbs[actor]
        if after.at == "refused":
            assert isinstance(verb.value, DuplicateJob | KeyContended), repr(verb.value)
            return
        assert verb.state == "done", f"{actor} should have a job, but: {verb.state} {verb.value!r}"
        [inserted] = verb.value
        self._check_answer(inserted, kind, after.answer)

    def _check_answer(self, inserted: Inserted, kind: str, answer: int) -> None:
        if kind.startswith("insert"):
            self.ids.append(inserted.id)
        assert inserted.id == self.ids[answer]
        assert (inserted.duplicate, inserted.replaced) == (not kind.startswith("insert"), kind == "replace")

    # workers

    def _of_worker(self, scene: Scene, kind: str) -> None:
        [number] = scene.move.on
        if kind == "claim":
            self._claim(number)
        elif kind == "SIGKILL":
            self.put_away(f"settler of {number}")
        elif kind not in ("release", "start") and not kind.startswith("body ends"):
            hand = scene.before.rows[number].hand
            assert hand is not None
            self._settles(scene, kind, number, hand.outcome)

    def _of_undertaker(self, scene: Scene, kind: str) -> None:
        [number] = scene.move.on
        self._settles(scene, kind, number, "dead")

    def _claim(self, number: int) -> None:
        [claim] = self._try_to_claim().claims
        assert claim.id == self.ids[number]
        self.claims[number] = claim
        self.lives[number] = self._life()

    def _try_to_claim(self) -> Claimed:
        self.tokens += 1
        asked = request(worker=self._life(), limit=1, queues=(self.name,))
        return lifecycle.claim(self.connection("claimer"), asked, token=self.tokens)

    def _life(self) -> str:
        return f"{self.name}-{self.tokens}"

    def _settles(self, scene: Scene, kind: str, number: int, outcome: str) -> None:
        actor = f"settler of {number}"
        if actor not in self.verbs and kind != "look for a rival":
            self._settle(number, outcome)
            return
        if kind == "look for a rival":
            if actor not in self.verbs:
                self.begin(actor, self._verb(number, outcome))
                if outcome == "dead":
                    self._statement(actor, "HELD_BY")
            self._statement(actor, "FIND_WAITING")
            return
        names = {"change": "CHANGE", "forward": "FORWARD", "supersede": "SUPERSEDE", "let go": "LET_GO"}
        verb = self._statement(actor, names[kind.partition(" (")[0]])
        if kind.startswith("forward"):
            return
        after = scene.after.rows[number].hand
        if verb.state == "waits" and outcome != "dead" and verb.value[0] == self._peek:
            self._statement(actor, "PEEK")
            if after is not None and after.step == "let go":
                return
        if verb.state == "waits" and verb.value[0] == self.store._text(statements.FIND_WAITING, True):
            assert kind == "change (committed twin)"
            return
        left = verb.finish()
        del self.verbs[actor]
        if outcome != "dead":
            assert bool(left) == (after is not None), f"after {kind} there is left: {left}"

    @property
    def _peek(self) -> str:
        return self.store._text(statements.PEEK, True)

    def _settle(self, number: int, outcome: str) -> None:
        left = self._verb(number, outcome)(self.connection(f"settler of {number}"))
        assert outcome == "dead" or left == []

    def _verb(self, number: int, outcome: str) -> Callable[[BaseDatabaseWrapper], Any]:
        claim, life = self.claims[number], self.lives[number]
        if outcome == "dead":
            return lambda connection: lifecycle.bury(
                connection, life, running={claim.lease}, failure=DIED, is_blamed=False
            )
        return lambda connection: lifecycle.settle(connection, [(claim, OUTCOMES[outcome])])

    # people, and time

    def _of_somebody(self, scene: Scene, kind: str) -> None:
        verbs = {"cancel": lifecycle.cancel, "retry": lifecycle.retry, "delete": lifecycle.delete}
        [number] = scene.move.on
        verb, _, is_refused = kind.partition(" (")
        assert verbs[verb]([self.ids[number]]) == ([] if is_refused else [self.ids[number]])

    def _of_time(self, scene: Scene, kind: str) -> None:
        [number] = scene.move.on
        column = "run_at" if kind == "its time comes" else "unique_until"
        assert Job.objects.filter(pk=self.ids[number]).update(**{column: NOON}) == 1

    # -- the rows

    def _compare(self, world: World) -> None:
        found = {row.pk: row for row in Job.objects.filter(queue=self.name)}
        known = {self.ids[number]: row.now for number, row in enumerate(world.rows) if row != GONE and row.now}
        seen = {number: self._seen(row) for number, row in found.items()}
        told = {number: self._told(version) for number, version in known.items()}
        assert seen == told, f"the rows are {seen}, and by the story they are {told}"

    def _seen(self, row: Job) -> dict[str, Any]:
        kept = 0 if row.unique_until is None else 1 if row.unique_until > NOON else 2
        reason = row.errors[-1]["reason"] if row.errors and row.state == "CANCELLED" else ""
        return {
            "state": row.state,
            "held": row.worker is not None,
            "later": row.run_at > NOON if row.state == "READY" else None,
            "kept": kept,
            "by": reason.partition(";")[0] if reason.startswith("superseded by") else "",
            "attempts": row.attempts,
        }

    def _told(self, version: Version) -> dict[str, Any]:
        is_superseded = version.state == "CANCELLED" and version.by >= 0
        return {
            "state": version.state,
            "held": version.held,
            "later": version.later if version.state == "READY" else None,
            "kept": version.kept,
            "by": f"superseded by #{self.ids[version.by]}" if is_superseded else "",
            "attempts": version.attempts,
        }
