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

from django_jobs import logs, performers, signals
from django_jobs.conf import settings
from django_jobs.worker import flags, handover
from django_jobs.worker.plan import Plan, default_concurrency, new_identity, with_default_caps
from django_jobs.worker.process import Process
from django_jobs.worker.supervisor import Supervisor

CONFIGURATION = 1
"""Exit code: it can't work like this."""


class Command(BaseCommand):
    """Claim jobs under a lease and run them."""

    help = "Run background jobs. Ctrl-C once: finish running jobs; twice: stop now."
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the flags; each has a variable, and a key in DJANGO_JOBS['WORKER']."""
        for flag in flags.FLAGS:
            flag.declare(parser)

    def handle(self, **options: Any) -> None:
        """Work, and exit with the code that says how it ended."""
        verbosity = options["verbosity"]
        if verbosity:
            logs.show_on_stderr(logging.DEBUG if verbosity > 1 else logging.INFO)
        estate = handover.inherited()
        try:
            plan, processes = self._plan(options)
            self._refuse_what_cannot_work(plan)
        except CommandError:
            if estate is not None:
                estate.dismiss()
            raise
        code = self._supervise(plan, processes, verbosity, estate) if processes else self._work_here(plan, estate)
        if code:
            self._exit(code)

    def _supervise(self, plan: Plan, processes: int, verbosity: int, estate: handover.Estate | None) -> int:
        level = (logging.DEBUG if verbosity > 1 else logging.INFO) if verbosity else None
        can_exec = getattr(self, "_called_from_command_line", False)
        return Supervisor(plan, processes=processes, log_level=level, can_exec=can_exec, estate=estate).run()

    def _work_here(self, plan: Plan, estate: handover.Estate | None) -> int:
        if estate is not None:
            # Started anew, the command has no worker processes any more.
            estate.dismiss()
        process = Process(plan)
        before = {number: signal.signal(number, lambda *_: process.ask_to_stop()) for number in _stop_signals()}
        handover.hear_again()
        try:
            return process.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _plan(self, options: dict[str, Any]) -> tuple[Plan, int]:
        try:
            said = flags.said(options, os.environ, settings().worker)
            concurrency = said.get("concurrency", default_concurrency())
            plan = Plan(
                alias=settings().database,
                name=said.get("name"),
                identity=new_identity(said.get("name")),
                **with_default_caps(said.get("queues")),
                concurrency=concurrency,
                poll=said.get("poll_interval"),
                grace=said.get("grace", settings().grace.total_seconds()),
                drain=said.get("drain", False),
                fail_on_error=said.get("fail_on_error", False),
                max_jobs=said.get("max_jobs"),
                max_memory=said.get("max_memory"),
                max_runtime=said.get("max_runtime"),
                idle_timeout=said.get("idle_timeout"),
            )
        except (ValueError, TypeError, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=CONFIGURATION) from error
        return plan, self._processes(plan, said.get("processes", flags.default_processes()))

    def _processes(self, plan: Plan, asked: int | None) -> int:
        """Start no process that would serve nothing, since slots and caps are dealt out."""
        most = plan.most_processes
        if asked is None:
            return min(os.cpu_count() or 1, most)
        if asked > most:
            message = f"--processes {asked}: slots and caps suffice for {most} at once, so no more are started"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
        return min(asked, most)

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
