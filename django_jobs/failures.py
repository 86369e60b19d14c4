"""Decide: an exception -> Failure, as bounded text that can always be shown. Pure; survives exceptions that can't.

Only text crosses this line: no exception object, no frame, no local variable.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator
from types import TracebackType

from django_jobs.records import Failure

MOST_FRAMES = 40
MOST_LINKS = 8
REASON_LENGTH = 1_000
TRACEBACK_LENGTH = 20_000

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def failure_of(error: BaseException, *, job: str, kind: str = "error", reason: str | None = None) -> Failure:
    """Describe what a run of `job` raised; frames of ours before the performer's are left out."""
    path = exception_path(error)
    frame = _last_frame(error)
    place = f"{frame.filename}:{frame.name}" if frame else ""
    return Failure(
        kind=kind,
        reason=shown(error) if reason is None else reason,
        exception=path,
        traceback=_text_of_chain(error),
        fingerprint=fingerprint_of(job, path, place),
    )


def fingerprint_of(*parts: str) -> str:
    """Give 40 hexadecimal digits that are equal for equal parts."""
    return hashlib.sha1("\n".join(parts).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def exception_path(error: BaseException) -> str:
    """Give the importable path of an exception's class, or what comes nearest."""
    kind = type(error)
    module = kind.__module__ if isinstance(kind.__module__, str) else "?"
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def shown(error: BaseException) -> str:
    """Give an exception's text, its class where it has none, and a fallback where its text can't be made."""
    try:
        # A subclass of str could do anything when it is cut or joined later on.
        text = str.__str__(str(error))
    except BaseException as problem:  # noqa: BLE001 - whatever a __str__ raises
        return f"{type(error).__qualname__} (its text can't be shown: {type(problem).__qualname__})"
    if not text:
        return type(error).__qualname__
    return text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}… ({len(text)} characters)"


def _text_of_chain(error: BaseException) -> str:
    try:
        links = list(_chain(error))
        text = "".join(_text_of_link(link, joint) for link, joint in reversed(links))
    except BaseException as problem:  # noqa: BLE001 - e.g. a hostile __cause__, or no memory left
        return f"{exception_path(error)}: the traceback can't be shown: {type(problem).__qualname__}"
    return text if len(text) <= TRACEBACK_LENGTH else f"{text[:2_000]}\n…\n{text[-TRACEBACK_LENGTH:]}"


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """Walk from an exception to what caused it, each with the words that join it to the one before in the text."""
    seen: set[int] = set()
    link: BaseException | None = error
    joint = ""
    while link is not None and id(link) not in seen and len(seen) < MOST_LINKS:
        seen.add(id(link))
        yield link, joint
        if link.__cause__ is not None:
            link, joint = link.__cause__, _CAUSE
        elif not link.__suppress_context__:
            link, joint = link.__context__, _CONTEXT
        else:
            link = None


def _text_of_link(error: BaseException, joint: str) -> str:
    frames = _frames(error)
    head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    notes = [f"{note}\n" for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    inner = [f"  | {exception_path(e)}: {shown(e)}\n" for e in _inner(error)]
    return "".join([*head, f"{exception_path(error)}: {shown(error)}\n", *notes, *inner, joint])


def _inner(error: BaseException) -> tuple[BaseException, ...]:
    return error.exceptions[:10] if isinstance(error, BaseExceptionGroup) else ()


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    entry = _first_foreign(error.__traceback__)
    # The newest frames say where it broke; a deep recursion has thousands of equal ones before.
    return [] if entry is None else list(traceback.extract_tb(entry, limit=-MOST_FRAMES))


def _first_foreign(entry: TracebackType | None) -> TracebackType | None:
    """Skip the frames of this package and of contextvars and asyncio that lead to the performer."""
    start = entry
    while entry is not None and entry.tb_frame.f_globals.get("__name__", "").startswith(("django_jobs.", "asgiref.")):
        entry = entry.tb_next
    return entry or start


def _last_frame(error: BaseException) -> traceback.FrameSummary | None:
    try:
        frames = _frames(error)
    except BaseException:  # noqa: BLE001 - see _text_of_chain
        return None
    return frames[-1] if frames else None
