"""Front door: whether a call is the subject of a `with` statement, where that changes what it is about.

`assertEnqueued(…)` by itself looks at what is queued, at once; `with assertEnqueued(…):` looks at what is queued within
the block, at its end. The call can't know from its arguments, so it reads in the caller's code what is done with it.
"""

from __future__ import annotations

import dis
import inspect

_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
"""The instructions that `with` begins by: Python 3.11 to 3.13, and 3.14 after a COPY."""

_BETWEEN = frozenset({"CACHE", "NOP", "EXTENDED_ARG", "NOT_TAKEN"})


def is_block() -> bool:
    """Whether the function that asks was called by a `with` statement, as its subject."""
    here = inspect.currentframe()
    caller = here and here.f_back and here.f_back.f_back
    if caller is None:
        return False
    following = (one.opname for one in dis.get_instructions(caller.f_code) if one.offset > caller.f_lasti)
    said = (name for name in following if name not in _BETWEEN)
    first = next(said, "")
    return (next(said, "") if first == "COPY" else first) in _ENTERS
