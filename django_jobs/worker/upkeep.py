"""Drive: what a command does once for all its workers: it looks out, beats, and shows that it is well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from django_jobs import signals
from django_jobs.worker.beat import Beat, Member
from django_jobs.worker.health import Health
from django_jobs.worker.link import Link
from django_jobs.worker.lookout import Lookout
from django_jobs.worker.loop import Loop
from django_jobs.worker.plan import Plan
from django_jobs.worker.signs import Signs


class MakeLoop(Protocol):
    """Makes a loop that its command minds."""

    def __call__(self, name: str, tick: Callable[[], float], *, on_end: Callable[[], None]) -> Loop: ...


class Upkeep:
    """Lookout, beat and health of a command, wired. `wake` has its crews look for jobs."""

    def __init__(
        self,
        plan: Plan,
        *,
        members: Callable[[], Iterable[Member]],
        wanted: int,
        wake: Callable[[], None],
        loops: Callable[[], Sequence[Loop]],
        make_loop: MakeLoop,
        signs: Signs,
    ) -> None:
        self._wake = wake
        self._pid = os.getpid()
        self._lookout = Lookout(link=Link(plan.alias), plan=plan, wake=wake)
        self._looking = make_loop("lookout", self._lookout.tick, on_end=self._lookout.close)
        beat = Beat(link=Link(plan.alias), members=members)
        self._beating = make_loop("beat", beat.tick, on_end=beat.close)
        self.loops = [self._looking, self._beating]
        self.health = Health(members=members, wanted=wanted, loops=loops, beat=beat, signs=signs)

    def begin(self) -> None:
        """Show the signs, and hear of jobs that this process takes back."""
        signals.jobs_reclaimed.connect(self._on_reclaimed)
        self.health.begin()

    def end(self) -> None:
        """Take the signs down."""
        self.health.end()
        signals.jobs_reclaimed.disconnect(self._on_reclaimed)

    def _on_reclaimed(self, **_: Any) -> None:
        # Nobody was told of them, and whoever has room may run them at once. In a forked child the crews aren't there,
        # and their lock may be held for ever.
        if os.getpid() == self._pid:
            self.news()

    def news(self) -> None:
        """Wake the crews, since something is new; and it may be for later."""
        self._wake()
        self._looking.poke()

    def hear(self, is_hearing: bool) -> None:  # noqa: FBT001 - the listener's word
        """Rely on being told of new jobs, or not."""
        self._lookout.hear(is_hearing=is_hearing)
        self.health.hear()
        self._looking.poke()

    def beat(self) -> None:
        """Say at once who is alive: a worker came or went."""
        self._beating.poke()
