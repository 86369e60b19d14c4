"""Decide: what was measured, as values, and the arithmetic on it. No database, no clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Rejected(Exception):
    """A run that measured something else than it should: its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of several runs; `raw` are those of the raw loop, in the same order, each measured beside ours."""

    name: str
    what: str
    unit: str
    values: tuple[float, ...]
    raw: tuple[float, ...] = ()
    goal: str = ""
    beside: str = ""
    """The name of another figure of the run that this one is a share of."""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        return spread(self.values)

    @property
    def raw_value(self) -> float | None:
        return statistics.median(self.raw) if self.raw else None

    @property
    def ratio(self) -> float | None:
        """What ours is of the raw loop's."""
        return ratio(self.values, self.raw) if self.raw else None


def percentile(values: Iterable[float], share: float) -> float:
    """Give the smallest of the values that at least this share of them doesn't exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> float:
    """Give the distance between the extremes as a share of the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def ratio(values: Sequence[float], raw: Sequence[float]) -> float:
    """Give the median of the ratios of runs that were measured beside each other: what slowed both is out of it."""
    return statistics.median(value / limit for value, limit in zip(values, raw, strict=True))


def rate(ends: Sequence[tuple[str, float]]) -> float:
    """Give ends per second from the first to the last, without the first batch; each is who wrote it, and when."""
    return _rate([end for _, end in ends], since=min(end for _, end in ends))


def rate_at_work(ends: Sequence[tuple[str, float]]) -> float:
    """Do as `rate`, from the moment when the last of the workers has ended its first batch."""
    first: dict[str, float] = {}
    for worker, end in ends:
        first[worker] = min(end, first.get(worker, end))
    return _rate([end for _, end in ends], since=max(first.values()))


def _rate(ends: Sequence[float], *, since: float) -> float:
    counted = sum(end > since for end in ends)
    if not counted:
        raise Rejected("there were too few jobs to take the time of: all ended in the first batch")
    return counted / (max(ends) - since)


Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """When one job was due, and when and in which slot its body ran."""

    slot: str
    due: float
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idling:
    """How slots idled while due jobs waited: the longest time of one slot, and the share of all slots' time."""

    longest: float
    share: float


def idling(bodies: Sequence[Body], *, slots: int) -> Idling:
    """Compute how long slots were free while a job was due whose body hadn't begun.

    A slot is a thread: it is free from the end of one body until the next one begins in it, and all the time if no body
    ever ran in it. Of these times only those count in which at least one job waited.
    """
    waiting = _union((body.due, body.begin) for body in bodies)
    begin, end = waiting[0][0], waiting[-1][1]
    busy: dict[str, list[Interval]] = {}
    for body in bodies:
        busy.setdefault(body.slot, []).append((body.begin, body.end))
    free = [_gaps(_union(intervals), begin, end) for intervals in busy.values()]
    free += [[(begin, end)]] * (slots - len(busy))
    idle = [_common(gaps, waiting) for gaps in free]
    lengths = [high - low for intervals in idle for low, high in intervals]
    waited = sum(high - low for low, high in waiting)
    return Idling(longest=max(lengths, default=0.0), share=sum(lengths) / (slots * waited) if waited else 0.0)


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _gaps(busy: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    edges = [begin, *(edge for interval in busy for edge in interval), end]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]


def _common(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Give what two ordered lists of intervals have in common."""
    common: list[Interval] = []
    place = 0
    for low, high in some:
        while place < len(others) and others[place][1] <= low:
            place += 1
        for other_low, other_high in others[place:]:
            if other_low >= high:
                break
            common.append((max(low, other_low), min(high, other_high)))
    return common
