"""A pytest plugin: instead of running the collected tests once, it runs them against each mutant until one fails.

The database is made once. Each mutant lives in a forked child, which puts the mistake in place, runs its tests, the
likeliest killer first, and ends; so no mistake reaches the next one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from django.core.management import call_command
from django.db import connections
from django.db.backends.signals import connection_created
from pytest_django.plugin import blocking_manager_key

from django_jobs.stores.base import Store
from tests.mutation import redundant
from tests.mutation.mutants import Site, changed, explain, filled, sites, texts

KILLERS = Path(__file__).with_name("killers.json")

SILENCE = 10.0
"""Seconds that one test may take against a mutant; a mistake that loops for ever is as good as found."""

MOST_STEPS = 200
"""So many times 100,000 steps of SQLite's machine a statement of a mutant may take."""

MOST_ROWS = "set work_mem = '64kB'; set temp_file_limit = '1MB'"
"""What PostgreSQL may keep of a statement; no test needs more, and a recursion without end soon does."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants")
    group.addoption("--mutants-report", type=Path, required=True, help="where the report goes, as JSON")
    group.addoption("--mutants-only", default="", help="only mutants whose label contains this")
    group.addoption("--mutants-unrecorded", action="store_true", help="only mutants without a recorded killer")
    group.addoption("--mutants-search", action="store_true", help="search afresh, also for killers of redundant ones")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed or not session.items:
        raise session.Interrupted("the tests could not be collected")
    run = Run(session.items, search=session.config.getoption("--mutants-search"))
    with made_database(session):
        report = run.report(
            only=session.config.getoption("--mutants-only"), unrecorded=session.config.getoption("--mutants-unrecorded")
        )
    session.config.getoption("--mutants-report").write_text(json.dumps(report, indent=1))
    return True


@contextmanager
def made_database(session: pytest.Session) -> Any:
    """Have a test set the database up, and let it go at the end."""
    first = next(item for item in session.items if item.get_closest_marker("django_db"))
    other = next(item for item in session.items if item is not first)
    if any(report.failed for report in runtestprotocol(first, log=False, nextitem=other)):
        raise session.Interrupted(f"{first.nodeid} fails without any mistake in place")
    session.config.stash[blocking_manager_key].unblock()
    connections.close_all()
    yield
    connections.close_all()
    session._setupstate.teardown_exact(None)


@dataclass
class Verdict:
    """What became of a mutant: the test that killed it, what that said, and how long it took."""

    killer: str | None = None
    said: str = ""
    refused: str = ""
    seconds: float = 0.0


@dataclass
class Run:
    """All mutants of one database against the collected tests."""

    items: list[pytest.Item]
    search: bool
    named: dict[str, pytest.Item] = field(init=False)
    recorded: dict[str, list[str]] = field(init=False)
    killers_of: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    sound: dict[str, bool] = field(default_factory=dict)
    reach: dict[str, list[str]] | None = None

    def __post_init__(self) -> None:
        self.named = {item.nodeid: item for item in self.items}
        self.recorded = {} if self.search or not KILLERS.exists() else json.loads(KILLERS.read_text())

    def report(self, *, only: str, unrecorded: bool) -> dict[str, Any]:
        vendor = connections["default"].vendor
        found = sites(vendor)
        listed = redundant.listed(vendor)
        verdicts = {}
        for site in found:
            is_wanted = only in site.label and not (unrecorded and site.label in self.recorded)
            if is_wanted and (self.search or site.label not in listed):
                verdict = verdicts[site.label] = self._judge(site)
                print(f"{verdict.seconds:6.2f} s  {site.label}: {verdict.killer or verdict.refused or 'ALIVE'}")
        killed = {label: verdict.killer for label, verdict in verdicts.items() if verdict.killer}
        return {
            "database": vendor,
            "mutants": [site.label for site in found],
            "killed": killed,
            "alive": sorted(
                label for label, v in verdicts.items() if not v.killer and not v.refused and label not in listed
            ),
            "redundant": {site.label: listed[site.label] for site in found if site.label in listed},
            "refused": {label: verdict.refused for label, verdict in verdicts.items() if verdict.refused},
            "not redundant": {label: killer for label, killer in killed.items() if label in listed},
            "no such mutant": sorted(listed.keys() - {site.label for site in found}),
            "failing anyhow": [name for name, is_sound in self.sound.items() if not is_sound],
            "slowest": dict(sorted(((v.seconds, label) for label, v in verdicts.items()), reverse=True)[:10]),
        }

    def _judge(self, site: Site) -> Verdict:
        """Run what killed this mutant, or others of its statement, before; then all that runs the statement."""
        likely = dict.fromkeys([*self.recorded.get(site.label, ()), *self.killers_of[site.constant]])
        verdict = self._tried(site, [name for name in likely if name in self.named])
        if not (verdict.killer or verdict.refused):
            verdict = self._tried(site, [name for name in self._reaching(site) if name not in likely])
        if verdict.killer:
            known = self.killers_of[site.constant]
            known[:] = [verdict.killer, *(name for name in known if name != verdict.killer)]
        return verdict

    def _tried(self, site: Site, names: list[str]) -> Verdict:
        items = [self.named[name] for name in names if self.sound.get(name, True)]
        verdict = self._in_child(lambda tell: _suffer(site, items, tell))
        if verdict.killer and not self._is_sound(verdict.killer):
            return self._tried(site, names)
        return verdict

    def _reaching(self, site: Site) -> list[str]:
        """Find the tests that run a statement which the mutant changes; a statement that none runs has survivors."""
        right = texts()
        if self.reach is None:
            self.reach = json.loads(self._in_child(lambda tell: _reach(self.items, right, tell)).said)
        wrong = changed(site, right)
        return [name for name, reached in self.reach.items() if not wrong.keys().isdisjoint(reached)]

    def _is_sound(self, name: str) -> bool:
        """Whether a test holds without any mistake: one that fails anyhow kills nothing."""
        if name not in self.sound:
            self.sound[name] = not self._in_child(lambda tell: _try([self.named[name]], tell)).killer
        return self.sound[name]

    def _in_child(self, work: Callable[[Callable[..., None]], None]) -> Verdict:
        """Do something in a child that has no connection yet, and give what it says at last."""
        started = time.monotonic()
        connections.close_all()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _live(work, writing)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            verdict = _heard(pipe, child)
        os.waitpid(child, 0)
        if verdict.said == "silent":
            for alias in connections:
                call_command("flush", verbosity=0, interactive=False, database=alias)
        verdict.seconds = round(time.monotonic() - started, 2)
        return verdict


# -- in the parent


def _heard(pipe: Any, child: int) -> Verdict:
    """Listen to a child to its end; one that falls silent is ended."""
    verdict, running, unread = Verdict(), "", b""
    while True:
        if not select.select([pipe], [], [], SILENCE)[0]:
            os.kill(child, signal.SIGKILL)
            return Verdict(killer=running, said="silent")
        said = pipe.read(65536)
        if not said:
            return verdict
        *lines, unread = (unread + said).split(b"\n")
        for line in lines:
            word = json.loads(line)
            running = word.pop("running", running)
            verdict = Verdict(**word) if word else verdict


# -- in a child


def _live(work: Callable[[Callable[..., None]], None], writing: int) -> NoReturn:
    def tell(**word: str) -> None:
        os.write(writing, json.dumps(word).encode() + b"\n")

    code = 1
    try:
        connection_created.connect(_bound)
        work(tell)
        code = 0
    except BaseException as error:  # what goes wrong here mustn't look like a survivor
        tell(refused=f"the child ended with {error!r}")
    finally:
        os._exit(code)


def _bound(sender: object, connection: Any, **_: Any) -> None:
    """Have statements without an end fail soon, however busy the machine; and commits not wait for the disk."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"{MOST_ROWS}; set statement_timeout = '{SILENCE}s'; set synchronous_commit = off")
        return
    steps = 0

    def begin(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal steps
        steps = 0
        return execute(sql, params, many, context)

    def count() -> bool:
        nonlocal steps
        steps += 1
        return steps > MOST_STEPS

    connection.execute_wrappers.append(begin)
    connection.connection.set_progress_handler(count, 100_000)


def _suffer(site: Site, items: list[pytest.Item], tell: Callable[..., None]) -> None:
    """Put a mistake in place and run tests until one fails."""
    for text in changed(site, texts()).values():
        try:
            explain(connections["default"], text)
        except Exception as error:
            tell(refused=str(error))
            return
    connections.close_all()
    with site.in_place():
        _try(items, tell)


def _try(items: list[pytest.Item], tell: Callable[..., None]) -> None:
    """Run tests until one fails."""
    for item, reports in _reports(items):
        tell(running=item.nodeid)
        if failed := [report for report in reports() if report.failed]:
            tell(killer=item.nodeid, said=str(failed[0].longrepr)[-200:])
            return


def _reach(items: list[pytest.Item], right: dict[str, str], tell: Callable[..., None]) -> None:
    """Run all tests without any mistake, and tell which statements each of them runs."""
    names = {text: name for name, text in right.items()}
    reached: dict[str, list[str]] = {}
    run = Store.run

    def noting(store: Store, connection: Any, sql: str, values: Any) -> Any:
        said.add(names.get(filled(store, sql), ""))
        return run(store, connection, sql, values)

    Store.run = noting  # type: ignore[method-assign]
    for item, reports in _reports(items):
        tell(running=item.nodeid)
        said: set[str] = set()
        reports()
        reached[item.nodeid] = sorted(said)
    tell(said=json.dumps(reached))


def _reports(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, Callable[[], list[pytest.TestReport]]]]:
    """Give a way to run each test. The item after it keeps what belongs to the session from being torn down."""
    if not items:
        return
    session = items[0].session
    session._setupstate.teardown_exact(items[0])
    other = next(item for item in session.items if item is not items[-1])
    for item, following in zip(items, [*items[1:], other], strict=True):
        yield item, partial(runtestprotocol, item, log=False, nextitem=following)
