"""Supervisors: they renew what their boards hold, kill what doesn't stop, and bury the dead."""

from __future__ import annotations

from collections.abc import Callable

from tests.model import rows
from tests.model.explorer import Move
from tests.model.part import (
    Moves,
    Part,
    dead,
    first_write,
    held_by,
    is_held,
    troubled,
    with_hand,
    with_process,
    with_supervisor,
)
from tests.model.world import LAPSED, THREE_QUARTERS, Keeper, Lease, Mistake, Picture, Process, Step, Supervisor, World


class Supervisors(Part):
    """What supervisors do: keeper, enforcement, undertaker."""

    def moves(self, world: World) -> Moves:
        for number, supervisor in enumerate(world.supervisors):
            if supervisor.health == "up":
                yield from self._keeps(world, number, supervisor)
                yield from self._enforces(world, number)
                yield from self._buries(world, number)
            yield from self._befalls_supervisor(world, number, supervisor)

    def _befalls_supervisor(self, world: World, number: int, supervisor: Supervisor) -> Moves:
        name = f"supervisor {number + 1}"
        if supervisor.health == "dead":
            return
        if self.may_befall(world, "kill supervisor"):
            after = with_supervisor(troubled(world), number, health="dead", keeper=Keeper())
            yield Move("SIGKILL", name, by_itself=False), after
        if supervisor.health == "stopped":
            yield Move("SIGCONT", name, by_itself=False), with_supervisor(world, number, health="up")
            return
        stopped = with_supervisor(troubled(world), number, health="stopped")
        if self.may_befall(world, "stop supervisor"):
            yield Move("SIGSTOP", name, by_itself=False), stopped
        if self.may_befall(world, "stop host"):
            for child in self._children(number):
                if world.processes[child].health == "up":
                    stopped = with_process(stopped, child, health="stopped")
            yield Move("stand still", f"the host of supervisor {number + 1}", by_itself=False), stopped

    def _children(self, number: int) -> list[int]:
        return [child for child, parent in enumerate(self.setting.supervisor_of) if parent == number]

    def _keeps(self, world: World, number: int, supervisor: Supervisor) -> Moves:
        """Renew what the boards hold, flag what was cancelled or lost, and confirm the boards."""
        name, keeper = f"keeper {number + 1}", supervisor.keeper
        children = [child for child in self._children(number) if world.processes[child].health != "dead"]
        on_boards = self._to_renew(world, children)
        idle = Keeper(locked=keeper.locked)

        def at(**changes: object) -> Callable[[World], World]:
            now = keeper._replace(**changes)
            return lambda after: with_supervisor(after, number, keeper=now)

        def lost(after: World) -> World:
            return with_supervisor(after, number, keeper=idle)

        if not keeper.at:
            yield from self._looks_for_cancelled(world, number, children)
            if any(lease[0] != world.locked for lease in keeper.locked):
                freed = tuple(lease for lease in keeper.locked if lease in on_boards)
                yield (
                    Move("begin to renew what was locked", name),
                    at(at="renew", age=0, leases=freed, again=True)(world),
                )
            elif on_boards:
                is_due = self.makes(Mistake.RENEW_BY_WORKER)
                if is_due or any(world.processes[child].confirmed for child in children):
                    yield Move("begin to renew", name), at(at="renew", age=0, leases=on_boards)(world)
            elif any(world.processes[child].confirmed for child in children):
                yield Move("confirm empty boards", name), self._confirmed(world, children, 0)
        elif keeper.at == "renew":
            after, answer = rows.renew(world, keeper.leases)
            stopping = tuple(lease for lease, state in answer.items() if state == "CANCELLED")
            missing = tuple(lease for lease in keeper.leases if lease not in answer)
            now = at(at="peek" if missing else "confirm", leases=(), stopping=stopping, missing=missing)
            yield from self.statement("renew", name, world, after, now, lost)
        elif keeper.at == "peek":
            now = at(at="confirm")
            held = tuple(lease for lease in keeper.missing if is_held(world, lease))
            now = at(at="confirm", leases=held, missing=tuple(set(keeper.missing) - set(held)))
            yield from self.statement("renew: peek", name, world, world, now, lost)
        else:
            yield Move("confirm", name), self._flagged_and_confirmed(world, number, children, keeper)

    def _to_renew(self, world: World, children: list[int]) -> tuple[Lease, ...]:
        leases = {hand.lease for child in children for hand in world.processes[child].hands}
        if self.makes(Mistake.RENEW_BY_WORKER):
            leases |= {(row.job, row.token) for child in children for row in held_by(world, child + 1)}
        return tuple(sorted(leases))

    def _flagged_and_confirmed(self, world: World, number: int, children: list[int], keeper: Keeper) -> World:
        for child in children:
            process = world.processes[child]
            hands = []
            for hand in process.hands:
                is_missing = hand.lease in keeper.missing
                doubted = hand.doubted or (is_missing and process.confirmed == LAPSED)
                cancelled = hand.cancelled or hand.lease in keeper.stopping
                hands.append(hand._replace(lost=hand.lost or is_missing, cancelled=cancelled, doubted=doubted))
            world = with_process(world, child, hands=tuple(hands))
        if not keeper.again:
            age = 0 if self.makes(Mistake.CONFIRM_FROM_AFTER) else keeper.age
            world = self._confirmed(world, children, age)
        return with_supervisor(world, number, keeper=Keeper(locked=keeper.leases))

    def _confirmed(self, world: World, children: list[int], age: int) -> World:
        for child in children:
            world = with_process(world, child, confirmed=age)
        return world

    def _looks_for_cancelled(self, world: World, number: int, children: list[int]) -> Moves:
        for child in children:
            for hand in world.processes[child].hands:
                row = world.rows[hand.lease[0]]
                is_stopping = row is not None and row.state == "CANCELLED" and is_held(world, hand.lease)
                if hand.body == "runs" and is_stopping and not hand.cancelled:
                    move = Move("see that it was cancelled", f"keeper {number + 1}", (hand.lease[0],))
                    yield move, with_hand(world, child, hand, cancelled=True)

    def _enforces(self, world: World, number: int) -> Moves:
        """Kill a worker whose body goes on after its deadline, or that can't confirm its leases."""
        for child in self._children(number):
            process = world.processes[child]
            running = [hand for hand in process.hands if hand.body == "runs"]
            if process.health == "dead" or not running:
                continue
            late = tuple(hand.lease for hand in running if hand.late)
            name, on = f"supervisor {number + 1}", (child,)
            if late and self.makes(Mistake.RELEASE_BEFORE_DEATH):
                pictures = tuple(held_by(world, child + 1))
                changes = [(self._burial_change(process, row, late), (row.job, row.token) in late) for row in pictures]
                after, _ = rows.change(world, self.setting, changes, "reclaim")
                if after.rows != world.rows:
                    yield Move("write what a late worker holds", name, on), after
                yield Move("kill a late worker", name, on), dead(world, child, blamed=False)
            elif late:
                yield Move("kill a late worker", name, on), dead(world, child, blamed=False, timed_out=late)
            if process.confirmed >= THREE_QUARTERS and not self.makes(Mistake.NEVER_ENDS_ITSELF):
                yield Move("kill an unconfirmed worker", name, on), dead(world, child, blamed=False)

    def _burial_change(self, process: Process, row: Picture, late: tuple[Lease, ...]) -> rows.Change:
        bodies = {hand.lease: hand.body for hand in process.hands}
        body = bodies.get((row.job, row.token), "waits")
        is_late = (row.job, row.token) in late
        shared = list(bodies.values()).count("runs") > 1
        return rows.buried(self.setting, row, body=body, is_late=is_late, shared=shared, blamed=process.blamed)

    def _buries(self, world: World, number: int) -> Moves:
        """Give back what a dead worker held, by the word of its board."""
        for child in self._children(number):
            process = world.processes[child]
            if process.health != "dead" or process.buried:
                continue
            name = f"undertaker {number + 1}"
            if process.burial is None:
                yield from self._looks_at_the_dead(world, child, process, name)
            else:
                yield from self._writes_for_the_dead(world, child, process, name, process.burial)

    def _looks_at_the_dead(self, world: World, child: int, process: Process, name: str) -> Moves:
        pictures = tuple(held_by(world, child + 1))
        if self.makes(Mistake.TRUST_THE_BOARD):
            known = [hand.lease for hand in process.hands]
            pictures = tuple(row for row in pictures if (row.job, row.token) in known)
        if not pictures:
            if world.air is None or world.air[0] != child or self.makes(Mistake.BURY_ONCE):
                yield Move("bury: nothing found", name, (child,)), with_process(world, child, buried=True, hands=())
            return
        looked = Step("bury", first_write(pictures), rows=pictures)
        yield from self.statement(
            "bury: look", name, world, world, lambda after: with_process(after, child, burial=looked),
            lambda after: after, on=(child,),
        )  # fmt: skip
        if world.locked >= 0:
            # It looks for a few seconds only; what somebody locks for longer is left to its lease.
            after = world
            for row in pictures:
                after = rows.with_tale(after, rows.tale_of(after, (row.job, row.token))._replace(lapsed=True))
            yield Move("bury: give up a locked row", name, (child,)), with_process(after, child, buried=True, hands=())

    def _writes_for_the_dead(self, world: World, child: int, process: Process, name: str, step: Step) -> Moves:
        stopping = tuple((row.job, row.token) for row in step.rows if row.state == "CANCELLED")
        done = {"buried": True, "hands": ()} if self.makes(Mistake.BURY_ONCE) else {}

        def lost(after: World) -> World:
            return with_process(after, child, burial=None)

        if step.at == "write":
            changes = [
                (self._burial_change(process, row, process.timed_out), self._had_its_chance(process, row))
                for row in step.rows
                if row.state == "RUNNING"
            ]
            after, _ = rows.change(world, self.setting, changes, "reclaim")
            now = step._replace(at="let go") if stopping else None
            rest = {} if stopping else done
            yield from self.statement(
                "bury: write", name, world, after, lambda after: with_process(after, child, burial=now, **rest), lost,
                on=(child,),
            )  # fmt: skip
        else:
            after, _ = rows.let_go(world, self.setting, stopping, "reclaim")
            yield from self.statement(
                "bury: let go", name, world, after, lambda after: with_process(after, child, burial=None, **done), lost,
                on=(child,),
            )  # fmt: skip

    def _had_its_chance(self, process: Process, row: Picture) -> bool:
        """Say whether an attempt counts: the body ran past its deadline, or ran, alone, in a process that died."""
        lease = (row.job, row.token)
        running = [hand.lease for hand in process.hands if hand.body == "runs"]
        return lease in process.timed_out or (process.blamed and running == [lease])
