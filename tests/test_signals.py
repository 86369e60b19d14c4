from __future__ import annotations

import logging

import pytest

from django_jobs import signals


class Broken(logging.Handler):
    """A handler like one that mails to a misspelt address."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("no such address")


def test_neither_a_receiver_nor_a_log_handler_that_raises_gets_through() -> None:
    signal = signals.Signal()

    def receiver(**_: object) -> None:
        raise RuntimeError("broken receiver")

    signal.connect(receiver)
    log = logging.getLogger("django.dispatch")
    handler = Broken()
    log.addHandler(handler)
    try:
        with pytest.raises(ValueError, match="no such address"):
            signal.send_robust(None)
        signals.tell(signal, None)
    finally:
        log.removeHandler(handler)


def test_what_a_hearer_of_ours_raises_keeps_nobody_from_hearing() -> None:
    bulletin = signals.Bulletin()
    heard: list[object] = []

    def breaks(news: object) -> None:
        raise RuntimeError("broken hearer")

    bulletin.hear(breaks)
    bulletin.hear(heard.append)
    bulletin.hear(heard.append)
    bulletin.tell(1)
    bulletin.unhear(heard.append)
    bulletin.tell(2)
    assert heard == [1]
