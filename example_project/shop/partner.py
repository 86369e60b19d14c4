"""New customers are made known to a partner by a consumer that is no performer: it takes rows by hand.

Nothing but these functions works the queue: no `runjobs` has to run. What a consumer writes to the shop's database is
committed together with its ack, so that a customer is written down as known exactly once.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from django_jobs import lowlevel
from django_jobs.exceptions import LeaseLost
from example_project.shop.models import StaffNote

QUEUE = "partner"

MOST_ATTEMPTS = 2


def sign_up(email: str) -> User:
    """Make an account and push its address, both or neither."""
    with transaction.atomic():
        user = User.objects.create_user(email, email)
        lowlevel.push(QUEUE, {"email": email, "since": user.date_joined})
    return user


def turn() -> str | None:
    """Take one row, do its work, and say what came of it; None where none is due."""
    claim = lowlevel.take(QUEUE, lease="30s")
    if claim is None:
        return None
    email = claim.payload["email"]
    try:
        with transaction.atomic():
            _make_known(claim.id, email)
            if not lowlevel.ack(claim):
                # The lease ran out meanwhile, so another consumer does it: what was written here must not stay.
                transaction.set_rollback(True)
                return f"{email}: somebody else has it"
    except ConnectionError as error:
        return _put_back(claim, error)
    return f"{email}: known"


def drain() -> list[str]:
    """Take one row after the other until none is due, and say what came of each."""
    said: list[str] = []
    while (line := turn()) is not None:
        said.append(line)
    return said


def _put_back(claim: lowlevel.Taken, error: Exception) -> str:
    email = claim.payload["email"]
    try:
        return f"{email}: {error}: {lowlevel.retry(claim, error, max_attempts=MOST_ATTEMPTS)}"
    except LeaseLost:
        return f"{email}: somebody else has it"


def _make_known(row_id: int, email: str) -> None:
    """Ask the partner, who knows nobody at example.invalid, and write down that it is done."""
    if email.endswith("@example.invalid"):
        message = "the partner does not answer"
        raise ConnectionError(message)
    StaffNote.objects.create(job_id=row_id, text=f"{email} is known to the partner", written_at=timezone.now())
