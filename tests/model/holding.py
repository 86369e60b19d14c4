"""Workers that hold jobs with a key, what they make of them, and what people do. Each statement commits by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.asking import Asking
from tests.model.explorer import Move
from tests.model.keys import (
    GONE,
    OPEN,
    WAITED_THEN,
    WORKER_NEVER_WAITS,
    Caller,
    Hand,
    Moves,
    Row,
    Setting,
    Slip,
    Version,
    World,
    flawed,
    holds,
    is_good_end,
    told,
    with_row,
    wrong,
)

ALIVE = ("waits", "runs", "ended")


class Keys:
    """The model of keys, in one setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._asking = Asking(setting)

    def start(self) -> World:
        return World(rows=self.setting.first, callers=(Caller(),) * len(self.setting.callers))

    def wrong(self, world: World) -> str:
        return wrong(world, self.setting)

    def is_good_end(self, world: World) -> bool:
        return is_good_end(world)

    def tell(self, world: World) -> str:
        return told(world)

    def moves(self, world: World) -> Moves:
        yield from self._asking.moves(world)
        if self.setting.whole_file and any(caller.at in OPEN for caller in world.callers):
            return
        yield from _time(world)
        for number, row in enumerate(world.rows):
            if row.now is None:
                continue
            yield from self._claims(world, number, row, row.now)
            if row.hand:
                yield from self._runs(world, number, row, row.hand)
                yield from self._settles(world, number, row, row.now, row.hand)
                yield from self._dies(world, number, row, row.hand)
            if world.will < self.setting.will:
                yield from self._is_meddled_with(world, number, row, row.now)

    def waiting_callers(self, world: World) -> list[int]:
        """List the callers whose next statement waits for another's commit."""
        return [number for number in range(len(world.callers)) if self._asking.blockers(world, number)]

    # -- a run

    def _claims(self, world: World, number: int, row: Row, version: Version) -> Moves:
        hands = sum(other.hand is not None and other.hand.body in ALIVE for other in world.rows)
        if version.state != "READY" or version.later or hands >= self.setting.workers:
            return
        move = Move("claim", "worker", (number,))
        if not row.is_locked:
            taken = version._replace(state="RUNNING", held=True, attempts=version.attempts + 1)
            yield move, with_row(world, number, row._replace(now=taken, hand=Hand()))
        elif self.setting.makes(Slip.CLAIM_WAITS):
            yield move, flawed(world, WORKER_NEVER_WAITS, self.setting)

    def _runs(self, world: World, number: int, row: Row, hand: Hand) -> Moves:
        def now(**changes: object) -> World:
            return with_row(world, number, row._replace(hand=hand._replace(**changes)))  # type: ignore[arg-type]

        assert row.now is not None
        if hand.body == "waits":
            yield Move("release", "worker", (number,)), now(body="ended", outcome="unstarted")
            callers = tuple(
                caller._replace(is_seen=caller.is_seen or caller.at == "committed") for caller in world.callers
            )
            started = row._replace(now=row.now._replace(owes=""), hand=hand._replace(body="runs"))
            yield Move("start", "worker", (number,)), with_row(world._replace(callers=callers), number, started)
        elif hand.body == "runs":
            for outcome in self.setting.outcomes:
                if outcome == "ok" or row.now.attempts < self.setting.attempts:
                    yield Move(f"body ends ({outcome})", "worker", (number,)), now(body="ended", outcome=outcome)

    def _dies(self, world: World, number: int, row: Row, hand: Hand) -> Moves:
        if hand.body in ALIVE and world.trouble < self.setting.trouble:
            assert row.now is not None
            # Who brought a rival forward after its end was written has nothing in hand any more.
            left = Hand("dead", "dead") if row.now.held else None
            after = with_row(world, number, row._replace(hand=left))
            yield Move("SIGKILL", "worker", (number,), by_itself=False), after._replace(trouble=world.trouble + 1)

    # -- its end

    def _settles(self, world: World, number: int, row: Row, version: Version, hand: Hand) -> Moves:
        if hand.body not in ("ended", "dead"):
            return
        actor = "worker" if hand.body == "ended" else "undertaker"
        # The undertaker reads the row again before each try; the worker sees it when its statement met nothing.
        is_known = hand.body == "dead" or hand.outcome == "ok" or self.setting.kind == "unique"
        if version.state == "CANCELLED" and version.held and hand.step == ("" if is_known else "let go"):
            let_go = row._replace(now=version._replace(held=False), hand=None)
            yield Move("let go", actor, (number,)), with_row(world, number, let_go)
            return
        for kind, after in self._statement(world, number, row, version, hand):
            yield Move(kind, actor, (number,)), after

    def _statement(
        self, world: World, number: int, row: Row, version: Version, hand: Hand
    ) -> Iterator[tuple[str, World]]:
        def going_on(step: str, rival: int = -1) -> World:
            return with_row(world, number, row._replace(hand=hand._replace(step=step, rival=rival)))

        missed = "let go" if version.state == "CANCELLED" and hand.body == "ended" else ""
        if hand.outcome == "ok":
            done = version._replace(state="SUCCESSFUL", held=False)
            yield "succeed", with_row(world, number, row._replace(now=done, hand=None))
        elif self.setting.kind == "unique":
            yield "change", self._waits_again(world, number, row, version, hand)
        elif not hand.step:
            rival = next((place for place in range(len(world.rows)) if self._is_rival(world, number, place)), -1)
            first = "supersede" if self.setting.makes(Slip.SUPERSEDE_FIRST) else "forward"
            yield "look for a rival", going_on("change" if rival < 0 else first, rival)
        elif hand.step == "change":
            twin = self._twin(world, number)
            if version.state != "RUNNING":
                yield "change (nothing)", going_on(missed)
            elif twin == "uncommitted" and self.setting.makes(Slip.WAIT_FOR_TWIN):
                yield "change", flawed(world, WORKER_NEVER_WAITS, self.setting)
            elif twin:
                yield f"change ({twin} twin)", going_on("")
            else:
                yield "change", self._waits_again(world, number, row, version, hand)
        elif hand.step == "forward":
            yield self._forward(world, number, row, hand)
        else:
            yield self._supersede(world, number, row, version, hand, going_on(missed))

    def _waits_again(self, world: World, number: int, row: Row, version: Version, hand: Hand) -> World:
        attempts = version.attempts - (hand.outcome in ("unstarted", "dead"))
        later = hand.outcome == "later"
        again = version._replace(state="READY", held=False, later=later, attempts=attempts)
        return with_row(world, number, row._replace(now=again, hand=None))

    def _is_rival(self, world: World, number: int, place: int) -> bool:
        version = world.rows[place].now
        states = ("READY", "RUNNING") if self.setting.makes(Slip.RIVAL_MAY_RUN) else ("READY",)
        return place != number and version is not None and version.state in states

    def _twin(self, world: World, number: int) -> str:
        """Say what the index would tell of who waits under the same key."""
        others = [row for place, row in enumerate(world.rows) if place != number]
        if any(row.writer >= 0 and (holds(row.now, "waiting") or holds(row.new, "waiting")) for row in others):
            return "uncommitted"
        return "committed" if any(holds(row.now, "waiting") for row in others) else ""

    def _forward(self, world: World, number: int, row: Row, hand: Hand) -> tuple[str, World]:
        rival = world.rows[hand.rival]
        kind = "forward (nothing)"
        if rival.now and rival.now.state == "READY" and rival.now.later and hand.outcome != "later":
            kind = "forward (locked)"
            if not rival.is_locked:
                kind = "forward"
                world = with_row(world, hand.rival, rival._replace(now=rival.now._replace(later=False)))
        is_last = self.setting.makes(Slip.SUPERSEDE_FIRST)
        after = None if is_last else hand._replace(step="supersede")
        return kind, with_row(world, number, row._replace(hand=after))

    def _supersede(
        self, world: World, number: int, row: Row, version: Version, hand: Hand, missed: World
    ) -> tuple[str, World]:
        rival = world.rows[hand.rival]
        is_late = rival.now is not None and rival.now.later and hand.outcome != "later"
        waits = rival.now is not None and rival.now.state == "READY"
        may = waits and not rival.is_locked
        if not (self.setting.makes(Slip.UNTIMED_RIVAL) or self.setting.makes(Slip.SUPERSEDE_FIRST)):
            may = may and not is_late
        if self.setting.makes(Slip.UNLOCKED_RIVAL):
            may = True
        if self.setting.makes(Slip.RIVAL_MAY_RUN):
            may = rival.now is not None and rival.now.state in ("READY", "RUNNING", "CANCELLED")
        if version.state != "RUNNING" or not may:
            return "supersede (nothing)", missed
        if not waits:
            world = flawed(world, WAITED_THEN, self.setting)
        if rival.now is not None:
            owes = "later" if hand.outcome == "later" and rival.now.owes != "now" else "now"
            world = with_row(world, hand.rival, rival._replace(now=rival.now._replace(owes=owes)))
        after = hand._replace(step="forward") if self.setting.makes(Slip.SUPERSEDE_FIRST) else None
        attempts = version.attempts - (hand.outcome in ("unstarted", "dead"))
        done = version._replace(state="CANCELLED", held=False, by=hand.rival, owes="", attempts=attempts)
        return "supersede", with_row(world, number, row._replace(now=done, hand=after))

    # -- people

    def _is_meddled_with(self, world: World, number: int, row: Row, version: Version) -> Moves:
        """Have a person do something to a row; who locks it is waited for."""
        if row.is_locked:
            return
        world = world._replace(will=world.will + 1)

        def now(kind: str, after: Row) -> tuple[Move, World]:
            return Move(kind, "somebody", (number,), by_itself=False), with_row(world, number, after)

        wishes = self.setting.wishes
        if "cancel" in wishes and version.state in ("READY", "RUNNING"):
            yield now("cancel", row._replace(now=version._replace(state="CANCELLED", owes="")))
        is_free = not version.held and not row.hand
        if "retry" in wishes and is_free and version.state in ("FAILED", "CANCELLED"):
            others = [other for place, other in enumerate(world.rows) if place != number]
            is_taken = any(holds(other.now, self.setting.kind) for other in others)
            must_wait = any(other.writer >= 0 and holds(other.new, self.setting.kind) for other in others)
            if is_taken:
                yield now("retry (refused)", row)
            elif not must_wait:
                yield now("retry", row._replace(now=version._replace(state="READY", later=False, by=-1)))
        if "delete" in wishes and is_free and version.state != "RUNNING":
            yield now("delete", GONE)


def _time(world: World) -> Moves:
    for number, row in enumerate(world.rows):
        if row.now is None or row.writer >= 0:
            continue
        if row.now.state == "READY" and row.now.later:
            after = row._replace(now=row.now._replace(later=False))
            yield Move("its time comes", "time", (number,)), with_row(world, number, after)
        if row.now.kept == 1:
            after = row._replace(now=row.now._replace(kept=2))
            yield Move("its key was kept long enough", "time", (number,)), with_row(world, number, after)
