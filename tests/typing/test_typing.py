"""What type checkers say of a consumer's code: nothing where it is right, and exactly the mistakes where it is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [HERE / "consumer.py", HERE / "mistakes.py"]

Found = dict[tuple[str, int], set[str]]
"""File and line -> the codes of the errors reported there."""


def mypy() -> Found:
    reports = [json.loads(line) for line in output_of("mypy", "--output", "json").splitlines()]
    return by_line((r["file"], r["line"], r["code"]) for r in reports if r["severity"] == "error")


def basedpyright() -> Found:
    report = json.loads(output_of("basedpyright", "--outputjson", "--pythonpath", sys.executable))
    return by_line((d["file"], d["range"]["start"]["line"] + 1, d["rule"]) for d in report["generalDiagnostics"])


def output_of(tool: str, *options: str) -> str:
    """Run a type checker, as the project has it configured, over the consumer's files."""
    command = [sys.executable, "-m", tool, *options, *(str(file.relative_to(ROOT)) for file in FILES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr or done.stdout  # Neither 0, without any mistake, nor a crash.
    return done.stdout


def by_line(reports: Iterator[tuple[str, int, str]]) -> Found:
    found: Found = defaultdict(set)
    for file, line, code in reports:
        found[Path(file).name, line].add(code)
    return dict(found)


MARK = re.compile(r"# E: (?P<mypy>[a-z -]+) \| (?P<basedpyright>[A-Za-z ]+)$")


def marked(tool: str) -> Found:
    lines = [
        (file.name, number, line) for file in FILES for number, line in enumerate(file.read_text().splitlines(), 1)
    ]
    return {
        (name, number): set(mark[tool].split())
        for name, number, line in lines
        if (mark := MARK.search(line)) is not None
    }


@pytest.mark.parametrize("check", [mypy, basedpyright])
def test_a_type_checker_reports_every_mistake_of_a_consumer_and_nothing_else(check: Callable[[], Found]) -> None:
    found, expected = check(), marked(check.__name__)
    assert len(expected) == 71
    assert found == expected
