"""Front door: what a sub-command of `manage.py jobs` is, and what it answers. Knows none of them."""

from __future__ import annotations

import json
from argparse import SUPPRESS
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

from django.core.management.base import CommandParser
from django.core.management.color import Style

Said: TypeAlias = Mapping[str, Any]
"""What was said on the command line, by the names of the options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a sub-command has found: `lines` for people, `data` for `--json`, and the code to exit with."""

    lines: Sequence[str]
    data: object
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sub:
    """A sub-command: `jobs <name>`, and with `subs` of its own `jobs <name> <sub>`.

    `run` raises CommandError for what can't be done.
    """

    name: str
    help: str
    run: Callable[[Said, Style], Answer]
    arguments: Callable[[CommandParser], None] = lambda _: None
    subs: tuple[Sub, ...] = ()


RUN = "run_sub"
"""Where the parser leaves what is to be run."""


def declare(parser: CommandParser, subs: Sequence[Sub], *, is_required: bool) -> None:
    """Have a parser understand sub-commands, and those below them."""
    below = parser.add_subparsers(metavar="sub-command", required=is_required)
    for sub in subs:
        child = below.add_parser(sub.name, help=sub.help, description=sub.help)
        # What all commands of Django understand may also stand behind the sub-command. Left out, it says nothing.
        child.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON, with stable keys")
        child.add_argument("--no-color", action="store_true", default=SUPPRESS, help="don't colorize the output")
        child.add_argument("-v", "--verbosity", type=int, choices=(0, 1, 2, 3), default=SUPPRESS, help=SUPPRESS)
        child.set_defaults(**{RUN: sub.run})
        sub.arguments(child)
        if sub.subs:
            declare(child, sub.subs, is_required=False)


def as_json(data: object) -> str:
    """Write what a sub-command has found as JSON: instants in ISO 8601, values between rooms as objects."""
    return json.dumps(_plain(data), indent=2, ensure_ascii=False)


def _plain(data: object) -> object:
    match data:
        case date() | datetime():
            return data.isoformat()
        case Mapping():
            return {str(key): _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case _ if is_dataclass(data) and not isinstance(data, type):
            return {field.name: _plain(getattr(data, field.name)) for field in fields(data)}
        case _:
            return data


# -- tables

WIDTH = 100
"""So many characters a line has at the most."""

GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[str]], style: Style, *, cut: int = 0) -> list[str]:
    """Lay rows out under their heads, in columns that fit the width: what is too long is cut in the column `cut`.

    Texts are plain; what is said in colour comes in lines of its own.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths[cut] = max(
        len(head[cut]), 8, min(widths[cut], WIDTH - sum(widths) + widths[cut] - len(GAP) * (len(widths) - 1))
    )
    return [style.SQL_KEYWORD(_row(head, widths)), *(_row(row, widths) for row in rows)]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(shortened(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def shortened(text: str, width: int) -> str:
    """Cut a text to a width, and show that it was."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def wrapped(text: str, *, indent: str) -> Iterator[str]:
    """Break a text into lines that fit, each behind an indent; a word that is longer than a line stays whole."""
    line = ""
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > WIDTH:
            yield indent + line
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        yield indent + line
