"""Decide: an exception -> Failure, as bounded text that can always be shown. Pure; survives exceptions that can't.

Only text crosses this line: no exception object, no frame, no local variable.
"""

from __future__ import annotations

import hashlib
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import FrameType, TracebackType

from django_jobs.records import Failure

MOST_FRAMES = 40
MOST_LINKS = 8
MOST_NOTES = 10
MOST_MEMBERS = 10
DEEPEST_GROUP = 3
REASON_LENGTH = 1_000
TRACEBACK_LENGTH = 20_000
CUT_MARK = "\n…\n"

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_HEAD = "Traceback (most recent call last):\n"

_OURS = ("django_jobs.runner", "asgiref.")
"""Modules whose frames lead to every performer, so they tell nothing."""


def failure_of(error: BaseException, *, job: str, kind: str = "error", reason: object = None) -> Failure:
    """Describe what a run of `job` raised; `reason` says more than the exception's own text where it is given."""
    path = exception_path(error)
    return Failure(
        kind=kind,
        reason=_text_of(error) if reason is None else shown(reason),
        exception=path,
        traceback=_guarded(error, _chain_text, error),
        fingerprint=fingerprint_of(job, path, _place_of(error)),
    )


def fingerprint_of(*parts: str) -> str:
    """Give 40 hexadecimal digits that are equal for equal parts."""
    return hashlib.sha1("\n".join(parts).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def exception_path(error: BaseException) -> str:
    """Give the importable path of an exception's class, or what comes nearest."""
    module, name = _said(error, "__module__"), _said(error, "__qualname__")
    return f"{module}.{name}" if module else name


def shown(value: object) -> str:
    """Give a value's text, plain and bounded; where it can't be made, say why not."""
    try:
        # The text may be of a subclass of str, which could do anything when it is cut or joined later on.
        text = str.__str__(str(value))
    except BaseException as problem:  # noqa: BLE001 - whatever a __str__ raises
        return f"{_title(value)} (its text can't be shown: {_title(problem)})"
    return text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}… ({len(text)} characters)"


# -- a line of an exception


def _text_of(error: BaseException) -> str:
    return shown(error) or _title(error)


def _title(value: object) -> str:
    """Name a value's class without its module."""
    return _said(value, "__name__")


def _said(value: object, attribute: str) -> str:
    """Read a name of a value's class past its metaclass, which may say anything; '' where it is no text."""
    try:
        text = type.__dict__[attribute].__get__(type(value))
    except AttributeError:
        return ""
    return str.__str__(text) if isinstance(text, str) else ""


def _line_of(error: BaseException) -> str:
    path = exception_path(error).removeprefix("builtins.")
    text = shown(error)
    return f"{path}: {text}\n" if text else f"{path}\n"


def _guarded(error: BaseException, make: Callable[..., str], *arguments: object) -> str:
    """Make a text about an exception, of the exception's class alone where even that fails."""
    try:
        return make(*arguments)
    except BaseException as problem:  # noqa: BLE001 - a hostile attribute, or no memory left
        return f"{exception_path(error)}: its traceback can't be shown: {_title(problem)}\n"


# -- an exception with what caused it


def _chain_text(error: BaseException) -> str:
    links: list[tuple[BaseException, str]] = []
    with suppress(BaseException):  # What a hostile __cause__ hides is left out.
        links.extend(islice(_chain(error), MOST_LINKS + 1))
    left_out = "… what came before is left out\n" if len(links) > MOST_LINKS else ""
    texts = [_guarded(link, _link_text, link, 1) + joint for link, joint in reversed(links[:MOST_LINKS])]
    text = left_out + "".join(texts)
    if len(text) <= TRACEBACK_LENGTH:
        return text
    room = TRACEBACK_LENGTH - len(CUT_MARK)
    # The end tells most.
    return f"{text[: room // 10]}{CUT_MARK}{text[room // 10 - room :]}"


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Walk from an exception to what caused it, each with the words that join it to the one before in the text."""
    seen: set[int] = set()
    link: BaseException | None = error
    joint = ""
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link, joint
        if link.__cause__ is not None:
            link, joint = link.__cause__, _CAUSE
        elif not link.__suppress_context__:
            link, joint = link.__context__, _CONTEXT
        else:
            link = None


def _link_text(error: BaseException, depth: int) -> str:
    """Give what Python would print of one exception: its frames, itself, its notes, the members of a group."""
    notes = [f"{shown(note)}\n" for note in _notes(error)[:MOST_NOTES]]
    members = _members(error) if depth <= DEEPEST_GROUP else ()
    texts = [textwrap.indent(_guarded(m, _link_text, m, depth + 1), "  | ") for m in members[:MOST_MEMBERS]]
    if len(members) > MOST_MEMBERS:
        texts.append(f"  | … and {len(members) - MOST_MEMBERS} more\n")
    return "".join([_frames_text(error), _line_of(error), *notes, *texts])


def _notes(error: BaseException) -> list[object]:
    with suppress(BaseException):
        notes = getattr(error, "__notes__", None)
        return list(notes) if isinstance(notes, (list, tuple)) else []
    return []


def _members(error: BaseException) -> tuple[BaseException, ...]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


# -- frames


def _frames_text(error: BaseException) -> str:
    entry = _first_foreign(error.__traceback__)
    if entry is None:
        return ""
    left_out = sum(1 for _ in traceback.walk_tb(entry)) - MOST_FRAMES
    # The newest say where it broke; a deep recursion has thousands of equal ones before.
    lines = traceback.format_list(traceback.extract_tb(entry, limit=-MOST_FRAMES))
    return "".join([_HEAD, f"  … {left_out} frames left out\n" if left_out > 0 else "", *lines])


def _first_foreign(entry: TracebackType | None) -> TracebackType | None:
    """Skip the frames that lead to the performer; where there are no others, give them all."""
    start = entry
    while entry is not None and _module_of(entry.tb_frame).startswith(_OURS):
        entry = entry.tb_next
    return entry or start


def _place_of(error: BaseException) -> str:
    """Name the function that raised; lines move with every edit, and files with every release."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    return f"{_module_of(entry.tb_frame)}:{entry.tb_frame.f_code.co_qualname}" if entry else ""


def _module_of(frame: FrameType) -> str:
    name = dict.get(frame.f_globals, "__name__")
    return str.__str__(name) if isinstance(name, str) else ""
