"""The measurements, by name, in the order in which they are taken."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks import costing, draining, enqueueing, sharing, waiting
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import Figure

MEASURED: dict[str, Callable[[Bench], list[Figure]]] = {
    "one_by_one": enqueueing.one_by_one,
    "many": enqueueing.many,
    "drain": draining.drain,
    "drain_not_kept": draining.drain_not_kept,
    "drain_crowded": draining.drain_crowded,
    "drain_held": draining.drain_held,
    "pickup": waiting.pickup,
    "idle": waiting.idle,
    "memory": costing.memory,
    "cost": costing.cost,
    "scaling": draining.scaling,
    "claimers": sharing.claimers,
    "mixed": sharing.mixed,
}
