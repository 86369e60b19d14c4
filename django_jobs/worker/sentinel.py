"""Drive: a small process in a worker's group that ends the group when its supervisor is gone and its leases soon are.

A worker hears of its supervisor's end by itself, and stops. It can't while a body holds the interpreter in a call into
C: nothing else runs in such a process. So something outside it watches, which needs no interpreter.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

SHARE = 5 / 8
"""The part of a lease after which it acts. The last renewal may be a quarter of a lease older than what it sees."""

# Nothing is ever written: `read` returns when the last writer has closed the pipe. The group is its own, so no number
# can by then be another's.
SCRIPT = 'trap "" HUP INT TERM; read -r _; sleep "$1"; kill -9 0'


def post(group: int, *, lease: float) -> int | None:
    """Start one in that process group; give the descriptor whose closing it waits for, None where there can be none.

    It ends with the group. There is none where the system has no `/bin/sh`, and for a group that is gone already.
    """
    reader, writer = os.pipe()
    try:
        with suppress(OSError):
            process = subprocess.Popen(  # noqa: S603 - a script of ours
                ["/bin/sh", "-c", SCRIPT, "django_jobs sentinel", f"{lease * SHARE:.3f}"],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=group,
            )
            # The supervisor reaps all children itself; this keeps Popen from minding.
            process.returncode = 0
            return writer
    finally:
        os.close(reader)
    os.close(writer)
    return None
