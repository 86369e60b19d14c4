"""Decide: what `runjobs` may be told. One table; each row is a flag, an environment variable and a key of WORKER."""

from __future__ import annotations

import difflib
import sys
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_jobs import durations
from django_jobs.worker.plan import default_concurrency, parse_queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One thing that may be said, by `--its-name`, by DJANGO_JOBS_ITS_NAME, or as DJANGO_JOBS["WORKER"]["its_name"].

    `read` turns what was said, text or a value of the settings, into the value that is meant; it is also told where it
    was said, and raises ValueError or TypeError with the remedy. `metavar` "" makes a switch of it: --x and --no-x.
    """

    name: str
    read: Callable[[str, Any], Any]
    help: str
    metavar: str = ""
    also: tuple[str, ...] = ()

    @property
    def spelling(self) -> str:
        """How it is written on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable that says the same."""
        return f"DJANGO_JOBS_{self.name.upper()}"

    def declare(self, parser: ArgumentParser) -> None:
        """Add it to a parser. What isn't said stays None; values stay text until they are read."""
        words = f"{self.help} [{self.variable}]".replace("%", "%%")
        if self.metavar:
            parser.add_argument(*self.also, self.spelling, default=None, metavar=self.metavar, help=words)
        else:
            parser.add_argument(self.spelling, *self.also, default=None, action=BooleanOptionalAction, help=words)


def said(options: Mapping[str, Any], environment: Mapping[str, str], setting: Mapping[str, Any]) -> dict[str, Any]:
    """Give the value of each flag that was said somewhere: a flag goes before its variable, that before the setting.

    An empty variable says nothing. Raises ValueError or TypeError with the remedy.
    """
    refuse_unknown(setting)
    values: dict[str, Any] = {}
    for flag in FLAGS:
        for where, value in (
            (flag.spelling, options.get(flag.name)),
            (flag.variable, environment.get(flag.variable) or None),
            (f"DJANGO_JOBS['WORKER'][{flag.name!r}]", setting.get(flag.name)),
        ):
            if value is not None:
                values[flag.name] = flag.read(where, value)
                break
    return values


def unknown_keys(setting: Mapping[str, Any]) -> dict[str, str]:
    """Map each key of DJANGO_JOBS["WORKER"] that no flag has to the nearest one that is, '' where none is near."""
    names = [flag.name for flag in FLAGS]
    strangers = [str(key) for key in setting if key not in names]
    return {
        key: next(iter(difflib.get_close_matches(key.lower().replace("-", "_"), names, n=1)), "") for key in strangers
    }


def refuse_unknown(setting: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the remedy, where DJANGO_JOBS["WORKER"] has a key that no flag has."""
    for key, near in unknown_keys(setting).items():
        remedy = f"did you mean {near!r}?" if near else f"the keys are {', '.join(flag.name for flag in FLAGS)}"
        message = f"DJANGO_JOBS['WORKER'] has the unknown key {key!r}; {remedy}"
        raise ValueError(message)


# -- readers


def _queues(_where: str, value: Any) -> dict[str, int | None] | None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    return parse_queues(str(value))


def _text(_where: str, value: Any) -> str:
    return str(value)


def count(where: str, value: Any) -> int:
    """Read a whole number of 1 or more."""
    try:
        number = 0 if isinstance(value, (bool, float)) else int(value)
    except (ValueError, TypeError):
        number = 0
    if number < 1:
        message = f"{where} {value}: give 1 or more"
        raise ValueError(message)
    return number


def seconds(where: str, value: Any) -> float:
    """Read a duration, as seconds."""
    return durations.parse(value, what=where).total_seconds()


def above_zero(where: str, value: Any) -> float:
    """Read a duration that isn't nothing, as seconds."""
    if (found := seconds(where, value)) <= 0:
        message = f"{where} {value}: give more than 0 seconds, or leave it out for no limit"
        raise ValueError(message)
    return found


_YES_AND_NO = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def switch(where: str, value: Any) -> bool:
    """Read yes or no."""
    known = _YES_AND_NO.get(str(value).strip().lower())
    if known is None:
        message = f"{where} {value}: give 1 or 0, true or false, yes or no, on or off"
        raise ValueError(message)
    return known


def default_processes() -> int:
    """Give one worker process; none on Windows, which can't hand descriptors over."""
    return 0 if sys.platform == "win32" else 1


def processes(where: str, value: Any) -> int | None:
    """Read the number of worker processes; None for one a core."""
    if str(value) == "auto":
        return None
    if not str(value).isdigit():
        message = f"{where} {value}: give a whole number of 0 or more, or auto"
        raise ValueError(message)
    return int(value)


FLAGS = (
    Flag(
        name="queues", also=("-q",), metavar="a,b:4", read=_queues,
        help="queues to serve, all by default; b:4 runs at most four jobs of b at once in this command",
    ),
    Flag(
        name="concurrency", also=("-c",), metavar="N", read=count,
        help=f"jobs to run at once (default {default_concurrency()}: two a core, ten at the most)",
    ),
    Flag(
        name="processes", metavar="N", read=processes,
        help="worker processes (default 1, auto: one a core); 0 works within this process, without hard kills and "
        "crash isolation",
    ),
    Flag(name="name", metavar="NAME", read=_text, help="what to call this worker (default host:pid)"),
    Flag(name="drain", also=("--once",), read=switch, help="run until nothing is due, then exit"),
    Flag(
        name="reload", read=switch,
        help="replace worker processes when the project's code changes (default: settings.DEBUG)",
    ),
    Flag(name="fail_on_error", read=switch, help="with --drain: exit 4 if a job failed for good meanwhile"),
    Flag(
        name="max_jobs", metavar="N", read=count,
        help="replace a worker process after so many jobs (these limits differ by up to 10 % from process to process; "
        "its running jobs finish; with --processes 0 the command ends instead)",
    ),
    Flag(name="max_memory", metavar="MB", read=count, help="replace a worker process that takes more memory"),
    Flag(name="max_runtime", metavar="S", read=above_zero, help="replace a worker process after that time"),
    Flag(
        name="idle_timeout", metavar="S", read=above_zero,
        help="end the whole command, with exit code 0, when nothing was to do for that long",
    ),
    Flag(name="grace", metavar="S", read=seconds, help="time for running jobs when stopping (default 15 s)"),
    Flag(
        name="poll_interval", metavar="S", read=seconds,
        help="how often to look for jobs that nobody told of (default 1 s, 5 s while the database is heard)",
    ),
    Flag(
        name="heartbeat_file", metavar="PATH", read=_text, help="a file to touch each second while all is well"
    ),
    Flag(name="probe_port", metavar="N", read=_text, help="answer /live, /ready and /started on this port"),
    Flag(
        name="probe_host", metavar="HOST", read=_text,
        help="where to listen for probes (default 127.0.0.1; 0.0.0.0 in a container probed from outside)",
    ),
)  # fmt: skip
