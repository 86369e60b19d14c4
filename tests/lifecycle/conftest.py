from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from django_jobs import signals
from tests.lifecycle.hearing import Heard


@pytest.fixture
def heard() -> Iterator[list[Heard]]:
    """Listen to every signal of ours."""
    told: list[Heard] = []
    listeners = []
    for name, signal in vars(signals).items():
        if isinstance(signal, Signal):

            def listen(sender: object, signal: Signal, _signal: str = name, **said: Any) -> None:
                told.append(Heard(signal=_signal, sender=sender, said=said))

            signal.connect(listen)
            listeners.append((signal, listen))
    yield told
    for signal, listen in listeners:
        signal.disconnect(listen)
