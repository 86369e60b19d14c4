"""Decide: which ticks of a schedule are due, which of them were missed, and when the next one is. Asks no clock."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeAlias

from django_jobs.cron import Cron, Interval

Timing: TypeAlias = Cron | Interval

ONCE, SKIP, ALL = "once", "skip", "all"
"""What is done about missed ticks: one job for all of them, none, or one for each."""

MISSED_AFTER = timedelta(minutes=1)
"""A tick is missed when it is so late, or late by a whole interval where that is shorter."""

MOST_FIRED = 100
"""So many missed ticks are made up for at the most: the newest."""

MOST_COUNTED = 10_000
"""So many overdue ticks are counted; of more only the newest are looked for."""

MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done about a schedule: ticks to fire, the oldest first, how many are skipped, and the next one."""

    ticks: tuple[datetime, ...]
    skipped: int
    next_at: datetime | None


def first_tick(
    timing: Timing, after: datetime, *, starts: datetime | None = None, ends: datetime | None = None
) -> datetime | None:
    """Give the first tick after a moment, not before `starts` nor after `ends`; None where there is none."""
    try:
        begin = after if starts is None or starts <= after else starts - MOMENT
        tick = timing.next_after(begin)
    except (ValueError, OverflowError):
        return None
    return None if ends is not None and tick > ends else tick


def due(timing: Timing, next_at: datetime, now: datetime, *, missed: str = ONCE, ends: datetime | None = None) -> Due:
    """Decide what is to be done `now` about a schedule whose next tick was to be `next_at`, which isn't after `now`.

    With "once" one job stands for all that was missed: that of the newest tick, whether it was missed itself or not.
    """
    overdue, uncounted = _overdue(timing, next_at, now, ends)
    late = [
        tick for tick, following in zip(overdue, [*overdue[1:], None], strict=True) if _is_missed(tick, following, now)
    ]
    match missed:
        case "all":
            fired = overdue[-MOST_FIRED:]
        case "skip":
            fired = overdue[len(late) :]
        case _:
            fired = overdue[-1:]
    return Due(
        ticks=tuple(fired),
        skipped=len(overdue) - len(fired) + uncounted,
        next_at=first_tick(timing, now, ends=ends),
    )


def _is_missed(tick: datetime, following: datetime | None, now: datetime) -> bool:
    bound = MISSED_AFTER if following is None else min(MISSED_AFTER, following - tick)
    return now - tick > bound


def _overdue(timing: Timing, next_at: datetime, now: datetime, ends: datetime | None) -> tuple[list[datetime], int]:
    """Give the ticks from one on that aren't after now, and how many more there were at the least, before those."""
    found = [next_at, *islice(_until(timing, next_at, now, ends), MOST_COUNTED)]
    if len(found) <= MOST_COUNTED:
        return found, 0
    span = MISSED_AFTER
    while len(newest := deque(_until(timing, max(now - span, found[-1]), now, ends), MOST_FIRED)) < MOST_FIRED:
        if now - span < found[-1]:
            break
        span *= 2
    return ([*newest], len(found)) if newest else (found, 0)


def _until(timing: Timing, after: datetime, now: datetime, ends: datetime | None) -> Iterator[datetime]:
    tick = first_tick(timing, after, ends=ends)
    while tick is not None and tick <= now:
        yield tick
        tick = first_tick(timing, tick, ends=ends)


def jittered(name: str, tick: datetime, jitter: float) -> datetime:
    """Give the moment of a tick with its jitter, up to so many seconds late: the same for whoever asks."""
    if not jitter:
        return tick
    drawn = int.from_bytes(hashlib.sha256(f"{name} {tick.isoformat()}".encode()).digest()[:8])
    return tick + timedelta(seconds=jitter * drawn / 2**64)
