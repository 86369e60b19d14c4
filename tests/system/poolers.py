"""A PgBouncer of a test's own, which gives each transaction another of the server's sessions."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.processes import until
from tests.system.proxy import proxied, server_address

CONFIGURATION = """
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
; One transaction after the other goes to another session.
server_round_robin = 1
default_pool_size = 4
min_pool_size = 4
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
pidfile = {folder}/pid
"""


def _program() -> str:
    """Find PgBouncer, and install it where it is missing and this machine's packages are ours to change."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if found := shutil.which("pgbouncer", path=path):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _run("apt-get", "update")
        _run("apt-get", "install", "-y", "--no-install-recommends", "pgbouncer")
        # The package starts one of its own.
        _run("service", "pgbouncer", "stop")
        if found := shutil.which("pgbouncer", path=path):
            return found
    reason = "there is no PgBouncer here, and it can't be installed (apt-get install pgbouncer, as root)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _run(*command: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with suppress(FileNotFoundError):
        subprocess.run(command, env=environment, capture_output=True, timeout=600, check=False)


@contextmanager
def transaction_pooler(user: str) -> Iterator[int]:
    """Run a pooler before the database of the test, and give its port."""
    program = _program()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        own_port: int = probe.getsockname()[1]
    host, port = server_address()
    with ExitStack() as stack:
        if host.startswith("/"):
            # The folder of the socket isn't open to the user that a pooler must have.
            host, port = "127.0.0.1", stack.enter_context(proxied()).port
        yield stack.enter_context(_pooler(program, user, own_port, f"host={host} port={port}"))


@contextmanager
def _pooler(program: str, user: str, own_port: int, server: str) -> Iterator[int]:
    # Its user must get in, other than into the test's own folder.
    with tempfile.TemporaryDirectory(prefix="django-jobs-pooler-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        settings = CONFIGURATION.format(server=server, own_port=own_port, folder=folder)
        (folder / "ini").write_text(settings)
        (folder / "users").write_text(f'"{user}" ""\n')
        # It refuses to run as root.
        as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [program, *as_user, str(folder / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: _answers(own_port) or process.poll() is not None, what="the pooler takes connections")
            assert process.poll() is None, (folder / "log").read_text()
            yield own_port
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def through_pooler(port: int) -> dict[str, Any]:
    """Say how the database is reached through it, as a change to its entry in DATABASES."""
    return {"HOST": "127.0.0.1", "PORT": str(port), "OPTIONS": {"sslmode": "disable"}}
