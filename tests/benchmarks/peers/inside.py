"""One step of a peer, in its own environment: `python -m tests.benchmarks.peers.inside PEER STEP [NUMBER …]`.

What was measured is printed as JSON, as the last line.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from typing import Any


def main(name: str, step: str, numbers: list[str]) -> None:
    peer: Any = importlib.import_module(f"tests.benchmarks.peers.{name}")
    match step:
        case "prepare" | "wipe" | "work":
            getattr(peer, step)()
        case "one":
            _say(_one(peer.Client(), int(numbers[0])))
        case "many":
            _say(_many(peer.Client(), int(numbers[0])))
        case "pickup":
            _say(_pickup(peer.Client(), int(numbers[0]), int(numbers[1]), float(numbers[2])))
        case _:
            raise ValueError(step)


def _say(value: object) -> None:
    print(f"\n{json.dumps(value)}", flush=True)


def _one(client: Any, count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        client.one(number)
    return time.perf_counter() - begun


def _many(client: Any, count: int) -> float | None:
    """Queue at once; None where the peer has no way to, after queueing one by one."""
    if client.many is None:
        _one(client, count)
        return None
    begun = time.perf_counter()
    client.many(range(count))
    return time.perf_counter() - begun


def _pickup(client: Any, first: int, count: int, pause: float) -> list[float]:
    """Queue one job after the other, each when the one before has begun, and give the milliseconds from the call."""
    from tests.benchmarks import notes

    own, found = notes.own(), []
    for number in range(first, first + count):
        time.sleep(pause * random.uniform(1.0, 2.0))
        called = time.monotonic_ns()
        client.one(number)
        give_up = time.monotonic() + 60
        while not own[number].runs:
            if time.monotonic() > give_up:
                raise TimeoutError(f"job {number} didn't begin within a minute")
            time.sleep(0.001)
        found.append((own[number].begin - called) / 1e6)
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
