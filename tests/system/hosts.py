"""Hosts of a test's own: network namespaces, each with one link to this host, which a test cuts and mends.

Only what every Linux kernel has is used: a pair of virtual cards for each link, and for silence an entry that gives a
neighbour a card's address that nobody has, so that whatever is sent to it is lost without a word to its sender.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

NOBODY = "02:00:00:00:00:ff"
"""The address of a card that isn't there."""

FAULTS = ("down", "unplugged", "silent", "deaf")
"""How a link may be cut. The host's own card is off, so it is told at once; or the far end is, and it isn't; or both
ends stay up and nothing gets through; or only what is sent to the host is lost, so that its requests are heard."""


@dataclass(slots=True, kw_only=True)
class Host:
    """A namespace with a host name of its own. `gateway` is the address at which it finds us, `address` its own."""

    name: str
    link: str
    address: str
    gateway: str
    cut_by: str = ""
    """How its link is cut just now; "" where it is whole."""
    prefix: Sequence[str] = field(init=False)
    """Words that, before those of a command, have it run there in the same process."""

    def __post_init__(self) -> None:
        rename = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
        self.prefix = ("ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", rename, self.name)

    def make(self) -> None:
        """Make the namespace and its link."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self.link, "type", "veth", "peer", "name", "up0", "netns", self.name)
        _ip("address", "add", f"{self.gateway}/30", "dev", self.link)
        _ip("link", "set", self.link, "up")
        self._ip("address", "add", f"{self.address}/30", "dev", "up0")
        for card in ("lo", "up0"):
            self._ip("link", "set", card, "up")

    def cut(self, fault: str) -> None:
        """Cut its link in one of the ways of FAULTS."""
        assert fault in FAULTS, fault
        self.cut_by = fault
        if fault == "down":
            self._ip("link", "set", "up0", "down")
        if fault == "unplugged":
            _ip("link", "set", self.link, "down")
        if fault in {"silent", "deaf"}:
            _ip("neighbour", "replace", self.address, "lladdr", NOBODY, "dev", self.link, "nud", "permanent")
        if fault == "silent":
            self._ip("neighbour", "replace", self.gateway, "lladdr", NOBODY, "dev", "up0", "nud", "permanent")

    def mend(self) -> None:
        """Have its link be as it was."""
        if self.cut_by in {"silent", "deaf"}:
            _ip("neighbour", "del", self.address, "dev", self.link)
        if self.cut_by == "silent":
            self._ip("neighbour", "del", self.gateway, "dev", "up0")
        self._ip("link", "set", "up0", "up")
        _ip("link", "set", self.link, "up")
        self.cut_by = ""

    def remove(self) -> None:
        """End whatever runs there, and take it away, however far it was made."""
        for command in (["link", "del", self.link], ["netns", "del", self.name]):
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", *command], check=False, capture_output=True)

    def _pids(self) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self.name], check=False, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def _ip(self, *arguments: str) -> None:
        _ip("-n", self.name, *arguments)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Make some hosts, and take them away in the end. Names and addresses are drawn, as others may do the same."""
    token = secrets.token_hex(4)
    # These are for tests between networks (RFC 2544), so nobody is reached at them.
    network = f"198.{secrets.choice((18, 19))}.{secrets.randbelow(256)}"
    made = [
        Host(
            name=f"dj-{token}-{letter}",
            link=f"dj-{token}-{letter}",
            gateway=f"{network}.{4 * number + 1}",
            address=f"{network}.{4 * number + 2}",
        )
        for number, letter in enumerate("abcdefgh"[:count])
    ]
    try:
        for host in made:
            host.make()
        yield made
    finally:
        for host in made:
            host.remove()


def require_hosts() -> None:
    """Skip the test where no hosts can be made; in CI they must be."""
    if reason := _why_not():
        if os.environ.get("CI"):
            pytest.fail(f"CI must be able to make network namespaces: {reason}")
        pytest.skip(f"can't make network namespaces: {reason}")


def _why_not() -> str:
    if sys.platform != "linux":
        return "they are Linux's"
    if missing := [command for command in ("ip", "unshare") if shutil.which(command) is None]:
        return f"there is no {' and no '.join(missing)} here (packages iproute2 and util-linux)"
    if os.geteuid() != 0:
        return "it takes root"
    try:
        with hosts(1) as [host]:
            subprocess.run([*host.prefix, "true"], check=True, capture_output=True, text=True)
    except (AssertionError, subprocess.CalledProcessError) as error:
        return str(getattr(error, "stderr", "") or error).strip()
    return ""
