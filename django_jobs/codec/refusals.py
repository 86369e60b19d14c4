"""Decide: that a part can't be encoded or decoded, and where it stands. Knows no value and no class.

A refusal rises from the part to the root and gathers its path on the way; nothing is spent on a path before.
"""

from __future__ import annotations

import json

MAX_DEPTH = 200
"""How deep lists and mappings may be nested, counted in the encoded form; the object around one text doesn't count."""


class Refusal(Exception):
    """A part that can't be encoded or decoded; never leaves the codec."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []

    def path_from(self, root: str) -> str:
        """Give the whole path, shortened in the middle where it is long."""
        path = root + "".join(reversed(self.steps))
        return path if len(path) <= 300 else f"{path[:150]}…{path[-149:]}"


def key_step(key: str) -> str:
    """Write the step of a path that leads to what stands under a key."""
    if key.isidentifier():
        return f".{key}"
    return f"[{json.dumps(key[:80], ensure_ascii=False)}]"


TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep, or containing itself; pass something flatter, or a key to it"


def check_depth(depth: int) -> None:
    """Refuse what stands below more than MAX_DEPTH open lists and mappings."""
    if depth > MAX_DEPTH:
        raise Refusal(TOO_DEEP)
