"""Show figures: a Markdown table to read, JSON to keep, and the facts without which neither means much."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks import addresses
from tests.benchmarks.figures import Figure
from tests.benchmarks.processes import ROOT

SERVER_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_level")


def machine() -> dict[str, Any]:
    """Give what a reader has to know of this machine and this moment."""
    one, five, fifteen = os.getloadavg()
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "system": platform.platform(),
        "load at start": [round(one, 2), round(five, 2), round(fifteen, 2)],
        "niceness": os.nice(0),
        "Python": sys.version.split()[0],
        "Django": version("django"),
        "psycopg": version("psycopg"),
        "SQLite": sqlite3.sqlite_version,
        "commit": _commit(),
    }


def server(url: str) -> dict[str, str]:
    """Give what a reader has to know of the PostgreSQL there."""
    import psycopg

    with psycopg.connect(addresses.conninfo(url)) as connection:
        rows = [connection.execute(f"show {name}").fetchone() for name in SERVER_SETTINGS]
    return {name: str(row[0]) for name, row in zip(SERVER_SETTINGS, rows, strict=True) if row}


def warnings(machine: Mapping[str, Any], server: Mapping[str, str]) -> list[str]:
    """Say what makes figures of this run worth less."""
    found = []
    if machine["load at start"][0] > machine["cores"] / 4:
        found.append(f"the machine had other work: its load was {machine['load at start'][0]} at the start")
    found += [
        f"PostgreSQL isn't durable as shipped: {name} is off"
        for name in ("fsync", "synchronous_commit", "full_page_writes")
        if server.get(name, "on") == "off"
    ]
    return found


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str:
    """Name the commit that is measured, marked if files differ from it; '' outside of a clone."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


# -- figures


def as_json(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "what": figure.what,
        "unit": figure.unit,
        "value": figure.value,
        "spread": figure.spread,
        "values": list(figure.values),
        "raw": figure.raw_value,
        "raw values": list(figure.raw),
        "ratio": figure.ratio,
        "goal": figure.goal,
        "beside": figure.beside,
    }


def table(title: str, figures: Sequence[Mapping[str, Any]]) -> str:
    """Give a Markdown table of figures as JSON has them; the spread is from the least to the most."""
    lines = [
        f"### {title}",
        "",
        "| figure | | ours | spread | raw | ours / raw | goal |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    values = {figure["name"]: figure["value"] for figure in figures}
    for figure in figures:
        value = f"{number(figure['value'])} {figure['unit']}".strip()
        spread = f"{100 * figure['spread']:.0f} %" if len(figure["values"]) > 1 else ""
        raw = "" if figure["raw"] is None else number(figure["raw"])
        ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}"
        goal = figure["goal"]
        if whole := values.get(figure["beside"]):
            goal += f" (is {figure['value'] / whole:.2f})"
        cells = (f"`{figure['name']}`", figure["what"], value, spread, raw, ratio, goal)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Write a number with about three digits that say something."""
    digits = next((digits for digits, least in enumerate((100, 10, 1)) if abs(value) >= least), 3)
    return f"{value:,.{digits}f}"


def peer_table(peers: Mapping[str, Mapping[str, Any]]) -> str:
    """Give a Markdown table of what other queues did."""
    lines = [
        "### Other queues, the same work on the same PostgreSQL",
        "",
        "| queue | version | one by one /s | bulk /s | drain jobs/s | pickup p50 / p99 ms | |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for name, said in peers.items():
        pickup = " / ".join(number(said[part]) for part in ("pickup_p50", "pickup_p99") if part in said)
        cells = (
            name,
            said.get("version", ""),
            *(_maybe(said, part) for part in ("one_by_one", "many", "drain")),
            pickup,
        )
        lines.append(f"| {' | '.join(cells)} | {said.get('note', '')} |")
    return "\n".join(lines)


def _maybe(said: Mapping[str, Any], part: str) -> str:
    return number(said[part]) if said.get(part) is not None else "none"
