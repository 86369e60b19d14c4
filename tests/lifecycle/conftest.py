from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from django_jobs import signals
from django_jobs.performers import AnyPerformer, Enqueuer
from tests.declaring import declared
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


@pytest.fixture
def act() -> Iterator[AnyPerformer]:
    def act(number: int = 0, *, name: str = "") -> None: ...

    with declared(act, name="shop.act", max_attempts=1_000) as performer:
        yield performer


@pytest.fixture(params=["unique", "unique_while_waiting"])
def keyed(request: pytest.FixtureRequest, act: AnyPerformer) -> Enqueuer[...]:
    """Queue jobs of the suite's performer `act` with one key, of either kind."""
    return act.using(**{request.param: "k"})


@pytest.fixture
def unique(act: AnyPerformer) -> Enqueuer[...]:
    return act.using(unique="k")


@pytest.fixture
def waiting(act: AnyPerformer) -> Enqueuer[...]:
    return act.using(unique_while_waiting="k")
