"""Runs the mutation test alone: `python -m tests.mutation`, on both databases or on that of DATABASE_URL.

`--only TEXT` takes mutants whose label contains the text, `--unrecorded` those without a recorded killer; `--search`
takes no recorded killer for granted; `--write` records the killers that were found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.databases import postgresql, sqlite

ROOT = Path(__file__).parents[2]
KILLERS = Path(__file__).with_name("killers.json")

TESTS = (
    "tests/stores", "tests/lifecycle", "tests/models/test_job.py", "tests/models/test_facts.py",
    "tests/test_queue_handles.py",
)  # fmt: skip
"""Where killers are looked for."""

LEFT_OUT = (
    "tests/stores/test_any_sequence.py",
    "tests/stores/test_sqlite.py",
    "tests/stores/test_plans_of_big_tables.py",
)
"""What draws lots kills one day and not another; what waits for locks waits long, and so does who fills tables."""


def run(url: str, *options: str, tests: tuple[str, ...] = TESTS, says: bool = False) -> dict[str, Any]:
    """Run all mutants on a database of their own beside the one that `url` names, and give the report."""
    with tempfile.TemporaryDirectory(prefix="django-jobs-mutants-") as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.plugin", "-p", "no:randomly",
            "-p", "no:cacheprovider", "--tb=native", "--assert=plain", "--create-db",
            f"--mutants-report={report}", *options, *(f"--ignore={path}" for path in LEFT_OUT), *tests,
        ]  # fmt: skip
        if says:
            command.append("--capture=no")
        environment = {**os.environ, "DATABASE_URL": beside(url)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=not says, text=True, check=False, timeout=7200
        )
        if not report.exists():
            raise RuntimeError(f"the mutants didn't run:\n{done.stdout}\n{done.stderr}")
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def beside(url: str) -> str:
    """Name a database beside another one; each worker of a parallel run has one of its own, since they may meet."""
    base, mark, query = url.partition("?")
    return f"{base}_mutants{os.environ.get('PYTEST_XDIST_WORKER', '')}{mark}{query}"


def record(reports: list[dict[str, Any]]) -> None:
    """Add killers to the table, the newest first; once both databases were asked, drop mutants that are no more."""
    table: dict[str, list[str]] = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    for report in reports:
        for label, killer in report["killed"].items():
            table[label] = list(dict.fromkeys([killer, *table.get(label, ())]))[:2]
    known = {label for report in reports for label in report["mutants"]} if len(reports) > 1 else table.keys()
    table = {label: table[label] for label in sorted(table) if label in known}
    KILLERS.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--unrecorded", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [f"--mutants-only={options.only}"]
    chosen += ["--mutants-search"] * options.search + ["--mutants-unrecorded"] * options.unrecorded
    reports = []
    if url := os.environ.get("DATABASE_URL"):
        reports.append(run(url, *chosen, says=True))
    else:
        for database in (sqlite, postgresql):
            with database() as url:
                reports.append(run(url, *chosen, says=True))
    if options.write:
        record(reports)
    for report in reports:
        counts = {word: len(report[word]) for word in ("mutants", "killed", "redundant")}
        print(json.dumps({**report, **counts}, indent=1))
    return int(any(report["alive"] or report["refused"] for report in reports))


if __name__ == "__main__":
    sys.exit(main())
