"""Drive: what a worker has in hand, in memory. The crew writes it, the keeper reads it; it asks nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Lock

from django_jobs.records import Claim, Lease


class Board:
    """The claims of one process, from the claim until their end is written."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._claims: dict[Lease, Claim] = {}
        self._cancelled: set[Lease] = set()

    def take(self, claims: Iterable[Claim]) -> None:
        """Note claims as in hand."""
        with self._lock:
            self._claims.update((claim.lease, claim) for claim in claims)

    def drop(self, leases: Iterable[Lease]) -> None:
        """Note that nothing more is owed to these."""
        with self._lock:
            for lease in leases:
                self._claims.pop(lease, None)
                self._cancelled.discard(lease)

    def leases(self) -> list[Lease]:
        """List what is in hand, in the order of ids."""
        with self._lock:
            return sorted(self._claims, key=lambda lease: lease.id)

    def mark_cancelled(self, job_ids: Iterable[int]) -> None:
        """Note that these jobs were cancelled while they run."""
        wanted = set(job_ids)
        with self._lock:
            self._cancelled.update(lease for lease in self._claims if lease.id in wanted)

    def is_cancelled(self, lease: Lease) -> bool:
        """Tell whether the job was cancelled while it runs."""
        with self._lock:
            return lease in self._cancelled

    def per_queue(self) -> Counter[str]:
        """Count what is in hand by queue."""
        with self._lock:
            return Counter(claim.queue for claim in self._claims.values())

    def holds_alone(self) -> bool:
        """Tell whether a job is in hand that must run by itself."""
        with self._lock:
            return any(claim.alone for claim in self._claims.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._claims)
