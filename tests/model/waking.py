"""Waking: callers that stay silent for 10 ms after a notification, and workers that look twice after each.

Time is counted in steps of 5 ms. The poll comes whenever it likes: the rule is that nobody has to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.model.explorer import Move

SILENCE = 2
"""Steps of time in which a caller doesn't notify twice, and after which a woken worker looks again: 10 ms."""

NOBODY_WAITS_FOR_THE_POLL = "no committed job waits longer than for the second look after a wake"


class Slip(Enum):
    """A rule that is left out on purpose."""

    NO_SECOND_LOOK = "a wake is followed by one look only"
    SECOND_LOOK_TOO_SOON = "the second look comes before the silence of those who were told is over"
    LONGER_SILENCE = "callers stay silent for longer than workers take to look again"
    NOTIFY_BEFORE_COMMIT = "workers are notified before the transaction is committed"
    WAKE_FORGOTTEN = "a wake that comes while a look is under way is forgotten when that look ends"


@dataclass(frozen=True)
class Place:
    """How many callers queue how many jobs each, and which slips are made."""

    callers: int = 1
    jobs: int = 3
    workers: int = 1
    slips: frozenset[Slip] = field(default_factory=frozenset)


class Caller(NamedTuple):
    """A process that queues jobs. `since`: steps since it notified, at most the silence."""

    at: str = ""
    queued: int = 0
    since: int = 9


class Looker(NamedTuple):
    """A worker. `again`: steps until its second look, -1 for none. `looking`: began, read, or not at all."""

    heard: int = 0
    is_wanted: bool = False
    again: int = -1
    looking: str = ""


class Moment(NamedTuple):
    """`waiting`: committed jobs that nobody has claimed."""

    callers: tuple[Caller, ...]
    lookers: tuple[Looker, ...]
    waiting: int = 0


class Waking:
    """The model of waking."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.silence = SILENCE + (Slip.LONGER_SILENCE in place.slips)
        self.second = SILENCE - (Slip.SECOND_LOOK_TOO_SOON in place.slips)

    def start(self) -> Moment:
        return Moment((Caller(),) * self.place.callers, (Looker(),) * self.place.workers)

    def wrong(self, moment: Moment) -> str:
        """Say whether all is quiet while a job waits: then only the poll would find it."""
        callers_busy = any(caller.at for caller in moment.callers)
        is_quiet = not any(one.heard or one.is_wanted or one.again >= 0 or one.looking for one in moment.lookers)
        return NOBODY_WAITS_FOR_THE_POLL if moment.waiting and is_quiet and not callers_busy else ""

    def is_good_end(self, moment: Moment) -> bool:
        return not moment.waiting and all(caller.queued == self.place.jobs for caller in moment.callers)

    def tell(self, moment: Moment) -> str:
        callers = [
            f"caller {number + 1} {caller.at or 'rests'}, last told {min(caller.since, self.silence) * 5}"
            f"{'+' if caller.since >= self.silence else ''} ms ago"
            for number, caller in enumerate(moment.callers)
        ]
        lookers = [
            f"worker {number + 1} {one.looking or 'rests'}"
            + (f", {one.heard} notifications on the way" if one.heard else "")
            + (", to look at once" if one.is_wanted else "")
            + (f", to look again in {one.again * 5} ms" if one.again >= 0 else "")
            for number, one in enumerate(moment.lookers)
        ]
        return " · ".join([f"{moment.waiting} jobs wait", *callers, *lookers])

    def moves(self, moment: Moment) -> Iterator[tuple[Move, Moment]]:
        for number, caller in enumerate(moment.callers):
            yield from self._queues(moment, number, caller)
        for number, looker in enumerate(moment.lookers):
            yield from self._looks(moment, number, looker)
        callers = tuple(one._replace(since=min(one.since + 1, self.silence)) for one in moment.callers)
        lookers = tuple(one._replace(again=max(one.again - 1, 0) if one.again >= 0 else -1) for one in moment.lookers)
        passed = moment._replace(callers=callers, lookers=lookers)
        if passed != moment:
            yield Move("5 ms pass", "time"), passed

    def _queues(self, moment: Moment, number: int, caller: Caller) -> Iterator[tuple[Move, Moment]]:
        name = f"caller {number + 1}"
        before, after = ("commit", "notify")
        if Slip.NOTIFY_BEFORE_COMMIT in self.place.slips:
            before, after = after, before
        if not caller.at and caller.queued < self.place.jobs:
            now = caller._replace(at=f"is to {after}", queued=caller.queued + 1)
            yield Move(before, name), self._done(moment, number, now, before)
        elif caller.at:
            yield Move(after, name), self._done(moment, number, caller._replace(at=""), after)

    def _done(self, moment: Moment, number: int, caller: Caller, what: str) -> Moment:
        if what == "commit":
            moment = moment._replace(waiting=moment.waiting + 1)
        elif caller.since >= self.silence:
            caller = caller._replace(since=0)
            moment = moment._replace(lookers=tuple(one._replace(heard=one.heard + 1) for one in moment.lookers))
        return moment._replace(callers=(*moment.callers[:number], caller, *moment.callers[number + 1 :]))

    def _looks(self, moment: Moment, number: int, looker: Looker) -> Iterator[tuple[Move, Moment]]:
        name = f"worker {number + 1}"

        def now(**changes: object) -> Moment:
            one = looker._replace(**changes)  # type: ignore[arg-type]
            return moment._replace(lookers=(*moment.lookers[:number], one, *moment.lookers[number + 1 :]))

        if looker.heard:
            # However many there are, hearing the last of them is the same.
            again = -1 if Slip.NO_SECOND_LOOK in self.place.slips else self.second
            is_missed = bool(looker.looking) and Slip.WAKE_FORGOTTEN in self.place.slips
            woken = {} if is_missed else {"again": again}
            yield Move("wake", name), now(heard=0, is_wanted=not looker.looking or looker.is_wanted, **woken)
        if not looker.looking:
            if looker.is_wanted or looker.again == 0:
                again = -1 if looker.again == 0 else looker.again
                yield Move("begin to look", name), now(looking="looks", is_wanted=False, again=again)
            yield Move("poll", name, by_itself=False), now(looking="looks", is_wanted=False)
        elif looker.looking == "looks":
            yield Move("claim what is committed", name), now(looking="has looked")._replace(waiting=0)
        else:
            # A wake in the midst of a look asks for nothing at once: the second look comes anyhow.
            yield Move("end the look", name), now(looking="", is_wanted=False)
