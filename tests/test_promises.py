"""The page of promises names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
SOURCES = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

NAMES = sorted(set(re.findall(r"`(o\d\d|test_\w+)`", PAGE)))
PATHS = sorted(set(re.findall(r"`(tests/[\w./]+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_part_of_a_test(name: str) -> None:
    assert re.search(rf"(def test_\w*|class Test\w*){name.removeprefix('test_')}", SOURCES, re.IGNORECASE)


@pytest.mark.parametrize("path", PATHS)
def test_each_path_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_names_and_paths_are_found() -> None:
    assert len(NAMES) > 30
    assert len(PATHS) > 10
