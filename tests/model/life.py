"""A job's life: worker processes under supervisors, people, chores, and whatever may befall them.

Each move is one statement, or one step in the memory of one process. A statement comes with its answer, or the
connection breaks before it ("… not written") or after it ("… answer lost"). What happens by itself must always be able
to bring a job to a good end, whatever befell it before.
"""

from __future__ import annotations

from tests.model import rows
from tests.model.explorer import Move
from tests.model.part import Moves
from tests.model.rules import is_good_end, told, wrong
from tests.model.supervisors import Supervisors
from tests.model.surroundings import Surroundings
from tests.model.workers import Workers
from tests.model.world import Process, Row, Setting, Supervisor, World


class Life:
    """The model of a job's life, in one setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._parts = (Workers(setting), Supervisors(setting), Surroundings(setting))

    def start(self) -> World:
        count = max(self.setting.supervisor_of) + 1
        return World(
            queued=False,
            rows=(None,) * self.setting.jobs,
            processes=(Process(),) * len(self.setting.supervisor_of),
            supervisors=(Supervisor(),) * count,
        )

    def wrong(self, world: World) -> str:
        return wrong(world, self.setting)

    def is_good_end(self, world: World) -> bool:
        return is_good_end(world, self.setting)

    def tell(self, world: World) -> str:
        return told(world)

    def moves(self, world: World) -> Moves:
        """Give every move; what nobody refers to any more is forgotten."""
        for move, after in self._all(world):
            yield move, _tidy(after)

    def _all(self, world: World) -> Moves:
        if not world.queued:
            yield self._enqueue(world)
            return
        for part in self._parts:
            yield from part.moves(world)

    def _enqueue(self, world: World) -> tuple[Move, World]:
        for job in range(self.setting.jobs):
            row = Row("READY", 0, 0, 0, self.setting.max_attempts, 0, False, -1, 0, 0)
            world = rows.written(world, job, row, "enqueue")
        return Move("enqueue", "caller"), world._replace(queued=True)


def _tidy(world: World) -> World:
    """Forget what is true of claims that nobody refers to, so that equal worlds look equal."""
    known = {(job, row.token) for job, row in enumerate(world.rows) if row}
    for process in world.processes:
        known |= {hand.lease for hand in process.hands}
    if world.reclaimer:
        known |= {(row.job, row.token) for row in world.reclaimer.rows}
    tales = tuple(tale for tale in world.tales if tale.lease in known)
    return world if len(tales) == len(world.tales) else world._replace(tales=tales)
