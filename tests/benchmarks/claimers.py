"""A program of several processes that only claim and settle: `python -m tests.benchmarks.claimers COUNT LIMIT`.

They begin together, go through the verbs and the connection that a worker uses, and end when nothing is due. Each
prints the seconds that its claims took, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import django

EMPTY = 3
"""So many claims in a row must find nothing: rows in others' hands are passed over."""


def main(count: int, limit: int) -> int:
    """Fork them, let them begin when all are connected, and give the worst exit code."""
    django.setup()
    ready, is_ready = os.pipe()
    gate, open_gate = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if not child:
            os.close(open_gate)
            _ended_after(number, limit, is_ready, gate)
        children.append(child)
    os.close(is_ready)
    connected = 0
    while connected < count and (said := os.read(ready, count)):
        connected += len(said)
    os.close(open_gate)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


def _ended_after(number: int, limit: int, is_ready: int, gate: int) -> None:
    """Be one of them, and leave the process."""
    code = 1
    try:
        latencies = _claim_all(f"claimer-{number}", limit, is_ready, gate)
        os.write(1, f"{json.dumps(latencies)}\n".encode())
        code = 0
    finally:
        os._exit(code)


def _claim_all(name: str, limit: int, is_ready: int, gate: int) -> list[float]:
    from django_jobs import lifecycle
    from django_jobs.lifecycle import Run
    from django_jobs.outcomes import Succeeded
    from django_jobs.records import ClaimRequest
    from django_jobs.worker.link import Link
    from tests.benchmarks import notes

    own, link = notes.own(), Link("default")
    request = ClaimRequest(worker=name, limit=limit, lease=timedelta(minutes=1), grace=timedelta(seconds=5))
    latencies: list[float] = []
    with link.connected():
        os.write(is_ready, b".")
        # It ends when the parent closes its side.
        os.read(gate, 1)
    empty = 0
    while empty < EMPTY:
        with link.connected() as connection:
            begun = time.perf_counter()
            claims = lifecycle.claim(connection, request).claims
            latencies.append(time.perf_counter() - begun)
            for claim in claims:
                own.begin(json.loads(claim.args)[0])
            runs: list[Run] = [(claim, Succeeded()) for claim in claims]
            while runs:
                runs = lifecycle.settle(connection, runs)
        empty = 0 if claims else empty + 1
        if empty:
            time.sleep(0.005)
    # What found nothing isn't a claim that anybody waits for.
    return latencies[:-EMPTY]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
