"""Decide: a cron line, or an interval, -> its next moments. No database, no settings, no clock.

Lines are those of Debian's cron, read by cronsim: five fields (minute, hour, day of month, month, day of week), or six
with seconds before them. What a shift of the clock does to them follows cron(8) of Debian:

- A line that is *fixed*, in that neither its minute nor its hour begins with `*`, runs once for each time on the clock.
  Where that time doesn't exist it runs at the moment of the shift; where it happens twice, at the first of both.
- Every other line runs at each real moment at which the clock shows a time that matches.

cronsim is asked in times without a zone alone. Its own reading of zones goes by whole hours, and misses times on days
with a shift of half an hour, or at midnight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Words for common lines."""

EXAMPLE = '"30 3 * * MON-FRI"'

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Where the grid of every interval begins, so that it has no drift and is the same for all."""

STRIDE = timedelta(hours=12)
"""No zone shifts its clock twice within this time."""

SECOND = timedelta(seconds=1)

_RANGES = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L (the last) or LW (the last weekday)",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 (0 and 7 are Sunday), SUN-SAT, MON#2 (the second Monday) or 5L (the last Friday)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Moments that lie so far apart, on a grid that begins at the epoch; `seconds` is above 0."""

    seconds: float

    def next_after(self, instant: datetime) -> datetime:
        """Give the first moment after an instant (aware), in UTC."""
        step = timedelta(seconds=self.seconds)
        return EPOCH + ((instant - EPOCH) // step + 1) * step

    def describe(self) -> str:
        """Say when it runs, in plain words: "Every 10 minutes"."""
        left, parts = self.seconds, []
        for unit, seconds in (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0)):
            count, left = divmod(left, seconds) if seconds > 1 else (left, 0.0)
            if count:
                parts.append(unit if count == 1 else f"{count:g} {unit}s")
        return f"Every {' and '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A cron line in a time zone. `parse` checks both."""

    line: str
    zone: ZoneInfo

    def next_after(self, instant: datetime) -> datetime:
        """Give the first moment after an instant (aware), in UTC. Raises ValueError where none comes for 50 years."""
        return next(self.moments(instant))

    def moments(self, instant: datetime) -> Iterator[datetime]:
        """Give all moments after an instant (aware), in UTC and in their order."""
        find = self._next_fixed if self.is_fixed else self._next_real
        while True:
            instant = find(instant.astimezone(UTC))
            yield instant

    @cached_property
    def is_fixed(self) -> bool:
        """Whether neither minute nor hour begins with `*`."""
        minute, hour = self._fields[-5:-3]
        return not (minute.startswith("*") or hour.startswith("*"))

    @cached_property
    def _fields(self) -> list[str]:
        return _spelled_out(self.line).split()

    def describe(self) -> str:
        """Say when it runs, in plain words."""
        return CronSim(_spelled_out(self.line), EPOCH.replace(tzinfo=None)).explain()

    def bent(self, moment: datetime) -> str:
        """Say what a shift of the clock does to a moment of this line, '' where nothing."""
        local = moment.astimezone(self.zone)
        shown = f"{local:%H:%M}"
        if not self.is_fixed:
            return f"{shown} happens twice that day; it runs both times" if _happens_twice(local) else ""
        if _happens_twice(local):
            return f"{shown} happens twice that day; it runs once"
        naive = local.replace(tzinfo=None)
        if next(self._times(naive - SECOND)) != naive:
            return f"the clock is put forward to {shown}, past the time at which it would have run"
        return ""

    def moved(self, instant: datetime, *, until: datetime) -> datetime | None:
        """Give the first moment, after one and up to another, at which it runs since the clock passes over its time."""
        while self.is_fixed and (shift := self._next_shift(instant, until=until)) is not None:
            if self.next_after(shift - SECOND) == shift and self.bent(shift):
                return shift
            instant = shift
        return None

    # -- every time on the clock, once

    def _next_fixed(self, instant: datetime) -> datetime:
        for naive in self._times(self._local(instant)):
            moment = self._first_moment(naive)
            # A time that happens twice has happened once already, where this is the second pass.
            if moment > instant:
                return moment
        raise AssertionError("times come without an end, or raise")

    def _first_moment(self, naive: datetime) -> datetime:
        """Give the first moment at which the clock shows this time, or is put forward past it."""
        moment = naive.replace(tzinfo=self.zone).astimezone(UTC)
        if self._local(moment) == naive:
            return moment
        # By the clock as it was before the shift this is after it, by the clock as it is then, before.
        return self._shift(naive.replace(tzinfo=self.zone, fold=1).astimezone(UTC), moment)

    # -- every real moment at which the clock shows a time that matches

    def _next_real(self, instant: datetime) -> datetime:
        """Go from shift to shift: between two of them the clock runs as every clock does."""
        naive = self._local(instant)
        while True:
            moment = (next(self._times(naive)) - self._offset(instant)).replace(tzinfo=UTC)
            if (shift := self._next_shift(instant, until=moment)) is None:
                return moment
            # From the shift on, the shift itself included.
            instant, naive = shift, self._local(shift) - SECOND

    def _next_shift(self, instant: datetime, *, until: datetime) -> datetime | None:
        """Give the first moment after an instant, and not after another, at which the zone's offset is another one."""
        offset = self._offset(instant)
        while instant < until:
            later = min(instant + STRIDE, until)
            if self._offset(later) != offset:
                return self._shift(instant, later)
            instant = later
        return None

    # -- zone and line

    def _shift(self, before: datetime, after: datetime) -> datetime:
        """Give the moment of the one shift between two moments, to the second: the first with the new offset."""
        offset = self._offset(before)
        while after - before > SECOND:
            middle = before + (after - before) // 2
            middle -= timedelta(microseconds=middle.microsecond)
            if middle <= before:
                break
            if self._offset(middle) == offset:
                before = middle
            else:
                after = middle
        return after

    def _offset(self, moment: datetime) -> timedelta:
        offset = moment.astimezone(self.zone).utcoffset()
        assert offset is not None
        return offset

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None)

    def _times(self, naive: datetime) -> Iterator[datetime]:
        """Give the times on the clock that match, after one of them, as if it ran as every clock does."""
        for time in CronSim(_spelled_out(self.line), naive):
            yield time.replace(fold=0)
        message = f"cron line {self.line!r}: no time within 50 years after {naive} matches it"
        raise ValueError(message)


def parse(line: object, *, zone: ZoneInfo) -> Cron:
    """Read a cron line. Raises TypeError or ValueError, naming line and field, with an example of what is right."""
    if not isinstance(line, str):
        message = f"cron line {line!r:.80}: give a text, as in {EXAMPLE}"
        raise TypeError(message)
    cron = Cron(line=" ".join(line.split()), zone=zone)
    try:
        sim = CronSim(_spelled_out(cron.line), EPOCH.replace(tzinfo=None))
    except CronSimError as error:
        raise ValueError(_rephrased(line, str(error))) from None
    try:
        next(sim)
    except StopIteration:
        message = f"cron line {line!r}: no day matches it within 50 years; give one that comes, as in {EXAMPLE}"
        raise ValueError(message) from None
    return cron


def zone_of(name: str) -> ZoneInfo:
    """Give a time zone by its key. Raises ValueError, naming it."""
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        message = f"time zone {name!r:.80}: there is none of this name here; give one such as 'Europe/Paris' or 'UTC'"
        raise ValueError(message) from None


def _spelled_out(line: str) -> str:
    return ALIASES.get(line.lower(), line)


def _rephrased(line: str, problem: str) -> str:
    """Say what cronsim has against a line, with the field as it was written and what it may be."""
    fields = _spelled_out(" ".join(line.split())).split()
    if line.strip().startswith("@"):
        return f"cron line {line!r}: there is no such word; give one of {', '.join(sorted(ALIASES))}, or five fields"
    if not (named := re.fullmatch(r"Bad (.+)", problem)):
        return (
            f"cron line {line!r} has {len(fields)} fields; give five (minute, hour, day of month, month, day of week), "
            f"as in {EXAMPLE}, or six with seconds before them"
        )
    names = list(_RANGES)[-len(fields) :]
    field = fields[names.index(named[1])] if named[1] in names else ""
    return (
        f"cron line {line!r}: {named[1].replace('-', ' ')} {field!r} can't be; give {_RANGES[named[1]]}, *, lists, "
        f"ranges and steps of them, as in {EXAMPLE}"
    )


def _happens_twice(local: datetime) -> bool:
    """Whether the clock shows this time twice, an hour or so apart."""
    first, second = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    assert first is not None
    assert second is not None
    return first > second
