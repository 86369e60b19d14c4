"""Drive: judge whether this command works, for its signs and its log. Asks nobody: it reads boards and clocks.

Alive is a command whose own loops turn: only a new start would help one that isn't. Ready is one that takes jobs: the
database answers its beats, and claims of its workers get answers, which is more than that they beat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from django_jobs import clock, signals
from django_jobs.conf import settings
from django_jobs.vitals import Trouble, trouble_of
from django_jobs.worker.beat import BEAT_INTERVAL, Beat, Member
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import OWN_POLL
from django_jobs.worker.probe import OK
from django_jobs.worker.signs import Signs

LOOK_INTERVAL = 0.2

MAIN_BOUND = 30.0
"""Seconds that the main loop may take for a turn."""

LOOP_BOUND = 60.0
"""Seconds that a round of another loop may take."""

LOOP_BOUNDS = {"chores": 600.0}
"""A round of pruning deletes a thousand rows, one by one where somebody's rows refer to any; no lease waits for it."""

DATABASE_BOUND = 3 * BEAT_INTERVAL
"""Seconds for which the database may leave beats without an answer."""

STUCK_BOUND = 10.0
"""Seconds beyond its grace for which a body may not stop: by then a supervisor has killed its process."""

WORKER_BOUND = 30.0
"""Seconds without a beat of a worker, or without an answer to a claim beyond the time until its next one."""

HEARING_BOUND = 10.0
"""Seconds after the start by which it is known, and told, whether new jobs are heard of or polled for."""


class Health:
    """Keeps what was last seen to be well. `look` is for one thread, `answer` for any."""

    def __init__(
        self,
        *,
        members: Callable[[], Iterable[Member]],
        wanted: int,
        loops: Callable[[], Sequence[Loop]],
        beat: Beat,
        signs: Signs,
    ) -> None:
        self._members = members
        self._wanted = wanted
        self._loops = loops
        self._beat = beat
        self._signs = signs
        self._began = self._looked_at = self._manned_at = clock.monotonic()
        self._well_at: dict[str, float] = {}
        self._troubles: dict[str, Trouble] = {}
        self._is_started = False
        self._is_hearing_known = False
        self._is_stopping = False

    # -- from the command

    def begin(self) -> None:
        """Show the signs."""
        self._signs.show(self.answer)

    def end(self) -> None:
        """Take the signs down."""
        self._signs.take_down()

    def hear(self) -> None:
        """Note that it is known whether new jobs are heard of or polled for."""
        self._is_hearing_known = True

    def stop(self) -> None:
        """Note that nothing more is claimed."""
        self._is_stopping = True

    def look(self) -> float:
        """Look at all workers, tell what has changed, touch the file if all is well; gives the time until the next."""
        now = self._looked_at = clock.monotonic()
        members = list(self._members())
        up = [member for member in members if member.board.beat_at]
        if up:
            self._manned_at = now
        self._is_started = self._is_started or len(up) >= self._wanted
        self._well_at = {member.identity: self._last_well(member, now) for member in members}
        before, self._troubles = self._troubles, self._found(members, now)
        if not self._is_stopping:
            self._tell(members, before)
        if self._signs.file is not None and self._is_well(now):
            self._signs.file.touch()
        return LOOK_INTERVAL

    # -- from a probe

    def answer(self, path: str) -> str | None:
        """Give the one word for a path, None where there is no such path."""
        now = clock.monotonic()
        match path:
            case "/live":
                return OK if self._is_alive(now) else "stuck"
            case "/started":
                return OK if self._is_started else "starting"
            case "/ready":
                return self._readiness(now)
            case _:
                return None

    # -- judging

    def _is_alive(self, now: float) -> bool:
        turns = now - self._looked_at <= MAIN_BOUND
        return turns and not any(loop.is_late(now, LOOP_BOUNDS.get(loop.name, LOOP_BOUND)) for loop in self._loops())

    def _readiness(self, now: float) -> str:
        is_hearing_known = self._is_hearing_known or now - self._began > HEARING_BOUND
        reasons = {
            "stuck": not self._is_alive(now),
            "stopping": self._is_stopping,
            "starting": not self._is_started,
            "database": not self._is_database_there(now),
            "workers": bool(self._troubles) or now - self._manned_at > WORKER_BOUND,
            "listening": not is_hearing_known,
        }
        return next((word for word, is_so in reasons.items() if is_so), OK)

    def _is_database_there(self, now: float) -> bool:
        return bool(self._beat.answered_at) and now - self._beat.answered_at <= DATABASE_BOUND

    def _is_well(self, now: float) -> bool:
        """Whether a new start would be of no use: without a database nothing claims, and nobody is to blame."""
        troubles = set(self._troubles.values())
        is_broken = Trouble.CLAIMLESS in troubles and self._is_database_there(now)
        return self._is_alive(now) and not is_broken and Trouble.STUCK not in troubles

    def _last_well(self, member: Member, now: float) -> float:
        """Say when a worker last had a claim answered, or no reason to claim; one that is new begins now."""
        before = self._well_at.get(member.identity, now)
        is_excused = member.is_full or member.board.is_leaving
        return now if is_excused else max(before, member.board.claimed_at)

    def _found(self, members: Iterable[Member], now: float) -> dict[str, Trouble]:
        found = {
            member.identity: trouble_of(
                beat_age=now - max(member.board.beat_at, member.started_at),
                claim_age=now - self._well_at[member.identity],
                beat_bound=WORKER_BOUND,
                claim_bound=WORKER_BOUND + (member.plan.poll or OWN_POLL),
            )
            or _stuck(member, now)
            for member in members
        }
        return {identity: trouble for identity, trouble in found.items() if trouble is not None}

    def _tell(self, members: Iterable[Member], before: dict[str, Trouble]) -> None:
        for member in members:
            trouble = self._troubles.get(member.identity)
            if trouble is before.get(member.identity):
                continue
            message = f"worker {member.identity} {_WORDS[trouble]}"
            level = logging.INFO if trouble is None else logging.ERROR
            signals.tell(signals.odd, None, message=message, exception=None, level=level)


_WORDS = {
    Trouble.SILENT: "shows no sign of life",
    Trouble.CLAIMLESS: "is alive and has room for jobs, but its claims get no answer",
    Trouble.STUCK: "has a body that doesn't stop though its time is over: only its process's end frees that slot",
    None: "is well again",
}


def _stuck(member: Member, now: float) -> Trouble | None:
    bound = settings().timeout_grace.total_seconds() + STUCK_BOUND
    return Trouble.STUCK if any(entry.overdue(now) > bound for entry in member.board.entries()) else None
