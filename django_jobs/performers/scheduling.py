"""Declare: schedules in code, by `every()` and `@job(schedule=…)`. Importing a `jobs` module reads no setting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args
from zoneinfo import ZoneInfo

from django_jobs import codec, cron, durations
from django_jobs.conf import settings
from django_jobs.durations import Duration
from django_jobs.performers.instances import reference
from django_jobs.performers.options import UNSET, Options, Unset, check_moment, check_options
from django_jobs.performers.performer import Performer
from django_jobs.performers.registry import AnyPerformer, find_performer
from django_jobs.records import NewJob
from django_jobs.ticks import Timing

Missed: TypeAlias = Literal["once", "skip", "all"]
Overlap: TypeAlias = Literal["allow", "skip"]

NAME_LENGTH = LINE_LENGTH = 200
"""So many characters the name of a schedule, and a cron line, may have: what the columns hold."""

UTC_ZONE = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A schedule as code declares it. `args` and `kwargs` are JSON text.

    A cron line, or `every_seconds`. `time_zone` '' is the setting's, `queue` '' and `priority` None the performer's.
    """

    name: str
    performer: str
    cron: str
    every_seconds: float | None
    time_zone: str
    args: str
    kwargs: str
    queue: str
    priority: int | None
    missed: Missed
    overlap: Overlap
    jitter: float
    starts: datetime | None
    ends: datetime | None


class _Entry(NamedTuple):
    """A schedule, and the performer that it is for."""

    declared: Declared
    performer: AnyPerformer

    @property
    def is_current(self) -> bool:
        """Whether that is the one which is registered under its name."""
        return find_performer(self.performer.name) is self.performer


_entries: dict[str, _Entry] = {}
_clashes: list[tuple[_Entry, _Entry]] = []


def every(
    timing: str | timedelta,
    performer: AnyPerformer,
    *,
    args: Iterable[object] = (),
    kwargs: Mapping[str, object] | None = None,
    name: str | None = None,
    queue: str | Unset = UNSET,
    priority: int | Unset = UNSET,
    time_zone: str | None = None,
    missed: Missed = "once",
    overlap: Overlap = "allow",
    jitter: Duration = 0,
    starts: datetime | None = None,
    ends: datetime | None = None,
) -> None:
    """Have a performer's job be queued again and again: by a cron line, or at an interval.

    - `timing`: a cron line ("0 3 * * *"; six fields begin with seconds), one of its words ("@daily"), or a timedelta,
      whose ticks lie on a grid that begins at the epoch, so that they don't drift
    - `args` and `kwargs` are given to the performer each time; `queue` and `priority` are its own unless said here
    - `name` tells it from others, and from that of another release; by default it is the performer's
    - `time_zone` is a key such as "Europe/Paris", by default that of the setting TIME_ZONE; what a shift of the clock
      does says `django_jobs.cron`
    - `missed` says what becomes of ticks that passed by more than a minute while nothing ran: "once" (one job for all
      of them), "skip", or "all" (one each, the newest hundred)
    - `overlap`: "skip" leaves a tick out while the job of an earlier one waits or runs
    - `jitter` has each job start up to so much later; no tick comes before `starts` or after `ends` (aware)

    Raises TypeError or ValueError, naming what was given and the remedy, for wrong values and arguments that don't fit.
    """
    _refuse_stranger(performer)
    declared = check(
        performer, timing, args=args, kwargs={} if kwargs is None else kwargs,
        name=performer.name if name is None else name, queue=queue, priority=priority, time_zone=time_zone,
        missed=missed, overlap=overlap, jitter=jitter, starts=starts, ends=ends,
    )  # fmt: skip
    enter(declared, performer)


def check(
    performer: AnyPerformer,
    timing: object,
    *,
    name: object,
    args: object = (),
    kwargs: object = MappingProxyType({}),
    queue: str | Unset = UNSET,
    priority: int | Unset = UNSET,
    time_zone: object = None,
    missed: object = "once",
    overlap: object = "allow",
    jitter: Duration = 0,
    starts: object = None,
    ends: object = None,
    call: str = "every()",
) -> Declared:
    """Check what is said of a schedule. Raises TypeError or ValueError, naming what was given and the remedy."""
    placed = {key: value for key, value in (("queue", queue), ("priority", priority)) if value is not UNSET}
    options = check_options(placed, Options(), call=call)
    line, seconds = _timing(timing, call)
    encoded_args, encoded_kwargs = _arguments(performer, args, kwargs, call)
    declared = Declared(
        name=_check_name(name, call),
        performer=performer.name,
        cron=line,
        every_seconds=seconds,
        time_zone=_check_zone(time_zone, call),
        args=encoded_args,
        kwargs=encoded_kwargs,
        queue="" if isinstance(options.queue, Unset) else options.queue,
        priority=None if isinstance(options.priority, Unset) else options.priority,
        missed=_one_of("missed", missed, Missed, call),  # type: ignore[arg-type]
        overlap=_check_overlap(performer, overlap, call),
        jitter=durations.parse(jitter, what=f"{call} jitter").total_seconds(),
        starts=_moment("starts", starts, call),
        ends=_moment("ends", ends, call),
    )
    _refuse_never(declared, call)
    return declared


def enter(declared: Declared, performer: AnyPerformer) -> None:
    """Enter a schedule under its name; of two with one name the first stays, and both are a clash."""
    holder = _entries.get(declared.name)
    if holder is None or not holder.is_current:
        # None, or one of a module that was executed again since.
        _entries[declared.name] = _Entry(declared, performer)
    elif holder.declared != declared:
        _clashes.append((holder, _Entry(declared, performer)))


def declared() -> list[Declared]:
    """List the schedules that code declares, by name."""
    return [_entries[name].declared for name in sorted(_entries) if _entries[name].is_current]


def schedule_clashes() -> list[tuple[Declared, Declared]]:
    """List schedules of one name, the one that counts first."""
    return [(one.declared, other.declared) for one, other in _clashes if one.is_current and other.is_current]


def hash_of(schedules: Iterable[Declared]) -> str:
    """Say in short what a set of schedules is; '' for none."""
    said = [json.dumps(asdict(one), default=str, sort_keys=True) for one in schedules]
    return hashlib.sha256("\n".join(sorted(said)).encode()).hexdigest() if said else ""


class Timed(Protocol):
    """What says when it fires: a cron line, or an interval in seconds. `time_zone` '' is the setting's."""

    @property
    def cron(self) -> str: ...

    @property
    def every_seconds(self) -> float | None: ...

    @property
    def time_zone(self) -> str: ...


def timing_of(schedule: Timed, *, time_zone: str | None = None) -> Timing:
    """Give when a schedule fires; `time_zone` is in place of the setting's. Raises TypeError or ValueError."""
    zone = cron.zone_of(schedule.time_zone or time_zone or settings().time_zone)
    return cron.parse(schedule.cron, zone=zone) if schedule.cron else interval_of(schedule.every_seconds)


def interval_of(every_seconds: float | None) -> cron.Interval:
    """Give an interval. Raises ValueError for one that no schedule has."""
    if every_seconds is None or not LEAST.total_seconds() <= every_seconds <= durations.LONGEST.total_seconds():
        message = (
            f"an interval of {every_seconds!r:.80} seconds: give a tenth of a second or more, and not more than a "
            "hundred years, or a cron line"
        )
        raise ValueError(message)
    return cron.Interval(seconds=every_seconds)


def fired(
    performer: AnyPerformer, args: str, kwargs: str, *, queue: str, priority: int | None, run_at: datetime
) -> NewJob:
    """Prepare the job of a tick by its performer's policy.

    It is made where no user code runs, so META isn't asked. Raises as `prepare` does where the stored arguments no
    longer fit.
    """
    given_args, given_kwargs = codec.decode_arguments(args, kwargs)
    placed: dict[str, Any] = {"queue": queue} if queue else {}
    if priority is not None:
        placed["priority"] = priority
    return performer.using(**placed).at(run_at).prepare_unasked(*given_args, **given_kwargs)


# -- one check for each thing that may be said


def _refuse_stranger(performer: object) -> None:
    if not isinstance(performer, Performer):
        message = f"every(): {performer!r:.80}: give a performer, which is what @job made of a function"
        raise TypeError(message)


LEAST = timedelta(seconds=0.1)
"""The shortest interval."""


def _timing(timing: object, call: str) -> tuple[str, float | None]:
    if isinstance(timing, timedelta):
        if durations.parse(timing, what=f"{call} interval") < LEAST:
            message = f"{call}: an interval of {timing}: give a tenth of a second or more"
            raise ValueError(message)
        return "", timing.total_seconds()
    if not isinstance(timing, str):
        message = f"{call}: {timing!r:.80}: give a cron line, as in {cron.EXAMPLE}, or a timedelta"
        raise TypeError(message)
    line = cron.parse(timing, zone=UTC_ZONE).line
    if len(line) > LINE_LENGTH:
        message = f"{call}: a cron line of {len(line)} characters: give {LINE_LENGTH} at the most, or two schedules"
        raise ValueError(message)
    return line, None


def _check_name(name: object, call: str) -> str:
    if not isinstance(name, str):
        message = f"{call}: name={name!r:.80}: give a text"
        raise TypeError(message)
    if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable() or name != name.strip():
        message = f"{call}: name={name!r:.220}: give 1 to {NAME_LENGTH} characters that can be seen"
        raise ValueError(message)
    return str.__str__(name)


def _check_zone(time_zone: object, call: str) -> str:
    if time_zone is None:
        return ""
    if not isinstance(time_zone, str):
        message = f"{call}: time_zone={time_zone!r:.80}: give the key of a zone, such as 'Europe/Paris'"
        raise TypeError(message)
    return cron.zone_of(time_zone).key


def _arguments(performer: AnyPerformer, args: object, kwargs: object, call: str) -> tuple[str, str]:
    if isinstance(args, (str, bytes, Mapping)) or not isinstance(args, Iterable):
        message = f"{call}: args={args!r:.80}: give a tuple of arguments; one alone is written (x,)"
        raise TypeError(message)
    if not isinstance(kwargs, Mapping):
        message = f"{call}: kwargs={kwargs!r:.80}: give a dict of arguments by name"
        raise TypeError(message)
    positional, named = tuple(args), dict(kwargs)
    try:
        performer.check_fit(positional, named)
    except TypeError as error:
        message = f"{call}: {performer.name}{performer.signature}: {error}; a schedule gives it these arguments"
        raise TypeError(message) from None
    return codec.encode_arguments(positional, named, limit=None, reference=reference)


def _one_of(option: str, value: object, words: Any, call: str) -> object:
    if value not in get_args(words):
        message = f"{call}: {option}={value!r:.80}: give one of {', '.join(map(repr, get_args(words)))}"
        raise ValueError(message)
    return value


def _check_overlap(performer: AnyPerformer, overlap: object, call: str) -> Overlap:
    _one_of("overlap", overlap, Overlap, call)
    keyed = {UNSET, None}
    if overlap == "skip" and not (
        keyed.issuperset({performer.options.unique}) and keyed.issuperset({performer.options.unique_while_waiting})
    ):
        message = (
            f"{call}: overlap='skip' is a unique key, and {performer.name} has one of its own; leave out one of them"
        )
        raise ValueError(message)
    return overlap  # type: ignore[return-value]


def _moment(option: str, moment: object, call: str) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        message = f"{call}: {option}={moment!r:.80}: give an aware datetime"
        raise TypeError(message)
    return check_moment(moment, call=f"{call} {option}").astimezone(UTC)


def _refuse_never(declared: Declared, call: str) -> None:
    if declared.starts is not None and declared.ends is not None and declared.ends < declared.starts:
        message = f"{call}: ends={declared.ends} is before starts={declared.starts}: no tick would ever come"
        raise ValueError(message)
