"""Pages for users do what they say: their Python blocks are run, in their order, and come to what stands behind them.

`expression  # → value` is compared, and `statement  # raises Error` has to. A block that sets DJANGO_JOBS sets it for
the blocks after it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from django_jobs.performers import Performer, forget

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (
    "keys.md",
    "jobs-by-hand.md",
    "results.md",
    "queues.md",
    "hooks.md",
    "low-level.md",
    "progress.md",
    "schedules.md",
)
MODULE = "shop.hooks"
"""What the module is called that the blocks of a page make up, for settings that name things by their paths."""

_COMES_TO = re.compile(r"^( *)(.+?)  # → (.+)$", re.MULTILINE)
_RAISES = re.compile(r"^( *)(.+?)  # raises (\w+)$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Give the Python blocks of a page, each at its lines, so that an error says where it is."""
    text = (DOCS / page).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


def checked(block: str) -> str:
    """Have a block check what it says."""
    block = _COMES_TO.sub(r"\1comes_to(\2, \3)", block)
    return _RAISES.sub(r"\1with raises(\3): \2", block)


def comes_to(found: object, said: object) -> None:
    assert found == said


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_does_what_the_page_says(
    page: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE.partition(".")[0], ModuleType("shop"))
    monkeypatch.setitem(sys.modules, MODULE, made)
    module = vars(made)
    module |= {"comes_to": comes_to, "raises": pytest.raises}
    performers: dict[str, Performer[..., ..., Any]] = {}
    try:
        for block in blocks(page):
            exec(compile(checked(block), DOCS / page, "exec"), module)
            if "DJANGO_JOBS" in module:
                settings.DJANGO_JOBS = module.pop("DJANGO_JOBS")
            performers |= {name: value for name, value in module.items() if isinstance(value, Performer)}
    finally:
        for performer in performers.values():
            forget(performer)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_something_that_can_be_checked(page: str) -> None:
    python = "\n".join(blocks(page))
    assert len(_COMES_TO.findall(python)) + len(_RAISES.findall(python)) > 5


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(AssertionError):
        exec(checked("1 + 1  # → 3"), {"comes_to": comes_to})
    with pytest.raises(pytest.fail.Exception):
        exec(checked("int('1')  # raises ValueError"), {"raises": pytest.raises})


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("*.md")))
def test_every_link_of_a_page_leads_to_a_file_that_is_there(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in local if not (DOCS / link).exists()] == []
