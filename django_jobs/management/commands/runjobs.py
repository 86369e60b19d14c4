"""Front door: `manage.py runjobs` claims and runs jobs until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from django_jobs import logs, performers
from django_jobs.conf import settings
from django_jobs.durations import parse
from django_jobs.worker.plan import Plan, default_concurrency, new_identity, parse_queues, with_default_caps
from django_jobs.worker.process import Process
from django_jobs.worker.supervisor import Supervisor

CONFIGURATION = 1
"""Exit code: it can't work like this."""


class Command(BaseCommand):
    """Claim jobs under a lease and run them."""

    help = "Run background jobs. Ctrl-C once: finish running jobs; twice: stop now."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the flags; each may stand in DJANGO_JOBS['WORKER'] under its name."""
        parser.add_argument(
            "-q", "--queues", default=None, metavar="a,b:4",
            help="queues to serve, all by default; b:4 runs at most four jobs of b at once in this command",
        )  # fmt: skip
        parser.add_argument(
            "-c", "--concurrency", type=int, default=None, metavar="N",
            help=f"jobs to run at once (default {default_concurrency()}: two a core, ten at the most)",
        )  # fmt: skip
        parser.add_argument(
            "--processes", default=None, metavar="N",
            help="worker processes (default 1, auto: one a core); 0 works within this process, without hard kills and "
            "crash isolation",
        )  # fmt: skip
        parser.add_argument("--name", default=None, help="what to call this worker (default host:pid)")
        parser.add_argument("--drain", "--once", action="store_true", help="run until nothing is due, then exit")
        parser.add_argument(
            "--grace", default=None, metavar="S", help="time for running jobs when stopping (default 15 s)"
        )
        parser.add_argument(
            "--poll-interval",
            default=None,
            metavar="S",
            help="how often to look for jobs that nobody told of (default 1 s, 5 s while the database is heard)",
        )

    def handle(self, **options: Any) -> None:
        """Work, and exit with the code that says how it ended."""
        verbosity = options["verbosity"]
        if verbosity:
            logs.show_on_stderr(logging.DEBUG if verbosity > 1 else logging.INFO)
        plan, processes = self._plan(options)
        self._refuse_what_cannot_work(plan)
        code = self._supervise(plan, processes, verbosity) if processes else self._work_here(plan)
        if code:
            self._exit(code)

    def _supervise(self, plan: Plan, processes: int, verbosity: int) -> int:
        level = (logging.DEBUG if verbosity > 1 else logging.INFO) if verbosity else None
        return Supervisor(plan, processes=processes, log_level=level).run()

    def _work_here(self, plan: Plan) -> int:
        process = Process(plan)
        before = {number: signal.signal(number, lambda *_: process.ask_to_stop()) for number in _stop_signals()}
        try:
            return process.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _plan(self, options: dict[str, Any]) -> tuple[Plan, int]:
        try:
            said = {**settings().worker, **{name: value for name, value in options.items() if value is not None}}
            concurrency = int(said.get("concurrency", default_concurrency()))
            if concurrency < 1:
                message = f"--concurrency {concurrency}: give 1 or more"
                raise ValueError(message)
            processes = _processes(str(said.get("processes", default_processes())), concurrency)
            grace = parse(said["grace"], what="--grace") if "grace" in said else settings().grace
            plan = Plan(
                alias=settings().database,
                name=said.get("name"),
                identity=new_identity(said.get("name")),
                **with_default_caps(parse_queues(said.get("queues", ""))),
                concurrency=concurrency,
                poll=_poll_interval(said.get("poll_interval")),
                grace=grace.total_seconds(),
                drain=options["drain"],
            )
            return plan, processes  # noqa: TRY300 - one try for all that may be said wrongly
        except (ValueError, TypeError, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=CONFIGURATION) from error

    def _refuse_what_cannot_work(self, plan: Plan) -> None:
        for name, first, second in performers.clashes():
            message = f"two performers are named {name}: {first.function.__module__} and {second.function.__module__}"
            raise CommandError(message, returncode=CONFIGURATION)
        try:
            executor = MigrationExecutor(connections[plan.alias])
            targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "django_jobs"]
            is_behind = bool(executor.migration_plan(targets))
        except (DatabaseError, ImproperlyConfigured) as error:
            message = f"the database {plan.alias!r} can't be used: {' '.join(str(error).split())}"
            raise CommandError(message, returncode=CONFIGURATION) from error
        finally:
            connections[plan.alias].close()
        if is_behind:
            message = f"tables are missing or behind; run: python manage.py migrate django_jobs --database {plan.alias}"
            raise CommandError(message, returncode=CONFIGURATION)

    def _exit(self, code: int) -> None:
        if getattr(self, "_called_from_command_line", False):
            # Bodies that still run would keep the interpreter from ending.
            sys.stdout.flush()
            sys.stderr.flush()
            logging.shutdown()
            os._exit(code)
        raise SystemExit(code)


def _stop_signals() -> tuple[signal.Signals, ...]:
    return (signal.SIGINT, signal.SIGTERM)


def default_processes() -> int:
    """Give one worker process; none on Windows, which can't hand descriptors over."""
    return 0 if sys.platform == "win32" else 1


def _processes(said: str, concurrency: int) -> int:
    """Read the number of worker processes: no more than there are slots. Raises ValueError with the remedy."""
    if said == "auto":
        return min(os.cpu_count() or 1, concurrency)
    if not said.isdigit():
        message = f"--processes {said}: give a whole number of 0 or more, or auto"
        raise ValueError(message)
    return min(int(said), concurrency)


def _poll_interval(said: Any) -> float | None:
    return None if said is None else parse(said, what="--poll-interval").total_seconds()
