"""Drive: repeat a tick, sleep as long as it says, survive a bad round."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from django_jobs import signals

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


def pause_after(failures: int) -> float:
    """Give the seconds to wait after so many bad rounds in a row."""
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE)


class Loop:
    """One thread that calls `tick` again and again; what it returns is the delay in seconds until the next call.

    A round that raises is logged and counted, and the next one waits longer. `on_death` is called in the loop's thread
    where not even that succeeds.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], float],
        *,
        on_end: Callable[[], None] = lambda: None,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.failures = 0
        self._tick = tick
        self._on_end = on_end
        self._on_death = on_death
        self._is_stopped = False
        self._poked = Event()
        self._first_delay = 0.0
        self._thread = Thread(target=self._repeat, name=f"django_jobs {name}", daemon=True)

    def start(self, *, after: float = 0.0) -> None:
        """Begin, the first round so many seconds from now."""
        self._first_delay = after
        self._thread.start()

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
            self.failures += 1
            message = f"{self.name}: a round failed ({self.failures} in a row): {error!r}"
            signals.tell(signals.odd, None, message=message, exception=error, level=logging.ERROR)
            return pause_after(self.failures)
        self.failures = 0
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
        except BaseException:
            self._on_death()
            raise
        finally:
            self._on_end()
