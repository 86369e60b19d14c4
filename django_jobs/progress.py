"""Decide: what a body says of how far it is, as a value that a row and every reader can hold. Pure."""

from __future__ import annotations

from operator import index
from typing import NamedTuple

MOST = 2**53 - 1
"""JavaScript, which reads it on users' pages, counts exactly up to here."""

MESSAGE_LENGTH = 500
"""So many characters of a message are kept."""


class Progress(NamedTuple):
    """How far a body is: so many are done, of so many in all where that is known, and a line for people.

    `done` may be more than `total`: an estimate that was too low fails no job.
    """

    done: float
    total: float | None = None
    message: str = ""

    @property
    def values(self) -> dict[str, object]:
        """What stands in the row."""
        return {"done": self.done, "total": self.total, "message": self.message}


def checked(done: object, total: object = None, message: object = "") -> Progress:
    """Make a Progress of what a body says; a long message is cut.

    Raises TypeError for what is no number, or no text, and ValueError for a number that is negative, not finite, or too
    large.
    """
    return Progress(_number("done", done), None if total is None else _number("total", total), _text(message))


def read(stored: object) -> Progress | None:
    """Make a Progress of what stands in a row; None where nothing does, or something that no body has written."""
    if not isinstance(stored, dict):
        return None
    try:
        return checked(stored.get("done"), stored.get("total"), stored.get("message", ""))
    except (TypeError, ValueError):
        return None


def _text(message: object) -> str:
    if not isinstance(message, str):
        problem = f"progress(message={message!r:.80}): give a str; a lazy translation becomes one by str()"
        raise TypeError(problem)
    # It may be of a subclass of str.
    text = str.__str__(message)
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def _number(what: str, value: object) -> float:
    number: float
    if isinstance(value, float):
        number = float(value)
    else:
        try:
            # Also takes the integers of other libraries.
            number = index(_no_bool(value))
        except TypeError:
            message = f"progress({what}={value!r:.80}): give an int or a float"
            raise TypeError(message) from None
    if not 0 <= number <= MOST:
        message = f"progress({what}={_short(value)}): give a number from 0 to {MOST}; count in a larger unit if need be"
        raise ValueError(message)
    return number


def _no_bool(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError
    return value  # type: ignore[return-value]  # index() looks at it


def _short(value: object) -> str:
    # Python refuses to write an int of more than some thousand digits.
    return "an int of too many digits" if isinstance(value, int) and abs(value) > 10**40 else f"{value!r:.80}"
