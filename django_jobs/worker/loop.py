"""Drive: repeat a tick, sleep as long as it says, survive a bad round."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Event, Thread

from django_jobs import clock
from django_jobs.worker.setback import Setbacks


class Loop:
    """One thread that calls `tick` again and again; what it returns is the delay in seconds until the next call.

    A round that raises is logged and counted, and the next one waits longer. `on_back` is called when the database can
    be used again, `on_death` in the loop's thread where not even the waiting succeeds.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float],
        *,
        on_end: Callable[[], None] = lambda: None,
        on_death: Callable[[], None] = lambda: None,
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._setbacks = Setbacks(name)
        self._tick = tick
        self._on_end = on_end
        self._on_death = on_death
        self._on_back = on_back
        self._is_stopped = False
        self._poked = Event()
        self._first_delay = 0.0
        # By when the next round is to begin.
        self._due_at = math.inf
        self._thread = Thread(target=self._repeat, name=f"django_jobs {name}", daemon=True)

    def start(self, *, after: float = 0.0) -> None:
        """Begin, the first round so many seconds from now."""
        self._first_delay = after
        self._due_at = clock.monotonic() + after
        self._thread.start()

    def is_late(self, now: float, bound: float) -> bool:
        """Tell whether the round that is under way, or was to begin, has taken more than `bound` seconds."""
        return now > self._due_at + bound

    def poke(self) -> None:
        """Have the next round come at once."""
        self._poked.set()

    def stop(self) -> None:
        """Have the loop end after the round it is in."""
        self._is_stopped = True
        self._poked.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end, and tell whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def turn(self) -> float:
        """Do one round and give the delay until the next."""
        try:
            delay = self._tick()
        except BaseException as error:  # noqa: BLE001 - a bad round must not end the loop, whatever it raised
            return self._setbacks.note(error)
        if self._setbacks.over():
            self._on_back()
        return delay

    def _repeat(self) -> None:
        delay = self._first_delay
        try:
            while True:
                self._poked.wait(delay)
                self._poked.clear()
                if self._is_stopped:
                    return
                delay = self.turn()
                self._due_at = clock.monotonic() + delay
        except BaseException:
            self._on_death()
            raise
        finally:
            self._on_end()
