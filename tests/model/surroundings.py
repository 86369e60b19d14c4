"""Around the workers: chores on a host that is always there, people, sessions that lock rows, clocks and time."""

from __future__ import annotations

from collections.abc import Callable

from tests.model import rows
from tests.model.explorer import Move
from tests.model.part import Moves, Part, first_write, is_held, troubled
from tests.model.rules import NOBODY_IS_ROBBED, STOPS_IN_TIME
from tests.model.world import LAPSED, THREE_QUARTERS, Hand, Lease, Mistake, Picture, Process, Step, World


class Surroundings(Part):
    """What goes on around workers and supervisors."""

    def moves(self, world: World) -> Moves:
        yield from self._reclaims(world)
        yield from self._locks(world)
        yield from self._people(world)
        yield from self._time(world)

    def _reclaims(self, world: World) -> Moves:
        step, name = world.reclaimer, "chores"
        if step is None or step.at == "look again":
            over = tuple(
                rows.picture_of(job, row)
                for job, row in enumerate(world.rows)
                if row and row.worker and rows.is_lapsed(row) and job != world.locked
            )
            if step is not None:
                yield from self._looks_again(world, name, tuple(row for row in over if row in step.rows))
            elif over and not world.holds_off:
                at = first_write(over) if self.makes(Mistake.RECLAIM_AT_ONCE) else "look again"
                looked = Step("reclaim", at, rows=over)
                yield from self.statement(
                    "reclaim: look", name, world, world, lambda after: after._replace(reclaimer=looked), lambda w: w
                )
            yield from self._prunes(world)
            return

        def lost(after: World) -> World:
            return after._replace(reclaimer=None)

        stopping = tuple((row.job, row.token) for row in step.rows if row.state == "CANCELLED")
        if step.at == "write":
            held = [row.worker for row in step.rows]
            changes = [
                (rows.reclaimed(self.setting, row, shared=held.count(row.worker) > 1), held.count(row.worker) == 1)
                for row in step.rows
                if row.state == "RUNNING"
            ]
            after, done = rows.change(world, self.setting, changes, "reclaim", lapsed=True)
            if self._robbed(world, done):
                after = rows.flawed(after, NOBODY_IS_ROBBED)
            now = step._replace(at="let go") if stopping else None
            yield from self.statement(
                "reclaim: write", name, world, after, lambda after: after._replace(reclaimer=now), lost
            )
        else:
            after, _ = rows.let_go(world, self.setting, stopping, "reclaim", lapsed=True)
            yield from self.statement(
                "reclaim: let go", name, world, after, lambda after: after._replace(reclaimer=None), lost
            )

    def _looks_again(self, world: World, name: str, still: tuple[Picture, ...]) -> Moves:
        """Look a second time; whom only a lock or a clock kept from renewing has done so by then."""
        if world.holds_off or any(self._is_about_to_renew(world, row) for row in still):
            return
        following = Step("reclaim", first_write(still), rows=still) if still else None
        yield from self.statement(
            "reclaim: look again", name, world, world, lambda after: after._replace(reclaimer=following),
            lambda after: after._replace(reclaimer=None),
        )  # fmt: skip

    def _is_about_to_renew(self, world: World, row: Picture) -> bool:
        number = self.setting.supervisor_of[row.worker - 1]
        supervisor = world.supervisors[number]
        is_awake = supervisor.health == "up" and world.slow != number
        keeper = supervisor.keeper
        return is_awake and (row.job, row.token) in (*keeper.locked, *(keeper.leases if keeper.at == "renew" else ()))

    def _robbed(self, world: World, done: tuple[Lease, ...]) -> bool:
        """Say whether somebody loses a job to a reclaim though all is well with him and his supervisor."""
        for number, process in enumerate(world.processes):
            supervisor = self.supervisor_of(world, number)
            is_well = process.health == supervisor.health == "up" and world.slow != self.setting.supervisor_of[number]
            for hand in process.hands:
                tale = rows.tale_of(world, hand.lease)
                is_believed = hand.body == "runs" and not hand.lost and self.may_run(process)
                if is_well and is_believed and hand.lease in done and not tale.unforeseen:
                    return True
        return False

    def _prunes(self, world: World) -> Moves:
        for job in range(self.setting.jobs):
            after = rows.prune(world, job)
            if after is not world:
                yield Move("prune", "chores", (job,)), after

    def _people(self, world: World) -> Moves:
        if world.will >= self.setting.will:
            return
        done = world._replace(will=world.will + 1)
        verbs: dict[str, Callable[[World, int], World]] = {
            "cancel": lambda w, job: rows.cancel(w, self.setting, job),
            "retry": rows.retry,
            "delete": rows.delete,
        }
        for job in range(self.setting.jobs):
            for kind, verb in verbs.items():
                # The verbs of people wait for a row that somebody locks.
                if kind in self.setting.wishes and job != world.locked:
                    after = verb(done, job)
                    name = kind if after is not done else f"{kind} (refused)"
                    yield Move(name, "somebody", (job,), by_itself=False), after

    def _locks(self, world: World) -> Moves:
        if world.locked >= 0:
            yield Move("end the transaction", "somebody's session"), world._replace(locked=-1)
        elif self.may_befall(world, "lock"):
            for job, row in enumerate(world.rows):
                if row:
                    move = Move("lock the row", "somebody's session", (job,), by_itself=False)
                    yield move, troubled(world)._replace(locked=job)

    def _time(self, world: World) -> Moves:
        if self.may_befall(world, "clock"):
            after = troubled(world)
            for job, row in enumerate(world.rows):
                if row and 0 <= row.lease < LAPSED:
                    over = row._replace(lease=LAPSED)
                    after = rows.with_tale(
                        after, rows.tale_of(after, (job, row.token))._replace(lapsed=True, unforeseen=True)
                    )
                    after = after._replace(rows=(*after.rows[:job], over, *after.rows[job + 1 :]))
            if after.rows != world.rows:
                yield Move("jump ahead by a lease", "the clock", by_itself=False), after._replace(holds_off=True)
        if self.may_befall(world, "slow") and world.slow < 0:
            for number in range(len(world.supervisors)):
                move = Move("be slow from now on", f"the network of supervisor {number + 1}", by_itself=False)
                yield move, troubled(world)._replace(slow=number)
        if all(self._is_patient(world, number) for number in range(len(world.processes))):
            after = self._ticked(world)
            if after != world:
                if any(_outlives_its_lease(world, process) for process in world.processes):
                    after = rows.flawed(after, STOPS_IN_TIME)
                yield Move("a quarter of a lease passes", "time"), after

    def _is_patient(self, world: World, number: int) -> bool:
        """Say whether a process has nothing to do that must be done within the next quarter of a lease."""
        process = world.processes[number]
        supervisor = self.supervisor_of(world, number)
        is_slow = world.slow == self.setting.supervisor_of[number]
        may_wait = is_slow or world.locked >= 0
        if process.health == "dead":
            return may_wait or process.buried or supervisor.health != "up"
        if process.confirmed >= THREE_QUARTERS and not self.makes(Mistake.NEVER_ENDS_ITSELF):
            # At seven eighths it ends itself, or is ended.
            has_running = any(hand.body == "runs" for hand in process.hands)
            if process.health == "up" or (supervisor.health == "up" and has_running):
                return False
        if supervisor.health == "up" and not is_slow:
            keeper = supervisor.keeper
            is_due = process.confirmed and process.hands
            if self.makes(Mistake.RENEW_BY_WORKER):
                is_due = any(row and row.worker == number + 1 and row.lease > 0 for row in world.rows)
            if keeper.at or is_due or any(lease[0] != world.locked for lease in keeper.locked):
                return False
        is_asking = process.asked or process.step or process.unanswered
        return may_wait or process.health != "up" or not is_asking

    def _ticked(self, world: World) -> World:
        aged = tuple(
            row
            and row._replace(
                lease=row.lease if row.lease < 0 else min(row.lease + 1, LAPSED),
                wait=max(row.wait - 1, 0),
                keeping=max(row.keeping - 1, 0),
            )
            for row in world.rows
        )
        supervisors = []
        for supervisor in world.supervisors:
            keeper = supervisor.keeper
            age = min(keeper.age + 1, LAPSED) if keeper.at else 0
            supervisors.append(supervisor._replace(keeper=keeper._replace(age=age)))
        processes = []
        for number, process in enumerate(world.processes):
            supervisor = self.supervisor_of(world, number)
            # An empty board is confirmed without a question, unless the keeper waits for an answer.
            is_renewed = not process.hands and supervisor.health == "up" and not supervisor.keeper.at
            age = 0 if is_renewed or process.health == "dead" else min(process.confirmed + 1, LAPSED)
            asked = process.asked and process.asked._replace(hands=_aged(process.asked.hands))
            processes.append(process._replace(confirmed=age, asked=asked, hands=_aged(process.hands)))
        # What is under way lands within seconds, or never.
        return world._replace(
            rows=aged, supervisors=tuple(supervisors), processes=tuple(processes), air=None, holds_off=False
        )


def _outlives_its_lease(world: World, process: Process) -> bool:
    """Say whether a body that could have been stopped goes on while its lease comes to its end."""
    for hand in process.hands:
        row = world.rows[hand.lease[0]]
        runs = process.health == "up" and hand.body == "runs" and not hand.lost
        was_locked = world.locked == hand.lease[0] or any(
            hand.lease in supervisor.keeper.locked for supervisor in world.supervisors
        )
        if runs and row and is_held(world, hand.lease) and row.lease == THREE_QUARTERS and not was_locked:
            return True
    return False


def _aged(hands: tuple[Hand, ...]) -> tuple[Hand, ...]:
    return tuple(hand._replace(stale=True) if hand.body == "waits" else hand for hand in hands)
