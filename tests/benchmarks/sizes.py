"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of jobs, unless said otherwise. `warm_up` jobs go through each loop before time is taken."""

    workers: int
    """Worker processes, and processes of raw loops."""
    slots: int
    one_by_one: int
    many: int
    drain: int
    crowd: int
    """So many finished rows, and so many future ones."""
    warm_up: int
    pickup: int
    pickup_pause: float
    idle_seconds: float
    idle_settling: float
    """Seconds before that: a server process that went idle tells of its last transactions up to ten seconds later."""
    idle_processes: tuple[int, ...]
    cost: int
    scaling: tuple[int, ...]
    """Numbers of worker processes."""
    scaled: int
    claimers: tuple[int, ...]
    claimed: int
    mixed: tuple[tuple[int, float], ...]
    """How many jobs of how many seconds."""
    mixed_late: int
    """Jobs of the shortest kind that come one by one while the others run."""
    times: int


FULL = Sizes(
    workers=2,
    slots=16,
    one_by_one=2_000,
    many=50_000,
    drain=20_000,
    crowd=1_000_000,
    warm_up=1_000,
    pickup=200,
    pickup_pause=0.03,
    idle_seconds=20.0,
    idle_settling=11.0,
    idle_processes=(1, 4),
    cost=20_000,
    scaling=(1, 2, 4, 8),
    scaled=20_000,
    claimers=(1, 2, 4, 8, 16, 32, 64),
    claimed=20_000,
    mixed=((2_000, 0.001), (100, 0.1), (6, 10.0)),
    mixed_late=100,
    times=3,
)

SMALL = Sizes(
    workers=2,
    slots=16,
    one_by_one=400,
    many=5_000,
    drain=3_000,
    crowd=50_000,
    warm_up=200,
    pickup=40,
    pickup_pause=0.03,
    idle_seconds=5.0,
    idle_settling=11.0,
    idle_processes=(1, 4),
    cost=3_000,
    scaling=(1, 2, 4, 8),
    scaled=3_000,
    claimers=(1, 8, 64),
    claimed=3_000,
    mixed=((400, 0.001), (40, 0.05), (6, 2.0)),
    mixed_late=30,
    times=1,
)

TINY = Sizes(
    workers=1,
    slots=4,
    one_by_one=20,
    many=50,
    drain=400,
    crowd=300,
    warm_up=0,
    pickup=5,
    pickup_pause=0.01,
    idle_seconds=0.5,
    idle_settling=0.0,
    idle_processes=(1,),
    cost=200,
    scaling=(1,),
    scaled=300,
    claimers=(1, 3),
    claimed=120,
    mixed=((30, 0.001), (8, 0.01), (2, 0.2)),
    mixed_late=3,
    times=1,
)
"""For the test of the benchmarks themselves: the figures mean nothing."""

BY_NAME = {"full": FULL, "small": SMALL, "tiny": TINY}
