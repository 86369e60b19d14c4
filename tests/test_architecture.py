"""docs/architecture.md says what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from django_jobs.transitions import MOVES, Place

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_state_diagram_equals_the_table_of_moves() -> None:
    drawn = {
        (verb.strip(), place(start), place(end))
        for start, end, verbs in re.findall(r"^\s+(\S+) --> (\S+): (.+)$", PAGE, flags=re.MULTILINE)
        for verb in verbs.split(",")
    }
    assert drawn == {(verb, start, end) for verb, moves in MOVES.items() for start, end in moves}


def place(word: str) -> Place:
    return Place.ABSENT if word == "[*]" else Place[word]


def test_the_storeys_equal_the_import_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    [drawn] = re.findall(r"## Storeys.*?```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert drawn.splitlines() == contract["layers"]


def test_every_module_has_its_line() -> None:
    [tree] = re.findall(r"## The rooms.*?```text\n(.*?)```", PAGE, flags=re.DOTALL)
    modules = {path.name for path in (ROOT / "django_jobs").iterdir() if not path.name.startswith((".", "__pycache__"))}
    modules -= {"py.typed"}
    missing = sorted(name for name in modules if name not in tree)
    assert missing == []
