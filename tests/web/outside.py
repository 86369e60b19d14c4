"""An address that answers without Django, so that nothing begins by asking it."""

from __future__ import annotations

import json
import os
import threading

PATH = "/outside/"


def answer() -> bytes:
    """Say which process this is, and which threads of ours it has."""
    threads = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("django_jobs"))
    return json.dumps({"pid": os.getpid(), "threads": threads}).encode()
