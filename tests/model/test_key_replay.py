"""Stories of keys, acted out on the real database by callers, workers and people with connections of their own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from django.db import connections
from django.test import override_settings

from django_jobs import backoff, clock
from django_jobs.stores import statements
from tests.factories import NOON
from tests.model.key_replay import KeyStage, Scene, towards, walk
from tests.model.key_settings import (
    KEPT,
    LARGE_WORLDS,
    ONE_REPLACES,
    RUNS,
    WAITS,
    WAITS_FOR_LATER,
    WORLDS,
    unique,
    waiting,
)
from tests.model.keys import Setting
from tests.model.replay import Breaker

pytestmark = pytest.mark.django_db(transaction=True)


WANTED = {
    "insert", "insert again", "free", "lock", "replace", "find", "commit", "roll back", "claim", "change",
    "change (committed twin)", "supersede", "supersede (nothing)", "forward", "let go", "cancel", "retry", "delete",
    "SIGKILL",
}  # fmt: skip
TELLING = [
    waiting(WAITS),
    unique(WAITS),
    unique(KEPT),
    waiting(RUNS),
    waiting(RUNS, WAITS_FOR_LATER, workers=2, callers=ONE_REPLACES),
]
"""Few worlds, in which a missing guard shows soon."""

WANTED_WITH_LOCKS = {"change (uncommitted twin)", "forward (locked)"}


def locks_rows() -> bool:
    return connections["default"].features.has_select_for_update_skip_locked


def act_out(settings: Sequence[Setting], *, most: int) -> None:
    """Act so many stories out, of each of these worlds in turn."""
    seen: Counter[str] = Counter()
    # The global dice are those of the run, which can be had again.
    dice = random.Random(random.randrange(10**9))
    for _ in range(most):
        for setting in settings:
            world = as_here(setting)
            act(world, walk(world, seen, dice))


def as_here(setting: Setting) -> Setting:
    """Have callers come one after the other where the database locks its whole file."""
    return replace(setting, whole_file=not locks_rows())


def act(setting: Setting, scenes: list[Scene]) -> None:
    with override_settings(DJANGO_JOBS={"BACKOFF": backoff.fixed(15)}), clock.freeze(NOON):
        stage = KeyStage(setting, "keys", Breaker())
        try:
            with patience():
                stage.act(scenes)
        finally:
            stage.close()


@contextmanager
def patience() -> Iterator[None]:
    """Have who waits for a lock on the connection of the test fail in the end."""
    with connections["default"].cursor() as cursor:
        if locks_rows():
            cursor.execute("set lock_timeout = '10s'")
        try:
            yield
        finally:
            if locks_rows():
                cursor.execute("reset lock_timeout")


def test_each_kind_of_move_goes_the_same_way_on_the_real_rows() -> None:
    missing = WANTED | WANTED_WITH_LOCKS if locks_rows() else set(WANTED)
    for setting in WORLDS:
        if missing:
            world = as_here(setting)
            for kind, story in towards(world, missing, states=5_000).items():
                act(world, story)
                missing.discard(kind)
    assert not missing


def test_stories_of_keys_go_the_same_way_on_the_real_rows() -> None:
    act_out(WORLDS, most=2)


@pytest.mark.parametrize(
    ("name", "guard", "instead"),
    [
        ("LOCK_WAITING", " {share}", ""),
        ("LOCK_UNIQUE", " {share}", ""),
        ("FORWARD", "job.run_at > {later:c.delay}", "1 = 0"),
        ("FREE", "job.unique_until <= {now}", "1 = 0"),
    ],
)
def test_a_statement_without_its_guard_goes_another_way(
    monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str
) -> None:
    if not locks_rows() and guard not in ("job.run_at > {later:c.delay}", "job.unique_until <= {now}"):
        pytest.skip("one after the other, callers and workers need no locks")
    text: str = getattr(statements, name)
    assert guard in text
    monkeypatch.setattr(statements, name, text.replace(guard, instead))
    with pytest.raises(AssertionError):
        act_out(TELLING, most=100)


@pytest.mark.soak
@pytest.mark.parametrize("setting", LARGE_WORLDS, ids=range(len(LARGE_WORLDS)))
def test_many_more_stories_of_keys_go_the_same_way(setting: Setting) -> None:
    act_out([setting], most=150)
