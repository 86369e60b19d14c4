"""A worker writes what its bodies came to: successes, then the rest; what met no row is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.model import rows
from tests.model.part import UNCOUNTED, Moves, Part, with_hand, with_process
from tests.model.rules import NO_FALSE_TELLING, TOLD_ONCE
from tests.model.world import LAPSED, Hand, Lease, Mistake, Process, Row, Step, World


class Settling(Part):
    """How a worker writes what has ended."""

    def moves(self, world: World, number: int, process: Process) -> Moves:
        step = process.step
        if step is None:
            ended = [hand for hand in process.hands if hand.body == "ended"]
            if ended and not (process.unanswered and not process.closing):
                yield from self._writes(world, number, Step("settle", "write", batch=tuple(h.lease for h in ended)))
        elif step.verb == "settle":
            if step.at == "write":
                yield from self._writes(world, number, step)
            elif step.at == "peek":
                yield from self._reads_back(world, number, step)
            else:
                yield from self._lets_go(world, number, step)

    def _unsettled(self, number: int) -> Callable[[World], World]:
        return lambda after: with_process(after, number, step=None)

    def _writes(self, world: World, number: int, step: Step) -> Moves:
        """Write successes by one statement, and whatever else has ended by another."""
        hands = {hand.lease: hand for hand in world.processes[number].hands}
        ok = tuple(lease for lease in step.batch if hands[lease].outcome == "ok")
        others = tuple(lease for lease in step.batch if lease not in ok)
        group = ok if ok and not step.left else others
        kind = "settle: succeed" if group is ok else "settle: change"
        verb = "release" if all(hands[lease].outcome in ("lost", "unstarted") for lease in group) else "settle"
        changes = [(rows.settled(self.setting, hands[lease]), hands[lease].outcome not in UNCOUNTED) for lease in group]
        after, done = rows.change(world, self.setting, changes, verb)
        written = (*step.written, *done)
        if group is ok and others:
            following = step._replace(written=written, left=ok)
        elif set(written) < set(step.batch):
            following = step._replace(at="peek", written=written, left=())
        else:
            following = step._replace(at="", written=written, left=())

        def answered(after: World) -> World:
            if self.makes(Mistake.TELL_EARLY) and following.at != "write":
                after = self._tells(after, number, written, ())
            if following.at:
                return with_process(after, number, step=following)
            return self._settled(after, number, following)

        leases = tuple(job for job, _ in group)
        yield from self.statement(kind, self.name(number), world, after, answered, self._unsettled(number), on=leases)

    def _reads_back(self, world: World, number: int, step: Step) -> Moves:
        """Find out why an end met no row: somebody locks it, it was our own write, or it was taken away."""
        process = world.processes[number]
        hands = {hand.lease: hand for hand in process.hands}
        again: list[Lease] = []
        ours: list[Lease] = []
        lost: list[Lease] = []
        left: list[Lease] = []
        for lease in step.batch:
            if lease in step.written:
                continue
            row, change = world.rows[lease[0]], rows.settled(self.setting, hands[lease])
            mine = row is not None and row.token == lease[1]
            if mine and row is not None and row.state == "RUNNING":
                again.append(lease)
            elif self._is_ours(process, hands[lease], row, change) and not self.makes(Mistake.NO_READ_BACK):
                ours.append(lease)
            else:
                lost.append(lease)
                if mine and row is not None and row.worker:
                    left.append(lease)
        following = step._replace(
            at="let go" if left else "", written=(*step.written, *ours), again=tuple(again), lost=tuple(lost),
            left=tuple(left),
        )  # fmt: skip

        def answered(after: World) -> World:
            return with_process(after, number, step=following) if left else self._settled(after, number, following)

        yield from self.statement("settle: peek", self.name(number), world, world, answered, self._unsettled(number))

    def _is_ours(self, process: Process, hand: Hand, row: Row | None, change: rows.Change) -> bool:
        """Say whether a row must be as it is by a write of ours whose answer was lost."""
        could_be_taken = process.confirmed == LAPSED or hand.doubted
        if row is None:
            return change.gone and (not could_be_taken or self.makes(Mistake.GONE_IS_OURS))
        if row.token != hand.lease[1] or row.state != change.state.value or row.worker:
            return False
        if self.makes(Mistake.READ_BACK_STATE_ONLY):
            return True
        counts = (row.attempts, row.crashes) == (change.attempts, change.crashes)
        return row.state == "SUCCESSFUL" or (counts and not could_be_taken)

    def _lets_go(self, world: World, number: int, step: Step) -> Moves:
        lease = step.left[0]
        after, done = rows.let_go(world, self.setting, [lease], "let go")
        following = step._replace(left=step.left[1:])
        row = world.rows[lease[0]]
        is_held = row is not None and row.token == lease[1] and row.worker
        if not done and is_held and not self.makes(Mistake.LET_GO_ONCE):
            following = following._replace(
                again=(*step.again, lease), lost=tuple(one for one in step.lost if one != lease)
            )

        def answered(after: World) -> World:
            if following.left:
                return with_process(after, number, step=following)
            return self._settled(after, number, following)

        yield from self.statement(
            "settle: let go", self.name(number), world, after, answered, self._unsettled(number), on=(lease[0],)
        )

    def _settled(self, world: World, number: int, step: Step) -> World:
        """Tell what came of the batch, and forget what nothing more is owed to."""
        early = step.written if self.makes(Mistake.TELL_EARLY) else ()
        world = self._tells(world, number, [lease for lease in step.written if lease not in early], step.lost)
        kept = tuple(h for h in world.processes[number].hands if h.lease not in step.batch or h.lease in step.again)
        return with_process(world, number, step=None, hands=kept)

    def _tells(self, world: World, number: int, finished: Iterable[Lease], lost: Iterable[Lease]) -> World:
        finished, lost = list(finished), list(lost)
        for hand in world.processes[number].hands:
            if hand.lease not in finished and hand.lease not in lost:
                continue
            if hand.told:
                world = rows.flawed(world, TOLD_ONCE)
            tale = rows.tale_of(world, hand.lease)
            closed = tale.closed
            row = world.rows[hand.lease[0]]
            is_written = closed in ("settle", "release")
            stands = row is not None and row.token == hand.lease[1] and row.state in ("SUCCESSFUL", "FAILED")
            is_told_wrongly = hand.lease in finished and not is_written and closed != "cancel"
            if (is_told_wrongly and not tale.unforeseen) or (hand.lease in lost and is_written and stands):
                world = rows.flawed(world, NO_FALSE_TELLING)
            world = with_hand(world, number, hand, told=True)
        return world
