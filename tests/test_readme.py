from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SET_UP = 'python3 -m venv .venv && .venv/bin/pip install -q -e ".[dev]"'


def blocks(paper: str) -> list[str]:
    """Give what stands in the code blocks of a paper."""
    return re.findall(r"^```\w*\n(.*?)^```$", (ROOT / paper).read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_two_code_blocks_are_the_two_commands() -> None:
    assert blocks("README.md")[:2] == [
        f"{SET_UP} && .venv/bin/python manage.py demo\n",
        f"{SET_UP} && .venv/bin/pytest\n",
    ]


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_link_leads_to_a_file_that_is_there(paper: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / paper).read_text())
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_python_of_the_readme_can_be_compiled() -> None:
    python = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(python) == 2
    for block in python:
        compile(block, "README.md", "exec")
