"""E-mail in the demo: every message becomes a file of its own, which can be read back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from pathlib import Path

from django.core.mail.backends import filebased

_END = b"\n" + b"-" * 79 + b"\n"
"""What the backend writes after each message."""


class FileBackend(filebased.EmailBackend):
    """Django names a file after the second and the backend's address in memory, which two processes may share."""

    _fname: str | None

    def _get_filename(self) -> str:
        if self._fname is None:
            self._fname = str(Path(self.file_path) / f"{uuid.uuid4().hex}.eml")
        return self._fname


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail that was sent."""

    to: str
    subject: str
    date: str
    text: str


def newest_first(folder: Path) -> Iterator[Mail]:
    """Read the mails in a folder, which may not be there yet."""
    for file in sorted(folder.glob("*.eml"), key=lambda file: file.stat().st_mtime_ns, reverse=True):
        for raw in file.read_bytes().split(_END)[:-1]:
            message = message_from_bytes(raw, policy=policy.default)
            yield Mail(
                to=str(message["To"]), subject=str(message["Subject"]), date=str(message["Date"]),
                text=str(message.get_content()),
            )  # fmt: skip
