"""Worker processes: they claim, run bodies and write what these came to; they are stopped, killed, or end."""

from __future__ import annotations

from tests.model import rows
from tests.model.explorer import Move
from tests.model.part import (
    UNSTARTED,
    Moves,
    Part,
    dead,
    first_write,
    given_back,
    held_by,
    is_held,
    troubled,
    with_hand,
    with_process,
)
from tests.model.rules import STARTS_UNDER_LEASE
from tests.model.settling import Settling
from tests.model.world import THREE_QUARTERS, Asked, Hand, Mistake, Process, Setting, Step, World


class Workers(Part):
    """What worker processes do, and what befalls them."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._settling = Settling(setting)

    def moves(self, world: World) -> Moves:
        for number, process in enumerate(world.processes):
            if process.health == "up":
                yield from self._works(world, number, process)
            yield from self._befalls(world, number, process)
        yield from self._lands(world)

    def _works(self, world: World, number: int, process: Process) -> Moves:
        yield from self._claims(world, number, process)
        yield from self._is_answered(world, number, process)
        yield from self._disowns(world, number, process)
        yield from self._settling.moves(world, number, process)
        for hand in process.hands:
            yield from self._runs(world, number, process, hand)
        yield from self._ends(world, number, process)

    def _claims(self, world: World, number: int, process: Process) -> Moves:
        busy = sum(hand.body != "ended" for hand in process.hands)
        is_free = not (process.asked or process.unanswered or process.step or process.closing)
        has_ended = any(hand.body == "ended" for hand in process.hands)
        if not is_free or has_ended or not self.may_run(process) or world.tokens >= self.setting.claims:
            return
        first = world.processes[0]
        # Where both could be the first, it is A.
        is_b_too_soon = number and not world.tokens and first.health == "up" and not first.closing
        if busy >= self.setting.slots or any(hand.alone for hand in process.hands) or is_b_too_soon:
            return
        token, name = world.tokens + 1, self.name(number)
        world = world._replace(tokens=token)
        limit, alone_too = self.setting.slots - busy, not process.hands
        after, hands = rows.claim(world, self.setting, number + 1, token, limit=limit, alone_too=alone_too)
        if not hands:
            return
        yield Move("claim", name, (token,)), with_process(after, number, asked=Asked(token, tuple(hands)))
        if self.may_befall(world, "answer"):
            forsaken = with_process(troubled(world), number, unanswered=token)
            yield Move("claim, not written", name, (token,), by_itself=False), forsaken
        if self.may_befall(world, "air") and world.air is None:
            forsaken = with_process(troubled(world), number, unanswered=token)._replace(air=(number, token))
            yield Move("claim, under way", name, (token,), by_itself=False), forsaken

    def _is_answered(self, world: World, number: int, process: Process) -> Moves:
        asked = process.asked
        if asked is None:
            return
        name = self.name(number)
        taken = tuple(given_back(hand) if process.closing else hand for hand in asked.hands)
        yield Move("answer", name), with_process(world, number, asked=None, hands=(*process.hands, *taken))
        if self.may_befall(world, "answer"):
            forsaken = with_process(troubled(world), number, asked=None, unanswered=asked.token)
            yield Move("claim, answer lost", name, (asked.token,), by_itself=False), forsaken

    def _lands(self, world: World) -> Moves:
        """Commit a claim whose worker has long stopped to wait for it."""
        if world.air is None:
            return
        number, token = world.air
        after, hands = rows.claim(world, self.setting, number + 1, token, limit=self.setting.slots, alone_too=True)
        kind = "claim lands" if hands else "claim lands (on nothing)"
        yield Move(kind, f"{self.name(number)}'s lost statement", (token,)), after._replace(air=None)

    def _disowns(self, world: World, number: int, process: Process) -> Moves:
        """Give back what a claim without answer took, until a look finds nothing any more."""
        name, step, token = self.name(number), process.step, process.unanswered
        if not token or (step and step.verb != "disown"):
            return

        def lost(after: World) -> World:
            return with_process(after, number, step=None)

        if step is None:
            pictures = tuple(held_by(world, number + 1, token))
            if pictures:
                looked = Step("disown", first_write(pictures), rows=pictures)
                yield from self.statement(
                    "disown: look", name, world, world, lambda after: with_process(after, number, step=looked), lost
                )
            elif world.air != (number, token) or self.makes(Mistake.DISOWN_ONCE):
                yield Move("disown: nothing found", name), with_process(world, number, unanswered=0)
            return
        rest = {"unanswered": 0} if self.makes(Mistake.DISOWN_ONCE) else {}
        stopping = tuple((row.job, row.token) for row in step.rows if row.state == "CANCELLED")
        if step.at == "write":
            changes = [(rows.disowned(self.setting, row), False) for row in step.rows if row.state == "RUNNING"]
            after, _ = rows.change(world, self.setting, changes, "release")
            now = step._replace(at="let go") if stopping else None
            kept = {} if stopping else rest
            yield from self.statement(
                "disown: write", name, world, after, lambda after: with_process(after, number, step=now, **kept), lost
            )
        else:
            after, _ = rows.let_go(world, self.setting, stopping, "let go")
            yield from self.statement(
                "disown: let go", name, world, after, lambda after: with_process(after, number, step=None, **rest), lost
            )

    def _runs(self, world: World, number: int, process: Process, hand: Hand) -> Moves:
        name, on = self.name(number), (hand.lease[0],)
        if hand.body == "waits":
            if not hand.stale or self.makes(Mistake.START_STALE):
                after = rows.with_tale(world, rows.tale_of(world, hand.lease)._replace(started=True))
                row = world.rows[hand.lease[0]]
                is_held = row is not None and row.worker and row.token == hand.lease[1]
                if not is_held and not rows.tale_of(world, hand.lease).unforeseen:
                    after = rows.flawed(after, STARTS_UNDER_LEASE)
                yield Move("start", name, on), with_hand(after, number, hand, body="runs", stale=False)
            else:
                yield Move("give back unstarted", name, on), with_hand(world, number, hand, **UNSTARTED)
        elif hand.body == "runs":
            yield from self._is_interrupted(world, number, process, hand)
            for outcome in self._outcomes(hand):
                after = world
                if outcome == "ok":
                    after = rows.with_tale(world, rows.tale_of(world, hand.lease)._replace(succeeded=True))
                ended = with_hand(after, number, hand, body="ended", outcome=outcome, late=False)
                yield Move(f"body ends ({outcome})", name, on), ended

    def _outcomes(self, hand: Hand) -> tuple[str, ...]:
        """Say what a body may come to; one that was interrupted as lost may have been through before."""
        if hand.sent == "lost":
            return ("lost", "ok")
        return (hand.sent,) if hand.sent else self.setting.outcomes

    def _is_interrupted(self, world: World, number: int, process: Process, hand: Hand) -> Moves:
        if hand.sent:
            return
        if not self.may_run(process) or hand.lost:
            sent = "lost"
        elif hand.cancelled:
            sent = "cancelled"
        elif hand.late:
            sent = "timeout"
        else:
            return
        move = Move(f"interrupt ({sent})", self.name(number), (hand.lease[0],))
        yield move, with_hand(world, number, hand, sent=sent)

    def _ends(self, world: World, number: int, process: Process) -> Moves:
        name = self.name(number)
        if process.confirmed >= THREE_QUARTERS and not self.makes(Mistake.NEVER_ENDS_ITSELF):
            yield Move("end itself, unconfirmed", name), dead(world, number, blamed=False)
        if self.supervisor_of(world, number).health == "dead" and not process.losing:
            yield Move("hear that the supervisor is gone", name), self._closed(world, number, losing=True)
        if process.closing and not process.step:
            is_empty = not (process.hands or process.asked)
            if is_empty or process.losing:
                yield Move("exit", name), dead(world, number, blamed=False)
        if process.closing and not process.losing:
            yield Move("stop at once", name), self._closed(world, number, losing=True)

    def _closed(self, world: World, number: int, *, losing: bool = False) -> World:
        hands = tuple(given_back(hand) if hand.body == "waits" else hand for hand in world.processes[number].hands)
        return with_process(world, number, closing=True, losing=losing, hands=hands)

    def _befalls(self, world: World, number: int, process: Process) -> Moves:
        name = self.name(number)
        if process.health == "dead":
            return
        if self.may_befall(world, "kill"):
            yield Move("SIGKILL", name, by_itself=False), dead(troubled(world), number, blamed=True)
        if process.health == "stopped":
            yield Move("SIGCONT", name, by_itself=False), with_process(world, number, health="up")
            yield from self._stands_still(world, number, process)
            return
        if self.may_befall(world, "stop"):
            yield Move("SIGSTOP", name, by_itself=False), with_process(troubled(world), number, health="stopped")
        if self.may_befall(world, "terminate") and not process.closing:
            yield Move("SIGTERM", name, by_itself=False), self._closed(troubled(world), number)
        for hand in process.hands:
            yield from self._befalls_a_job(world, number, process, hand)

    def _befalls_a_job(self, world: World, number: int, process: Process, hand: Hand) -> Moves:
        name, on = self.name(number), (hand.lease[0],)
        if hand.body == "waits" and self.may_befall(world, "forget"):
            kept = tuple(one for one in process.hands if one is not hand)
            after = rows.with_tale(world, rows.tale_of(world, hand.lease)._replace(unforeseen=True))
            move = Move("forget a job, by a bug", name, on, by_itself=False)
            yield move, with_process(troubled(after), number, hands=kept)
        if hand.body == "runs" and not hand.late and self.may_befall(world, "deadline"):
            late = with_hand(troubled(world), number, hand, late=True)
            yield Move("deadline passes", name, on, by_itself=False), late

    def _stands_still(self, world: World, number: int, process: Process) -> Moves:
        """Let deadlines pass: the body's, and for what doesn't run that of the row, which is the last resort."""
        for hand in process.hands:
            job = hand.lease[0]
            row = world.rows[job]
            if hand.body == "runs" and not hand.late:
                yield Move("deadline passes", self.name(number), (job,)), with_hand(world, number, hand, late=True)
            elif (hand.body == "ended" or hand.stale) and row and is_held(world, hand.lease) and not row.overdue:
                row = row._replace(overdue=True)
                after = rows.with_tale(world, rows.tale_of(world, hand.lease)._replace(unforeseen=True))
                after = after._replace(rows=(*world.rows[:job], row, *world.rows[job + 1 :]))
                yield Move("the row's deadline passes", "time", (job,)), after
