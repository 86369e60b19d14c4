"""Front door: `manage.py runjobs` claims and runs jobs until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from django_jobs import logs, runner, signals
from django_jobs.conf import is_debugging, settings
from django_jobs.worker import fitness, flags, handover
from django_jobs.worker.listener import check_way_to_listen
from django_jobs.worker.plan import Plan, default_concurrency, new_identity, with_default_caps
from django_jobs.worker.process import Process
from django_jobs.worker.signs import Signs
from django_jobs.worker.supervisor import Supervisor

CONFIGURATION = 1
"""Exit code: it can't work like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the command was asked for."""

    plan: Plan
    processes: int
    reload: bool
    heartbeat_file: str | None
    probe_port: str | None
    probe_host: str | None


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
            order = self._order(options)
            self._refuse_what_cannot_work(order.plan)
            signs = self._signs(order)
        except CommandError:
            if estate is not None:
                estate.dismiss()
            raise
        fitness.warn_of_unserved(order.plan, who="this command")
        code = (
            self._supervise(order, verbosity, signs, estate)
            if order.processes
            else self._work_here(order.plan, signs, estate)
        )
        if code:
            self._exit(code)

    def _supervise(self, order: _Order, verbosity: int, signs: Signs, estate: handover.Estate | None) -> int:
        return Supervisor(
            order.plan,
            processes=order.processes,
            log_level=(logging.DEBUG if verbosity > 1 else logging.INFO) if verbosity else None,
            reload=order.reload,
            can_exec=getattr(self, "_called_from_command_line", False),
            estate=estate,
            signs=signs,
        ).run()

    def _work_here(self, plan: Plan, signs: Signs, estate: handover.Estate | None) -> int:
        if estate is not None:
            # Started anew, the command has no worker processes any more.
            estate.dismiss()
        process = Process(plan, signs=signs)
        # Elsewhere than in the main thread nobody can hear signals.
        heard = _stop_signals() if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, lambda *_: process.ask_to_stop()) for number in heard}
        handover.hear_again()
        try:
            return process.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _order(self, options: dict[str, Any]) -> _Order:
        try:
            said = flags.said(options, os.environ, settings().worker)
            plan = Plan(
                alias=settings().database,
                name=said.get("name"),
                identity=new_identity(said.get("name")),
                **with_default_caps(said.get("queues")),
                concurrency=said.get("concurrency", default_concurrency()),
                poll=said.get("poll_interval"),
                grace=said.get("grace", settings().grace.total_seconds()),
                drain=said.get("drain", False),
                fail_on_error=said.get("fail_on_error", False),
                max_jobs=said.get("max_jobs"),
                max_memory=said.get("max_memory"),
                max_runtime=said.get("max_runtime"),
                idle_timeout=said.get("idle_timeout"),
            )
            check_way_to_listen(plan.alias)
            runner.prepare()
            processes = self._processes(plan, said.get("processes", flags.default_processes()))
            if said.get("reload") and not processes:
                message = "--reload replaces worker processes, and --processes 0 has none"
                raise ValueError(message)
        except (ValueError, TypeError, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=CONFIGURATION) from error
        return _Order(
            plan=plan,
            processes=processes,
            reload=said.get("reload", is_debugging()),
            heartbeat_file=said.get("heartbeat_file"),
            probe_port=said.get("probe_port"),
            probe_host=said.get("probe_host"),
        )

    def _processes(self, plan: Plan, asked: int | None) -> int:
        """Start no process that would serve nothing, since slots and caps are dealt out."""
        most = plan.most_processes
        if asked is None:
            return min(os.cpu_count() or 1, most)
        if asked > most:
            message = f"--processes {asked}: slots and caps suffice for {most} at once, so no more are started"
            signals.tell(signals.odd, None, message=message, exception=None, level=logging.WARNING)
        return min(asked, most)

    def _signs(self, order: _Order) -> Signs:
        try:
            return Signs.opened(file=order.heartbeat_file, port=order.probe_port, host=order.probe_host)
        except ValueError as error:
            raise CommandError(str(error), returncode=CONFIGURATION) from error

    def _refuse_what_cannot_work(self, plan: Plan) -> None:
        if (why := fitness.refusal(plan)) is not None:
            raise CommandError(why, returncode=CONFIGURATION)

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
