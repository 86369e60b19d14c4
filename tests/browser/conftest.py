"""A real browser, Debian's chromium, and a server for it to visit.

Where chromium is missing it is installed, if this is root on a system that has apt; else these tests are skipped, but
never where the variable CI is set.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Page, Playwright, Request, sync_playwright
from pytest_django.live_server_helper import LiveServer

Found = TypeVar("Found")

NOTE_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _install() -> str | None:
    """Have apt install chromium; of several processes one does, and the others wait for it."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    with (Path(tempfile.gettempdir()) / "django-jobs-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _chromium() is None:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
                subprocess.run(
                    ["apt-get", "-q", *command], check=False, env=environment, capture_output=True, timeout=600
                )
    return _chromium()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of a browser."""
    path = _chromium() or _install()
    if path is None:
        message = "there is no chromium here, and only root can have apt install it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


class Surfer:
    """A browser in a thread of its own: its event loop must not run in that of the tests, where Django would refuse."""

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._playwright: Playwright = self.do(lambda: sync_playwright().start())
        self._browser: Browser = self.do(
            lambda: self._playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        )

    def do(self, step: Callable[[], Found]) -> Found:
        """Do something in that thread, and give what it gives."""
        return self._thread.submit(step).result(timeout=60)

    def open(self, **options: Any) -> Tab:
        """Open a tab that knows nothing of others."""
        return Tab(self, self.do(lambda: self._browser.new_context(**options).new_page()))

    def close(self) -> None:
        """End the browser."""
        self.do(self._browser.close)
        self.do(self._playwright.stop)
        self._thread.shutdown()


class Tab:
    """A page, what it asked for, and what went wrong in it."""

    def __init__(self, surfer: Surfer, page: Page) -> None:
        self._surfer = surfer
        self._page = page
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.do(self._prepare)

    def _prepare(self, page: Page) -> None:
        page.add_init_script(NOTE_VIOLATIONS)
        page.on("request", self._note)
        page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _note(self, request: Request) -> None:
        self.asked.append(request.url)

    def do(self, step: Callable[[Page], Found]) -> Found:
        """Do something with the page, which may ask no database, and give what it gives."""
        return self._surfer.do(lambda: step(self._page))

    @property
    def violations(self) -> list[str]:
        """What the policy has forbidden on this page."""
        found: list[str] = self.do(lambda page: page.evaluate("window.violations"))
        return found

    def close(self) -> None:
        """Close it."""
        self.do(lambda page: page.context.close())


@pytest.fixture(scope="session")
def surfer(chromium: str) -> Iterator[Surfer]:
    made = Surfer(chromium)
    yield made
    made.close()


@pytest.fixture
def open_tab(surfer: Surfer) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def make(**options: Any) -> Tab:
        tabs.append(surfer.open(**options))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.close()


@pytest.fixture
def tab(open_tab: Callable[..., Tab]) -> Tab:
    return open_tab()


@pytest.fixture
def site(transactional_db: None, settings: Any) -> Iterator[str]:
    """Serve the project of the tests under a strict policy, and give its address."""
    settings.ALLOWED_HOSTS = ["*"]
    settings.MIDDLEWARE = ["tests.browser.policy.strict", *settings.MIDDLEWARE]
    server = LiveServer("localhost")
    yield server.url
    server.stop()
