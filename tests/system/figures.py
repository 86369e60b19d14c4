"""Measure what faults cost: `DATABASE_URL=… python -m tests.system.figures [name …]` prints a table.

Nothing here passes or fails; the goals stand beside what was measured. It makes a test database of its own.
"""

from __future__ import annotations

import os
import sys

import django
from django.db import connections


def main(names: list[str]) -> None:
    """Measure all, or what is named."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from tests.system.measured import MEASURED

    connection = connections["default"]
    before = connection.settings_dict["NAME"]
    # The suite's own may be in use.
    connection.settings_dict["TEST"]["NAME"] += "_figures"
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        print(f"{connection.vendor}, Python {sys.version.split()[0]}, Django {django.get_version()}")
        for name in names or MEASURED:
            for what, measured, goal in MEASURED[name]():
                print(f"{what:<84} {measured:<40} {goal}", flush=True)
    finally:
        connection.creation.destroy_test_db(before, verbosity=0)


if __name__ == "__main__":
    main(sys.argv[1:])
