"""`manage.py lowlevel` walks rows of the low level through their lives: sign-ups, one turn, a drain, the dead."""

from __future__ import annotations

import secrets
from typing import Any

from django.core.management.base import BaseCommand

from django_jobs import lowlevel
from example_project.shop import partner


class Command(BaseCommand):
    """Sign three customers up, and work the queue by hand until nothing is due."""

    help = "Show a queue that is worked by hand, without runjobs: push, take, ack, retry, and what is dead."

    def handle(self, **_: Any) -> None:
        """Do one step after the other, and say what came of it."""
        run = secrets.token_hex(4)
        for address in (f"ada.{run}@example.com", f"bo.{run}@example.com", f"cy.{run}@example.invalid"):
            partner.sign_up(address)
        self._say("Three customers have signed up:", self._counts())
        self._say("One turn:", str(partner.turn()), self._counts())
        self._say("Drained:", *partner.drain(), self._counts())
        dead = [f"#{row.id} {row.payload['email']}: {row.error}" for row in lowlevel.dead(partner.QUEUE)]
        self._say("Dead, until somebody retries or deletes them in the admin:", *dead)

    def _counts(self) -> str:
        counts = lowlevel.stats().get(partner.QUEUE)
        return ", ".join(f"{number} {word}" for word, number in counts.items()) if counts else "no rows at all"

    def _say(self, title: str, *lines: str) -> None:
        self.stdout.write("\n  ".join([title, *lines]))
