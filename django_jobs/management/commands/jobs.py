"""Front door: `manage.py jobs <sub-command>` looks at jobs and what belongs to them; `django_jobs.cli` says how."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.color import no_style
from django.db import DatabaseError

from django_jobs.cli import scheduling
from django_jobs.cli.subs import RUN, as_json, declare
from django_jobs.wording import one_line

SUBS = (*scheduling.SUBS,)

CANNOT = 1
"""Exit code: it can't be done, and standard error says why. What the command line itself gets wrong is 2."""


class Command(BaseCommand):
    """Show schedules, in words or as JSON; in colours on a terminal, unless the variable NO_COLOR says otherwise."""

    help = "Look at background jobs and their schedules. `jobs <sub-command> --help` says more."
    requires_migrations_checks = False
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the sub-commands."""
        parser.add_argument("--json", action="store_true", help="print JSON, with stable keys")
        declare(parser, SUBS, is_required=True)

    def handle(self, **options: Any) -> None:
        """Do what was asked for, print what was found, and exit with its code where that isn't 0."""
        is_plain = os.environ.get("NO_COLOR") and not options["force_color"]
        try:
            answer = options[RUN](options, no_style() if is_plain else self.style)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=CANNOT) from error
        except DatabaseError as error:
            message = f"the database can't be asked: {one_line(error)}; is `manage.py migrate` done?"
            raise CommandError(message, returncode=CANNOT) from error
        self.stdout.write(as_json(answer.data) if options["json"] else "\n".join(answer.lines))
        if answer.code:
            sys.exit(answer.code)
