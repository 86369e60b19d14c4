"""`manage.py demo` shows the shop with a worker beside; `demo --burst N` signs N customers up and counts the mails."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from django_jobs.states import FINISHED
from example_project.demo.burst import newest_id, sign_up_all, tally, wait_until, welcomes
from example_project.demo.seed import ADMIN, make_admin, seed
from example_project.demo.server import HOST, served
from example_project.demo.stopping import stoppable
from example_project.demo.worker import Worker, working


class Command(BaseCommand):
    """Serve the shop with a worker beside it."""

    help = "Show the shop: migrate, fill it, and serve it with a worker beside it. Ctrl-C stops both."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the flags."""
        parser.add_argument("--port", type=int, default=8000, help="port to serve on; a free one if it is 0 or taken")
        parser.add_argument(
            "--burst", type=int, default=None, metavar="N",
            help="instead: sign N customers up over HTTP, wait for their welcome mails, count them, and exit",
        )  # fmt: skip

    def handle(self, *, port: int, burst: int | None, **_: Any) -> None:
        """Do what was asked for."""
        if burst is not None and burst < 1:
            message = f"--burst {burst}: give 1 or more"
            raise CommandError(message)
        call_command("migrate", verbosity=0, interactive=False)
        if burst is None:
            self._serve(port)
        else:
            self._burst(burst)

    def _serve(self, port: int) -> None:
        hint = " (two jobs fail, on purpose)" if seed() else ""
        password = make_admin()
        with stoppable() as stop, served(port) as actual, working() as worker:
            stop.hurry = worker.ask_to_stop
            if port not in {0, actual}:
                self._say(f"Port {port} is taken, so this is another one.")
            self._say(
                "",
                f"  The shop    http://{HOST}:{actual}/",
                f"  The admin   http://{HOST}:{actual}/admin/   user {ADMIN}, password {password}",
                f"  Mails       in {getattr(settings, 'MAIL_FOLDER', '')}",
                f"  Database    {connection.vendor}, {connection.settings_dict['NAME']}",
                "",
                "Sign up in the shop, and watch the worker send the welcome mail. Ctrl-C stops both.",
                f"The worker's lines follow{hint}:",
                "",
            )
            while not stop.wait(0.5):
                self._need(worker)
            self._say("", "Stopping: the worker finishes the jobs it has begun. Ctrl-C again ends it at once.")
        self._say("Stopped.")

    def _burst(self, count: int) -> None:
        run = secrets.token_hex(4)
        addresses = [f"customer{number}@{run}.example.com" for number in range(1, count + 1)]
        folder = Path(tempfile.mkdtemp(prefix="shop-burst-"))
        newest = newest_id()
        with stoppable() as stop, served(0) as port, working("-v", "0", MAIL_FOLDER=str(folder)) as worker:
            stop.hurry = worker.ask_to_stop
            self._say(f"Signing {count} customers up, on {connection.vendor}, with a worker beside …")
            problems = sign_up_all(port, addresses, stop=stop)

            def is_drained() -> bool:
                self._need(worker)
                return all(job.state in FINISHED for job in welcomes(addresses, after=newest))

            wait_until(is_drained, timeout=30 + count / 10, stop=stop)
        result = tally(addresses, after=newest, folder=folder)
        self._say(str(result))
        if not result.is_right:
            message = (
                f"not every sign-up came to one job and one mail; the mails are in {folder}. "
                "(Another worker on this database would send some of them elsewhere.)"
            )
            raise CommandError("\n  ".join([message, *problems[:10]]))
        shutil.rmtree(folder)

    def _need(self, worker: Worker) -> None:
        if worker.exit_code is not None:
            message = f"the worker ended by itself, with code {worker.exit_code}"
            raise CommandError(message)

    def _say(self, *lines: str) -> None:
        self.stdout.write("\n".join(lines))
        self.stdout.flush()
