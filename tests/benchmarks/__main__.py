"""Measure, and print a table: `python -m tests.benchmarks`, on Linux.

Without DATABASE_URL it starts a PostgreSQL of its own, durable as shipped; with it, it makes a database of its own on
that server. SQLite is measured in the same run, in a file. Nothing here passes or fails by a figure; a run in which not
every job succeeded exactly once is refused, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import addresses, report
from tests.benchmarks.peers import NAMES as PEERS
from tests.benchmarks.sizes import BY_NAME

NAMES = (
    "one_by_one", "many", "drain", "drain_not_kept", "drain_crowded", "drain_held", "pickup", "idle", "memory", "cost",
    "scaling", "claimers", "mixed",
)  # fmt: skip
"""The names of `measured`, which needs Django to be set up."""

VENDORS = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


def main(arguments: Sequence[str]) -> int:
    """Measure as asked, print, and give the exit code."""
    options = _parser().parse_args(arguments)
    # As an exception, so that what was started is ended, and what was made is dropped.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if options.inside:
        from tests.benchmarks.inside import measure

        url = os.environ["DATABASE_URL"]
        measure(url, names=options.only, size=options.size, times=options.times, into=options.inside)
        return 0
    result: dict[str, Any] = {"machine": report.machine(), "size": options.size, "databases": {}}
    given = os.environ.get("DATABASE_URL", "")
    for vendor in options.on or _vendors(given):
        with _database(vendor, given) as url:
            said = result["databases"][vendor] = _measured(url, options)
            if vendor == "postgresql":
                said["server"] = report.server(url)
                if options.peers is not None:
                    from tests.benchmarks.peers.compare import compare

                    names = options.peers or PEERS
                    result["peers"] = compare(
                        url, names, size=options.size, times=options.times, python=options.peer_python
                    )
    print(_page(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    return 1 if any(said["failures"] for said in result["databases"].values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--on", nargs="+", choices=list(VENDORS), help="measure on these databases only")
    parser.add_argument("--times", type=int, help="runs of each figure; three, or one of the small size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all there is to a file, too")
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, metavar="PEER",
        help=f"install other queues for a while, and measure them, too: {', '.join(PEERS)}; all if none is named",
    )  # fmt: skip
    parser.add_argument("--peer-python", default=sys.executable, metavar="PATH", help="the Python that peers run on")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", dest="size", action="store_const", const="small", help="a quick trial")
    size.add_argument("--size", choices=list(BY_NAME), help=argparse.SUPPRESS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(size="full")
    return parser


def _vendors(given: str) -> list[str]:
    return ["sqlite"] if given and addresses.vendor(given) == "sqlite" else list(VENDORS)


@contextmanager
def _database(vendor: str, given: str) -> Iterator[str]:
    """Make a database for this run alone, give its URL, and drop it."""
    # It imports pytest, which a run on a given database doesn't need.
    from tests import databases

    if vendor == "sqlite":
        with databases.sqlite() as url:
            yield url
    elif given:
        with _made(given) as url:
            yield url
    else:
        with databases.postgresql() as server, _made(server) as url:
            yield url


@contextmanager
def _made(server: str) -> Iterator[str]:
    import psycopg

    name = f"benchmark_{os.getpid()}"
    conninfo = addresses.conninfo(addresses.beside(server, "postgres"))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0")
    try:
        yield addresses.beside(server, name)
    finally:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")


def _measured(url: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="django-jobs-bench-") as folder:
        into = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "tests.benchmarks", "--inside", f"{into}", "--size", options.size]
        command += ["--only", *options.only, *(["--times", f"{options.times}"] if options.times else [])]
        environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"}
        with subprocess.Popen(command, env=environment) as process:
            try:
                code = process.wait()
            finally:
                # It ends the processes that it has started.
                process.terminate()
        if code:
            raise SystemExit(code)
        found: dict[str, Any] = json.loads(into.read_text())
        return found


def _page(result: dict[str, Any]) -> str:
    machine, databases = result["machine"], result["databases"]
    server = databases.get("postgresql", {}).get("server", {})
    parts = [", ".join(f"{what} {value}" for what, value in machine.items())]
    if server:
        parts.append(", ".join(f"{what} {value}" for what, value in server.items()))
    parts += [f"**Beware:** {warning}." for warning in report.warnings(machine, server)]
    for vendor, said in databases.items():
        parts.append(report.table(VENDORS[vendor], said["figures"]))
        parts += [f"**Refused:** `{name}`: {why}" for name, why in said["failures"].items()]
    if "peers" in result:
        parts.append(report.peer_table(result["peers"]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
